"""exp(A) and φ-functions of any operator times vectors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike

from batchkron.array_kinds import any_foreign, common_kind, in_kind
from batchkron.arrays import array_module, as_array, device_errors, is_sparse, to_host
from batchkron.operators import Operator
from batchkron.operators.scipy_protocol import SciPyOperator

from ..krylov.phi_functions import KrylovPhi
from ..krylov.systems.limits import check_count
from ..krylov.systems.result import Status, worst_of
from ..products import Vector, dot, norm, working_dtype
from ..rows import Multiplied, square_operator
from .result import FunctionResult, Outcome, finished

__all__ = ["expm_multiply", "exponential", "phi_multiply"]

_MAX_DECAY = 100.0  # of a vector's length in a piece of time: errors are relative to its beginning
_MAX_GROWTH = 20.0  # its logarithm, in the first piece, by the initial rate; chosen by hand
_MAX_TRIALS = 200  # of the length of pieces, chosen by hand


def exponential(
    product: Callable[[Vector], Vector],
    b: Vector,
    t: complex,
    rtol: float,
    dimension: int,
    mean: complex = 0.0,
) -> Outcome:
    """Return exp(t A) b for a vector b (N,), with an error of about rtol relative to the result.

    Parameters
    ----------
    product : callable
        Of a vector (N,) with A; it returns an array of its own.
    t : complex
        Real for real vectors.
    dimension : int
        The most Krylov vectors.
    mean : complex
        A mean of the eigenvalues of t A. If its real part is positive, it is the first growth rate
        that is taken out: exp(t A) = exp(μ) exp(t A - μ I).

    Notes
    -----
    `KrylovPhi` marches over pieces of the time from 0 to 1. Its errors are relative to the length
    at the beginning of a piece. So a piece in which that falls below 1/100 is halved, and after
    each piece the growth rate in it is taken out of t A, so that exponentials of any size have the
    same relative error. Of at most ``dimension`` unknowns that grow, or decay so fast that rounding
    matters, the matrix is formed instead: errors of a piece may grow more than the result.
    """
    size, scale = norm(b), 0.0j
    if size == 0.0 or not math.isfinite(size):
        return Outcome(b * 0, 0.0, None if size == 0.0 else Status.NOT_FINITE, 0)
    w, out = b * (1.0 / size), array_module(b).empty_like(b)
    phi = KrylovPhi(b, max(rtol / _MAX_DECAY, 1e-15), max(2, min(dimension, len(b) + 2)))
    done, failure, scalar = 0.0, Status.STAGNATED, b.dtype.type
    shift = complex(max(complex(mean).real, 0.0), complex(mean).imag)
    shift = shift if b.dtype.kind == "c" else shift.real
    growth = (complex(t) * dot(w, product(w))).real - shift.real
    piece = min(1.0, _MAX_GROWTH / growth) if growth > 0 else 1.0
    eps = float(np.finfo(b.dtype).eps)
    reached = max(rtol, 100.0 * eps)
    if len(b) <= dimension and (piece < 1.0 or eps * abs(growth) > reached):
        whole = _by_matrix(product, b, t, reached)
        if whole is not None:
            return whole
    for _ in range(_MAX_TRIALS):

        def shifted(x: Vector, y: Vector, mu: complex = shift) -> None:
            np.multiply(product(x), scalar(t), out=y)
            if mu:
                np.subtract(y, x * scalar(mu), out=y)

        with np.errstate(all="ignore"):
            found = phi.solve(shifted, [w], piece, out)
            length = norm(out) if found.converged else math.nan
        if not 1.0 / _MAX_DECAY <= length < math.inf:
            if found.status is Status.NOT_FINITE and piece < 1e-12:
                failure = found.status
                break
            piece *= 0.5 if found.converged else 0.25
            continue
        done += piece
        scale += shift * piece + math.log(length)
        w = out * (1.0 / length)
        if done >= 1.0 - 1e-14:
            failure = None  # type: ignore[assignment]
            break
        shift += math.log(length) / piece
        piece = min(2.0 * piece, 1.0 - done)
    if failure is not None:
        return Outcome(b * np.nan, math.nan, failure, phi.applications)
    with np.errstate(over="ignore", under="ignore"):
        half = np.exp(0.5 * (scale + math.log(size)))
        half = scalar(half if b.dtype.kind == "c" else half.real)
        x = w * half * half
    return Outcome(x, rtol * norm(x), None, phi.applications)


def _by_matrix(
    product: Callable[[Vector], Vector], b: Vector, t: complex, rtol: float
) -> Outcome | None:
    """Return exp(t A) b by the matrix A, of few unknowns; None if it is beyond finite numbers.

    The estimate of the error is that of rounding, ε ‖t A‖₁ of the result or of b.
    """
    module, size = array_module(b), len(b)
    columns = [to_host(product(unit), "A") for unit in module.eye(size, dtype=b.dtype)]
    matrix = b.dtype.type(t) * np.stack(columns, axis=1)
    if not np.isfinite(matrix).all():
        return None
    with np.errstate(all="ignore"):
        x = module.asarray((scipy.linalg.expm(matrix) @ to_host(b, "b")).astype(b.dtype))
        length = norm(x)
    if not 0.0 < length < math.inf:
        return None
    rounding = float(np.finfo(b.dtype).eps) * float(np.linalg.norm(matrix, 1))
    error = max(rtol, rounding) * length
    return Outcome(x, error, None if rounding <= rtol else Status.STAGNATED, size)


def _mean_of(A: Any, trace: complex | None) -> complex:
    """Return the mean of the eigenvalues of A where its trace is given, or costs no products."""
    size = A.shape[0]
    if trace is None:
        known = is_sparse(A) or isinstance(A, array_module(A).ndarray)
        if isinstance(A, Operator):
            known = type(A).diagonal is not SciPyOperator.diagonal
        trace = A.trace() if known and size else 0.0
    mean: complex = complex(to_host(trace, "traceA")[()]) / max(size, 1)
    return mean


def expm_multiply(
    A: Any,
    B: Any,
    start: float | None = None,
    stop: float | None = None,
    num: int | None = None,
    endpoint: bool | None = None,
    traceA: complex | None = None,
    *,
    rtol: float = 1e-10,
    dimension: int = 30,
    raise_on_failure: bool = False,
) -> Vector:
    """Compute exp(A) B, or exp(t A) B at equidistant times, by Krylov's method.

    Parameters
    ----------
    A : array, sparse array, LinearOperator or object with ``matvec``, shape (N, N)
        Its products with vectors are all that is needed: no norm, no adjoint.
    B : array_like, (N,) or (N, K)
    start, stop : float, optional
        The first and the last time; without them it is 1.
    num : int, optional
        The number of times; 50 by default.
    endpoint : bool, optional
        Whether ``stop`` is one of them; True by default.
    traceA : number, optional
        The trace of A. A positive mean of the eigenvalues is the first growth rate that is taken
        out of A. It is computed where that needs no products: of arrays, sparse arrays, Kronecker
        products and sums.
    rtol : float
        Of the error, relative to the length of each result; 1e-5 at least in single precision.
    dimension : int
        The most Krylov vectors that are kept.
    raise_on_failure : bool
        Raise where a result is not found, instead of a `ConvergenceWarning` and NaN.

    Returns
    -------
    ndarray
        (N,) or (N, K); with times (num, N) or (num, N, K). Complex where A or B is. A tensor if B
        is one.

    Raises
    ------
    ValueError
        If shapes do not agree, or a number is out of range.
    TypeError
        If A has no product with vectors, or is distributed.
    RuntimeError
        If ``raise_on_failure`` and a result is not found.

    See Also
    --------
    matrix_function : ``matrix_function("exp", A, b, t=t)`` also says what it cost.
    KroneckerSum.expm_apply : By factors, without products.

    Notes
    -----
    As `scipy.sparse.linalg.expm_multiply`, which takes Taylor's polynomials of A: their degree
    grows with ‖A‖, that of Krylov's with ‖A‖^½ for Hermitian negative A. The result at a time is
    computed from that at the next one on the way to 0. Columns of B are taken one by one. Storage:
    dimension + 7 vectors beside the results. See `KrylovPhi` for the method.

    Examples
    --------
    >>> import numpy as np
    >>> from batchkron import KroneckerSum
    >>> from batchkron.solvers import expm_multiply
    >>> second = np.eye(9, k=1) - 2 * np.eye(9) + np.eye(9, k=-1)
    >>> A, b = KroneckerSum(second, second), np.ones(81)
    >>> bool(np.abs(expm_multiply(A, b) - A.expm_apply(b)).max() < 1e-9)
    True
    >>> expm_multiply(A, b, start=0.0, stop=2.0, num=5).shape
    (5, 81)
    """
    options: dict[str, Any] = {"rtol": rtol, "dimension": dimension}
    if any_foreign(B):
        given = partial(expm_multiply, **options, raise_on_failure=raise_on_failure)
        whole = partial(given, start=start, stop=stop, num=num, endpoint=endpoint, traceA=traceA)

        def computed(A: Any, B: Any) -> Any:
            return whole(A, B)

        return in_kind(computed, common_kind(A=A, B=B), A, B)  # type: ignore[no-any-return]
    times, steps = _times(start, stop, num, endpoint)
    with device_errors(), np.errstate(over="ignore", invalid="ignore"):
        columns, product, shape = columns_of(A, B, "B", *times)
        module, mean = array_module(columns), _mean_of(A, traceA)
        check_exponential(rtol, dimension)
        results = module.empty((len(times), *columns.shape), columns.dtype)
        statuses = []
        for k, row in enumerate(columns):
            begin = row
            for j, step, first in steps:
                begin = row if first else begin
                outcome = exponential(product, begin, step, rtol, dimension, step * mean)
                begin = results[j, k] = outcome.row
                statuses.append(outcome.failure or Status.CONVERGED)
        x = results.swapaxes(1, 2).reshape(len(times), *shape)
        status = worst_of(statuses)
    errors = np.zeros(1) if status is Status.CONVERGED else np.full(1, np.nan)
    result = FunctionResult(x, status, errors, np.zeros(1), product.products)
    finished(result, "expm_multiply", raise_on_failure)
    return x if start is not None or stop is not None or num is not None else x[0]  # type: ignore[no-any-return]


def _times(
    start: float | None, stop: float | None, num: int | None, endpoint: bool | None
) -> tuple[list[float], list[tuple[int, float, bool]]]:
    """Return times, and their places on ways outward from 0, one for each sign.

    A place comes with the step to it, and whether it is the first of its way.
    """
    if all(one is None for one in (start, stop, num, endpoint)):
        return [1.0], [(0, 1.0, True)]
    if start is None or stop is None:
        raise ValueError("start and stop are both needed for results at several times")
    count = 50 if num is None else check_count("num", num)
    if not (math.isfinite(start) and math.isfinite(stop)):
        raise ValueError(f"start and stop are {start}, {stop}; expected finite numbers")
    times = np.linspace(start, stop, count, endpoint=endpoint is not False).tolist()
    steps = []
    for sign in (1.0, -1.0):
        way = sorted((abs(t), j) for j, t in enumerate(times) if (t < 0.0) == (sign < 0.0))
        before = [0.0, *(t for t, _ in way)]
        steps += [
            (j, sign * (t - last), k == 0)
            for k, ((t, j), last) in enumerate(zip(way, before, strict=False))
        ]
    return times, steps


def check_exponential(rtol: float, dimension: int) -> None:
    """Raise ValueError or TypeError if an option is out of range."""
    if not 0.0 < rtol < 1.0:
        raise ValueError(f"rtol is {rtol}; expected a number between 0 and 1")
    check_count("dimension", dimension, minimum=2)


class VectorProduct:
    """A times a vector (N,), in an array of its own; counted."""

    def __init__(self, A: Any, like: Vector) -> None:
        self._multiplied = Multiplied(A, "A", like)

    @property
    def products(self) -> int:
        """Vectors multiplied so far."""
        return self._multiplied.products

    def __call__(self, x: Vector) -> Vector:
        return self._multiplied(x[None])[0]  # type: ignore[no-any-return]


def columns_of(
    A: Any, b: Any, name: str, *numbers: Any
) -> tuple[Vector, VectorProduct, tuple[int, ...]]:
    """Return the columns of b as rows (K, N), the product with A, and the shape of b.

    Complex numbers make the dtype complex. ValueError if shapes do not agree.
    """
    size, module = square_operator(A), array_module(b)
    given = as_array(b, name, module)
    if given.ndim not in (1, 2) or given.shape[0] != size:
        raise ValueError(f"{name} has shape {given.shape}; expected ({size},) or ({size}, K)")
    dtype = working_dtype(A, given)
    if any(isinstance(number, (complex, np.complexfloating)) for number in numbers):
        dtype = np.result_type(dtype, np.complex64)
    rows = module.ascontiguousarray(given.reshape(size, -1).T.astype(dtype))
    return rows, VectorProduct(A, rows[:1] if len(rows) else rows.reshape(0, size)), given.shape


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
        Of the error, relative to the largest of ‖v_0‖ and |t|^k ‖v_k‖.
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

        if t == 0.0 or size == 0:
            out[...] = 0 if signed[0] is None else signed[0]
            return FunctionResult(out, Status.CONVERGED, 0.0, 0, 0)
        phi = KrylovPhi(out, rtol, dimension)
        found = phi.solve(multiply, signed, abs(t), out)
        sizes = [0.0 if v is None else norm(v) * abs(t) ** k for k, v in enumerate(signed)]
    error = rtol * max(sizes) if found.converged else math.nan
    result = FunctionResult(out, found.status, error, product.products, product.products)
    return finished(result, "phi_multiply", raise_on_failure)
