"""The grid of a run that follows the solution: when it changes, and when steps are repeated."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from batchkron.arrays import to_host
from batchkron.attributes import has_attribute
from batchkron.errors import NotPhysicalError

from ...products import Vector
from ..observation.observers import Observer
from ..start.arguments import initial_state
from ..start.integration import Integration, moved_integration
from ..start.provenance import problem_hash
from .adapt import Adapt, AdaptiveProblem, adaptive_problem
from .outcome import AdaptOutcome

__all__ = ["GridFollower", "first_grid", "refuse_of_one_grid"]

# Largest number of times that the steps between two adaptations are repeated.
_MAX_REPEATS = 3


class GridFollower:
    """Decides at which steps the grid of a run changes, and whether steps are repeated.

    ``grid``: the problem on the grid of its initial state.
    ``length``: the length of the run in time.
    ``follows_grid``: whether equal steps are the problem's default ones, which follow its finest
      cells.
    ``problem_hash``: the identification of the problem on its own grid, for checkpoints.
    ``undefined``: why f or the rule's weight is not defined for the initial state, which ends the
      run.
    ``grid``: the problem on the present grid.
    ``start_t``, ``start_u``: the time of the last adaptation, and a copy of the state on the grid
      of the steps since.
    ``saved``: what the run has saved of its other parts there, to repeat the steps.
    ``repeats``: number of times that the present interval has been repeated.
    ``outcome``: whether the largest level has kept cells from being refined.
    """

    start_t: float
    start_u: Vector
    saved: Any

    def __init__(
        self,
        adapt: Adapt,
        grid: AdaptiveProblem,
        length: float,
        follows_grid: bool,
        problem_hash: str,
        undefined: NotPhysicalError | None = None,
    ) -> None:
        self._adapt, self._length = adapt, length
        self.follows_grid, self.problem_hash = follows_grid, problem_hash
        self.grid, self.undefined = grid, undefined
        self.outcome = AdaptOutcome().with_grid(grid, grid.problem.t0)
        self.repeats = 0
        self._first = 0

    def begin_interval(self, step: int, t: float, u: Vector, saved: Any) -> None:
        """Begin to count the steps until the next adaptation."""
        self._first, self.repeats = step, 0
        self.start_t, self.start_u, self.saved = t, u, saved

    def is_due(self, step: int, done: bool) -> bool:
        """Return whether the grid is to be looked at after a step, as always after the last one."""
        return done or step - self._first >= self._adapt.every

    def look(self, u: Vector, t: float) -> AdaptiveProblem:
        """Return the problem on the grid that a state needs; the run goes on, or back to the start.

        ``u`` (ndarray, shape (N,)): the state.
        """
        interval = t - self.start_t
        return self.grid.changed(u, t, self._adapt.horizon_of(self._length, interval), interval)

    def note(self, found: AdaptiveProblem, t: float) -> None:
        """Note whether the largest level limits the grid of a state at a time."""
        self.outcome = self.outcome.with_grid(found, t)

    def may_repeat(self, found: AdaptiveProblem) -> bool:
        """Return whether the steps since the last adaptation are repeated with more cells."""
        return found.missed and self.repeats < _MAX_REPEATS

    def repeated(self, found: AdaptiveProblem) -> AdaptiveProblem:
        """Return the problem at the last adaptation with the cells that were missing."""
        self.repeats += 1
        self.grid = self.grid.extended(self.start_u, self.start_t, found)
        self.start_u = self.grid.problem.initial
        return self.grid


def first_grid(
    integration: Integration, adapt: Any, *, follows_grid: bool
) -> tuple[GridFollower, Integration]:
    """Return what decides about the grid, and the integration on the grid of the first state.

    ``integration``: the integration on the problem's own grid.
    ``follows_grid``: whether equal steps are the problem's default ones, which follow its finest
      cells.
    """
    problem, resumed = integration.problem, integration.resumed
    identity = problem_hash(problem, initial_state(problem, integration.ranks))
    grid = adaptive_problem(problem, adapt)
    length = integration.until - integration.t0
    if resumed is not None:
        follows_grid = integration.origin is not None
    if resumed is not None and resumed.grid is not None:
        grid = grid.restored(resumed.grid, to_host(integration.u, "u"), integration.begin)
        u = initial_state(grid.problem, integration.ranks)
        integration = replace(integration, problem=grid.problem, u=u)
        return GridFollower(adapt, grid, length, follows_grid, identity), integration
    interval = adapt.every * integration.trial_dt
    first, undefined = grid, None
    try:
        first = grid.started(adapt.horizon_of(length, min(interval, length)))
    except NotPhysicalError as error:
        undefined = error
    if follows_grid and integration.tolerances is None:
        integration = replace(integration, origin=(0, integration.t0))
    if first.problem is not problem:
        integration = moved_integration(integration, first.problem, own_step=follows_grid)
    return GridFollower(adapt, first, length, follows_grid, identity, undefined), integration


def refuse_of_one_grid(integration: Integration, observer: Observer, preconditioner: Any) -> None:
    """Raise if an argument belongs to one grid, in a run whose grid changes."""
    if integration.method.chooses_order:
        raise TypeError(
            f"method {integration.method.name!r} keeps differences of states, which belong to one "
            "grid, and adapt changes the grid. Give adapt=False, or take another method."
        )
    for name, quantity in observer.quantities.items():
        if not callable(quantity.measure) and not has_attribute(quantity.measure, "for_problem"):
            raise TypeError(
                f"watch[{name!r}] has weights, which belong to one grid, and adapt changes the "
                "grid. Give Quantity.moment(problem, powers), a function measure(t, u), or an "
                "object with for_problem(problem), which returns the measure for another grid."
            )
    if has_attribute(preconditioner, "shape"):
        raise TypeError(
            "preconditioner is an operator, which belongs to one grid, and adapt changes the grid. "
            "Give a name, or a function (A, c) -> M."
        )
