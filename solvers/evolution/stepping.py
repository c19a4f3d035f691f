"""The steps of a run: trials, their acceptance, guards against instability, and events."""

from __future__ import annotations

import copy
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from batchkron.arrays import is_plain
from batchkron.errors import NotPhysicalError
from batchkron.functions.vector_sum import linear_combination

from ..krylov.systems.result import KrylovResult, Status
from ..products import Ranks, Vector, any_over, dot_over, max_over, norm_over, sum_over
from ..protocols import refuse_unwritten
from ..steppers.embedded import EmbeddedStepper
from ..steppers.passes import Norm
from ..steppers.step_runner import MAX_STEPS, StepTimes
from ..steppers.stepper import Stepper
from .guards import GrowthBound, StepDoubling
from .observation.events import EventRecord
from .observation.observers import Observer
from .result import EvolveStatus
from .start.integration import Integration
from .steps.dense_output import StepInterpolant
from .steps.step_control import FixedSteps, StepControl, step_control

__all__ = ["BatchSize", "Stepping"]

Guard: TypeAlias = GrowthBound | StepDoubling

_SECONDS = 0.05  # longest time of a batch of steps, so that a run can be interrupted
_MIN_SHARED_COPY = 1 << 15  # elements from which a copy takes longer than a call; chosen by hand
_MAX_GROWTH = 4  # of the number of steps from one batch to the next; chosen by hand


