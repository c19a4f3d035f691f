"""The equation of an implicit step, d = c f(t, p + d) - ψ: one solve for linear f, else Newton.

p is a prediction of the state at t, and the size of what is left is compared with the tolerance of
the step, not with rounding: solving more exactly would not make the step better.
"""

from __future__ import annotations

import contextlib
import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse

from batchkron.arrays import array_module, is_sparse
from batchkron.attributes import attribute, has_attribute
from batchkron.errors import NotPhysicalError

from ..krylov.systems.result import KrylovResult, Status
from ..products import OnRanks, Products, Ranks, Vector, as_product, norm_over, ranks_of_problem
from ..protocols import operator_of
from .error_scale import ErrorScale
from .stage_solver import StageSolver

__all__ = ["DenseNewton", "ImplicitEquation", "KrylovNewton", "LinearEquation", "equation_of"]

# Share of the step's tolerance that a linear solve leaves. Measured on pitch-angle-c 5 and
# diffusion-2d 4: with 0.3 steps become shorter, with 0.02 solves longer.
_LINEAR_SHARE = 0.1
_MAX_ITERATIONS = 4  # of Newton's method, before another Jacobian or a shorter step; as in [1]
_FORGOTTEN = 0.3  # of the rate of convergence before, that the next one is expected to have
_NEWTON_SHARE = 0.05  # of the tolerance, that Newton's iteration leaves where solves are inexact
_KRYLOV_SHARE = 0.1  # of that, that each of its linear solves leaves
_INCREMENT_RTOL = 1e-2  # of the residual of `increment`, relative to the right-hand side
_MAX_DENSE = 200  # unknowns up to which a Jacobian without structure is a dense matrix


class ImplicitEquation(ABC):
    """d = c f(t, p + d) - ψ for one problem.

    ``problem``: with ``rhs``.
    ``like`` (ndarray, shape (N,)): a vector of the run.
    ``products``: counts evaluations of f and products with A or a Jacobian.
    """

    def __init__(self, problem: Any, like: Vector, products: Products) -> None:
        self._problem, self._products = problem, products
        self._right = np.empty_like(like)

    @abstractmethod
    def solve(
        self, t: float, c: float, p: Vector, psi: Vector, scale: ErrorScale, out: Vector
    ) -> KrylovResult | None:
        """Write d into ``out``; return the solve that failed, if one did.

        ``t``, ``c``: the time, and the multiple of f.
        ``p``, ``psi`` (ndarray, shape (N,)): the prediction and ψ; not modified.
        ``scale``: the tolerance of the step.
        ``out`` (ndarray, shape (N,)): overwritten.
        """

    @abstractmethod
    def increment(
        self, t: float, c: float, u: Vector, slope: Vector, scale: ErrorScale, out: Vector
    ) -> KrylovResult | None:
        """Write (I - c J(t, u))⁻¹ c f(t, u) into ``out``, to a hundredth of the right-hand side.

        ``slope`` is f(t, u). Return the solve that failed, if one did.
        """

    @property
    def last_solve(self) -> KrylovResult | None:
        """The last linear solve by a Krylov method, if there is one."""
        return None

    def memory(self) -> tuple[list[Vector], list[float]]:
        """Return vectors and numbers by which later steps depend on earlier ones."""
        return [], []

    def remember(self, vectors: list[Vector], numbers: list[float]) -> None:  # noqa: B027
        """Take what `memory` has returned, in another run."""

    def _evaluate(self, t: float, u: Vector, out: Vector) -> None:
        self._products.count += 1
        self._products.do(self._problem.rhs, t, u, out)


class LinearEquation(ImplicitEquation):
    """f = A(t) u + s(t): (I - c A) d = c f(t, p) - ψ, by one solve."""

    def __init__(
        self, problem: Any, like: Vector, products: Products, t0: float, dt: float, **options: Any
    ) -> None:
        super().__init__(problem, like, products)
        self._solver = StageSolver(
            lambda t: operator_of(problem, t), like, dt, t0, dt, products=products, **options
        )

    @property
    def last_solve(self) -> KrylovResult | None:
        """The last linear solve."""
        return self._solver.last

    def solve(
        self, t: float, c: float, p: Vector, psi: Vector, scale: ErrorScale, out: Vector
    ) -> KrylovResult | None:
        """Write d into ``out``; return the solve if it failed."""
        right = self._right
        self._evaluate(t, p, right)
        np.multiply(right, c, out=right)
        np.subtract(right, psi, out=right)
        found = self._solver.solve(t, c, right, out, atol=_LINEAR_SHARE * scale.smallest)
        return None if found.converged else found

    def increment(
        self, t: float, c: float, u: Vector, slope: Vector, scale: ErrorScale, out: Vector
    ) -> KrylovResult | None:
        """Write (I - c A)⁻¹ c f into ``out``."""
        np.multiply(slope, c, out=self._right)
        found = self._solver.solve(t, c, self._right, out, rtol=_INCREMENT_RTOL)
        return None if found.converged else found


