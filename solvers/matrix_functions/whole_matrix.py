"""exp(t A) b by the matrix A, of few unknowns, with an estimate of rounding."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from batchkron.arrays import array_module, to_host

from ..krylov.systems.result import Status
from ..products import Vector, norm
from .result import Outcome

__all__ = ["MAX_MATRIX", "augmented_by_matrix", "by_matrix"]

MAX_MATRIX = 512  # unknowns; the exponential of such a matrix takes some 0.3 s on one processor
_MARGIN = 4.0  # errors, in units of the difference between two computations; chosen by hand


def by_matrix(
    product: Callable[[Vector], Vector], b: Vector, t: complex, rtol: float, atol: float
) -> Outcome | None:
    """Return exp(t A) b by the matrix of a product; None if it is beyond finite numbers."""
    module, size = array_module(b), len(b)
    columns = [to_host(product(unit), "A") for unit in module.eye(size, dtype=b.dtype)]
    matrix = b.dtype.type(t) * np.stack(columns, axis=1)
    found = exponential_of(matrix, to_host(b, "b"))
    if found is None:
        return None
    x = module.asarray(found[0].astype(b.dtype))
    limit = rtol * norm(x)
    failure = None if found[1] <= max(limit, atol) else Status.STAGNATED
    return Outcome(x, max(limit, found[1]), failure, size)


def augmented_by_matrix(
    multiply: Callable[[Vector, Vector], None],
    vectors: Sequence[Vector | None],
    t: float,
    like: Vector,
) -> tuple[Vector, float] | None:
    """Return Σ_k t^k φ_k(t A) v_k and its error, by exp of t [A, V; 0, J]; None as of `by_matrix`.

    ``multiply(x, out)`` writes A x; see `KrylovPhi` for the matrix.
    """
    module, n, p = array_module(like), like.size, len(vectors) - 1
    matrix = np.zeros((n + p, n + p), like.dtype)
    column = module.empty_like(like)
    for j, unit in enumerate(module.eye(n, dtype=like.dtype)):
        multiply(unit, column)
        matrix[:n, j] = t * to_host(column, "A")
    for k, one in enumerate(vectors[1:]):
        if one is not None:
            matrix[:n, n + k] = t * to_host(one, "v")
    matrix[n:, n:] = t * np.eye(p, k=-1)
    start = np.zeros(n + p, like.dtype)
    start[n : n + 1] = 1.0
    if vectors[0] is not None:
        start[:n] = to_host(vectors[0], "v")
    found = exponential_of(matrix, start)
    return None if found is None else (module.asarray(found[0][:n].astype(like.dtype)), found[1])


def exponential_of(matrix: NDArray[Any], b: NDArray[Any]) -> tuple[NDArray[Any], float] | None:
    """Return exp(A) b and an estimate of its error; None if it is beyond finite numbers.

    The error is that of rounding, ε ‖A‖₁ of the result, or by how much S exp(S⁻¹ A S) S⁻¹ b
    differs, with a diagonal S of random numbers: its errors are other ones, which grow as much.
    """
    if not np.isfinite(matrix).all():
        return None
    eps = float(np.finfo(matrix.dtype).eps)
    scaling = np.random.default_rng(0).uniform(1.0, 2.0, len(b)).astype(matrix.real.dtype)
    with np.errstate(all="ignore"):
        x = scipy.linalg.expm(matrix) @ b
        other = scaling * (scipy.linalg.expm(matrix / scaling[:, None] * scaling) @ (b / scaling))
        length = norm(x)
        if not 0.0 < length < math.inf or not np.isfinite(other).all():
            return None
        rounding = eps * float(np.linalg.norm(matrix, 1)) * length
        return x, max(rounding, _MARGIN * norm(x - other))
