"""Timing of the products with a problem's operator."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchkron.arrays import array_module
from batchkron.operators import KroneckerTerms, Operator
from batchkron.operators.diagonal_blocks import DiagonalBlocks
from batchkron.problems import Problem, StepperSettings
from batchkron.solvers.krylov.vectors.ranks import OnRanks
from batchkron.solvers.protocols import (
    implicit_operator_of,
    implicit_part_of,
    operator_of,
    whole_part_of,
)
from batchkron.storage import StoredGrid

__all__ = ["KernelClock", "TimedProblem"]

# Number of pairs of CUDA events that are recorded before their times are added up; chosen by hand.
_MAX_PENDING_EVENTS = 1024


class KernelClock:
    """The time spent in products with the operator: wall-clock time, or time on the device.

    Parameters
    ----------
    like : ndarray
        A vector of the run. For a CuPy array the time is measured by CUDA events before and after a
        product, so that the host need not wait.

    Attributes
    ----------
    products : int
        Number of products so far.
    """

    def __init__(self, like: NDArray[Any]) -> None:
        self._arrays = array_module(like)
        self._seconds = 0.0
        self._events: list[tuple[Any, Any]] = []
        self.products = 0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Time the product inside a ``with`` block, unless a CUDA graph captures it."""
        if self._arrays is not np and self._arrays.cuda.get_current_stream().is_capturing():
            yield
            return
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

    def extrapolate(self, products: int) -> None:
        """Count so many products, of which graphs have done those that were not timed."""
        if 0 < self.products < products:
            self._seconds = self.seconds * products / self.products
            self.products = products

    @property
    def seconds(self) -> float:
        """The time so far in seconds; on a device this waits for the products to end."""
        self._add_events()
        return self._seconds

    def _add_events(self) -> None:
        for start, stop in self._events:
            stop.synchronize()
            self._seconds += 1e-3 * self._arrays.cuda.get_elapsed_time(start, stop)
        self._events.clear()


class TimedProblem:
    """A problem for `evolve` whose products A(t) u are timed.

    Timed are the products of the right-hand side and of linear solves; not the sources, the
    stepper's vector sums, and the rest of a Krylov method.

    Parameters
    ----------
    problem : Problem, LinearProblem or DistributedProblem
        The problem; timing does not change the bits of its results.
    clock : KernelClock, optional
        By default a new one.

    Attributes
    ----------
    clock : KernelClock
        The time so far.
    is_linear : bool
        The problem's attribute.
    untimed : Problem
        The problem without timing, with which `evolve` checks the step before the run.
    communicator : Communicator or None
        The ranks that share the state.
    """

    def __init__(self, problem: Any, clock: KernelClock | None = None) -> None:
        self.is_linear = problem.is_linear
        self.untimed = problem
        self.clock = KernelClock(problem.initial) if clock is None else clock
        self.communicator = getattr(problem, "communicator", None)
        self._problem: Problem = problem
        self._shared: Any = problem
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
        """The hash that identifies the problem of a checkpoint."""
        return self._problem.content_hash

    def scatter(self, u: Any = None, root: int | None = None) -> NDArray[np.float64]:
        """Return this rank's block of a whole state, of a distributed problem."""
        block: NDArray[np.float64] = self._shared.scatter(u, root)
        return block

    def gather(self, u: Any, root: int | None = None) -> NDArray[np.float64] | None:
        """Return the whole state of which each rank has a block, of a distributed problem."""
        whole: NDArray[np.float64] | None = self._shared.gather(u, root)
        return whole

    def distribute_preconditioner(self, whole: Any, operator: Any) -> Any:
        """Return a whole preconditioner on blocks of vectors, of a distributed problem."""
        return self._shared.distribute_preconditioner(whole, operator)

    def adaptive(self, **rule: Any) -> TimedAdaptive:
        """Return the problem with a rule by which its grid follows the solution."""
        return TimedAdaptive(self._problem.adaptive(**rule), self)

    def assemble(self) -> None:
        """Build the operator and all workspace, without timing."""
        self._problem.rhs(self.t0, self.initial, np.empty_like(self.initial))

    def rhs(self, t: float, u: NDArray[np.float64], out: NDArray[np.float64]) -> None:
        """Overwrite ``out`` with A(t) u + s(t)."""
        self._problem.source(t, out)
        with self.clock.running():
            self._problem.accumulate(t, u, out)

    def split_rhs(self) -> _TimedParts | None:
        """Return A(t, u) u + s(t) in parts, with timing of the products; None if it has none."""
        split = getattr(self._problem, "split_rhs", None)
        parts = None if split is None else split()
        return None if parts is None else _TimedParts(parts, self.clock)

    def source(self, t: float, out: NDArray[np.float64]) -> None:
        """Overwrite ``out`` with s(t)."""
        self._problem.source(t, out)

    def operator_at(self, t: float) -> _TimedOperator:
        """Return A(t) with timing; the same object as long as the problem returns the same."""
        return self._on_clock("whole", operator_of(self._problem, t))

    def implicit_operator_at(self, t: float) -> _TimedOperator:
        """Return the part of A(t) that an IMEX method treats implicitly, with timing."""
        return self._on_clock("implicit", implicit_operator_of(self._problem, t))

    def implicit_source(self, t: float, out: NDArray[np.float64]) -> None:
        """Overwrite ``out`` with the sources that an IMEX method treats implicitly."""
        self._problem.implicit_source(t, out)

    def whole_part(self) -> _TimedPart | None:
        """Return all of f with an operator that follows given states, with timing."""
        part = whole_part_of(self._problem)
        return None if part is None else _TimedPart(part, self.clock)

    def implicit_part(self) -> _TimedPart | None:
        """Return the implicit part that follows the state, with timing; None if there is none."""
        part = implicit_part_of(self._problem)
        return None if part is None else _TimedPart(part, self.clock)

    def _on_clock(self, key: str, operator: Operator) -> _TimedOperator:
        if key not in self._timed or self._timed[key].operator is not operator:
            self._timed[key] = _TimedOperator(operator, self.clock)
        return self._timed[key]


