"""A problem whose products with the operator are timed."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchkron.operators import Operator
from batchkron.problems import Problem, StepperSettings

__all__ = ["KernelClock", "TimedProblem"]


class KernelClock:
    """The wall-clock time spent inside products with the operator.

    Attributes
    ----------
    seconds : float
        The time so far.
    products : int
        Products so far.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self.products = 0

    def add(self, began: float) -> None:
        """Count a product that began at a value of `time.perf_counter` and has just ended."""
        self.seconds += time.perf_counter() - began
        self.products += 1


class TimedProblem:
    """What `evolve` needs of a problem, with its products A(t) u on a clock.

    The products are those of the right-hand side and those of the linear solves. Sources, the
    stepper's vector sums and the rest of a Krylov method are not on the clock.

    Parameters
    ----------
    problem : Problem
        The problem; its results are the same bits with and without the clock.

    Attributes
    ----------
    clock : KernelClock
        The clock.
    """

    def __init__(self, problem: Problem) -> None:
        self.clock = KernelClock()
        self._problem = problem
        self._timed: _TimedOperator | None = None

    @property
    def initial(self) -> NDArray[np.float64]:
        """The state at t0, shape (N,)."""
        return self._problem.initial

    @property
    def t0(self) -> float:
        """The first time."""
        return self._problem.t0

    @property
    def stepper(self) -> StepperSettings:
        """The default method and step."""
        return self._problem.stepper

    @property
    def content_hash(self) -> str:
        """What a checkpoint is matched by."""
        return self._problem.content_hash

    def assemble(self) -> None:
        """Build the operator and all workspace, off the clock."""
        self._problem.rhs(self.t0, self.initial, np.empty_like(self.initial))

    def rhs(self, t: float, u: NDArray[np.float64], out: NDArray[np.float64]) -> None:
        """Overwrite ``out`` with A(t) u + s(t)."""
        self._problem.source(t, out)
        began = time.perf_counter()
        self._problem.accumulate(t, u, out)
        self.clock.add(began)

    def operator_at(self, t: float) -> _TimedOperator:
        """Return A(t), timed; the same object as long as the problem's own is the same."""
        operator = self._problem.operator_at(t)
        if self._timed is None or self._timed.operator is not operator:
            self._timed = _TimedOperator(operator, self.clock)
        return self._timed


class _TimedOperator:
    """An operator whose `matvec` is on a clock."""

    def __init__(self, operator: Operator, clock: KernelClock) -> None:
        self.operator = operator
        self.shape, self.dtype = operator.shape, operator.dtype
        self._clock = clock

    def matvec(
        self, x: NDArray[np.float64], out: NDArray[np.float64] | None = None
    ) -> NDArray[Any]:
        began = time.perf_counter()
        product = self.operator.matvec(x, out=out)
        self._clock.add(began)
        return product
