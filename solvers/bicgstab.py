"""The stabilised method of bi-conjugate gradients."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from batchkron.arrays import device_errors
from batchkron.solvers.krylov_method import WORTHWHILE, KrylovMethod, most_iterations
from batchkron.solvers.krylov_result import KrylovResult, SolveLog, Status
from batchkron.solvers.linear_system import (
    LinearSystem,
    Vector,
    norm,
    right_hand_side,
    working_dtype,
)


@device_errors()
def bicgstab(
    A: Any,
    b: Any,
    x0: Any = None,
    *,
    rtol: float = 1e-5,
    atol: float = 0.0,
    maxiter: int | None = None,
    M: Any = None,
    callback: Callable[[Vector], object] | None = None,
    raise_on_failure: bool = False,
) -> KrylovResult:
    """Solve A x = b by bi-conjugate gradients, each step smoothed by one of minimal residual.

    Parameters
    ----------
    A : array, sparse array, LinearOperator or object with ``matvec``, shape (N, N)
        Any square matrix, real or complex.
    b : array_like, shape (N,) or (N, 1)
        The right-hand side.
    x0 : array_like of shape (N,), "Mb", or None
        The initial guess; None is zero, "Mb" is M b.
    rtol, atol : float
        The solve stops when the true residual satisfies ‖b - A x‖₂ ≤ max(rtol ‖b‖₂, atol).
    maxiter : int, optional
        The largest number of iterations; 10 N by default.
    M : as A, optional
        The preconditioner, M ≈ A⁻¹, applied from the right.
    callback : callable, optional
        Called with the iterate after each iteration: a read-only view that the next iteration
        overwrites.
    raise_on_failure : bool
        Raise where the solve does not converge, instead of returning a status.

    Returns
    -------
    KrylovResult
        ``x``, ``status``, ``iterations`` and more; unpacks as ``x, info``.

    Raises
    ------
    ValueError
        If shapes do not agree or a tolerance is negative.
    TypeError
        If an operand has no product with a vector, or a dtype is not a float or complex one.
    RuntimeError
        If ``raise_on_failure`` and the status is not ``Status.CONVERGED``.

    See Also
    --------
    gmres : More storage, but the residual never grows.
    Bicgstab : The same with a workspace that is kept between solves.

    Notes
    -----
    The method is that of [1]_. Where the recursion's residual meets the tolerance, or the
    recursion breaks down, the true residual is computed; if it is too large, the method begins
    again from it, as long as it shrank to half since the last time. The residual is scaled by its
    initial norm, so that inner products stay in range for right-hand sides of any size.

    Storage: 7 vectors beside b and the returned x. Two products with A (and M) an iteration,
    and one more at the end.

    References
    ----------
    .. [1] H. A. van der Vorst, Bi-CGSTAB: a fast and smoothly converging variant of Bi-CG for the
       solution of nonsymmetric linear systems, SIAM J. Sci. Stat. Comput. 13 (1992).

    Examples
    --------
    >>> import numpy as np
    >>> from batchkron.solvers import bicgstab
    >>> x, info = bicgstab(np.array([[2.0, 1.0], [0.0, 4.0]]), np.array([4.0, 8.0]))
    >>> print(x.round(6), info)
    [1. 2.] 0
    """
    rhs = right_hand_side(b)
    return Bicgstab(rhs.size, working_dtype(A, rhs), like=rhs).solve(
        A,
        b,
        x0,
        rtol=rtol,
        atol=atol,
        maxiter=maxiter,
        M=M,
        callback=callback,
        raise_on_failure=raise_on_failure,
    )


class Bicgstab(KrylovMethod):
    """The workspace of BiCGSTAB for systems of one size, kept from solve to solve.

    Parameters
    ----------
    size : int
        N, the number of unknowns.
    dtype : dtype_like
        float32, float64, complex64 or complex128.
    like : ndarray, optional
        Where the vectors are: NumPy's by default, or those of the device of a CuPy array.

    Raises
    ------
    ValueError
        If ``size`` < 0.
    TypeError
        If it is not an integer, or the dtype is not one of the four.

    Notes
    -----
    Storage: 7 vectors.

    Examples
    --------
    >>> import numpy as np
    >>> from batchkron.solvers import Bicgstab
    >>> print(Bicgstab(2).solve(2.0 * np.eye(2), np.ones(2)).x)
    [0.5 0.5]
    """

    def __init__(self, size: int, dtype: Any = np.float64, *, like: Any = None) -> None:
        super().__init__(size, dtype, like=like)
        self._x, self._residual, self._shadow = self._vector(), self._vector(), self._vector()
        self._direction, self._image = self._vector(), self._vector()
        self._smoothing, self._preconditioned = self._vector(), self._vector()

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
        callback: Callable[[Vector], object] | None = None,
        out: Vector | None = None,
        raise_on_failure: bool = False,
    ) -> KrylovResult:
        """Solve A x = b in this workspace; the parameters are those of `bicgstab`.

        Parameters
        ----------
        A, b, x0, rtol, atol, maxiter, M, callback, raise_on_failure
            As for `bicgstab`.
        out : ndarray, shape (N,), optional
            Where x is written; a fresh array by default.

        Returns
        -------
        KrylovResult
            As for `bicgstab`; ``x`` is ``out`` where that is given.

        Raises
        ------
        ValueError, TypeError, RuntimeError
            As for `bicgstab`; ValueError also if b or ``out`` does not have N elements.
        """
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            system = LinearSystem(A, b, M, self.dtype, rtol=rtol, atol=atol)
            self._check(system, out)
            most = most_iterations(maxiter, self.size)
            log = SolveLog()
            log.residual_norm = system.start(x0, self._x, self._residual)
            log.residual_norms.append(log.residual_norm)
            status = system.verdict(log.residual_norm)
            if status is None:
                status = self._iterate(system, most, callback, log)
        return self._finish(system, self._x, status, log, out, raise_on_failure)

    def _iterate(
        self,
        system: LinearSystem,
        most: int,
        callback: Callable[[Vector], object] | None,
        log: SolveLog,
    ) -> Status:
        """Run sweeps, each from a true residual, until one decides."""
        seen = self._x.view()
        seen.flags.writeable = False
        while True:
            before = log.residual_norm
            broken = self._sweep(system, most, callback, seen, log)
            log.residual_norm = system.residual(self._x, self._residual)
            status = system.verdict(log.residual_norm)
            if status is not None or broken is Status.NOT_FINITE:
                return status or Status.NOT_FINITE
            if log.iterations >= most:
                return Status.MAX_ITERATIONS
            if not log.residual_norm <= WORTHWHILE * before:
                return broken or Status.STAGNATED
            log.restarts += 1

    def _sweep(
        self,
        system: LinearSystem,
        most: int,
        callback: Callable[[Vector], object] | None,
        seen: Vector,
        log: SolveLog,
    ) -> Status | None:
        """Iterate from the true residual until the recursion's meets the tolerance.

        Returns BREAKDOWN or NOT_FINITE where the recursion ends, else None.
        """
        scale = log.residual_norm
        residual = self._residual
        residual /= scale
        np.copyto(self._shadow, residual)
        self._direction.fill(0.0)
        self._image.fill(0.0)
        product, step, smoothing = 1.0, 1.0, 1.0
        while log.iterations < most:
            last, product = product, np.vdot(self._shadow, residual).item()
            weight = _quotient(product, last) * _quotient(step, smoothing)
            if weight == 0.0 or not np.isfinite(weight):
                return _fault(product)
            self._turn(weight, smoothing)
            step = self._half_step(system, product, scale)
            if step == 0.0 or not np.isfinite(step):
                return _fault(step)
            estimate = norm(residual) * scale
            if estimate > system.tolerance:
                smoothing = self._smooth(system, scale)
                if not np.isfinite(smoothing):
                    return _fault(smoothing)
                estimate = norm(residual) * scale
            log.residual_norms.append(estimate)
            if callback is not None:
                callback(seen)
            if estimate <= system.tolerance:
                return None
        return None

    def _turn(self, weight: Any, smoothing: Any) -> None:
        """Set the direction p to r + weight (p - smoothing v)."""
        np.multiply(self._image, smoothing, out=self._smoothing)
        np.subtract(self._direction, self._smoothing, out=self._direction)
        np.multiply(self._direction, weight, out=self._direction)
        np.add(self._direction, self._residual, out=self._direction)

    def _half_step(self, system: LinearSystem, product: Any, scale: float) -> Any:
        """V = A M p; x += step M p; r -= step v. Returns the step; 0 or NaN leave x and r.

        The step is 0 where v is orthogonal to the shadow residual to rounding: the recursion
        breaks down there, and what a dot product leaves of 0 depends on how it was summed.
        """
        direction = system.precondition(self._direction, self._preconditioned)
        system.apply(direction, self._image)
        projection = np.vdot(self._shadow, self._image).item()
        if abs(projection) <= np.finfo(self.dtype).eps * norm(self._image):  # ‖shadow‖ is 1
            return 0.0
        step = _quotient(product, projection)
        if step == 0.0 or not np.isfinite(step):
            return step
        np.multiply(direction, step * scale, out=self._preconditioned)
        np.add(self._x, self._preconditioned, out=self._x)
        np.multiply(self._image, step, out=self._smoothing)
        np.subtract(self._residual, self._smoothing, out=self._residual)
        return step

    def _smooth(self, system: LinearSystem, scale: float) -> Any:
        """T = A M r; x += ω M r; r -= ω t with the ω that minimises ‖r‖. Returns ω."""
        direction = system.precondition(self._residual, self._preconditioned)
        system.apply(direction, self._smoothing)
        size = norm(self._smoothing)
        smoothing = _quotient(
            _quotient(np.vdot(self._smoothing, self._residual).item(), size), size
        )
        if not np.isfinite(smoothing):
            return smoothing
        np.multiply(direction, smoothing * scale, out=self._preconditioned)
        np.add(self._x, self._preconditioned, out=self._x)
        np.multiply(self._smoothing, smoothing, out=self._smoothing)
        np.subtract(self._residual, self._smoothing, out=self._residual)
        return smoothing


def _quotient(numerator: Any, denominator: Any) -> Any:
    """Return numerator / denominator: infinite over zero, NaN if either is not finite."""
    if not (np.isfinite(numerator) and np.isfinite(denominator)):
        return math.nan
    return numerator / denominator if denominator else math.inf


def _fault(number: Any) -> Status:
    """Return NOT_FINITE for NaN, BREAKDOWN for zero and for a division by zero."""
    return Status.NOT_FINITE if np.isnan(number) else Status.BREAKDOWN
