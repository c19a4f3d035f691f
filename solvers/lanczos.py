"""Log determinants by stochastic Lanczos quadrature."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from batchkron.array_kinds import native
from batchkron.arrays import array_module, as_array, to_host
from batchkron.attributes import attribute

from .products import Vector, as_product, ranks_of, working_dtype

__all__ = ["LogdetEstimate", "logdet_slq"]


class LogdetEstimate(NamedTuple):
    """An estimate of log det A.

    Attributes
    ----------
    logdet : float
        The mean over the probe vectors.
    standard_error : float
        Of that mean, from how the probes differ; NaN for one probe. It does not see the error of
        the quadrature, which falls with the number of steps.
    """

    logdet: float
    standard_error: float


def logdet_slq(
    A: Any,
    *,
    probes: int | ArrayLike = 16,
    steps: int = 30,
    seed: int | np.random.Generator | None = 0,
) -> LogdetEstimate:
    """Estimate log det A = tr log A of a Hermitian positive definite A from products with it.

    Parameters
    ----------
    A : array, sparse array, LinearOperator or object with ``matvec``, shape (N, N)
        Hermitian and positive definite; that it is Hermitian is not checked.
    probes : int, or array_like (K, N)
        How many vectors of random signs are taken; or the vectors themselves, of mean square 1, on
        the operator's device. All are multiplied at once.
    steps : int
        Lanczos steps for each probe: products with A.
    seed : int, Generator or None
        Of random signs, for `numpy.random.default_rng`. The same seed gives the same vectors, so
        that the estimate is a smooth function of A's parameters.

    Returns
    -------
    LogdetEstimate
        ``logdet`` and its ``standard_error``.

    Raises
    ------
    ValueError
        If A is not square, probes do not fit, or there are no probes or steps.
    TypeError
        If A is distributed.
    numpy.linalg.LinAlgError
        If A has an eigenvalue that is not positive beyond rounding, or a product is not finite.

    Notes
    -----
    S. Ubaru, J. Chen and Y. Saad, Fast estimation of tr(f(A)) via stochastic Lanczos quadrature,
    SIAM J. Matrix Anal. Appl. 38 (2017), algorithm 1: for each probe z, zᴴ log(A) z is ‖z‖² times
    the Gauss quadrature of the tridiagonal matrix of Lanczos's method, whose vectors are
    orthogonalised twice against all earlier ones. Storage: (steps + 2) K vectors.

    Examples
    --------
    >>> import numpy as np
    >>> from batchkron.solvers import logdet_slq
    >>> A = np.diag(np.linspace(1.0, 2.0, 100))
    >>> found = logdet_slq(A)
    >>> bool(abs(found.logdet - np.log(np.diag(A)).sum()) < 1e-10)
    True
    """
    rows, columns = A.shape
    if rows != columns:
        raise ValueError(f"A has shape {A.shape}; expected a square operator")
    if ranks_of(A) is not None:
        raise TypeError("A is distributed; this method has no sums over ranks")
    if steps < 1:
        raise ValueError(f"steps is {steps}; expected 1 or more")
    vectors = _probe_vectors(A, probes, seed)
    if rows == 0:
        return LogdetEstimate(0.0, 0.0)
    squares, diagonals, beside, counts = _tridiagonal(A, vectors, min(steps, rows))
    eps = float(np.finfo(np.result_type(working_dtype(A), vectors.dtype)).eps)
    found = np.array(
        [
            square * _quadrature(diagonal[:count], off[: count - 1], eps)
            for square, diagonal, off, count in zip(squares, diagonals, beside, counts, strict=True)
        ]
    )
    spread = found.std(ddof=1) / math.sqrt(len(found)) if len(found) > 1 else math.nan
    return LogdetEstimate(float(found.mean()), float(spread))


def _probe_vectors(A: Any, probes: int | ArrayLike, seed: Any) -> Vector:
    """Return probes (K, N) of the operator's precision, where it works."""
    size, real = A.shape[0], working_dtype(A).type(0).real.dtype
    if isinstance(probes, (int, np.integer)):
        if probes < 1:
            raise ValueError(f"probes is {probes}; expected 1 or more")
        signs = np.random.default_rng(seed).integers(0, 2, (int(probes), size)) * 2 - 1
        vectors = signs.astype(real)
        if attribute(A, "device", "cpu") == "cuda":
            from batchkron.operators import on_device

            return on_device(vectors, "cuda")
        return vectors
    signs = native(probes, "probes")
    given = as_array(signs, "probes", array_module(signs))
    if given.ndim != 2 or given.shape[1] != size or len(given) == 0:
        raise ValueError(f"probes has shape {given.shape}; expected (K, {size}), K > 0")
    return given.astype(np.result_type(real, given.dtype), copy=False)


