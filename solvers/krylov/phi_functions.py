"""φ-functions of an operator times vectors, by Arnoldi's method with adaptive substeps."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from batchkron.arrays import array_module, to_host

from ..products import Ranks, Vector, norm_over, sum_over
from .systems.result import KrylovResult, Status

__all__ = ["MAX_SUBSTEPS", "KrylovPhi", "Substep"]

_CHECKS = (2, 4, 6, 8, 11, 14, 18, 22, 26)
_SAFETY = 0.8
# Norm of H from which rounding may grow much more than H within a substep. Chosen by hand.
_LARGE = 150.0
MAX_SUBSTEPS = 10_000  # of one evaluation, beyond which it fails; chosen by hand


class Substep(NamedTuple):
    """What a substep did to w.

    Attributes
    ----------
    tau : float
        Its time.
    error : float
        The estimated length of the error that it adds, or that of rounding.
    length : float
        Of w before it, with the augmented entries.
    abscissa : float
        The largest eigenvalue of (H + H*)/2: no vector of the Krylov space grows at a higher rate.
    late : float
        The length that rounding within it has at its end, for H far from normal; else 0.
    """

    tau: float
    error: float
    length: float
    abscissa: float
    late: float = 0.0


class KrylovPhi:
    """Computes w(dt) of w' = A w + v_1 + t v_2 + …, w(0) = v_0, which is Σ_k dt^k φ_k(dt A) v_k.

    ``like`` is a vector (N,) such as those to come, of NumPy or CuPy, ``dimension`` the most Krylov
    vectors, and ``rtol`` the error of a call, relative to the largest of ‖v_0‖ and dt^k ‖v_k‖. If
    vectors are spread over ranks, each has its block of all of them, and all ranks make the object
    and call `solve` at the same time. ValueError if the dimension is less than 2 or rtol not
    positive.

    Arnoldi's method on the augmented matrix [A, V; 0, J], whose exponential contains the
    φ-functions, so that one space serves all of them. The space grows until the estimate
    h β |e_mᵀ φ_1(τ H) e_1| τ of the error is small enough for the time that is left, or else the
    largest substep τ is taken for which it is. Source: A. H. Al-Mohy, N. J. Higham, SIAM J. Sci.
    Comput. 33 (2011), theorem 2.1, for the matrix; R. B. Sidje, Expokit, ACM Trans. Math. Softw. 24
    (1998), for substeps and the estimate.

    Storage: ``dimension`` + 2 vectors. One product with A for each Krylov vector.
    """

    def __init__(
        self,
        like: Vector,
        rtol: float = 1e-9,
        dimension: int = 30,
        ranks: Ranks | None = None,
    ) -> None:
        if dimension < 2:
            raise ValueError(f"dimension is {dimension}; expected at least 2")
        if not 0.0 < rtol < 1.0:
            raise ValueError(f"rtol is {rtol}; expected a number between 0 and 1")
        self._arrays, self._ranks = array_module(like), ranks
        unknowns = int(sum_over(ranks, np.array([like.size]))[0])
        self._dimension = min(int(dimension), unknowns + 4)  # with a few augmented entries
        self._basis = self._arrays.empty((self._dimension + 1, like.size), like.dtype)
        self._work = self._arrays.empty(like.size, like.dtype)
        self._rtol = max(rtol, 50 * float(np.finfo(like.dtype).eps))
        self.applications = 0
        self.substeps: list[Substep] = []

    def solve(
        self,
        product: Callable[[Vector, Vector], None],
        vectors: Sequence[Vector | None],
        dt: float,
        out: Vector,
        rtol: float | None = None,
        max_substeps: int = MAX_SUBSTEPS,
    ) -> KrylovResult:
        """Write Σ_k dt^k φ_k(dt A) v_k into ``out``.

        ``product``: ``product(x, out)`` writes A x into out.
        ``vectors`` (sequence of ndarray, shape (N,), or None): v_0, v_1, …; None is zero.
        ``dt``: the time.
        ``out`` (ndarray, shape (N,)): overwritten; none of the vectors.
        ``rtol``: in the place of the object's, if it is given.
        ``max_substeps``: after which it fails.

        Result: ``x`` is out; ``iterations`` are Krylov vectors, ``restarts`` substeps but one;
        ``substeps`` of this object has them one by one.
        """
        self.substeps = []
        start, forcing = vectors[0], list(vectors[1:])
        sizes = [
            0.0 if v is None else norm_over(self._ranks, v) * dt**k for k, v in enumerate(vectors)
        ]
        largest = max(sizes)
        if start is None:
            out[...] = 0
        else:
            np.copyto(out, start)
        if not all(map(math.isfinite, sizes)):
            return self._result(out, Status.NOT_FINITE, 0, 0)
        if largest == 0.0:
            return self._result(out, Status.CONVERGED, 0, 0)
        scale = largest / dt  # of the augmented entries: they weigh as much as what they add
        problem = _Augmented(product, forcing, scale, self._work)
        tolerance = (self._rtol if rtol is None else rtol) * largest
        return self._march(problem, out, dt, tolerance, sizes[0], max_substeps)

    def _march(
        self,
        problem: _Augmented,
        w: Vector,
        dt: float,
        tolerance: float,
        size: float,
        max_substeps: int,
    ) -> KrylovResult:
        """Take substeps from 0 to dt; ``size`` is ‖w‖."""
        done, vectors, substeps, trial = 0.0, 0, 0, dt
        while done < dt:
            left = dt - done
            tail = problem.tail(done)
            beta = math.hypot(size, float(np.linalg.norm(tail)))
            if not math.isfinite(beta) or substeps == max_substeps:
                status = Status.STAGNATED if math.isfinite(beta) else Status.NOT_FINITE
                return self._result(w, status, vectors, substeps)
            tau, coefficients, error, square = self._substep(
                problem, w, tail, beta, min(left, trial), tolerance / dt
            )
            if not tau > 0.0:
                status = Status.NOT_FINITE if math.isnan(tau) else Status.STAGNATED
                return self._result(w, status, vectors, substeps)
            count = len(coefficients)
            vectors += min(count, self._dimension)
            weights = self._arrays.asarray((beta * coefficients).astype(w.dtype))
            np.dot(weights, self._basis[:count], out=w)
            size = norm_over(self._ranks, w)
            self.substeps.append(_recorded(tau, error, beta, square, w.dtype))
            trial = 2.0 * tau
            done = dt if tau >= left * (1.0 - 1e-12) else done + tau
            substeps += 1
        return self._result(w, Status.CONVERGED, vectors, substeps)

    def _substep(
        self,
        problem: _Augmented,
        w: Vector,
        tail: NDArray[Any],
        beta: float,
        tau: float,
        rate: float,
    ) -> tuple[float, NDArray[Any], float, NDArray[Any]]:
        """Return a substep whose error is at most rate · τ, w(τ) / β in the basis, error and H."""
        basis, maximum = self._basis, self._dimension
        tails = np.zeros((maximum + 1, len(tail)), np.result_type(w.dtype, np.float64))
        matrix = np.zeros((maximum + 2, maximum + 2), tails.dtype)
        np.multiply(w, 1.0 / beta, out=basis[0])
        tails[0] = tail / beta
        for j in range(maximum):
            tails[j + 1] = problem.multiply(basis[j], tails[j], basis[j + 1])
            self.applications += 1
            below = self._orthogonalise(j, tails, matrix)
            if not math.isfinite(below):
                return math.nan, np.zeros(0), math.nan, matrix
            scale = float(np.abs(matrix[: j + 1, j]).max())
            if below <= 100 * np.finfo(w.dtype).eps * scale:  # the space holds all that is to come
                square = matrix[: j + 1, : j + 1]
                return tau, scipy.linalg.expm(tau * square)[:, 0], 0.0, square
            if j + 1 in _CHECKS or j + 1 == maximum:
                column, error = _evaluate(matrix, j + 1, tau, beta)
                if error <= rate * tau:
                    return tau, column, error, matrix[: j + 1, : j + 1]
        count = maximum
        for _ in range(60):
            ratio = _SAFETY * rate * tau / error if math.isfinite(error) else 0.0
            tau *= max(0.1, min(0.9, ratio ** (1.0 / count)))
            column, error = _evaluate(matrix, count, tau, beta)
            if error <= rate * tau:
                return tau, column, error, matrix[:count, :count]
        return 0.0, np.zeros(0), math.inf, matrix

    def _orthogonalise(self, j: int, tails: NDArray[Any], matrix: NDArray[Any]) -> float:
        """Make vector j + 1 orthonormal to those before it, twice; return its norm before."""
        basis, new = self._basis, self._basis[j + 1]
        for _ in range(2):
            products = to_host(np.dot(basis[: j + 1].conj(), new), "products").astype(matrix.dtype)
            sum_over(self._ranks, products)
            products = products + tails[: j + 1].conj() @ tails[j + 1]
            weights = self._arrays.asarray(products.astype(new.dtype))
            np.dot(weights, basis[: j + 1], out=self._work)
            np.subtract(new, self._work, out=new)
            tails[j + 1] -= products @ tails[: j + 1]
            matrix[: j + 1, j] += products
        square = sum_over(self._ranks, np.array([float(np.vdot(new, new).real)]))[0]
        below = math.hypot(math.sqrt(square), float(np.linalg.norm(tails[j + 1])))
        matrix[j + 1, j] = below
        if below > 0.0 and math.isfinite(below):
            np.multiply(new, 1.0 / below, out=new)
            tails[j + 1] /= below
        return below

    def _result(self, out: Vector, status: Status, vectors: int, substeps: int) -> KrylovResult:
        return KrylovResult(
            x=out,
            status=status,
            residual_norm=float("nan"),
            residual_norms=np.empty(0),
            iterations=vectors,
            restarts=max(substeps - 1, 0),
            applications=vectors,
            preconditioner_applications=0,
        )


class _Augmented:
    """The matrix [A, V; 0, J] of w' = A w + Σ_k v_k t^(k-1)/(k-1)!, the tail on the CPU."""

    def __init__(
        self,
        product: Callable[[Vector, Vector], None],
        forcing: Sequence[Vector | None],
        scale: float,
        work: Vector,
    ) -> None:
        self._product, self._forcing, self._work = product, forcing, work
        self._scale = scale

    def tail(self, t: float) -> NDArray[np.float64]:
        """Return the entries scale · t^(k-1) / (k-1)! at a time."""
        powers = [t**k / math.factorial(k) for k in range(len(self._forcing))]
        return self._scale * np.array(powers)

    def multiply(self, x: Vector, tail: NDArray[Any], out: Vector) -> NDArray[Any]:
        """Write A x + V tail / scale into ``out``; return J tail."""
        self._product(x, out)
        for vector, weight in zip(self._forcing, tail, strict=True):
            if vector is not None and weight != 0.0:
                number = weight.item() / self._scale
                if out.dtype.kind != "c":
                    number = number.real
                np.multiply(vector, number, out=self._work)
                np.add(out, self._work, out=out)
        return np.concatenate([tail[:1] * 0.0, tail[:-1]])