class Stepping:
    """The state of a run, and its next steps.

    ``integration``: the problem, the method and the first state.
    ``stepper``: the method with its workspace.
    ``doubling``: the guard that compares steps with half steps; None if they are known to be
      stable.
    ``observer``: finds events and takes samples inside of steps.
    ``control``: the times and the number of the steps.
    ``trial``: the state, and steps that are tried.
    ``dense``: the solution inside the last step, where the observer needs it.
    ``takes_several``: whether it saves time to take several steps before looking at any of them.
    ``growth``, ``doubling`` (guard): what looks for instability; ``doubling`` may be None.
    ``instability``: a guard's text if the last step shows instability.
    ``event``: the terminal event, if one has ended the run.
    ``failed_solve``: the linear solve that has ended the run.
    """

    def __init__(
        self,
        integration: Integration,
        stepper: Stepper,
        doubling: StepDoubling | None,
        observer: Observer,
    ) -> None:
        self.doubling, self._observer = doubling, observer
        self.instability = ""
        self.event: EventRecord | None = None
        self.failed_solve: KrylovResult | None = None
        self.set_grid(integration, stepper)
        self.control: StepControl = step_control(integration, stepper)
        problem, u, ranks = integration.problem, integration.u, integration.ranks
        self.growth = GrowthBound(problem, self.control.t, u, ranks)

    def set_grid(self, integration: Integration, stepper: Stepper) -> None:
        """Set what belongs to one grid: problem, state, method and interpolation."""
        self.integration, self.stepper, u = integration, stepper, integration.u
        estimates, ranks = integration.tolerances is not None, integration.ranks
        self._batch_size = BatchSize(ranks)
        self.trial = TrialSteps(stepper, u, estimates=estimates, ranks=ranks)
        self.dense: StepInterpolant | None = None
        if self._observer.interpolates:
            self.dense = StepInterpolant(integration.problem, stepper, u, ranks)
        self.takes_several = not estimates and self.dense is None and self.trial.takes_several
        self._observer.move(integration.problem)

    def save(self) -> tuple[Any, ...]:
        """Return what `restore` needs to repeat the steps from here on, but the state."""
        return copy.copy(self.control), copy.copy(self.growth), copy.copy(self.doubling)

    def restore(self, saved: tuple[Any, ...]) -> None:
        """Return to the step at the time of `save`; the state is set by `set_grid`."""
        self.control, self.growth, self.doubling = map(copy.copy, saved)

    @property
    def _guards(self) -> tuple[Guard, ...]:
        return (self.growth,) if self.doubling is None else (self.growth, self.doubling)

    def take_several(self, most: int, record: Callable[[float], None]) -> bool:
        """Take several steps, without looking at what is between them, if guards allow it.

        ``most``: number of steps after which the run has to be looked at.
        ``record``: gets ‖u‖₂ after each step.

        Returns whether steps were taken; if not, the next one is to be taken singly.
        """
        control, trial = self.control, self.trial
        assert isinstance(control, FixedSteps)
        counts = [guard.unwatched(control.step + 1) for guard in self._guards]
        count = min(self._batch_size.steps(), control.last_step - control.step, most, *counts)
        steps = control.upcoming(count) if count > 0 else []
        if not steps:
            return False
        with self._batch_size.of(len(steps)):
            sizes = trial.take_several(steps)
        if sizes is not None and not all(guard.allows(sizes) for guard in self._guards):
            trial.undo()
            sizes = None
        if sizes is None:
            self._batch_size.take_singly(len(steps))
            return False
        for size in sizes:
            control.advance()
            record(size)
        if self.doubling is not None:
            self.doubling.note(sizes[-1])
        return True

    def take_one(self) -> EvolveStatus | None:
        """Take one step, with as many trials as needed; return a status if the run ends."""
        control, trial = self.control, self.trial
        step = control.next_step()
        if step is None:
            return EvolveStatus.STEP_TOO_SMALL
        if self.dense is not None:
            self.dense.begin(step.t, trial.u)
        if self.doubling is not None:
            self.doubling.before_step(control.step + 1, trial.u)
        while step is not None:
            size, failed = trial.attempt(step)
            if not math.isfinite(size):
                step = control.shorten()
                if step is None:
                    return self._give_up(failed)
            elif control.accepts(trial.error_size, max(trial.size, size)):
                return self._complete(step, size)
            else:
                step = control.next_step()
        return EvolveStatus.STEP_TOO_SMALL

    def _give_up(self, failed: KrylovResult | None) -> EvolveStatus:
        """Return the status of a run in which no trial step gives a finite state."""
        self.failed_solve = failed
        if self.trial.not_physical is not None:
            return EvolveStatus.NOT_PHYSICAL
        if failed is not None and failed.status is not Status.NOT_FINITE:
            return EvolveStatus.SOLVER_FAILED
        problem, initial = self.integration.problem, np.empty_like(self.trial.u)
        initial[...] = problem.initial
        if self.integration.ranks is None:  # ranks evaluate f together, and some may have nothing
            refuse_unwritten(problem, self.integration.t0, initial)
        if self.control.is_adaptive:
            return EvolveStatus.STEP_TOO_SMALL
        if failed is None:  # keep the state that is not finite, for inspection
            self.control.advance()
        return EvolveStatus.NOT_FINITE

    def _complete(self, step: StepTimes, size: float) -> EvolveStatus | None:
        """Accept a step, unless a terminal event ends the run inside it; return that status."""
        try:
            for guard in self._guards:
                self.instability = self.instability or guard.objection(step, self.trial.end, size)
            if self.dense is not None and not self.instability:
                self.dense.complete(step.t_next, self.trial.end)
                self.event = self._observer.look(self.dense)
        except Exception:
            self.trial.accept()  # the step counts, so that its checkpoint is written
            raise
        if self.event is None:
            self.trial.accept()
            return EvolveStatus.UNSTABLE if self.instability else None
        return EvolveStatus.EVENT

    def state_before(self) -> tuple[Vector, float]:
        """Return the state before the step in which an event has ended the run, and its time."""
        assert self.dense is not None
        t = self.dense.interval[0]
        # a method that works in place has overwritten it; only the interpolant has a copy
        return self.dense.at(t) if self.trial.in_place else self.trial.u, t


