"""Locally optimal block preconditioned conjugate gradients for eigenvalues (LOBPCG)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from batchkron.arrays import array_module

from ..krylov.systems.result import Status
from ..products import Vector, norms_of
from ..rows import Multiplied, combine, gram, orthonormalise, scaled
from .result import EigenResult

__all__ = ["BlockProblem", "iterate_block"]

# Iterations in which no residual becomes smaller, all being less than 10⁴ eps ‖A‖, after which
# rounding is blamed; chosen by hand.
_MAX_STAGNANT = 30


@dataclass
class BlockProblem:
    """A v = λ B v with what `iterate_block` needs of it.

    ``A``, ``B``, ``M``: products with rows; B and M may be those of the identity.
    ``constraints`` (ndarray, (c, N)): rows that vectors have to be orthogonal to, x* B y = 0.
    ``largest``: which end of the spectrum; None: that of the eigenvalues next to 0, which have one
      sign.
    ``rtol``, ``atol``: ‖A v - λ B v‖ ≤ max(rtol |λ| ‖B v‖, atol ‖v‖) ends the iteration for a pair.
    """

    A: Multiplied
    B: Multiplied
    M: Multiplied
    constraints: Vector
    largest: bool | None
    rtol: float
    atol: float


def iterate_block(problem: BlockProblem, start: Vector, wanted: int, maxiter: int) -> EigenResult:
    """Return ``wanted`` eigenpairs from an iteration with a block of rows (m, N), m ≥ wanted.

    LOBPCG (A. V. Knyazev, SIAM J. Sci. Comput. 23 (2001)): Rayleigh and Ritz's method in the space
    of the block X, preconditioned residuals W of pairs that have not converged, and the last
    changes P of these. X, P and W are kept orthonormal, P by orthogonalising its coefficients (U.
    Hetmaniuk and R. Lehoucq, J. Comput. Phys. 218 (2006); J. A. Duersch and others, SIAM J. Sci.
    Comput. 40 (2018)): then nothing breaks down where vectors become dependent, and these
    directions are left out. Images under A and B follow by the same combinations, so that an
    iteration multiplies W alone. True residuals are computed at the end and decide.
    """
    return _BlockIteration(problem, start).run(wanted, maxiter)


class _BlockIteration:
    def __init__(self, problem: BlockProblem, start: Vector) -> None:
        self.problem, self.eps = problem, float(np.finfo(start.dtype).eps)
        known = problem.constraints
        self.known, self.known_images = orthonormalise(
            known, problem.B(known), known[:0], known[:0]
        )
        self.x, self.bx = orthonormalise(start, problem.B(start), self.known, self.known_images)
        if len(self.known) < len(known) or len(self.x) < len(start):
            raise ValueError(
                "the vectors to begin with, or Y's, are linearly dependent or not finite, or B is "
                "not positive definite"
            )
        self.ax = problem.A(self.x)
        self.p, self.ap, self.bp = self.x[:0], self.x[:0], self.x[:0]
        self.operator_norm = 0.0  # the longest product of A with a unit vector
        self.values = np.zeros(len(self.x))
        self._seen(self.x, self.ax)

    def run(self, wanted: int, maxiter: int) -> EigenResult:
        """Iterate until the first pairs have converged, and return them."""
        failure = self._rotate()
        best, stagnant, step = np.full(wanted, np.inf), 0, 0
        while failure is None:
            residuals, norms, limits = self._residuals()
            if not np.isfinite(norms).all():
                failure = Status.NOT_FINITE
                break
            open_ = norms > limits
            if not open_[:wanted].any():
                self.ax[:wanted] = self.problem.A(self.x[:wanted])
                residuals, norms, limits = self._residuals()
                open_ = norms > limits
                if not open_[:wanted].any():
                    break
            better = norms[:wanted] < 0.9 * best
            near_rounding = norms[:wanted] < 1e4 * self.eps * self.operator_norm
            stuck = (near_rounding & ~better)[open_[:wanted]].all()
            stagnant = stagnant + 1 if stuck else 0
            best = np.minimum(best, norms[:wanted])
            if step >= maxiter or stagnant > _MAX_STAGNANT:
                failure = Status.MAX_ITERATIONS if step >= maxiter else Status.STAGNATED
                break
            step += 1
            failure = self._extend(residuals, open_)
        return self._ended(wanted, failure, step)

    def _extend(self, residuals: Vector, open_: NDArray[np.bool_]) -> Status | None:
        """Find the best block in the space with the preconditioned residuals of open pairs."""
        problem, module = self.problem, array_module(self.x)
        rows = residuals[module.asarray(np.flatnonzero(open_))]
        rows = problem.M(scaled(rows, 1.0 / norms_of(rows)))
        known = module.concatenate([self.known, self.x, self.p])
        images = module.concatenate([self.known_images, self.bx, self.bp])
        w, bw = orthonormalise(rows, problem.B(rows), known, images)
        if not len(w):
            return Status.STAGNATED if np.isfinite(norms_of(rows)).all() else Status.NOT_FINITE
        aw = problem.A(w)
        self._seen(w, aw)
        self.x = module.concatenate([self.x, w, self.p])
        self.ax = module.concatenate([self.ax, aw, self.ap])
        plain = problem.B.is_identity
        self.bx = self.x if plain else module.concatenate([self.bx, bw, self.bp])
        return self._rotate(open_)

    def _rotate(self, open_: NDArray[np.bool_] | None = None) -> Status | None:
        """Take the Ritz vectors of the space, and the changes P of the open ones."""
        matrix = gram(self.x, self.ax)
        if not np.isfinite(matrix).all():
            return Status.NOT_FINITE
        values, vectors = np.linalg.eigh((matrix + matrix.conj().T) / 2)
        count = len(matrix) if open_ is None else len(open_)
        largest = self._is_largest(values)
        if largest is None:
            return Status.INDEFINITE
        order = np.arange(len(values))[::-1] if largest else np.arange(len(values))
        chosen = vectors[:, order[:count]]
        self.values = values[order[:count]]
        parts = self.x, self.ax, self.bx
        if open_ is not None:
            changes = chosen[:, open_].copy()
            changes[:count] = 0.0
            changes = _beside(chosen, changes, self.eps)
            self.p, self.ap = (combine(changes.T, rows) for rows in parts[:2])
            self.bp = combine(changes.T, self.bx) if self.bx is not self.x else self.p
        plain = self.bx is self.x
        self.x, self.ax = (combine(chosen.T, rows) for rows in parts[:2])
        self.bx = self.x if plain else combine(chosen.T, parts[2])
        return None

    def _is_largest(self, values: NDArray[Any]) -> bool | None:
        """Whether the largest Ritz values are wanted; None if next to 0 is no end of these."""
        if self.problem.largest is not None:
            return self.problem.largest
        rounding = 100 * self.eps * max(self.operator_norm, float(np.abs(values).max(initial=0.0)))
        if values[0] < -rounding and values[-1] > rounding:
            return None
        return bool(values[0] < -rounding)

    def _residuals(self) -> tuple[Vector, NDArray[np.float64], NDArray[np.float64]]:
        """Return A x - λ B x, their norms for x of length 1, and what they have to be."""
        problem = self.problem
        residuals = self.ax - scaled(self.bx, self.values)
        lengths = norms_of(self.x)
        norms = norms_of(residuals) / lengths
        images = lengths if self.bx is self.x else norms_of(self.bx)
        rounding = 10 * self.eps * self.operator_norm
        relative = problem.rtol * np.abs(self.values) * images / lengths
        return residuals, norms, np.maximum(np.maximum(relative, problem.atol), rounding)

    def _seen(self, rows: Vector, images: Vector) -> None:
        with np.errstate(invalid="ignore"):
            ratios = norms_of(images) / norms_of(rows)
        self.operator_norm = max(self.operator_norm, float(ratios.max(initial=0.0)))

    def _ended(self, wanted: int, failure: Status | None, step: int) -> EigenResult:
        problem = self.problem
        _, norms, limits = self._residuals()
        good = np.isfinite(norms[:wanted]) & (norms[:wanted] <= limits[:wanted])
        statuses = np.array([Status.CONVERGED if one else failure for one in good], object)
        return EigenResult(
            values=self.values[:wanted],
            vectors=self.x[:wanted].T,
            residual_norms=norms[:wanted],
            statuses=statuses,
            iterations=step,
            products=problem.A.products,
            preconditioner_applications=problem.M.products,
        )


def _beside(chosen: NDArray[Any], changes: NDArray[Any], eps: float) -> NDArray[Any]:
    """Return an orthonormal basis of changes (n, p), orthogonal to chosen orthonormal columns."""
    for _ in range(2):
        changes = changes - chosen @ (chosen.conj().T @ changes)
    q, triangle, _ = scipy.linalg.qr(changes, mode="economic", pivoting=True)
    q = q[:, np.abs(np.diag(triangle)) > 100 * eps]
    return np.asarray(np.linalg.qr(q - chosen @ (chosen.conj().T @ q))[0])
