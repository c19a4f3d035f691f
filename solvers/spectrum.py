"""Estimates of an operator's spectrum by a few products: Ritz values, numerical abscissa."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from batchkron.arrays import array_module, to_host

from .products import (
    Product,
    Ranks,
    Vector,
    adjoint_product,
    as_product,
    dot_over,
    max_over,
    norm_over,
    sum_over,
)

__all__ = [
    "Arnoldi",
    "KrylovMatrix",
    "arnoldi",
    "krylov_matrix",
    "numerical_abscissa",
    "random_start",
]

# Steps of Arnoldi's and Lanczos' methods; the outermost eigenvalues are then known to a few per
# cent. Chosen by hand.
_STEPS = 20
_MIN_STEPS = 4  # smallest number of steps if memory is short; chosen by hand
_MAX_BASIS = 2 << 30  # limit of the Krylov vectors in bytes, for large N fewer steps are taken
_SEED = 4988497  # seed of the random first vector
# Cached matrices; the oldest is removed first.
_KNOWN: OrderedDict[tuple[object, ...], KrylovMatrix] = OrderedDict()
_MAX_KNOWN = 64  # largest number of cached matrices (20 × 20); chosen by hand


class KrylovMatrix:
    """Properties of the matrix H = V^H A V of Arnoldi's method, V orthonormal.

    ``matrix`` (ndarray, shape (m, m)): H.
    ``rounding``: up to which properties are taken for exact, relative to the size of H.
    ``is_whole``: whether H is all of A in another basis.
    ``values`` (ndarray, shape (m,), complex128): the eigenvalues of H, the Ritz values.
    ``self_adjoint``: whether H is Hermitian up to rounding. The Ritz values then lie between the
      smallest and the largest eigenvalue of A; otherwise they may lie anywhere in its field of
      values.
    ``abscissa``: the largest eigenvalue of (H + H^H) / 2, at most that of (A + A^H) / 2.
    ``size``: ‖H‖₂, at most ‖A‖₂.
    ``exact``: whether Ritz values can be trusted as eigenvalues of A: H is normal up to rounding,
      or is the whole of A in another basis.
    """

    def __init__(self, matrix: NDArray[Any], rounding: float, *, is_whole: bool) -> None:
        size = float(np.linalg.norm(matrix, 2)) if matrix.size else 0.0
        unit = math.ldexp(1.0, math.frexp(size)[1])  # H / unit is at most 1: no square overflows
        scaled = matrix / unit
        symmetric = 0.5 * (scaled + scaled.conj().T)
        self.size = size
        self.self_adjoint = bool(np.linalg.norm(scaled - symmetric) <= rounding * size / unit)
        rates = unit * np.linalg.eigvalsh(symmetric)
        self.abscissa = float(rates.max(initial=-math.inf))
        commutator = scaled @ scaled.conj().T - scaled.conj().T @ scaled
        is_normal = bool(np.linalg.norm(commutator) <= rounding * (size / unit) ** 2)
        self.exact = is_whole or self.self_adjoint or is_normal
        values = rates if self.self_adjoint else np.linalg.eigvals(matrix)
        self.values: NDArray[np.complex128] = values.astype(np.complex128)


def random_start(like: Vector, ranks: Ranks | None = None) -> Vector:
    """Return a random vector of norm 1, the same for all vectors of the same length and dtype.

    If ranks share it, the blocks of any two of them differ.
    """
    rng = np.random.default_rng(_SEED if ranks is None else [_SEED, ranks.rank])
    start: Vector = rng.standard_normal(like.size)
    if like.dtype.kind == "c":
        start = start + 1j * rng.standard_normal(like.size)
    return array_module(like).asarray((start / norm_over(ranks, start)).astype(like.dtype))  # type: ignore[no-any-return]


def krylov_matrix(
    product: Product, start: Vector, ranks: Ranks | None = None
) -> KrylovMatrix | None:
    """Return the result of 20 steps of Arnoldi's method with an operator, cached.

    The cache's key is computed from the first product: (v, A v) and ‖A v - (v, A v) v‖ for the
    random v identify an operator, even after an update in place.

    ``product``: ``product(x, out)`` writes A x into out.
    ``start`` (ndarray, shape (N,)): the first vector, from `random_start`.
    ``ranks``: the ranks that share vectors; then nothing is cached, so that all of them do the
      same.

    Result: None if a product is not finite.
    """
    if ranks is not None:
        return arnoldi(product, start, ranks=ranks)
    return arnoldi(product, start, lambda first: (start.size, start.dtype.str, *first))


def arnoldi(
    product: Product,
    start: Vector,
    key: Callable[[tuple[complex, float]], tuple[object, ...]] | None = None,
    ranks: Ranks | None = None,
) -> KrylovMatrix | None:
    """Return the result of Arnoldi's method with an operator.

    ``product``: ``product(x, out)`` writes A x into out.
    ``start`` (ndarray, shape (N,)): the first vector, of norm 1.
    ``key``: computes the cache's key from the first column of H; by default nothing is cached.
    ``ranks``: the ranks that share vectors.

    Result: None if a product is not finite.

    Cost: 20 products and 21 vectors; fewer if the vectors need more than 2 GiB, but at least 4
    products; fewer also if an invariant subspace is found.
    """
    process = Arnoldi(product, start, ranks)
    name: tuple[object, ...] = ()
    while process.step():
        if process.count == 1 and key is not None:
            name = key((complex(process.matrix[0, 0]), process.below))
            known = _KNOWN.get(name)
            if known is not None:
                return known
    if not process.is_finite:
        return None
    rounding = math.sqrt(float(np.finfo(start.dtype).eps))
    result = KrylovMatrix(process.hessenberg, rounding, is_whole=process.is_whole)
    if key is not None:
        _KNOWN[name] = result
        while len(_KNOWN) > _MAX_KNOWN:
            _KNOWN.popitem(last=False)
    return result


class Arnoldi:
    """Arnoldi's method, one step at a time: A V = V H + a multiple of one vector, V orthonormal.

    ``product``: ``product(x, out)`` writes A x into out.
    ``start`` (ndarray, shape (N,)): the first vector, of norm 1.
    ``ranks``: the ranks that share vectors.
    ``steps``: the largest number of steps; there are fewer if the vectors need more than 2 GiB (but
      4 at least), and if an invariant subspace is found.
    ``count``: number of steps so far.
    ``below``: the norm of A v minus its components along the vectors before, of the last step.
    ``is_finite``: whether all products were finite.
    ``is_invariant``: whether the vectors so far span an invariant subspace, so that there are no
      more.
    ``is_whole``: whether H is the whole of A in another basis.
    """

    def __init__(
        self, product: Product, start: Vector, ranks: Ranks | None = None, steps: int = _STEPS
    ) -> None:
        self._product, self._ranks, self._arrays = product, ranks, array_module(start)
        self._size = int(sum_over(ranks, np.array([start.size]))[0])
        largest = int(max_over(ranks, start.nbytes))
        self._last = min(self._size, steps, max(_MIN_STEPS, _MAX_BASIS // max(largest, 1)))
        self._eps = float(np.finfo(start.dtype).eps)
        self._basis = self._arrays.empty((self._last + 1, start.size), start.dtype)
        dtype = np.result_type(start.dtype, np.float64)
        self.matrix = np.zeros((self._last + 1, self._last), dtype)
        self._basis[0] = start
        self.count, self.below = 0, 0.0
        self.is_finite, self.is_invariant = True, False

    @property
    def basis(self) -> Vector:
        """The vectors v_1, v_2, … of V, (count, N)."""
        found: Vector = self._basis[: self.count]
        return found

    @property
    def hessenberg(self) -> NDArray[Any]:
        """H, (count, count)."""
        found: NDArray[Any] = self.matrix[: self.count, : self.count]
        return found

    @property
    def is_whole(self) -> bool:
        """Whether H is the whole of A in another basis."""
        return self.count == self._size

    def step(self) -> bool:
        """Take a step; return False if none was taken or no other one can be."""
        j = self.count
        if j == self._last or not self.is_finite:
            return False
        basis, matrix, ranks = self._basis, self.matrix, self._ranks
        new = basis[j + 1]
        with np.errstate(over="ignore", invalid="ignore"):
            self._product(basis[j], new)
            for _ in range(2):
                found = to_host(basis[: j + 1].conj() @ new, "products").astype(matrix.dtype)
                sum_over(ranks, found)
                new -= self._arrays.asarray(found.astype(new.dtype)) @ basis[: j + 1]
                matrix[: j + 1, j] += found
            self.below = norm_over(ranks, new)
        self.is_finite = math.isfinite(self.below) and bool(np.isfinite(matrix[: j + 1, j]).all())
        if not self.is_finite:
            return False
        self.count = j + 1
        matrix[j + 1, j] = self.below
        if self.below <= 100.0 * self._eps * float(np.abs(self.hessenberg).max()):
            self._last, self.is_invariant = self.count, True
        else:
            new *= 1.0 / self.below
        return True


def numerical_abscissa(operator: Any, start: Vector, ranks: Ranks | None = None) -> float:
    """Return the largest eigenvalue of (A + A^H) / 2, the rate that bounds ‖exp(t A)‖.

    ``operator``: an operator that `as_product` takes.
    ``start`` (ndarray, shape (N,)): the first vector, not 0; it is not modified.
    ``ranks``: the ranks that share vectors.

    Returns the estimate of Lanczos' method after 20 steps: a lower bound, at least Re (u, A u) /
    (u, u) of the first vector u. For operators without an adjoint, the largest eigenvalue of (H +
    H^H) / 2 with Arnoldi's H, plus ‖H‖ / 20. NaN if a product is not finite.

    Cost: one product with A and one with A^H per step, and five vectors.
    """
    first = start / norm_over(ranks, start)
    forward = as_product(operator, "problem.operator", first)
    backward = adjoint_product(operator, first)
    if backward is None:
        seen = arnoldi(forward, first, ranks=ranks)
        return math.nan if seen is None else seen.abscissa + 0.05 * seen.size
    return _lanczos(forward, backward, first, ranks)


def _lanczos(forward: Product, backward: Product, now: Vector, ranks: Ranks | None) -> float:
    before, new, other = (np.zeros_like(now) for _ in range(3))
    eps = float(np.finfo(now.dtype).eps)
    diagonal: list[float] = []
    beside: list[float] = []
    below = 0.0
    for _ in range(min(_STEPS, int(sum_over(ranks, np.array([now.size]))[0]))):
        with np.errstate(over="ignore", invalid="ignore"):
            forward(now, new)
            backward(now, other)
            new += other
            new *= 0.5
            new -= below * before
            diagonal.append(dot_over(ranks, now, new).real)
            new -= diagonal[-1] * now
            below = norm_over(ranks, new)
        if not math.isfinite(below + diagonal[-1]):
            return math.nan
        if below <= 100.0 * eps * max(map(abs, (*diagonal, *beside))):
            break
        beside.append(below)
        before, now, new = now, new / below, before
    last = len(diagonal) - 1
    values = scipy.linalg.eigvalsh_tridiagonal(
        diagonal, beside[:last], select="i", select_range=(last, last)
    )
    return float(values[0])
