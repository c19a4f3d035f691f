"""Whether f(t, u) = A(t) u + s(t): tried with a vector or two where a run relies on it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from batchkron.arrays import array_module, is_sparse
from batchkron.operators import Operator

from ..products import Product, Vector, as_product, norm
from ..protocols import implicit_operator_of, operator_of, says_linear
from ..steppers.registry import get, names
from ..steppers.stepper import Stepper
from .integration import Integration

__all__ = ["is_imex", "is_linear", "product_at", "refuse_nonlinear"]

Function: TypeAlias = Callable[[Vector, Vector], object]  # of (u, out)

# is_linear: ‖f(u + v) - f(u) - A v‖ relative to ‖A v‖, for each type code of the state
_TOLERANCE = {"f": 1e-3, "F": 1e-3, "d": 1e-6, "D": 1e-6}

# refuse_nonlinear: which v it tries, and errors of f and A that are no sign of another f
_SEED = 0  # of the random v
_RADIAL_SHIFT = 0.7  # the v along u, beside u
_ITERATED = 1e-6  # relative to ‖f(u)‖, of functions and operators that solve by iteration
_EVALUATED = 1e-7  # the same where A is exact: A u of projected data is large beside the rest
_DIFFERENCED = 1e-7  # relative to ‖A‖ ‖v‖, of operators that are quotients of differences


@dataclass(frozen=True)
class _Defect:
    """How far f(u + v) - f(u) and A v are apart, and the norms of what they are made of.

    Attributes
    ----------
    size : float
        ‖f(u + v) - f(u) - A v‖.
    at_end, change, product : float
        ‖f(u + v)‖, ‖f(u + v) - f(u)‖ and ‖A v‖.
    """

    size: float
    at_end: float
    change: float
    product: float


def _defect(
    function: Function, product: Product, u: Vector, before: Vector, v: Vector, work: Vector
) -> _Defect:
    """Compare f(u + v) - f(u), f(u) being ``before``, with A v; ``work`` is overwritten."""
    after = np.full_like(u, np.nan)
    np.add(u, v, out=work)
    function(work, after)
    product(v, work)
    at_end, right = norm(after), norm(work)
    np.subtract(after, before, out=after)
    change = norm(after)
    np.subtract(after, work, out=after)
    return _Defect(norm(after), at_end, change, right)


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
    try:
        product = product_at(problem, t, u)
    except (TypeError, ValueError):
        return False
    before, work = np.full_like(u, np.nan), np.empty_like(u)
    with np.errstate(all="ignore"):
        problem.rhs(t, u, before)
        found = _defect(partial(problem.rhs, t), product, u, before, v, work)
        rounding = 1e3 * float(np.finfo(u.dtype).eps) * (found.at_end + norm(before))
        return found.size <= _TOLERANCE[u.dtype.char] * found.product + rounding


def refuse_nonlinear(integration: Integration) -> None:
    """Refuse a run of a linear method whose f is not linear, or has another operator.

    f(t, u + v) - f(t, u) is compared with A(t) v for a random v as large as u (with elements of
    size 1 where u is 0), and for a multiple of u (of f where u is 0), at the end of the first step.
    The first finds what happens where u vanishes, the second what is slow beside the fastest
    components of A, which a random v is full of. Of IMEX methods only the implicit part has to be
    linear, which is A_I itself: f is replaced by A_I u, and operators that are linear for certain,
    matrices and those of batchkron, are not tried. Nothing is tried for explicit methods, those
    that are declared ``nonlinear``, and problems whose ``is_linear`` is True and belongs to their
    ``rhs``.

    Parameters
    ----------
    integration : Integration
        What is integrated.

    Raises
    ------
    ValueError
        If it differs by more than rounding and operators of less precision explain; the text says
        by how much and what to take instead.
    TypeError
        If the problem has no operator.

    Notes
    -----
    The difference d may be ‖d‖ ≤ τ (‖f(t, u + v)‖ + ‖f(t, u)‖ + ‖A v‖) + ρ ν ‖v‖ with
    ν = ‖A r‖ / ‖r‖ of the random vector r, τ = max(1e-6, 1000 ε) and ρ = max(1e-7, 30 ε), but
    τ = max(1e-7, 1000 ε) and ρ = 30 ε for matrices and operators of batchkron; ε is that of the
    state's or the operator's precision, whichever is lower. The first bound is for functions and
    operators that solve by iteration; the second for those that are rounded or quotients of
    differences, whose errors are relative to the fastest components of A.
    Cost: f three times and A twice (A_I five times), and 4 vectors while it lasts.
    """
    problem, method, u = integration.problem, integration.method, integration.u
    if method.nonlinear or not method.implicit or integration.is_done or u.size == 0:
        return
    if says_linear(problem):
        return
    t = integration.first_end
    if is_imex(method):
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
            function, product, u, _precision(u, operator), is_exact=_is_matrix(operator)
        )
    if difference > 0.0:
        raise ValueError(_text(method, t, difference))


def _largest_difference(
    function: Function, product: Product, u: Vector, precision: float, *, is_exact: bool
) -> float:
    """Return ‖f(u + v) - f(u) - A v‖ relative to its parts where it is too large, else 0."""
    before, v, work = (np.full_like(u, np.nan) for _ in range(3))
    function(u, before)
    size = norm(before)
    if not math.isfinite(size):
        return 0.0  # the run tells of that
    inexact, rounded = (_EVALUATED, 0.0) if is_exact else (_ITERATED, _DIFFERENCED)
    rate = 0.0
    for is_random in (True, False):
        if is_random:
            _fill_randomly(v, norm(u))
        elif not _fill_along(v, u, before):
            continue
        found, length = _defect(function, product, u, before, v, work), norm(v)
        if not math.isfinite(found.product):
            return 0.0
        if not math.isfinite(found.size):
            return math.inf
        if is_random:
            rate = found.product / length
        allowed = max(inexact, 1e3 * precision) * (found.at_end + size + found.product)
        allowed += max(rounded, 30 * precision) * rate * length
        if found.size > allowed:
            return found.size / max(found.product, found.change)
    return 0.0


def _fill_randomly(v: Vector, size: float) -> None:
    """Write a random vector of a norm into v, or of elements of size 1 for norm 0."""
    random = array_module(v).random.default_rng(_SEED)
    real = v.real.dtype
    v[...] = random.random(v.size, dtype=real)
    if v.dtype.kind == "c":
        v += 1j * random.random(v.size, dtype=real)
        v -= 0.5j
    v -= 0.5
    v *= 2.0 if size == 0.0 else size / norm(v)


def _fill_along(v: Vector, u: Vector, slope: Vector) -> bool:
    """Write a multiple of u into v, or of f(u) where u is 0; return whether there is one."""
    for direction in (u, slope):
        size = norm(direction)
        if size > 0.0:
            np.multiply(direction, _RADIAL_SHIFT if direction is u else 1.0 / size, out=v)
            return True
    return False


def _precision(u: Vector, operator: Any) -> float:
    """Return ε of the state or of the operator, whichever is larger."""
    dtypes = [u.dtype, np.dtype(getattr(operator, "dtype", None) or u.dtype)]
    return max(float(np.finfo(dtype).eps) for dtype in dtypes if dtype.kind in "fc")


def is_imex(method: type[Stepper]) -> bool:
    """Return whether a method treats a part of f implicitly and the rest explicitly."""
    tableau = getattr(method, "tableau", None)
    return tableau is not None and tableau.is_imex


def _is_matrix(operator: Any) -> bool:
    """Whether an operator is linear whatever it holds."""
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
    return (
        f"method {method.name!r} needs f(t, u) = A(t) u + s(t), but at t = {t:.6g} "
        f"f(t, u + v) - f(t, u) and A v differ {share}, for a v as large as u. If f is nonlinear, "
        f"take an IMEX method ({imex}), which treats A implicitly and the rest of f explicitly, or "
        "an explicit method. If f is linear, correct problem.operator: it is not f's."
    )