def _tridiagonal(
    A: Any, probes: Vector, steps: int
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return squares of the probes' norms, and what Lanczos's method makes of them.

    That are the diagonals (K, steps), the numbers beside them (K, steps), and how many steps each
    probe took until its vectors spanned an invariant space.
    """
    module = array_module(probes)
    dtype = np.result_type(working_dtype(A), probes.dtype)
    real = dtype.type(0).real.dtype
    count, size = probes.shape
    basis = module.empty((count, steps, size), dtype)
    product = module.empty((count, size), dtype)
    multiply = as_product(A, "A", product)
    norms = _norms(probes)
    current = (probes / norms.astype(real)[:, None]).astype(dtype)
    # Numbers stay on the device to the end, so that the host need not wait in each step.
    diagonals, beside = module.zeros((2, steps, count), np.float64)
    for j in range(steps):
        basis[:, j] = current
        multiply(current, product)
        diagonals[j] = (current.conj() * product).sum(axis=1).real
        for _ in range(2):  # twice is enough (Giraud, Langou, Rozložník and van den Eshof, 2005)
            known = basis[:, : j + 1]
            overlap = (known @ product.conj()[:, :, None]).conj()  # (K, j + 1, 1)
            product -= (overlap.swapaxes(1, 2) @ known)[:, 0]
        beta = _norms(product)
        beside[j] = beta
        current = product / module.where(beta > 0, beta, 1.0).astype(real)[:, None]
        if module is np and _ended(diagonals[: j + 1], beside[: j + 1], size, dtype).any(0).all():
            break
    squares = to_host(norms, "norms") ** 2
    alpha, beta = to_host(diagonals, "diagonals"), to_host(beside, "beside")
    if not np.isfinite(alpha).all():
        raise np.linalg.LinAlgError("a product with A is not finite")
    ended = _ended(alpha, beta, size, dtype)
    counts = np.where(ended.any(axis=0), ended.argmax(axis=0) + 1, steps)
    return squares, alpha.T, beta.T, counts


def _ended(
    diagonals: NDArray[Any], beside: NDArray[Any], size: int, dtype: np.dtype[Any]
) -> NDArray[np.bool_]:
    """Return after which steps (steps, K) a probe's vectors span an invariant space."""
    # of A on what a probe reaches
    scale = np.maximum.accumulate(np.abs(diagonals) + beside, axis=0)
    found: NDArray[np.bool_] = beside <= size * np.finfo(dtype).eps * scale
    return found


def _norms(rows: Vector) -> Vector:
    norms: Vector = (abs(rows) ** 2).sum(axis=1, dtype=np.float64) ** 0.5
    return norms


def _quadrature(diagonal: NDArray[Any], beside: NDArray[Any], eps: float) -> float:
    """Return e_1ᵀ log(T) e_1 for a tridiagonal matrix T of products with rounding ``eps``."""
    matrix = np.diag(diagonal) + np.diag(beside, 1) + np.diag(beside, -1)
    values, vectors = np.linalg.eigh(matrix)
    if values[0] <= eps * values[-1]:
        raise np.linalg.LinAlgError(
            f"A is not positive definite beyond rounding: it has an eigenvalue of {values[0]:.3g} "
            f"or less, where products with A round numbers of up to {values[-1]:.3g}"
        )
    return float(vectors[0] ** 2 @ np.log(values))
