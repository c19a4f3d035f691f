"""A problem whose products with the operator are timed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchkron.arrays import array_module
from batchkron.operators import KroneckerTerms, Operator
from batchkron.problems import Problem, StepperSettings

__all__ = ["KernelClock", "TimedProblem"]

_MAX_PENDING_EVENTS = 1024  # timing events before their times are added up; chosen by hand


class KernelClock:
    """The time spent inside products with the operator: wall-clock time, or that of a device.

    Parameters
    ----------
    like : ndarray
        A vector of the run. For a CuPy array a product's time is that between two events on the
        device, so that nothing waits for it.

    Attributes
    ----------
    products : int
        Products so far.
    """

    def __init__(self, like: NDArray[Any]) -> None:
        self._arrays = array_module(like)
        self._seconds = 0.0
        self._events: list[tuple[Any, Any]] = []
        self.products = 0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Count the product of a ``with`` block."""
        self.products += 1
        if self._arrays is np:
            began = time.perf_counter()
            yield
            self._seconds += time.perf_counter() - began
            return
        start, stop = self._arrays.cuda.Event(), self._arrays.cuda.Event()
        start.record()
        yield
        stop.record()
        self._events.append((start, stop))
        if len(self._events) == _MAX_PENDING_EVENTS:
            self._add_events()

    @property
    def seconds(self) -> float:
        """The time so far; on a device, it is waited for."""
        self._add_events()
        return self._seconds

    def _add_events(self) -> None:
        for start, stop in self._events:
            stop.synchronize()
            self._seconds += 1e-3 * self._arrays.cuda.get_elapsed_time(start, stop)
        self._events.clear()


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
    is_linear : bool
        That of the problem.
    untimed : Problem
        The problem, with which `evolve` looks at the step before the run, off the clock.
    """

    def __init__(self, problem: Problem) -> None:
        self.is_linear = problem.is_linear
        self.untimed = problem
        self.clock = KernelClock(problem.initial)
        self._problem = problem
        self._timed: dict[str, _TimedOperator] = {}

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
        with self.clock.running():
            self._problem.accumulate(t, u, out)

    def source(self, t: float, out: NDArray[np.float64]) -> None:
        """Overwrite ``out`` with s(t)."""
        self._problem.source(t, out)

    def operator_at(self, t: float) -> _TimedOperator:
        """Return A(t), timed; the same object as long as the problem's own is the same."""
        return self._on_clock("whole", self._problem.operator_at(t))

    def implicit_operator_at(self, t: float) -> _TimedOperator:
        """Return the part of A(t) that an IMEX method treats implicitly, timed."""
        return self._on_clock("implicit", self._problem.implicit_operator_at(t))

    def implicit_source(self, t: float, out: NDArray[np.float64]) -> None:
        """Overwrite ``out`` with the sources that an IMEX method treats implicitly."""
        self._problem.implicit_source(t, out)

    def _on_clock(self, key: str, operator: Operator) -> _TimedOperator:
        if key not in self._timed or self._timed[key].operator is not operator:
            self._timed[key] = _TimedOperator(operator, self.clock)
        return self._timed[key]


class _TimedOperator:
    """An operator whose `matvec` is on a clock."""

    def __init__(self, operator: Operator, clock: KernelClock) -> None:
        self.operator = operator
        self.shape, self.dtype, self.device = operator.shape, operator.dtype, operator.device
        self._clock = clock

    def kronecker_terms(self) -> KroneckerTerms:
        """Return the operator's terms."""
        return self.operator.kronecker_terms()

    def matvec(
        self, x: NDArray[np.float64], out: NDArray[np.float64] | None = None
    ) -> NDArray[Any]:
        with self._clock.running():
            return self.operator.matvec(x, out=out)

    def rmatvec(self, x: NDArray[np.float64]) -> NDArray[Any]:
        """Return A^T x, off the clock: no step takes it."""
        return self.operator.rmatvec(x)