class BatchSize:
    """Learns how many steps take a twentieth of a second, and which are to be taken singly.

    ``ranks``: the ranks that share the state: all of them go by the slowest one's clock.
    """

    def __init__(self, ranks: Ranks | None = None) -> None:
        self._ranks = ranks
        self._count, self._singly = 1, 0  # a step of a large problem may take seconds

    def steps(self) -> int:
        """Return how many steps to take at once; 0 for a single one, which is counted."""
        if self._singly > 0:
            self._singly -= 1
            return 0
        return self._count

    @contextmanager
    def of(self, count: int) -> Iterator[None]:
        """Learn from the seconds of so many steps."""
        begin = time.perf_counter()
        yield
        seconds = max_over(self._ranks, time.perf_counter() - begin) / count
        wanted = int(min(_SECONDS / max(seconds, 1e-9), _MAX_GROWTH * count))
        self._count = max(1, min(MAX_STEPS, wanted))

    def take_singly(self, count: int) -> None:
        """Ask for single steps next, so many."""
        self._singly = count


class TrialSteps:
    """A state, and a method that computes the end of a step from it.

    An `EmbeddedStepper` writes the end of a step to a second vector, which becomes the state by
    `accept`. Other methods overwrite the state, so that all their steps are accepted.

    ``stepper``: the method.
    ``u`` (ndarray, shape (N,)): the first state, overwritten by the steps.
    ``estimates``: whether the error of each step is to be estimated, if the method can.
    ``ranks``: the ranks that share the state.
    ``u`` (ndarray, shape (N,)): the state at the beginning of a trial step.
    ``end`` (ndarray, shape (N,)): the state at its end; ``u`` itself if the method works in place.
    ``in_place``: whether the method overwrites the state.
    ``size``: ‖u‖₂.
    ``takes_several``: whether it saves time to take several steps before looking at any of them.
    ``not_physical``: the error by which the right-hand side ended the last trial step.
    """

    def __init__(
        self, stepper: Stepper, u: Vector, *, estimates: bool, ranks: Ranks | None = None
    ) -> None:
        self._stepper, self._ranks, self._estimates = stepper, ranks, estimates
        self._embedded = stepper if isinstance(stepper, EmbeddedStepper) else None
        self.in_place = self._embedded is None
        self.u, self.end = u, u
        self._size: float | None = None
        self._end_size = math.nan
        self.not_physical: NotPhysicalError | None = None
        stepper.measures = is_plain(u)
        self.takes_several = stepper.measures and stepper.is_faster_ahead
        if self._embedded is not None:
            self._embedded.estimates = estimates
            self.end = np.empty_like(u)
        self._saved: Vector | None = None
        self._squares: NDArray[np.float64] | None = None  # of norms, found by the last trial step
        limits = np.finfo(u.dtype)
        self._least = float(limits.tiny) / float(limits.eps)  # square that has not underflowed

    @property
    def size(self) -> float:
        """‖u‖₂, where that is found without another pass over u."""
        if self._size is None:
            self._size = norm_over(self._ranks, self.u)
        return self._size

    def attempt(self, step: StepTimes) -> tuple[float, KrylovResult | None]:
        """Compute the end of a step.

        ``step``: the step to try.

        Returns ``size``: ‖end‖₂; NaN if the state is not finite or not physical, or a solve failed;
        ``failed``: the failed linear solve, if there was one.
        """
        self.not_physical = None
        if self._size is None and self._estimates:  # of a resumed run, with the bits of the first
            square = self._stepper.square(self.u)
            if square is None:
                square = dot_over(self._ranks, self.u, self.u).real
            else:
                square = float(sum_over(self._ranks, np.array([square]))[0])
            self._size = self._root(square, self.u)
        with np.errstate(over="ignore", invalid="ignore"):
            try:
                if self._embedded is None:
                    failed = self._stepper.step(self.u, step.t, step.t_next)
                else:
                    failed = self._embedded.attempt(self.u, step.t, step.t_next, step.dt, self.end)
            except NotPhysicalError as error:
                self.not_physical = error
                return math.nan, None
            self._squares = self._found_squares() if failed is None else None
            self._end_size = self._norm(self.end, Norm.END) if failed is None else math.nan
            return self._end_size, failed

    def error_size(self) -> float:
        """Return ‖e‖₂ of the estimated error e of the last trial step.

        With a second estimate e₂, of lower order, it is ‖e‖² / (‖e‖² + 0.01 ‖e₂‖²)^½. Source:
        E. Hairer, S. P. Nørsett, G. Wanner, Solving Ordinary Differential Equations I,
        section II.10.
        """
        own = self._embedded
        assert own is not None
        if own.error is not None:
            first = self._norm(own.error, Norm.ERROR)
            if own.second_error is None:
                return first
            second = self._norm(own.second_error, Norm.SECOND_ERROR)
        else:
            assert self._squares is not None  # of double precision; below 1e-162 the norm is 0
            first, *rest = (math.sqrt(square) for square in self._squares[-1, Norm.ERROR :])
            if not rest:
                return first
            second = rest[0]
        size = math.hypot(first, 0.1 * second)
        return first if size == 0.0 else first * (first / size)

    def accept(self) -> None:
        """Make the end of the last trial step the state."""
        if self._embedded is not None:
            _copy(self.end, self.u)
            self._embedded.accept()
        self._size = self._end_size

    def take_several(self, steps: Sequence[StepTimes]) -> list[float] | None:
        """Take steps one after the other without looking at what is between them.

        ``steps``: at most `MAX_STEPS`, of which the first one begins with the state.

        Result: ‖u‖₂ at the ends of the steps. None if they have to be taken one by one to see what
        becomes of them: then the state is as before.
        """
        if self._saved is None:
            self._saved = np.empty_like(self.u)
        _copy(self.u, self._saved)
        squares = None
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                self._stepper.take(self.u, steps, self.end)
                squares = self._found_squares()
        except NotPhysicalError:
            pass
        finally:
            if squares is None or not all(map(self._is_usual, squares[:, Norm.END].tolist())):
                self.undo()
                squares = None
        if squares is None:
            return None
        sizes = [math.sqrt(square) for square in squares[:, Norm.END].tolist()]
        self._size = sizes[-1]
        return sizes

    def _found_squares(self) -> NDArray[np.float64] | None:
        """Return what the stepper's `squares` returns, of whole vectors; ranks add theirs up."""
        squares = self._stepper.squares()
        if squares is None or self._ranks is None:
            return squares
        return sum_over(self._ranks, squares.flatten()).reshape(squares.shape)

    def undo(self) -> None:
        """Return to the state before `take_several`."""
        assert self._saved is not None
        _copy(self._saved, self.u)
        self._stepper.restart()
        self._size = None

    def _is_usual(self, square: float) -> bool:
        """Whether the square of a norm has neither overflowed nor underflowed."""
        return self._least < square < math.inf

    def _norm(self, vector: Vector, place: int) -> float:
        """Return ‖v‖₂, NaN if v is not finite; a single pass unless the squares overflow."""
        squares, ranks = self._squares, self._ranks
        if squares is None:
            square = dot_over(ranks, vector, vector).real
        else:
            square = float(squares[-1, place])
        return self._root(square, vector)

    def _root(self, square: float, vector: Vector) -> float:
        """Return ‖v‖₂ from its square, or from v where that has over- or underflowed."""
        ranks = self._ranks
        if self._is_usual(square) or square == 0.0:
            return math.sqrt(square)
        if any_over(ranks, not np.isfinite(vector).all()):
            return math.nan
        return min(norm_over(ranks, vector), sys.float_info.max)


def _copy(source: Vector, target: Vector) -> None:
    """Copy a vector, a long one on the CPU by as many threads as sums of vectors have."""
    if type(source) is np.ndarray and source.size >= _MIN_SHARED_COPY:
        linear_combination([1.0], [source], target)
    else:
        target[...] = source
