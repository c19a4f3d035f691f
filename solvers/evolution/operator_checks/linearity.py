"""Tests whether f(t, u) = A(t) u + s(t), by one or two vectors, for methods that rely on it."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from batchkron.arrays import array_module, is_sparse
from batchkron.attributes import attribute
from batchkron.operators import Operator

from ...products import Product, Ranks, Vector, as_product, norm_over
from ...protocols import (
    has_operator,
    implicit_operator_of,
    implicit_part_of,
    known_beside_rhs,
    operator_of,
    says_linear,
    whole_part_of,
)
from ...steppers.implicit_equation import is_linear_by_operator
from ...steppers.registry import get, names
from ...steppers.stepper import Stepper
from ..start.integration import Integration

__all__ = ["homogeneous_product", "is_imex", "is_linear", "refuse_nonlinear"]

Function: TypeAlias = Callable[[Vector, Vector], object]  # of (u, out)

# Tolerance of is_linear for ‖f(u + v) - f(u) - A v‖ / ‖A v‖, by the state's dtype character; chosen
# by hand.
_TOLERANCE = {"f": 1e-3, "F": 1e-3, "d": 1e-6, "D": 1e-6}

# Constants of refuse_nonlinear: the vectors v, and the errors of f and A that are tolerated. All
# were chosen by hand.
_SEED = 0  # seed of the random v
_RADIAL_SHIFT = 0.7  # the second v is this multiple of u
# Error relative to ‖f‖ of functions and operators that solve systems by iteration.
_ITERATED = 1e-6
# The same if A is exact. It is not smaller, since A u of projected data may be much larger than
# the other terms.
_EVALUATED = 1e-7
# Error relative to ‖A‖ ‖v‖ of operators that are computed by difference quotients.
_DIFFERENCED = 1e-7


def _defect(
    function: Function,
    product: Product,
    u: Vector,
    before: Vector,
    v: Vector,
    work: Vector,
    ranks: Ranks | None,
) -> tuple[float, float, float, float]:
    """Return ‖f(u + v) - f(u) - A v‖, ‖f(u + v)‖, ‖f(u + v) - f(u)‖ and ‖A v‖.

    ``before`` is f(u), ``work`` is overwritten.
    """
    after = np.full_like(u, np.nan)
    np.add(u, v, out=work)
    function(work, after)
    product(v, work)
    at_end, right = norm_over(ranks, after), norm_over(ranks, work)
    np.subtract(after, before, out=after)
    change = norm_over(ranks, after)
    np.subtract(after, work, out=after)
    return norm_over(ranks, after), at_end, change, right


def homogeneous_product(problem: Any, t: float, like: Vector) -> Product:
    """Return ``product(x, out)``, which writes A(t) x of a linear f(t, u) = A(t) u + s(t).

    A is the problem's operator; without one A x is f(t, x) - f(t, 0).
    """
    if has_operator(problem):
        return as_product(operator_of(problem, t), "problem.operator", like)
    at_zero = np.full_like(like, np.nan)
    problem.rhs(t, np.zeros_like(like), at_zero)

    def product(x: Vector, out: Vector) -> None:
        problem.rhs(t, x, out)
        np.subtract(out, at_zero, out=out)

    return product


def is_linear(problem: Any, t: float, u: Vector, v: Vector, ranks: Ranks | None = None) -> bool:
    """Return whether f(t, u + v) - f(t, u) = A(t) v, up to a tolerance.

    Parameters
    ----------
    problem : object
        With ``rhs``, and an operator or not, see `homogeneous_product`.
    t : float
        The time.
    u, v : ndarray, shape (N,)
        A state and a change of it.
    ranks : Ranks, optional
        The ranks that share them.

    Returns
    -------
    bool
        Whether the sides differ by at most 1e-6 ‖A v‖ (1e-3 in single precision), apart from
        rounding errors of f. False for an operator without a product with vectors. Of a problem
        that declares itself linear this is not asked, see `says_linear`.
    """
    try:
        with np.errstate(all="ignore"):
            product = homogeneous_product(problem, t, u)
    except (TypeError, ValueError):
        return False
    before, work = np.full_like(u, np.nan), np.empty_like(u)
    with np.errstate(all="ignore"):
        problem.rhs(t, u, before)
        given = partial(problem.rhs, t), product, u, before, v, work, ranks
        defect, at_end, _, right = _defect(*given)
        rounding = 1e3 * float(np.finfo(u.dtype).eps) * (at_end + norm_over(ranks, before))
        return defect <= _TOLERANCE[u.dtype.char] * right + rounding


def refuse_nonlinear(integration: Integration) -> None:
    """Raise if an implicit method needs f(t, u) = A(t) u + s(t) and f is not of this form.

    f(t, u + v) - f(t, u) is compared with A(t) v at the end of the first step, for two vectors v: a
    random one with the norm of u (with elements of size 1 if u is 0), and a multiple of u (of f if
    u is 0). The first also changes elements of u that are 0. The second is needed because fast
    components of A dominate a random v and hide slow ones.

    For IMEX methods only the implicit part A_I u has to be linear: A_I is tested in place of f,
    except for matrices and operators of batchkron, which are linear. Nothing is tested for an
    `ImplicitPart`, which is known not to be, for methods that iterate with one, for methods that
    are declared ``nonlinear``, and for problems whose ``is_linear`` is True and belongs to their
    ``rhs``.

    Raises `ValueError` if the difference is larger than rounding and the precision of operators
    explain; the text has the difference and alternatives. `TypeError` if the problem has no
    operator.

    A difference d is accepted if ‖d‖ ≤ τ (‖f(t, u + v)‖ + ‖f(t, u)‖ + ‖A v‖) + ρ ν ‖v‖, where
    ν = ‖A r‖ / ‖r‖ for the random vector r, τ = max(1e-6, 1000 ε) and ρ = max(1e-7, 30 ε); for
    matrices and operators of batchkron τ = max(1e-7, 1000 ε) and ρ = 30 ε. ε is that of the state's
    or the operator's precision, whichever is lower. The first term allows for functions and
    operators that solve systems by iteration; the second for rounding errors and difference
    quotients, whose errors are relative to the fastest components of A.

    Cost: three evaluations of f and two products with A (or five with A_I), and 4 vectors.
    """
    problem, method, u = integration.problem, integration.method, integration.u
    if integration.is_done or integration.unknowns == 0:
        return
    if method.nonlinear and not (method.linear_by_operator and is_linear_by_operator(problem)):
        return
    if says_linear(problem):
        return
    iterates = method.iterates and not is_imex(method)
    belongs = known_beside_rhs(problem, "whole_part") is not None
    if iterates and belongs and whole_part_of(problem) is not None:
        return
    t = integration.first_end
    if is_imex(method):
        if implicit_part_of(problem) is not None:
            return
        operator = implicit_operator_of(problem, t)
        if _is_matrix(operator):
            return
        product = as_product(operator, "problem.implicit_operator", u)
        function: Function = product
    else:
        operator = operator_of(problem, t)
        product = as_product(operator, "problem.operator", u)
        function = partial(problem.rhs, t)
    with np.errstate(all="ignore"):
        difference = _largest_difference(
            function,
            product,
            u,
            _precision(u, operator),
            is_exact=_is_matrix(operator),
            ranks=integration.ranks,
        )
    if difference > 0.0:
        raise ValueError(_text(method, t, difference))


def _largest_difference(
    function: Function,
    product: Product,
    u: Vector,
    precision: float,
    *,
    is_exact: bool,
    ranks: Ranks | None,
) -> float:
    """Return ‖f(u + v) - f(u) - A v‖ relative to its terms if it is too large, else 0."""
    before, v, work = (np.full_like(u, np.nan) for _ in range(3))
    function(u, before)
    size = norm_over(ranks, before)
    if not math.isfinite(size):
        return 0.0  # the run itself will report that f is not finite
    inexact, rounded = (_EVALUATED, 0.0) if is_exact else (_ITERATED, _DIFFERENCED)
    rate = 0.0
    for is_random in (True, False):
        if is_random:
            _fill_randomly(v, norm_over(ranks, u), ranks)
        elif not _fill_along(v, u, before, ranks):
            continue
        defect, at_end, change, right = _defect(function, product, u, before, v, work, ranks)
        length = norm_over(ranks, v)
        if not math.isfinite(right):
            return 0.0
        if not math.isfinite(defect):
            return math.inf
        if is_random:
            rate = right / length
        allowed = max(inexact, 1e3 * precision) * (at_end + size + right)
        allowed += max(rounded, 30 * precision) * rate * length
        if defect > allowed:
            return defect / max(right, change)
    return 0.0


def _fill_randomly(v: Vector, size: float, ranks: Ranks | None) -> None:
    """Write a random vector of norm ``size`` into v; for size 0, with elements of size 1."""
    random = array_module(v).random.default_rng(_SEED if ranks is None else [_SEED, ranks.rank])
    real = v.real.dtype
    v[...] = random.random(v.size, dtype=real)
    if v.dtype.kind == "c":
        v += 1j * random.random(v.size, dtype=real)
        v -= 0.5j
    v -= 0.5
    v *= 2.0 if size == 0.0 else size / norm_over(ranks, v)


def _fill_along(v: Vector, u: Vector, slope: Vector, ranks: Ranks | None) -> bool:
    """Write a multiple of u into v, or of ``slope`` if u is 0; return False if both are 0."""
    for direction in (u, slope):
        size = norm_over(ranks, direction)
        if size > 0.0:
            np.multiply(direction, _RADIAL_SHIFT if direction is u else 1.0 / size, out=v)
            return True
    return False


def _precision(u: Vector, operator: Any) -> float:
    """Return the machine epsilon of the state's or the operator's dtype, whichever is larger."""
    dtypes = [u.dtype, np.dtype(attribute(operator, "dtype") or u.dtype)]
    return max(float(np.finfo(dtype).eps) for dtype in dtypes if dtype.kind in "fc")


def is_imex(method: type[Stepper]) -> bool:
    """Return whether a method is IMEX: it treats a part of f implicitly, the rest explicitly."""
    tableau = attribute(method, "tableau")
    return tableau is not None and tableau.is_imex


def _is_matrix(operator: Any) -> bool:
    """Whether an operator is a matrix or an operator of batchkron, and so certainly linear."""
    is_array = isinstance(operator, array_module(operator).ndarray)
    return is_array or is_sparse(operator) or isinstance(operator, Operator)


def _text(method: type[Stepper], t: float, difference: float) -> str:
    share = f"by {difference:.2g} of their size"
    if is_imex(method):
        return (
            f"problem.implicit_operator is not linear: at t = {t:.6g} A (u + v) - A u and A v "
            f"differ {share}. Method {method.name!r} needs A u alone from it; give what depends on "
            "time alone as implicit_source(t, out), and leave what is nonlinear to rhs."
        )
    imex = " or ".join(repr(name) for name in names() if is_imex(get(name)))
    bent = f"take an IMEX method ({imex}), which treats A implicitly and the rest of f explicitly, "
    if method.linear_by_operator:
        bent = (
            "give jac, or an attribute jacobian, of f, or leave the operator out, for Newton's "
            "method by difference quotients, "
        )
    return (
        f"method {method.name!r} needs f(t, u) = A(t) u + s(t), but at t = {t:.6g} "
        f"f(t, u + v) - f(t, u) and A v differ {share}, for a v as large as u. If f is nonlinear, "
        f"{bent}or take an explicit method. If f is linear, correct problem.operator: it is not "
        "f's."
    )
