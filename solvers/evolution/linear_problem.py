"""Whether a problem's right-hand side is what its operator says, f(t, u) = A(t) u + s(t)."""

from __future__ import annotations

from typing import Any

import numpy as np

from batchkron.arrays import array_module

from ..products import Product, Vector, as_product, norm
from ..protocols import operator_of, says_linear

__all__ = ["has_operator", "is_linear", "product_at"]

_TOLERANCE = {"f": 1e-3, "F": 1e-3, "d": 1e-6, "D": 1e-6}


def has_operator(problem: Any) -> bool:
    """Return whether a problem has ``operator_at(t)`` or ``operator``."""
    at_time = getattr(problem, "operator_at", None)
    return at_time is not None or getattr(problem, "operator", None) is not None


def product_at(problem: Any, t: float, like: Vector) -> Product:
    """Return ``product(x, out)`` with A(t), as `as_product`."""
    return as_product(operator_of(problem, t), "problem.operator", like)


def is_linear(problem: Any, t: float, u: Vector, v: Vector) -> bool:
    """Return whether f(t, u + v) - f(t, u) = A(t) v, as far as a method can tell.

    Parameters
    ----------
    problem : object
        With ``rhs`` and an operator.
    t : float
        The time.
    u, v : ndarray, shape (N,)
        A state and a change of it.

    Returns
    -------
    bool
        Whether both sides agree to 1e-6 (1e-3 in single precision) of ‖A v‖, beside rounding of
        f. False for an operator without a product with vectors. True, without a look, for a
        problem that `says_linear`.
    """
    if says_linear(problem):
        return True
    f, other, product = (np.full_like(u, np.nan) for _ in range(3))
    tolerance, eps = _TOLERANCE[u.dtype.char], float(np.finfo(u.dtype).eps)
    try:
        multiply = product_at(problem, t, u)
    except (TypeError, ValueError):
        return False
    with np.errstate(all="ignore"):
        multiply(v, product)
        problem.rhs(t, array_module(u).add(u, v), f)
        problem.rhs(t, u, other)
        rounding = 1e3 * eps * (norm(f) + norm(other))
        f -= other
        f -= product
        return norm(f) <= tolerance * norm(product) + rounding