class _Newton(ImplicitEquation):
    """Newton's method, with Jacobians that may be old."""

    _share = _NEWTON_SHARE

    def __init__(self, problem: Any, like: Vector, products: Products) -> None:
        super().__init__(problem, like, products)
        self._state, self._step, self._slope = (np.empty_like(like) for _ in range(3))
        self._rate = math.nan  # by which the last iterations converged

    @abstractmethod
    def _correct(
        self, t: float, c: float, u: Vector, slope: Vector, right: Vector, allowed: float
    ) -> KrylovResult | None:
        """Overwrite ``self._step`` with (I - c J)⁻¹ ``right``; return the solve if it failed."""

    def _iterate(
        self, t: float, c: float, p: Vector, psi: Vector, scale: ErrorScale, out: Vector
    ) -> KrylovResult | None:
        """Iterate from d = 0; return None if that converged, else why not."""
        right, u, step = self._right, self._state, self._step
        np.copyto(u, p)
        out[...] = 0.0
        before, rate = math.nan, self._rate
        for left in range(_MAX_ITERATIONS, 0, -1):
            self._evaluate(t, u, right)
            np.copyto(self._slope, right)
            np.multiply(right, c, out=right)
            np.subtract(right, psi, out=right)
            np.subtract(right, out, out=right)
            failed = self._correct(t, c, u, self._slope, right, self._share * scale.smallest)
            if failed is not None:
                return failed
            size = scale.size(step)
            if not math.isfinite(size):
                return _failure(Status.NOT_FINITE)
            if math.isfinite(before) and before > 0.0:
                rate = size / before
            np.add(u, step, out=u)
            np.add(out, step, out=out)
            expected = rate / (1.0 - rate) * size if rate < 1.0 else math.inf
            if size == 0.0 or expected <= self._share:
                self._rate = max(rate, _FORGOTTEN * self._rate)
                return None
            if math.isfinite(before) and (
                rate >= 1.0 or rate ** (left - 1) / (1.0 - rate) * size > self._share
            ):
                break
            before = size
        self._rate = math.nan
        return _failure(Status.STAGNATED)