def _recorded(
    tau: float, error: float, length: float, square: NDArray[Any], dtype: np.dtype[Any]
) -> Substep:
    """Return what is recorded of a substep of w with some length, by its H."""
    rounding = float(np.finfo(dtype).eps) * max(1.0, tau * float(np.linalg.norm(square, 1)))
    late = length * _amplified(rounding, tau * square)
    abscissa = float(np.linalg.eigvalsh((square + square.conj().T) / 2)[-1])
    return Substep(tau, max(error, rounding * length), length, abscissa, late)


def _amplified(rounding: float, square: NDArray[Any]) -> float:
    """Return what a random change of H of that size makes of exp(H) e_1.

    0 unless H is large, apart from a multiple of the identity, and far from normal.
    """
    mean = np.trace(square) / len(square)
    size = math.sqrt(max(float(np.linalg.norm(square)) ** 2 - len(square) * abs(mean) ** 2, 0.0))
    if size < _LARGE:
        return 0.0
    square = square - mean * np.eye(len(square))
    adjoint = square.conj().T
    commutator = square @ adjoint
    commutator -= adjoint @ square
    if np.linalg.norm(commutator) < 1e-8 * size**2:
        return 0.0
    rng = np.random.default_rng(0)
    change: NDArray[Any] = rng.standard_normal(square.shape)
    if square.dtype.kind == "c":
        change = change + 1j * rng.standard_normal(square.shape)
    change *= rounding / np.linalg.norm(change)
    with np.errstate(over="ignore", invalid="ignore"):
        made = scipy.linalg.expm_frechet(square, change, compute_expm=False)[:, 0]
        length = float(np.linalg.norm(made)) * math.exp(min(mean.real, 700.0))
    return length if math.isfinite(length) else math.inf


def _evaluate(
    matrix: NDArray[Any], count: int, tau: float, beta: float
) -> tuple[NDArray[Any], float]:
    """Return exp(τ H) e_1, with the correction by the next vector, and the error's estimate."""
    extended = np.zeros((count + 1, count + 1), matrix.dtype)
    extended[: count + 1, :count] = matrix[: count + 1, :count]
    with np.errstate(over="ignore", invalid="ignore"):
        column = scipy.linalg.expm(tau * extended)[:, 0]
    error = beta * float(abs(column[count]))
    return column, error if math.isfinite(error) else math.inf
