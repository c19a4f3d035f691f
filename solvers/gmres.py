"""The generalised minimal residual method, restarted: GMRES(m)."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchkron.arrays import device_errors
from batchkron.solvers.krylov_method import WORTHWHILE, KrylovMethod, most_iterations
from batchkron.solvers.krylov_result import KrylovResult, SolveLog, Status
from batchkron.solvers.linear_system import (
    LinearSystem,
    Vector,
    check_count,
    norm,
    right_hand_side,
    working_dtype,
)

_CALLBACK_TYPES = ("pr_norm", "x", "legacy")


@device_errors()
def gmres(
    A: Any,
    b: Any,
    x0: Any = None,
    *,
    rtol: float = 1e-5,
    atol: float = 0.0,
    restart: int | None = 20,
    maxiter: int | None = None,
    M: Any = None,
    callback: Callable[[Any], object] | None = None,
    callback_type: str | None = "pr_norm",
    raise_on_failure: bool = False,
) -> KrylovResult:
    """Solve A x = b by minimising ‖b - A x‖₂ over x₀ + M K_m(A M, r₀), restarted every m steps.

    Parameters
    ----------
    A : array, sparse array, LinearOperator or object with ``matvec``, shape (N, N)
        Any square matrix, real or complex. ``matvec(x, out=None)`` is called with ``out``
        where it has that parameter.
    b : array_like, shape (N,) or (N, 1)
        The right-hand side.
    x0 : array_like of shape (N,), "Mb", or None
        The initial guess; None is zero, "Mb" is M b.
    rtol, atol : float
        The solve stops when the true residual satisfies ‖b - A x‖₂ ≤ max(rtol ‖b‖₂, atol).
    restart : int or None
        m, the inner iterations between restarts; None is 20, and N bounds it.
    maxiter : int, optional
        The largest number of restart cycles; 10 N by default.
    M : as A, optional
        The preconditioner, M ≈ A⁻¹. It is applied from the right, so that the residual which is
        minimised is the true one.
    callback : callable, optional
        Called as ``callback_type`` says.
    callback_type : {"pr_norm", "x", "legacy"} or None
        "pr_norm": with ‖r‖/‖b‖ (a float) after each inner iteration. "x": with a copy of the
        iterate at the end of each cycle. "legacy": as "pr_norm", and ``maxiter`` counts inner
        iterations. None is "legacy", as in SciPy. Without a callback it has no effect.
    raise_on_failure : bool
        Raise where the solve does not converge, instead of returning a status.

    Returns
    -------
    KrylovResult
        ``x``, ``status``, ``iterations`` and more; unpacks as ``x, info``.

    Raises
    ------
    ValueError
        If shapes do not agree, a tolerance is negative, or an option is unknown.
    TypeError
        If an operand has no product with a vector, or a dtype is not a float or complex one.
    RuntimeError
        If ``raise_on_failure`` and the status is not ``Status.CONVERGED``.

    See Also
    --------
    Gmres : The same with a workspace that is kept between solves.

    Notes
    -----
    The method is that of [1]_. The basis is orthogonalised by classical Gram-Schmidt, done
    twice: this keeps it orthogonal to working precision unless A is numerically singular [2]_,
    where the modified variant loses orthogonality in proportion to the condition number, and it
    consists of four matrix-vector products instead of a loop over vectors. Singular systems
    break down as in [3]_: the part of the small triangular system that is singular to working
    precision is left out, and the result is a least-squares solution over the space reached.

    The estimate of the residual that stops a cycle is never trusted: b - A x is computed at its
    end and decides. An update that does not reduce it is thrown away.

    Storage: m + 3 vectors, m + 4 with M, beside b and the returned x. Each iteration applies A
    (and M) once, each cycle once more.

    References
    ----------
    .. [1] Y. Saad, M. H. Schultz, GMRES: a generalized minimal residual algorithm for solving
       nonsymmetric linear systems, SIAM J. Sci. Stat. Comput. 7 (1986).
    .. [2] L. Giraud, J. Langou, M. Rozložník, J. van den Eshof, Rounding error analysis of the
       classical Gram-Schmidt orthogonalization process, Numer. Math. 101 (2005).
    .. [3] P. N. Brown, H. F. Walker, GMRES on (nearly) singular systems, SIAM J. Matrix Anal.
       Appl. 18 (1997).

    Examples
    --------
    >>> import numpy as np
    >>> from batchkron.solvers import gmres
    >>> x, info = gmres(np.array([[2.0, 1.0], [0.0, 4.0]]), np.array([4.0, 8.0]))
    >>> print(x, info)
    [1. 2.] 0
    """
    rhs = right_hand_side(b)
    workspace = Gmres(rhs.size, working_dtype(A, rhs), restart=restart, like=rhs)
    return workspace.solve(
        A,
        b,
        x0,
        rtol=rtol,
        atol=atol,
        maxiter=maxiter,
        M=M,
        callback=callback,
        callback_type=callback_type,
        raise_on_failure=raise_on_failure,
    )


class Gmres(KrylovMethod):
    """The workspace of GMRES(m) for systems of one size, kept from solve to solve.

    Parameters
    ----------
    size : int
        N, the number of unknowns.
    dtype : dtype_like
        float32, float64, complex64 or complex128.
    restart : int or None
        m, the inner iterations between restarts; None is 20, and N bounds it.
    like : ndarray, optional
        Where the vectors are: NumPy's by default, or those of the device of a CuPy array.

    Raises
    ------
    ValueError
        If ``size`` < 0 or ``restart`` < 1.
    TypeError
        If one is not an integer, or the dtype is not one of the four.

    Notes
    -----
    Storage: m + 3 vectors, and one more from the first solve with M on. A solve allocates no
    vector where ``out`` is given and A and M take ``out=``. One solve at a time.

    Examples
    --------
    >>> import numpy as np
    >>> from batchkron.solvers import Gmres
    >>> solver = Gmres(2, restart=2)
    >>> for scale in (1.0, 2.0):
    ...     print(solver.solve(scale * np.eye(2), np.ones(2)).x)
    [1. 1.]
    [0.5 0.5]
    """

    def __init__(
        self,
        size: int,
        dtype: Any = np.float64,
        *,
        restart: int | None = 20,
        like: Any = None,
    ) -> None:
        super().__init__(size, dtype, like=like)
        wanted = check_count("restart", 20 if restart is None else restart)
        self.restart = max(min(wanted, self.size), 1)
        self._basis: NDArray[Any] = self._empty(self.restart + 1, self.size)
        self._x, self._work = self._vector(), self._vector()
        self._coefficients = self._empty(2, self.restart + 1)
        small = np.result_type(self.dtype, np.float64)
        self._triangle = np.zeros((self.restart, self.restart), small)
        self._projected = np.empty(self.restart + 1, small)
        self._rotations: list[tuple[float, Any]] = []

    @device_errors()
    def solve(
        self,
        A: Any,
        b: Any,
        x0: Any = None,
        *,
        rtol: float = 1e-5,
        atol: float = 0.0,
        maxiter: int | None = None,
        M: Any = None,
        callback: Callable[[Any], object] | None = None,
        callback_type: str | None = "pr_norm",
        out: Vector | None = None,
        raise_on_failure: bool = False,
    ) -> KrylovResult:
        """Solve A x = b in this workspace; the parameters are those of `gmres`.

        Parameters
        ----------
        A, b, x0, rtol, atol, maxiter, M, callback, callback_type, raise_on_failure
            As for `gmres`.
        out : ndarray, shape (N,), optional
            Where x is written; a fresh array by default.

        Returns
        -------
        KrylovResult
            As for `gmres`; ``x`` is ``out`` where that is given.

        Raises
        ------
        ValueError, TypeError, RuntimeError
            As for `gmres`; ValueError also if b or ``out`` does not have N elements.
        """
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            system = LinearSystem(A, b, M, self.dtype, rtol=rtol, atol=atol)
            self._check(system, out)
            watch = _Watch(system, maxiter, callback, callback_type)
            status = self._iterate(system, x0, watch)
        return self._finish(system, self._x, status, watch.log, out, raise_on_failure)

    def _iterate(self, system: LinearSystem, x0: Any, watch: _Watch) -> Status:
        """Run cycles until the true residual, or the lack of progress, decides."""
        log = watch.log
        log.residual_norm = system.start(x0, self._x, self._basis[0])
        log.residual_norms.append(log.residual_norm)
        status = system.verdict(log.residual_norm)
        while status is None:
            columns = self._cycle(system, watch)
            if columns is None:
                return Status.NOT_FINITE
            kept = self._rank(columns)
            before = log.residual_norm
            status = self._update(system, kept, log)
            watch.cycle_ended(self._x)
            little = log.residual_norm > WORTHWHILE * before
            if kept < columns and little and status in (None, Status.STAGNATED):
                status = Status.BREAKDOWN
            if status is None and watch.used_up:
                status = Status.MAX_ITERATIONS
            if status is None:
                log.restarts += 1
        return status

    def _cycle(self, system: LinearSystem, watch: _Watch) -> int | None:
        """Extend the basis from the residual in its first row; return the number of columns.

        None means that a product was not finite.
        """
        self._basis[0] /= watch.log.residual_norm
        self._projected.fill(0.0)
        self._projected[0] = watch.log.residual_norm
        self._rotations.clear()
        most = min(self.restart, watch.iterations_left)
        for j in range(most):
            direction = system.precondition(self._basis[j], self._preconditioned)
            system.apply(direction, self._basis[j + 1])
            column = self._orthogonalise(j)
            if column is None:
                return None
            exhausted = column[j + 1] == 0.0
            estimate = self._rotate(j, column)
            watch.iteration_ended(estimate)
            if estimate <= system.tolerance or exhausted:
                return j + 1
        return most

    def _orthogonalise(self, j: int) -> list[Any] | None:
        """Make basis[j + 1] a unit vector orthogonal to those before it.

        Returns the Hessenberg column h[0 … j + 1], its last entry exactly 0 where nothing but
        rounding is left of the vector; None where it is not finite.
        """
        basis, vector = self._basis[: j + 1], self._basis[j + 1]
        before = norm(vector)
        first, second = self._coefficients[:, : j + 1]
        self._subtract_projection(basis, vector, first)
        self._subtract_projection(basis, vector, second)
        first += second
        after = norm(vector)
        if not math.isfinite(before + after):
            return None
        if after <= float(np.finfo(self.dtype).eps) * before:
            after = 0.0
        else:
            vector /= after
        return [*first.tolist(), after]

    def _subtract_projection(
        self, basis: NDArray[Any], vector: Vector, coefficients: Vector
    ) -> None:
        """Set coefficients to basis* vector; subtract basis coefficients from the vector."""
        if self.dtype.kind == "c":
            np.conjugate(vector, out=self._work)
            np.dot(basis, self._work, out=coefficients)
            np.conjugate(coefficients, out=coefficients)
        else:
            np.dot(basis, vector, out=coefficients)
        np.dot(coefficients, basis, out=self._work)
        np.subtract(vector, self._work, out=vector)

    def _rotate(self, j: int, column: list[Any]) -> float:
        """Reduce the column to upper triangular form; return the estimated residual norm."""
        for k, (cosine, sine) in enumerate(self._rotations):
            upper, lower = column[k], column[k + 1]
            column[k] = cosine * upper + sine * lower
            column[k + 1] = cosine * lower - sine.conjugate() * upper
        cosine, sine, column[j] = _rotation(column[j], column[j + 1])
        self._rotations.append((cosine, sine))
        self._triangle[j, : j + 1] = column[: j + 1]
        last = self._projected[j]
        self._projected[j] = cosine * last
        self._projected[j + 1] = -sine.conjugate() * last
        return float(abs(self._projected[j + 1]))

    def _rank(self, columns: int) -> int:
        """Return how many leading columns of the triangle are regular to working precision."""
        diagonal = np.abs(np.diagonal(self._triangle)[:columns])
        smallest = float(np.finfo(self.dtype).eps) * float(diagonal.max(initial=0.0))
        while columns > 0 and diagonal[columns - 1] <= smallest:
            columns -= 1
        return columns

    def _update(self, system: LinearSystem, columns: int, log: SolveLog) -> Status | None:
        """Add the correction of the cycle to x, if the true residual shrinks by it.

        Returns the status if that decides the solve.
        """
        if columns == 0:
            return Status.BREAKDOWN
        self._combine(system, columns)
        if not math.isfinite(norm(self._work)):
            return Status.BREAKDOWN
        residual_norm = system.residual(self._work, self._basis[0])
        if not math.isfinite(residual_norm):
            return Status.NOT_FINITE
        status = system.verdict(residual_norm)
        if status is None and residual_norm >= log.residual_norm:
            return Status.STAGNATED
        self._x, self._work = self._work, self._x
        log.residual_norm = residual_norm
        return status

    def _combine(self, system: LinearSystem, columns: int) -> None:
        """Set the work vector to x + M V y, with y from the triangular system."""
        y = self._projected[:columns].copy()
        for k in range(columns - 1, -1, -1):
            y[k] /= self._triangle[k, k]
            y[:k] -= y[k] * self._triangle[k, :k]
        coefficients = self._coefficients[0, :columns]
        coefficients[...] = self._arrays.asarray(y.astype(self.dtype, casting="same_kind"))
        np.dot(coefficients, self._basis[:columns], out=self._work)
        correction = system.precondition(self._work, self._preconditioned)
        np.add(self._x, correction, out=self._work)


class _Watch:
    """Counts a solve's iterations against ``maxiter`` and calls the user back."""

    def __init__(
        self,
        system: LinearSystem,
        maxiter: int | None,
        callback: Callable[[Any], object] | None,
        callback_type: str | None,
    ) -> None:
        if callback_type is None:
            callback_type = "legacy"
        if callback_type not in _CALLBACK_TYPES:
            raise ValueError(
                f"callback_type is {callback_type!r}; expected one of {', '.join(_CALLBACK_TYPES)}."
            )
        self._most = most_iterations(maxiter, system.size)
        self._callback = callback
        self._kind = callback_type
        self._counts_iterations = callback is not None and callback_type == "legacy"
        self._b_norm = system.b_norm
        self.log = SolveLog()

    @property
    def iterations_left(self) -> int:
        return self._most - self.log.iterations if self._counts_iterations else sys.maxsize

    @property
    def used_up(self) -> bool:
        """Whether ``maxiter`` cycles (in the legacy count, iterations) are done."""
        done = self.log.iterations if self._counts_iterations else self.log.restarts + 1
        return done >= self._most

    def iteration_ended(self, estimate: float) -> None:
        self.log.residual_norms.append(estimate)
        if self._callback is not None and self._kind != "x":
            self._callback(estimate / self._b_norm)

    def cycle_ended(self, x: Vector) -> None:
        if self._callback is not None and self._kind == "x":
            self._callback(x.copy())


def _rotation(upper: Any, lower: float) -> tuple[float, Any, Any]:
    """Return (c, s, r) of the Givens rotation that takes (upper, lower ≥ 0) to (r, 0)."""
    size = abs(upper)
    if size == 0.0:
        return 0.0, 1.0, lower
    length = math.hypot(size, lower)
    phase = upper / size
    return size / length, phase * (lower / length), phase * length