class DenseNewton(_Newton):
    """A dense Jacobian, of difference quotients or given, that is kept as long as it converges.

    ``jacobian``: ``jacobian(t, u)`` returns the matrix (N, N); None takes difference quotients, N
      evaluations of f.

    [1] L. F. Shampine, M. W. Reichelt, The MATLAB ODE Suite, SIAM J. Sci. Comput. 18 (1997).
    """

    def __init__(
        self,
        problem: Any,
        like: Vector,
        products: Products,
        jacobian: Callable[[float, Vector], Any] | None,
    ) -> None:
        super().__init__(problem, like, products)
        self._jacobian = jacobian
        self._base: Vector | None = None  # where the Jacobian is from, with the time
        self._base_time, self._base_weights = math.nan, np.empty(0)
        self._matrix: Any = None
        self._factors: Any = None
        self._c = math.nan

    def solve(
        self, t: float, c: float, p: Vector, psi: Vector, scale: ErrorScale, out: Vector
    ) -> KrylovResult | None:
        """Write d into ``out``; a Jacobian that does not converge is computed anew."""
        if c != self._c:  # what the iteration was like with another matrix says little
            self._rate = math.nan
        is_new = self._matrix is None
        if is_new:
            self._compute(t, p, scale.weights(p))
        failed = self._iterate(t, c, p, psi, scale, out)
        if failed is not None and not is_new:
            self._compute(t, p, scale.weights(p))
            failed = self._iterate(t, c, p, psi, scale, out)
        return failed

    def increment(
        self, t: float, c: float, u: Vector, slope: Vector, scale: ErrorScale, out: Vector
    ) -> KrylovResult | None:
        """Write (I - c J)⁻¹ c f into ``out``, by a new Jacobian."""
        self._compute(t, u, scale.weights(u))
        np.multiply(slope, c, out=self._right)
        failed = self._correct(t, c, u, slope, self._right, 0.0)
        np.copyto(out, self._step)
        return failed

    def _compute(self, t: float, u: Vector, weights: Vector) -> None:
        """Compute the Jacobian at (t, u)."""
        self._base, self._base_time, self._base_weights = u.copy(), t, weights.copy()
        self._factors, self._rate = None, math.nan
        if self._jacobian is not None:
            matrix = self._jacobian(t, u)
            matrix = matrix.toarray() if scipy.sparse.issparse(matrix) else np.asarray(matrix)
            if matrix.shape != (u.size, u.size):
                raise ValueError(
                    f"jac(t, u) has shape {matrix.shape}; expected ({u.size}, {u.size})"
                )
            self._matrix = matrix.astype(u.dtype, copy=False)
            return
        matrix = np.empty((u.size, u.size), u.dtype)
        base, value, moved = np.empty_like(u), np.empty_like(u), u.copy()
        self._evaluate(t, u, base)
        root = math.sqrt(float(np.finfo(u.dtype).eps))
        for k in range(u.size):
            moved[k] = u[k] + root * (max(abs(u[k]), weights[k]) or 1.0)
            self._evaluate(t, moved, value)
            matrix[:, k] = (value - base) / (moved[k] - u[k])
            moved[k] = u[k]
        self._matrix = matrix

    def _correct(
        self, t: float, c: float, u: Vector, slope: Vector, right: Vector, allowed: float
    ) -> KrylovResult | None:
        if self._factors is None or c != self._c:
            shifted = np.eye(u.size, dtype=u.dtype) - c * self._matrix
            if not np.isfinite(shifted).all():
                return _failure(Status.NOT_FINITE)
            with warnings.catch_warnings():  # a singular matrix gives a step that is not finite
                warnings.simplefilter("ignore", scipy.linalg.LinAlgWarning)
                self._factors, self._c = scipy.linalg.lu_factor(shifted, check_finite=False), c
        self._step[...] = scipy.linalg.lu_solve(self._factors, right, check_finite=False)
        return None

    def memory(self) -> tuple[list[Vector], list[float]]:
        """Return where the Jacobian is from, c, and the rate of convergence (0 for none)."""
        if self._base is None:
            return [], []
        rate = self._rate if math.isfinite(self._rate) else 0.0
        c = self._c if math.isfinite(self._c) else 0.0
        return [self._base, self._base_weights], [self._base_time, c, rate]

    def remember(self, vectors: list[Vector], numbers: list[float]) -> None:
        """Compute the Jacobian where it was computed; ValueError if that is not said."""
        if vectors and (len(vectors) != 2 or len(numbers) != 3):
            raise ValueError("the checkpoint does not say where the Jacobian was computed")
        if vectors:
            self._compute(numbers[0], vectors[0], vectors[1].real)
            self._c, self._rate = numbers[1], numbers[2] or math.nan


class _Jacobian(OnRanks):
    """J(t, u) as an operator: that of a function, or difference quotients of f."""

    kronecker_terms: Any  # of what a function returns, for preconditioners, if that has them
    device: str  # the same

    def __init__(
        self, equation: KrylovNewton, given: Any, like: Vector, ranks: Ranks | None
    ) -> None:
        self.communicator = ranks
        self.shape, self.dtype = (like.size, like.size), like.dtype
        self._equation, self._given, self._like = equation, given, like
        self._product: Any = None
        self._moved = np.empty_like(like)
        if given is not None and not _is_function(given):
            self._product = as_product(given, "jac", like)

    def follow(self, t: float, u: Vector, slope: Vector, allowed: float) -> None:
        """Take J at (t, u), where f is ``slope``; ``allowed`` is the tolerance of u."""
        self._t, self._u, self._slope = t, u, slope
        root = math.sqrt(float(np.finfo(u.dtype).eps))
        self._length = max(allowed, root * norm_over(self.communicator, u)) or root
        if self._given is not None and _is_function(self._given):
            found = self._given(t, u)
            self._product = as_product(found, "jac(t, u)", self._like)
            if has_attribute(found, "kronecker_terms"):
                self.kronecker_terms, self.device = found.kronecker_terms, found.device

    def matvec(self, x: Vector, out: Vector | None = None) -> Vector:
        """Return J x."""
        out = np.empty_like(x) if out is None else out
        if self._product is not None:
            self._product(x, out)
            return out
        size = norm_over(self.communicator, x)
        if size == 0.0:
            out[...] = 0.0
            return out
        move = self._length / size
        np.multiply(x, move, out=self._moved)
        np.add(self._moved, self._u, out=self._moved)
        self._equation.rhs(self._t, self._moved, out)
        np.subtract(out, self._slope, out=out)
        np.multiply(out, 1.0 / move, out=out)
        return out


