"""Functions of Hermitian operators by Lanczos's method, in two passes where memory ends."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchkron.arrays import array_module

from ..krylov.systems.result import Status
from ..products import Vector, dot, norm
from ..rows import combine_complex, take_out
from .result import Outcome, of_no_length
from .scalar_functions import of_hermitian

__all__ = ["hermitian_function"]

_FIRST_CHECK = 4  # steps before the first estimate; then at each quarter more


def hermitian_function(
    product: Callable[[Vector], Vector],
    b: Vector,
    f: Any,
    t: complex,
    rtol: float,
    atol: float,
    kept: int,
    maxiter: int,
) -> Outcome:
    """Return f(t A) b for a row b (N,), A Hermitian.

    ``product``: of a vector (N,) with A; it returns an array of its own.
    ``kept``: vectors that are kept. If more are needed, a second pass computes them once more.
    ``maxiter``: the largest dimension of the Krylov space.

    f(t A) b ≈ ‖b‖ V f(t T) e_1 with the tridiagonal T of Lanczos's method. The error is estimated
    by what the last fifth of the steps has changed. The first vectors, which are kept, are
    orthogonalised against each other, others are not, which delays convergence and does not spoil
    it (V. Druskin and L. Knizhnerman, 1991). The second pass computes these others once more by the
    same arithmetic (A. Frommer and V. Simoncini, Matrix functions, in: Model order reduction,
    Springer 2008). Storage: kept + 4 vectors.
    """
    size, limits = norm(b), np.finfo(b.dtype)
    eps = float(limits.eps)
    if size == 0.0 or not math.isfinite(size):
        return of_no_length(b, size)
    alphas: list[float] = []
    betas: list[float] = []
    basis = array_module(b).empty((min(kept, len(b)), len(b)), b.dtype)
    known, check, failure, error = np.zeros(0), _FIRST_CHECK, None, math.inf
    v, before = b * (1.0 / size), None
    while True:
        count = len(alphas) + 1
        if count <= len(basis):
            basis[count - 1] = v
        w = _step(product, v, before, betas[-1] if betas else 0.0)
        alpha = dot(v, w).real
        w = w - v * v.dtype.type(alpha)
        if count < len(basis):
            take_out(basis[:count], w[None])
        beta = norm(w)
        alphas.append(alpha)
        if not math.isfinite(beta):
            return Outcome(b * np.nan, math.nan, Status.NOT_FINITE, len(alphas))
        scale = max(map(abs, [*alphas, *betas]))
        ended = beta <= 10 * eps * scale or count == len(basis) == len(b)
        if ended or len(alphas) >= min(check, maxiter):
            T = np.diag(alphas) + np.diag(betas, 1) + np.diag(betas, -1)
            weights = of_hermitian(f, t, T)
            if not np.isfinite(weights).all():
                status = Status.NOT_FINITE if f == "exp" else Status.INDEFINITE
                return Outcome(b * np.nan, math.nan, status, len(alphas))
            total = norm(weights) * size
            if not total <= limits.max:
                return Outcome(b * np.nan, math.nan, Status.NOT_FINITE, len(alphas))
            change = weights.astype(np.result_type(weights, known))
            change[: len(known)] -= known
            rounding = 10 * eps * float(np.abs(weights).max())
            error = max(0.0 if ended else norm(change), rounding) * size
            limit = max(rtol * total, atol, rounding * size)
            if error <= limit:
                break
            if len(alphas) >= maxiter:
                failure = Status.MAX_ITERATIONS
                break
            known, check = weights, math.ceil(1.25 * check)
        betas.append(beta)
        before, v = v, w * (1.0 / beta)
    x = _sum(product, size * weights, basis, alphas, betas)
    return Outcome(x, error, failure, len(alphas))


def _step(
    product: Callable[[Vector], Vector], v: Vector, before: Vector | None, beta: float
) -> Vector:
    w = product(v)
    return w if before is None else w - before * v.dtype.type(beta)


def _sum(
    product: Callable[[Vector], Vector],
    weights: NDArray[Any],
    basis: Vector,
    alphas: list[float],
    betas: list[float],
) -> Vector:
    """Return Σ weights_k v_k; vectors that were not kept are computed again."""
    kept = min(len(basis), len(weights))
    total = combine_complex(weights[None, :kept], basis[:kept])[0]
    v, before = basis[kept - 1], basis[kept - 2]
    for k in range(kept - 1, len(weights) - 1):
        w = _step(product, v, before, betas[k - 1])
        w = w - v * v.dtype.type(alphas[k])
        before, v = v, w * (1.0 / betas[k])
        total = total + v * total.dtype.type(weights[k + 1])
    return total  # type: ignore[no-any-return]
