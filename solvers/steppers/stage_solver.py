"""The linear solves of implicit methods, (I - c A(t)) δ = r; preconditioners are reused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

from batchkron.attributes import attribute, has_attribute
from batchkron.errors import NotPhysicalError

from ..krylov.systems.result import KrylovResult
from ..preconditioners import NamedPreconditioner
from ..products import Products, Ranks, any_over, as_product, ranks_of
from ..protocols import ImplicitPart
from .default_preconditioner import DefaultPreconditioner
from .linear_solver import LinearSolver, ShiftedOperator


class StageSolver:
    """Solves (I - c A(t)) δ = r for one problem repeatedly.

    ``operator_at``: ``operator_at(t)`` returns A(t), the same object as long as A is the same.
    ``like`` (ndarray, shape (N,)): a vector of the run.
    ``scale``: the number c for which the preconditioner is built first.
    ``t0``, ``dt``: the preconditioner is built for A(t0 + dt), one of `DefaultPreconditioner` for
      A(t0): dt of a resumed run differs where steps are adapted.
    ``solver``: see `LinearSolver`.
    ``preconditioner``: a name of `preconditioners.names`; an operator M ≈ (I - c A)⁻¹ as for
      `gmres`; or a function ``(A, c) -> M``, called at first and whenever c changes, which may
      return None. Solves begin with M r if ``M.is_near_inverse`` says that M was nearly the inverse
      when it was made. If the function has a true ``is_optional``, a solve that fails is done again
      without M.
    ``changes``: whether the values of A change during the run, so that M is that of the present
      ones.
    ``products``: counts the products with A.
    ``last``: the result of the last solve.
    """

    def __init__(
        self,
        operator_at: Callable[[float], Any],
        like: NDArray[Any],
        scale: float,
        t0: float,
        dt: float,
        *,
        solver: Any = None,
        preconditioner: Any = None,
        changes: bool = False,
        products: Products | None = None,
    ) -> None:
        self._operator_at, self._like = operator_at, like
        self._products = Products() if products is None else products
        self._is_optional = bool(attribute(preconditioner, "is_optional", False))
        operator = operator_at(t0 if self._is_optional else t0 + dt)
        self._first = operator
        self._shifted = ShiftedOperator(operator, scale, like, self._products)
        self._solver = LinearSolver(solver, like, self._shifted)
        self._make: Callable[[Any, float], Any] | None = None
        if isinstance(preconditioner, str):
            self._make = NamedPreconditioner(preconditioner, like.dtype, in_place=True)
        elif callable(preconditioner) and not has_attribute(preconditioner, "shape"):
            self._make = preconditioner
        self._preconditioner = preconditioner
        if self._make is not None:
            if changes and isinstance(self._make, DefaultPreconditioner):
                self._make.begin_now(operator)
            self._preconditioner = self._make(operator, scale)
        if self._preconditioner is not None:
            _refuse_unfit(self._preconditioner, like, ranks_of(self._shifted))
        self.last: KrylovResult | None = None

    def multiply(self, t: float, x: NDArray[Any], out: NDArray[Any]) -> None:
        """Write A(t) x into ``out``."""
        self._at(t, self._shifted.scale)
        self._products.count += 1
        self._shifted.multiply(x, out)

    def solve(
        self,
        t: float,
        scale: float,
        right: NDArray[Any],
        out: NDArray[Any],
        *,
        rtol: float | None = None,
        atol: float | None = None,
    ) -> KrylovResult:
        """Solve (I - scale · A(t)) δ = right from δ = 0, and write δ into ``out``.

        ``rtol`` and ``atol`` are tolerances for this solve, see `LinearSolver.solve`.
        """
        self._at(t, scale)
        M = self._preconditioner
        result = self._solver.solve(self._shifted, right, M, out, rtol=rtol, atol=atol)
        if M is not None and self._is_optional and not result.converged:
            alone = self._solver.solve(self._shifted, right, None, out, rtol=rtol, atol=atol)
            self._products.count += result.applications
            result = replace(alone, iterations=result.iterations + alone.iterations)
        self._products.count += result.applications
        self.last = result
        return result

    def _at(self, t: float, scale: float) -> None:
        """Set A(t) and c, and a preconditioner for this c."""
        operator = self._operator_at(t)
        changed = scale != self._shifted.scale
        if operator is not self._shifted.operator:
            self._shifted = ShiftedOperator(operator, scale, self._like, self._products)
        elif changed:
            self._shifted.scale = scale
        if changed and self._make is not None:
            self._preconditioner = self._make(self._first, scale)


def at_beginning(
    preconditioner: Any, part: ImplicitPart | None, t0: float, initial: NDArray[Any]
) -> Any:
    """Let a part follow the initial state, for a preconditioner that will be made of it.

    Return the preconditioner, None if the state is not physical: the first step will say so.
    """
    if part is None or preconditioner is None:
        return preconditioner
    try:
        part.follow(t0, initial)
    except NotPhysicalError:
        return None
    return preconditioner


def _refuse_unfit(preconditioner: Any, like: NDArray[Any], ranks: Ranks | None) -> None:
    """Raise on all ranks if a preconditioner does not fit the vectors of one of them."""
    fault: Exception | None = None
    try:
        as_product(preconditioner, "preconditioner", like)
    except (TypeError, ValueError) as error:
        fault = error
    if any_over(ranks, fault is not None):
        raise fault or ValueError(
            "the preconditioner does not fit the vectors of another rank: was it made for another "
            "grid, or another layout?"
        )
