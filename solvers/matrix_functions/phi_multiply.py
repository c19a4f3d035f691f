"""φ-functions of any operator times vectors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from batchkron.arrays import array_module, as_array, device_errors

from ..krylov.phi_functions import MAX_SUBSTEPS, KrylovPhi
from ..krylov.systems.result import Status
from ..products import Vector, norm, working_dtype
from ..rows import square_operator
from .error_growth import ErrorGrowth
from .expm_multiply import check_exponential
from .exponential import ROUNDING, limits_of_products
from .result import FunctionResult, Outcome, finished, lift_of
from .vector_product import VectorProduct
from .whole_matrix import augmented_by_matrix

__all__ = ["phi_multiply"]

_Multiply = Callable[[Vector, Vector], None]


def phi_multiply(
    A: Any,
    vectors: Sequence[ArrayLike | None],
    t: float = 1.0,
    *,
    rtol: float = 1e-9,
    dimension: int = 30,
    raise_on_failure: bool = False,
) -> FunctionResult:
    """Compute Σ_k t^k φ_k(t A) v_k: the state at t of w' = A w + v_1 + t v_2 + …, w(0) = v_0.

    Parameters
    ----------
    A : array, sparse array, LinearOperator or object with ``matvec``, shape (N, N)
    vectors : sequence of array_like, (N,), or None
        v_0, v_1, …; None is zero.
    t : float
        Negative numbers go back in time.
    rtol : float
        Of the error, relative to the largest of ‖v_0‖, |t|^k ‖v_k‖ and the result.
    dimension : int
        The most Krylov vectors.
    raise_on_failure : bool
        Raise where the result is not found, instead of a `ConvergenceWarning`.

    Returns
    -------
    FunctionResult
        ``x`` (N,), ``status``, ``products``; ``steps`` are Krylov vectors.

    Raises
    ------
    ValueError
        If shapes do not agree, there is no vector, or a number is out of range.
    TypeError
        If A has no product with vectors, or is distributed.
    RuntimeError
        If ``raise_on_failure`` and the result is not found.

    See Also
    --------
    KroneckerSum.phi_apply : By factors, without products.

    Notes
    -----
    φ_0 = exp, φ_k(z) = (φ_(k-1)(z) - 1 / (k-1)!) / z. See `KrylovPhi` for the method. Storage:
    dimension + 3 vectors.

    Examples
    --------
    >>> import numpy as np
    >>> from batchkron.solvers import phi_multiply
    >>> phi_multiply(np.diag([-1.0, -2.0]), [None, np.ones(2)]).x.round(6)  # (1 - exp(-λ)) / λ
    array([0.632121, 0.432332])
    """
    size = square_operator(A)
    check_exponential(rtol, dimension)
    known = [v for v in vectors if v is not None]
    if np.iscomplexobj(t):
        raise TypeError(f"t is {t!r}; expected a real number")
    if not known or not math.isfinite(t):
        raise ValueError("expected at least one vector that is not None, and a finite t")
    with device_errors(), np.errstate(over="ignore", invalid="ignore"):
        module = array_module(*known)
        arrays = [None if v is None else as_array(v, "vectors", module) for v in vectors]
        dtype = working_dtype(A, *arrays)
        for k, one in enumerate(arrays):
            if one is not None and one.shape != (size,):
                raise ValueError(f"vectors[{k}] has shape {one.shape}; expected ({size},)")
        given = [None if v is None else v.astype(dtype) for v in arrays]
        out = module.empty(size, dtype)
        product = VectorProduct(A, out[None])
        sign = -1.0 if t < 0 else 1.0
        # t^k φ_k(t A) = |t|^k φ_k(|t| (sign A)) sign^k
        signed = [None if v is None else v * dtype.type(sign**k) for k, v in enumerate(given)]

        def multiply(x: Vector, y: Vector) -> None:
            np.multiply(product(x), dtype.type(sign), out=y)

        lengths = [0.0 if v is None else norm(v) for v in signed]
        if not math.isfinite(sum(lengths)):
            failed = FunctionResult(out * np.nan, Status.NOT_FINITE, math.nan, 0, 0)
            return finished(failed, "phi_multiply", raise_on_failure)
        if t == 0.0 or size == 0:
            out[...] = 0 if signed[0] is None else signed[0]
            return FunctionResult(out, Status.CONVERGED, 0.0, 0, 0)
        lift = lift_of(max(lengths), dtype)
        if lift != 1.0:
            signed = [None if v is None else v * dtype.type(lift) for v in signed]
        sizes = [length * lift * abs(t) ** k for k, length in enumerate(lengths)]
        found = _phi_sum(multiply, signed, abs(t), out, rtol, dimension, max(sizes))
        if lift != 1.0:
            found = found.times(1.0 / lift)
    result = FunctionResult(
        found.row,
        found.failure or Status.CONVERGED,
        found.error,
        product.products,
        product.products,
    )
    return finished(result, "phi_multiply", raise_on_failure)


def _phi_sum(
    multiply: _Multiply,
    vectors: Sequence[Vector | None],
    t: float,
    out: Vector,
    rtol: float,
    dimension: int,
    largest: float,
) -> Outcome:
    """Return Σ_k t^k φ_k(t A) v_k, with an error relative to ``largest``, or to the sum."""
    best = Outcome(out * np.nan, math.nan, Status.STAGNATED, 0)
    for most in limits_of_products(out.size + len(vectors), dimension):
        found = _march(multiply, vectors, t, out, rtol, dimension, largest, most)
        if found.failure in (None, Status.NOT_FINITE):
            return found
        best = found if not best.error <= found.error else best
        if most < math.inf:
            whole = augmented_by_matrix(multiply, vectors, t, out)
            if whole is not None and not best.error <= whole[1]:
                reached = rtol * max(largest, norm(whole[0]))
                failure = None if whole[1] <= reached else Status.STAGNATED
                best = Outcome(whole[0], max(whole[1], rtol * largest), failure, 0)
            if whole is not None or found.error < math.inf:
                break
    return best


def _march(
    multiply: _Multiply,
    vectors: Sequence[Vector | None],
    t: float,
    out: Vector,
    rtol: float,
    dimension: int,
    largest: float,
    most: float,
) -> Outcome:
    """Return the sum by Krylov spaces of at most so many products; its error is NaN beyond."""
    phi = KrylovPhi(out, rtol, dimension)
    count = math.ceil(min(most / dimension, MAX_SUBSTEPS))
    found = phi.solve(multiply, vectors, t, out, max_substeps=count)
    if not found.converged or not phi.substeps:
        if found.converged:
            return Outcome(out.copy(), 0.0, None, 0)
        row = out * np.nan if found.status is Status.NOT_FINITE else out.copy()
        return Outcome(row, math.nan, found.status, 0)
    if not math.isfinite(norm(out)):  # beyond the range of numbers
        return Outcome(out * np.nan, math.nan, Status.NOT_FINITE, 0)
    errors = ErrorGrowth(t)
    errors.add(0.0, 0.0, 0.0, phi.substeps)
    reached = max(rtol, ROUNDING * float(np.finfo(out.dtype).eps)) * max(largest, norm(out))
    error = math.exp(min(errors.bound(), 700.0))
    x = out.copy()
    if error > reached:

        def unshifted(x: Vector, shift: complex, y: Vector) -> None:
            multiply(x, y)

        with np.errstate(all="ignore"):
            error = math.exp(min(errors.propagated(unshifted, phi, out), 700.0))
    failure = None if error <= reached else Status.STAGNATED
    return Outcome(x, max(error, rtol * largest), failure, 0)
