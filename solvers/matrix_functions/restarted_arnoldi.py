"""Functions of any operator by Arnoldi's method with restarts."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from batchkron.arrays import array_module

from ..krylov.systems.result import Status
from ..products import Vector, norm
from ..rows import combine_complex, take_out
from .result import Outcome, of_no_length
from .scalar_functions import first_column

__all__ = ["any_function", "inverse_root"]

# Dimensions at which errors are estimated, beside those of whole cycles.
_CHECKS = (4, 6, 8, 11, 14, 18, 23, 29, 36, 45, 56, 70, 88, 110)
_ANGLE_MARGIN = 0.15  # of eigenvalues that H does not show yet, in radians; chosen by hand
_LOWEST = 0.2  # the least eigenvalue of A, in units of that of H, for estimates; chosen by hand
_MARGIN = 5.0  # likewise, of the logarithms of their moduli


class _Cycle:
    """A basis (m + 1, N) of rows and H, m + 1 rows, with A V_m = V_(m+1) H."""

    def __init__(self, like: Vector, size: int) -> None:
        self.rows = array_module(like).empty((size + 1, len(like)), like.dtype)
        self.matrix = np.zeros((size + 1, size), np.result_type(like.dtype, np.float64))
        self.count, limits = 0, np.finfo(like.dtype)
        self.eps, self.largest = (float(n) for n in (limits.eps, limits.max))

    def begin(self, v: Vector) -> None:
        """Begin with a vector of length 1."""
        self.rows[0] = v
        self.matrix[...] = 0
        self.count = 0

    @property
    def square(self) -> NDArray[Any]:
        return self.matrix[: self.count, : self.count]

    @property
    def below(self) -> float:
        """The length of the next vector before it was scaled; 0 where the space is invariant."""
        return float(self.matrix[self.count, self.count - 1].real)

    def extend(self, product: Callable[[Vector], Vector]) -> bool:
        """Multiply once; return whether the product was finite."""
        j = self.count
        new = product(self.rows[j])[None]
        self.matrix[: j + 1, j] = take_out(self.rows[: j + 1], new)
        below = norm(new[0])
        if not math.isfinite(below):
            return False
        scale = float(np.abs(self.matrix[: j + 1, j]).max())
        self.matrix[j + 1, j] = below if below > 10 * self.eps * scale else 0.0
        if self.matrix[j + 1, j]:
            self.rows[j + 1] = new[0] * (1.0 / below)
        self.count = j + 1
        return True

    def combined(self, weights: NDArray[Any]) -> Vector:
        """Return a combination of the vectors, but for the last."""
        return combine_complex(weights[None], self.rows[: self.count])[0]  # type: ignore[no-any-return]


def any_function(
    product: Callable[[Vector], Vector],
    b: Vector,
    f: Any,
    t: complex,
    rtol: float,
    atol: float,
    restart: int,
    maxiter: int,
) -> Outcome:
    """Return f(t A) b for a vector b (N,) and a function f of matrices.

    M. Eiermann and O. G. Ernst, SIAM J. Numer. Anal. 44 (2006): a cycle goes on from the last
    vector of the one before, and its correction is the last part of f(H) e_1 of the matrix H of all
    cycles. The error is estimated by what the last steps have changed. Storage: restart + 3
    vectors, and a matrix of maxiter numbers squared.
    """
    size = norm(b)
    if size == 0.0 or not math.isfinite(size):
        return of_no_length(b, size)
    cycle, x = _Cycle(b, min(restart, len(b))), b * 0
    whole, below = np.zeros((0, 0), cycle.matrix.dtype), 0.0
    done, error, v = 0, math.inf, b * (1.0 / size)
    while True:
        cycle.begin(v)
        most = min(len(cycle.rows) - 1, maxiter - done)
        known = np.zeros(0)
        while True:
            if not cycle.extend(product):
                return Outcome(b * np.nan, math.nan, Status.NOT_FINITE, done + cycle.count)
            ended = cycle.below == 0.0
            if not ended and cycle.count not in _CHECKS and cycle.count < most:
                continue
            joined = _joined(whole, below, cycle.square)
            weights = size * first_column(f, t * joined)[done:]
            total = math.hypot(norm(x), norm(weights))
            if not total <= cycle.largest:
                return Outcome(b * np.nan, math.nan, Status.NOT_FINITE, done + cycle.count)
            change = weights.astype(np.result_type(weights, known))
            change[: len(known)] -= known
            rounding = 10 * cycle.eps * total
            error = max(0.0 if ended else norm(change), rounding)
            known = weights
            if error <= max(rtol * total, atol, rounding) or cycle.count >= most:
                break
        x = x + cycle.combined(weights)
        done += cycle.count
        if ended or error <= max(rtol * total, atol, rounding):
            return Outcome(x, error, None, done)
        if done >= maxiter:
            return Outcome(x, error, Status.MAX_ITERATIONS, done)
        whole, below = joined, cycle.below
        v = cycle.rows[cycle.count].copy()


def _joined(whole: NDArray[Any], below: float, square: NDArray[Any]) -> NDArray[Any]:
    """Return the matrix of all cycles: block diagonal, but for the numbers that join two."""
    first, size = len(whole), len(whole) + len(square)
    joined = np.zeros((size, size), square.dtype)
    joined[:first, :first], joined[first:, first:] = whole, square
    if first:
        joined[first, first - 1] = below
    return joined


def inverse_root(
    product: Callable[[Vector], Vector],
    b: Vector,
    rtol: float,
    atol: float,
    restart: int,
    maxiter: int,
) -> Outcome:
    """Return A^(-½) b for a vector b (N,), A without eigenvalues on the negative real axis.

    A^(-½) = π⁻¹ ∫ e^(u/2) (e^u + A)⁻¹ du by the trapezoidal rule: one Krylov space serves all
    shifts, and also after a restart, as the residuals of shifted systems are multiples of one
    vector (A. Frommer, S. Güttel and M. Schweitzer, SIAM J. Matrix Anal. Appl. 35 (2014)). Range
    and distance of the nodes follow from the eigenvalues of the first H, with margins, so that the
    rule's error is below rtol. The error is estimated by the residuals that are left. Storage:
    restart + 3 vectors.
    """
    size = norm(b)
    if size == 0.0 or not math.isfinite(size):
        return of_no_length(b, size)
    cycle, x, done = _Cycle(b, min(restart, len(b))), b * 0, 0
    v, left, nodes, lowest = b * (1.0 / size), np.ones(1), None, math.inf
    while True:
        cycle.begin(v)
        most = min(len(cycle.rows) - 1, maxiter - done)
        error = limit = math.nan
        while not error <= limit:
            if not cycle.extend(product):
                return Outcome(b * np.nan, math.nan, Status.NOT_FINITE, done + cycle.count)
            last = cycle.count >= most or cycle.below == 0.0
            if not last and cycle.count not in _CHECKS:
                continue
            values = np.linalg.eigvals(cycle.square)
            nodes = _nodes(values, rtol) if done == 0 else nodes
            if nodes is not None:
                shifts, weights = nodes
                solved = _shifted_solutions(cycle.square, shifts)
                found = solved @ (weights * left)
                after = -(cycle.below * solved[-1]) * left
                lowest = min(lowest, _LOWEST * float(np.abs(values).min()))
                error = float((weights * (np.abs(after) / (shifts + lowest))).sum())
                length = max(norm(found), norm(x))
                limit = max(rtol * length, atol / size)
                if not length <= cycle.largest:  # restarts that diverge
                    return Outcome(b * np.nan, math.nan, Status.NOT_FINITE, done + cycle.count)
            elif last:
                return Outcome(b * np.nan, math.nan, Status.INDEFINITE, done + cycle.count)
            if last:
                break
        x, left, done = x + cycle.combined(found), after, done + cycle.count
        if error <= limit or done >= maxiter:
            failure = None if error <= limit else Status.MAX_ITERATIONS
            return Outcome(x * size, error * size, failure, done)
        v = cycle.rows[cycle.count].copy()


def _nodes(
    values: NDArray[Any], rtol: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """Return shifts and weights for z^(-½) at values, None if one is near the negative real axis.

    The integrand is analytic for |Im u| < π - |arg z|, which is what the distance of nodes needs,
    and its tails are 2 e^(-|u - log z| / 2).
    """
    angle = float(np.abs(np.angle(values)).max()) + _ANGLE_MARGIN
    if not angle < math.pi or not (np.abs(values) > 0).all():
        return None
    digits = -math.log(max(0.01 * rtol, 1e-16))
    distance = 2 * math.pi * (math.pi - angle) / digits
    sizes = np.log(np.abs(values))
    u = np.arange(sizes.min() - _MARGIN - 2 * digits, sizes.max() + _MARGIN + 2 * digits, distance)
    return np.exp(u), distance / math.pi * np.exp(u / 2)


def _shifted_solutions(square: NDArray[Any], shifts: NDArray[np.float64]) -> NDArray[Any]:
    """Return (H + s)⁻¹ e_1 for each shift, as columns (m, shifts)."""
    triangle, turn = scipy.linalg.schur(square, output="complex")
    diagonal = np.diag(triangle)[:, None] + shifts
    solved = np.repeat(turn[0].conj()[:, None], len(shifts), axis=1)
    for j in range(len(triangle) - 1, -1, -1):
        solved[j] = (solved[j] - triangle[j, j + 1 :] @ solved[j + 1 :]) / diagonal[j]
    solved = turn @ solved
    return np.asarray(solved if square.dtype.kind == "c" else solved.real)