class KrylovNewton(_Newton):
    """Products with a Jacobian, given or of difference quotients, in a Krylov method."""

    def __init__(
        self,
        problem: Any,
        like: Vector,
        products: Products,
        jacobian: Any,
        t0: float,
        dt: float,
        **options: Any,
    ) -> None:
        super().__init__(problem, like, products)
        self.rhs = problem.rhs
        operator = self._operator = _Jacobian(self, jacobian, like, ranks_of_problem(problem))
        slope = np.zeros_like(like)
        with contextlib.suppress(NotPhysicalError):  # the first step will raise it again
            self._evaluate(t0, problem.initial, slope)
            operator.follow(t0, problem.initial, slope, 0.0)
        self._solver = StageSolver(
            lambda t: operator, like, dt, t0, dt, products=products, changes=True, **options
        )

    @property
    def last_solve(self) -> KrylovResult | None:
        """The last linear solve."""
        return self._solver.last

    def solve(
        self, t: float, c: float, p: Vector, psi: Vector, scale: ErrorScale, out: Vector
    ) -> KrylovResult | None:
        """Write d into ``out``; return the solve that failed, or why Newton's method did."""
        self._rate = math.nan  # a step depends on the differences alone
        return self._iterate(t, c, p, psi, scale, out)

    def increment(
        self, t: float, c: float, u: Vector, slope: Vector, scale: ErrorScale, out: Vector
    ) -> KrylovResult | None:
        """Write (I - c J)⁻¹ c f into ``out``."""
        self._operator.follow(t, u, slope, scale.smallest)
        np.multiply(slope, c, out=self._right)
        found = self._solver.solve(t, c, self._right, out, rtol=_INCREMENT_RTOL)
        return None if found.converged else found

    def _correct(
        self, t: float, c: float, u: Vector, slope: Vector, right: Vector, allowed: float
    ) -> KrylovResult | None:
        self._operator.follow(t, u, slope, allowed)
        share = _KRYLOV_SHARE * allowed
        found = self._solver.solve(t, c, right, self._step, rtol=1e-1, atol=share)
        return None if found.converged else found


def equation_of(
    problem: Any, like: Vector, products: Products, t0: float, dt: float, **options: Any
) -> ImplicitEquation:
    """Return what solves the equations of a problem's implicit steps.

    With an operator A and without a Jacobian it is `LinearEquation`. Otherwise it is Newton's
    method: with a dense matrix where ``problem.jacobian`` is one or returns one, or is missing and
    there are at most 200 unknowns on the CPU; else with Krylov methods.
    """
    jacobian: Any = attribute(problem, "jacobian")
    if jacobian is None and is_linear_by_operator(problem):
        return LinearEquation(problem, like, products, t0, dt, **options)
    value = jacobian(t0, problem.initial) if _is_function(jacobian) else jacobian
    on_host = array_module(like) is np and ranks_of_problem(problem) is None
    is_small = like.size <= _MAX_DENSE
    dense = type(value) is np.ndarray or (is_small and (value is None or is_sparse(value)))
    if on_host and dense and options.get("solver") is None:
        function = jacobian if jacobian is None or _is_function(jacobian) else lambda t, u: value
        return DenseNewton(problem, like, products, function)
    return KrylovNewton(problem, like, products, jacobian, t0, dt, **options)


def is_linear_by_operator(problem: Any) -> bool:
    """Whether a problem is f = A(t) u + s(t) by its operator, which is to be tested."""
    whole = attribute(problem, "whole_part")
    if attribute(problem, "jacobian") is not None or (whole is not None and whole() is not None):
        return False
    at_time = attribute(problem, "operator_at")
    return at_time is not None or attribute(problem, "operator") is not None


def _is_function(value: Any) -> bool:
    """Whether a Jacobian is a function of (t, u), and no operator."""
    return callable(value) and not has_attribute(value, "shape")


def _failure(status: Status) -> KrylovResult:
    """Return a result that says how Newton's method failed."""
    return KrylovResult(
        x=np.empty(0),
        status=status,
        residual_norm=math.nan,
        residual_norms=np.empty(0),
        iterations=_MAX_ITERATIONS,
        restarts=0,
        applications=0,
        preconditioner_applications=0,
    )