class _TimedParts:
    """A right-hand side in parts, whose products are timed."""

    def __init__(self, parts: Any, clock: KernelClock) -> None:
        self.sources, self.is_repeatable, self.turn = parts.sources, parts.is_repeatable, parts.turn
        self.products = tuple(
            (factor, _timed(product, clock)) for factor, product in parts.products
        )
        bind = getattr(parts, "bind", None)
        self.bind = None if bind is None else lambda u, out: _timed(bind(u, out), clock)


def _timed(function: Callable[..., object], clock: KernelClock) -> Callable[..., None]:
    """Return a function with timing of its calls."""

    def call(*arguments: Any) -> None:
        with clock.running():
            function(*arguments)

    return call


class _TimedPart:
    """An implicit part that follows the state, whose operator is timed."""

    def __init__(self, part: Any, clock: KernelClock) -> None:
        self.follow, self.source = part.follow, part.source
        self.operator = _TimedOperator(part.operator, clock)


class TimedAdaptive:
    """A `batchkron.solvers.evolution.adapt.AdaptiveProblem` whose problems are timed by one clock.

    Parameters
    ----------
    grid : AdaptiveProblem
        What is timed.
    problem : TimedProblem
        The problem on its grid, or on another one, with the clock.
    """

    def __init__(self, grid: Any, problem: TimedProblem) -> None:
        self._grid = grid
        same = grid.problem is problem.untimed
        self.problem = problem if same else TimedProblem(grid.problem, problem.clock)
        self.missed, self.is_finer = grid.missed, grid.is_finer
        self.added, self.removed = grid.added, grid.removed
        self.limited, self.excess = grid.limited, grid.excess

    def _with(self, grid: Any) -> TimedAdaptive:
        return TimedAdaptive(grid, self.problem)

    def started(self, horizon: float) -> TimedAdaptive:
        """Return the problem on the grid that its initial state needs."""
        return self._with(self._grid.started(horizon))

    def changed(
        self, u: NDArray[np.float64], t: float, horizon: float, interval: float
    ) -> TimedAdaptive:
        """Return the problem on the grid that a state needs."""
        return self._with(self._grid.changed(u, t, horizon, interval))

    def extended(self, u: NDArray[np.float64], t: float, other: TimedAdaptive) -> TimedAdaptive:
        """Return the problem with the cells of another grid as well."""
        return self._with(self._grid.extended(u, t, other._grid))

    def saved(self) -> StoredGrid:
        """Return the grid for a checkpoint."""
        found: StoredGrid = self._grid.saved()
        return found

    def restored(self, grid: StoredGrid, u: NDArray[np.float64], t: float) -> TimedAdaptive:
        """Return the problem on a grid that `saved` has returned."""
        return self._with(self._grid.restored(grid, u, t))


class _TimedOperator(OnRanks):
    """An operator whose `matvec` is timed."""

    def __init__(self, operator: Operator, clock: KernelClock) -> None:
        self.operator = operator
        self.shape, self.dtype, self.device = operator.shape, operator.dtype, operator.device
        self.communicator = operator.communicator
        self._clock = clock

    def kronecker_terms(self) -> KroneckerTerms:
        """Return the operator's terms."""
        return self.operator.kronecker_terms()

    def recover_terms(self) -> KroneckerTerms:
        """Return the operator's terms, which a batch list finds."""
        return self.operator.recover_terms()

    def diagonal_blocks(self) -> DiagonalBlocks:
        """Return the operator's diagonal blocks."""
        return self.operator.diagonal_blocks()

    def matvec(
        self, x: NDArray[np.float64], out: NDArray[np.float64] | None = None
    ) -> NDArray[Any]:
        with self._clock.running():
            return self.operator.matvec(x, out=out)

    def rmatvec(self, x: NDArray[np.float64]) -> NDArray[Any]:
        """Return A^T x without timing: steps do not use it."""
        return self.operator.rmatvec(x)
