"""The method of Krylov and Schur: extreme eigenvalues of any operator from restarted bases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from batchkron.arrays import array_module

from ..krylov.systems.result import Status
from ..products import Vector, norms_of
from ..rows import combine, combine_complex, take_out

__all__ = ["RitzPairs", "iterate_krylov", "with_copies"]

Order = Callable[[NDArray[Any]], NDArray[np.intp]]


RitzPairs: TypeAlias = tuple[NDArray[Any], Vector, Status | None, int, float]
"""Approximate eigenpairs: values (k,), rows (k, N) of length 1, how the iteration ended; restarts;
and the norm of the operator, as far as the basis knows it."""


def iterate_krylov(
    product: Callable[[Vector], Vector],
    start: Vector,
    wanted: int,
    order: Order,
    *,
    hermitian: bool,
    inverse: bool,
    size: int,
    tol: float,
    maxiter: int,
    rng: np.random.Generator,
    outside: Vector | None = None,
) -> RitzPairs:
    """Return the ``wanted`` eigenpairs that come first in an order of the values.

    ``product``: of a row (1, N) with the operator.
    ``start`` (ndarray, (1, N)).
    ``order``: returns the indices of values, the most wanted first.
    ``hermitian``: whether the operator is; then values are real, and vectors orthonormal.
    ``inverse``: whether the operator is the inverse of another, whose residuals should be small:
      then vectors are multiplied by it once more, which the basis does without a product.
    ``size``: vectors of the basis between restarts.
    ``tol``: of ‖A v - λ v‖ / |λ|, as the basis knows it.
    ``maxiter``: restarts.
    ``rng``: of vectors where the space is exhausted.
    ``outside`` (ndarray, (m, N)): orthonormal rows that all vectors are kept orthogonal to; the
      start is.

    G. W. Stewart, SIAM J. Matrix Anal. Appl. 23 (2002); for Hermitian operators it is thick-restart
    Lanczos (K. Wu and H. Simon, SIAM J. Matrix Anal. Appl. 22 (2000)). The basis is orthogonalised
    twice in each step. Storage: size + 2 vectors.
    """
    basis = _Basis(product, start, size, hermitian, rng, outside)
    for restart in range(maxiter + 1):
        if not basis.extend():
            broken = np.full(wanted, np.nan)
            rows = array_module(start).full((wanted, start.shape[1]), np.nan, start.dtype)
            return broken, rows, Status.NOT_FINITE, restart, np.nan
        values, weights = basis.ritz_pairs()
        chosen = order(values)[:wanted]
        limits = np.maximum(tol * np.abs(values[chosen]), basis.rounding)
        open_ = np.abs(weights[-1, chosen]) > limits
        if not open_.any() or restart == maxiter:
            break
        kept = max(wanted + int((~open_).sum()), (wanted + basis.size) // 2)
        basis.restart(order, min(kept, basis.size - 1))
    values, weights = values[chosen], weights[:, chosen]
    weights[-1] = weights[-1] / values if inverse else 0.0
    rows = combine_complex(weights.T, basis.rows)
    failure = Status.MAX_ITERATIONS if open_.any() else None
    return values, rows, failure, restart, basis.norm


def with_copies(
    product: Callable[[Vector], Vector],
    pairs: RitzPairs,
    order: Order,
    ends: int,
    *,
    tol: float,
    rng: np.random.Generator,
    **options: Any,
) -> RitzPairs:
    """Return pairs of a Hermitian operator with the copies of eigenvalues that are repeated.

    One Krylov space has one vector of each eigenvalue. So the values that come first in what is
    orthogonal to the pairs are looked for, at ``ends`` ends of the spectrum, as long as one comes
    before the last of the pairs. Other parameters are as of `iterate_krylov`. Storage: that of one
    more basis.
    """
    values, rows, failure, restarts, norm = pairs
    module, (wanted, unknowns) = array_module(rows), rows.shape
    ends = min(ends, unknowns - wanted)
    for _ in range(wanted):
        if failure is not None or ends == 0:
            break
        start = module.asarray(rng.standard_normal((1, unknowns)).astype(rows.dtype))
        for accuracy in (tol**0.5, tol):
            for _ in range(2):
                take_out(rows, start)
                start /= float(norms_of(start)[0])
            own = {"tol": accuracy, "rng": rng, "outside": rows, **options}
            found, more, fault, *_ = iterate_krylov(product, start, ends, order, **own)
            every = np.concatenate([values, found])
            chosen = order(every)[:wanted]
            last = np.setdiff1d(np.arange(wanted), chosen)
            new = chosen[chosen >= wanted]
            near = np.abs(every[new] - every[last]) <= tol * np.abs(every[last])
            if near.all() or fault is not None:
                return values, rows, failure, restarts, norm
            start = more.sum(axis=0)[None]
        values, rows = every[chosen], module.concatenate([rows, more])[chosen]
    return values, rows, failure, restarts, norm


class _Basis:
    """A V = V T + v b*, V orthonormal, as rows: T (m, m) and b* are rows of ``matrix``."""

    def __init__(
        self,
        product: Callable[[Vector], Vector],
        start: Vector,
        size: int,
        hermitian: bool,
        rng: np.random.Generator,
        outside: Vector | None = None,
    ) -> None:
        module, unknowns = array_module(start), start.shape[1]
        self._outside = start[:0] if outside is None else outside
        self._unknowns = unknowns - len(self._outside)
        self.size, self.hermitian = min(size, self._unknowns), hermitian
        self._product, self._rng = product, rng
        self.rows = module.empty((self.size + 1, unknowns), start.dtype)
        self.rows[:1] = start / float(norms_of(start)[0])
        self.matrix = np.zeros((self.size + 1, self.size), np.result_type(start.dtype, np.float64))
        self.count = 0
        self._eps = float(np.finfo(start.dtype).eps)

    @property
    def norm(self) -> float:
        """The norm of T, a lower bound of the operator's."""
        return float(np.linalg.norm(self.matrix, 2))

    @property
    def rounding(self) -> float:
        """What rounding leaves of a residual."""
        return 10 * self._eps * self.norm

    def extend(self) -> bool:
        """Multiply until the basis is full; return whether all products were finite."""
        for j in range(self.count, self.size):
            new = self._product(self.rows[j : j + 1])
            length = float(norms_of(new)[0])
            take_out(self._outside, new)
            products = take_out(self.rows[: j + 1], new)
            take_out(self._outside, new)
            below = float(norms_of(new)[0])
            if not np.isfinite(below):
                return False
            self.matrix[: j + 1, j] = products
            if below <= 10 * self._eps * length:
                below = 0.0
            self.matrix[j + 1, j] = below
            if below == 0.0 and j + 1 < self._unknowns:
                new = self._another(j + 1)
            self.rows[j + 1] = new[0] / (below or 1.0)
        self.count = self.size
        return True

    def _another(self, count: int) -> Vector:
        """Return a random row of length 1 that is orthogonal to the basis."""
        module = array_module(self.rows)
        new = self._rng.standard_normal((1, self.rows.shape[1]))
        row: Vector = module.asarray(new.astype(self.rows.dtype))
        for _ in range(2):
            row /= float(norms_of(row)[0])
            take_out(self._outside, row)
            take_out(self.rows[:count], row)
        row /= float(norms_of(row)[0])
        return row

    def ritz_pairs(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return eigenvalues of T, and columns s, b* s: A V s - λ V s is b* s times v."""
        square, last = self.matrix[: self.count], self.matrix[self.count]
        if self.hermitian:
            values, vectors = np.linalg.eigh((square + square.conj().T) / 2)
        else:
            values, vectors = np.linalg.eig(square)
        return values, np.concatenate([vectors, (last @ vectors)[None]])

    def restart(self, order: Order, kept: int) -> None:
        """Keep an invariant space of T for the first ``kept`` values, and the last vector."""
        square, last = self.matrix[: self.count], self.matrix[self.count]
        if self.hermitian:
            values, vectors = np.linalg.eigh((square + square.conj().T) / 2)
            first = order(values)[:kept]
            triangle, turn = np.diag(values[first]).astype(square.dtype), vectors[:, first]
        else:
            triangle, turn = _leading_schur(square, order, kept)
        kept, last = len(triangle), last @ turn
        self.rows[:kept] = combine(turn.T, self.rows[: self.count])
        self.rows[kept] = self.rows[self.count]
        self.matrix[...] = 0
        self.matrix[:kept, :kept], self.matrix[kept, :kept] = triangle, last
        self.count = kept


def _leading_schur(
    square: NDArray[Any], order: Order, kept: int
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the leading part of a Schur form whose first values are those that come first.

    Pairs of a real matrix stay together, so that there may be one more.
    """
    triangle, turn = scipy.linalg.schur(square)
    values = _schur_values(triangle)
    chosen = np.zeros(len(values), np.intp)
    chosen[order(values)[:kept]] = 1
    if triangle.dtype.kind == "f":
        (pairs,) = np.nonzero(np.diag(triangle, -1))
        chosen[pairs] = chosen[pairs + 1] = np.maximum(chosen[pairs], chosen[pairs + 1])
    if chosen.all():
        first = order(values)[-1]
        chosen[first] = 0
        if triangle.dtype.kind == "f":
            chosen[pairs] = chosen[pairs + 1] = np.minimum(chosen[pairs], chosen[pairs + 1])
    (reorder,) = scipy.linalg.get_lapack_funcs(("trsen",), (triangle,))
    found = reorder(chosen, triangle, turn, job="N")
    count = int(chosen.sum())
    return found[0][:count, :count], found[1][:, :count]


def _schur_values(triangle: NDArray[Any]) -> NDArray[Any]:
    """Return the eigenvalues of a triangular, or real quasi-triangular, matrix in its order."""
    values = np.diag(triangle).astype(np.complex128)
    if triangle.dtype.kind == "f":
        for i in np.flatnonzero(np.diag(triangle, -1)):
            values[i : i + 2] = np.linalg.eigvals(triangle[i : i + 2, i : i + 2])
    return values
