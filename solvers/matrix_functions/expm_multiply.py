"""exp(A) of any operator times vectors, at one or several times."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from batchkron.array_kinds import any_foreign, common_kind, in_kind
from batchkron.arrays import array_module, device_errors, is_sparse, to_host
from batchkron.operators import Operator
from batchkron.operators.scipy_protocol import SciPyOperator

from ..krylov.systems.limits import check_count, check_tolerances
from ..krylov.systems.result import Status, worst_of
from ..products import Vector
from .exponential import exponential
from .result import FunctionResult, finished
from .vector_product import columns_of

__all__ = ["check_exponential", "expm_multiply"]


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
    atol: float = 0.0,
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
        Of the error, relative to the length of each result; 1e-4 at least in single precision.
    atol : float
        Of the error's length, where that of rtol is smaller: of results that decay to next to
        nothing.
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
    computed from that at the next one on the way to 0. Columns of B are taken one by one. Errors
    that are made early may grow by more than the result, if A is far from normal: this is
    estimated, see `exponential`, and a result without a right digit is NaN. Storage: dimension + 7
    vectors beside the results; of at most 512 unknowns, also the matrix A where its products do not
    suffice. See `KrylovPhi` for the method.

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
    options: dict[str, Any] = {"rtol": rtol, "atol": atol, "dimension": dimension}
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
        check_tolerances(rtol, atol)
        results = module.empty((len(times), *columns.shape), columns.dtype)
        outcomes = []
        for k, row in enumerate(columns):
            begin, before, done = row, 0.0, 0.0
            for j, step, first in steps:
                begin, before, done = (row, 0.0, 0.0) if first else (begin, before, done)
                done += step
                more = rtol, dimension, step * mean, atol, before
                outcome = exponential(product, begin, step, *more)
                if outcome.failure and begin is not row:  # without the errors of times before
                    outcome = exponential(product, row, done, rtol, dimension, done * mean, atol)
                begin = results[j, k] = outcome.row
                before = outcome.error
                outcomes.append(outcome)
        x = results.swapaxes(1, 2).reshape(len(times), *shape)
        status = worst_of([one.failure or Status.CONVERGED for one in outcomes])
        errors = np.array([one.error for one in outcomes if one.failure] or [0.0])
    result = FunctionResult(x, status, errors, np.zeros(1), product.products)
    finished(result, "expm_multiply", raise_on_failure)
    return x if start is not None or stop is not None or num is not None else x[0]  # type: ignore[no-any-return]


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
