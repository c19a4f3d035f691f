"""The method of conjugate gradients."""

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
def cg(
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
    """Solve A x = b, A Hermitian and positive definite, minimising ‖x - A⁻¹ b‖_A over K_k(M A).

    Parameters
    ----------
    A : array, sparse array, LinearOperator or object with ``matvec``, shape (N, N)
        Hermitian and positive definite; that it is Hermitian is not checked.
    b : array_like, shape (N,) or (N, 1)
        The right-hand side.
    x0 : array_like of shape (N,), "Mb", or None
        The initial guess; None is zero, "Mb" is M b.
    rtol, atol : float
        The solve stops when the true residual satisfies ‖b - A x‖₂ ≤ max(rtol ‖b‖₂, atol).
    maxiter : int, optional
        The largest number of iterations; 10 N by default.
    M : as A, optional
        The preconditioner, M ≈ A⁻¹, Hermitian and positive definite.
    callback : callable, optional
        Called with the iterate after each iteration: a read-only view that the next iteration
        overwrites.
    raise_on_failure : bool
        Raise where the solve does not converge, instead of returning a status.

    Returns
    -------
    KrylovResult
        ``x``, ``status``, ``iterations`` and more; unpacks as ``x, info``. A direction p with
        p* A p < 0 ends the solve as ``Status.INDEFINITE``.

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
    Cg : The same with a workspace that is kept between solves.

    Notes
    -----
    The method is that of [1]_. Where the recursion's residual meets the tolerance, the true one
    is computed and decides; if it is larger, the method begins again from it, as long as it
    shrank to half since the last time. The residual is scaled by its initial norm, so that inner
    products stay in range for right-hand sides of any size.

    Storage: 4 vectors, 5 with M, beside b and the returned x. One product with A (and M) an
    iteration, and one more at the end.

    References
    ----------
    .. [1] M. R. Hestenes, E. Stiefel, Methods of conjugate gradients for solving linear systems,
       J. Res. Nat. Bur. Standards 49 (1952).

    Examples
    --------
    >>> import numpy as np
    >>> from batchkron.solvers import cg
    >>> x, info = cg(np.array([[4.0, 1.0], [1.0, 3.0]]), np.array([6.0, 7.0]))
    >>> print(x.round(6), info)
    [1. 2.] 0
    """
    rhs = right_hand_side(b)
    return Cg(rhs.size, working_dtype(A, rhs), like=rhs).solve(
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


class Cg(KrylovMethod):
    """The workspace of conjugate gradients for systems of one size, kept from solve to solve.

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
    Storage: 4 vectors, and one more from the first solve with M on.

    Examples
    --------
    >>> import numpy as np
    >>> from batchkron.solvers import Cg
    >>> print(Cg(2).solve(2.0 * np.eye(2), np.ones(2)).x)
    [0.5 0.5]
    """

    def __init__(self, size: int, dtype: Any = np.float64, *, like: Any = None) -> None:
        super().__init__(size, dtype, like=like)
        self._x, self._residual = self._vector(), self._vector()
        self._direction, self._image = self._vector(), self._vector()

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
        """Solve A x = b in this workspace; the parameters are those of `cg`.

        Parameters
        ----------
        A, b, x0, rtol, atol, maxiter, M, callback, raise_on_failure
            As for `cg`.
        out : ndarray, shape (N,), optional
            Where x is written; a fresh array by default.

        Returns
        -------
        KrylovResult
            As for `cg`; ``x`` is ``out`` where that is given.

        Raises
        ------
        ValueError, TypeError, RuntimeError
            As for `cg`; ValueError also if b or ``out`` does not have N elements.
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
            failure = self._sweep(system, most, callback, seen, log)
            log.residual_norm = system.residual(self._x, self._residual)
            status = system.verdict(log.residual_norm) or failure
            if status is not None:
                return status
            if log.iterations >= most:
                return Status.MAX_ITERATIONS
            if log.residual_norm > WORTHWHILE * before:
                return Status.STAGNATED
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

        Returns the status of a failure, else None.
        """
        scale = log.residual_norm
        residual, direction, image = self._residual, self._direction, self._image
        residual /= scale
        previous = 0.0
        while log.iterations < most:
            preconditioned = system.precondition(residual, self._preconditioned)
            product = float(np.vdot(residual, preconditioned).real)
            if not math.isfinite(product):
                return Status.NOT_FINITE
            if product <= 0.0:
                return Status.INDEFINITE if product < 0.0 else Status.BREAKDOWN
            if previous:
                np.multiply(direction, product / previous, out=direction)
                np.add(direction, preconditioned, out=direction)
            else:
                np.copyto(direction, preconditioned)
            system.apply(direction, image)
            curvature = float(np.vdot(direction, image).real)
            failure = _curvature_fault(curvature, product)
            if failure is not None:
                return failure
            step = product / curvature
            np.multiply(image, step, out=image)
            np.subtract(residual, image, out=residual)
            np.multiply(direction, step * scale, out=image)
            np.add(self._x, image, out=self._x)
            previous = product
            log.residual_norms.append(norm(residual) * scale)
            if callback is not None:
                callback(seen)
            if log.residual_norms[-1] <= system.tolerance:
                return None
        return None


def _curvature_fault(curvature: float, product: float) -> Status | None:
    """Return why p* A p = curvature cannot be divided by, if so."""
    if not math.isfinite(curvature):
        return Status.NOT_FINITE
    if curvature < 0.0:
        return Status.INDEFINITE
    if curvature == 0.0 or not math.isfinite(product / curvature):
        return Status.BREAKDOWN
    return None
