"""The return value of a run in time, and the state that is passed to its callback."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from numpy.typing import NDArray

from .events import EventRecord
from .observers import Watched


class EvolveStatus(StrEnum):
    """Why a run in time ended; ``advice`` says what to do about it.

    Examples
    --------
    >>> from batchkron.solvers import EvolveStatus
    >>> print(EvolveStatus.NOT_FINITE)
    not-finite
    """

    COMPLETED = "completed"
    STOPPED = "stopped"
    NOT_FINITE = "not-finite"
    SOLVER_FAILED = "solver-failed"
    STEP_TOO_SMALL = "step-too-small"
    EVENT = "event"
    DRIFTED = "drifted"
    UNSTABLE = "unstable"
    NOT_PHYSICAL = "not-physical"

    @property
    def is_lost(self) -> bool:
        """Whether the state is not a solution, so that no checkpoint of it is written."""
        return self in (EvolveStatus.NOT_FINITE, EvolveStatus.UNSTABLE)

    @property
    def advice(self) -> str:
        """Text for the user: what the status means and what to do."""
        return _ADVICE[self]


_ADVICE = {
    EvolveStatus.COMPLETED: "The run reached its last time: nothing to do.",
    EvolveStatus.STOPPED: "The callback stopped the run: resume from the checkpoint to go on.",
    EvolveStatus.NOT_FINITE: (
        "The state or the right-hand side became NaN or infinite. With an explicit method dt is "
        "most likely beyond its stability limit: take a smaller dt or an implicit method. The "
        "last checkpoint, if any, is still good."
    ),
    EvolveStatus.SOLVER_FAILED: (
        "A linear solve did not converge; the state is that of the last good step. Raise the "
        "solver's maxiter or restart, loosen its rtol, take a smaller dt, or give a "
        "preconditioner."
    ),
    EvolveStatus.STEP_TOO_SMALL: (
        "No step that time resolves meets the tolerance; the state is that of the last good step. "
        "The solution may blow up here or f be discontinuous: loosen rtol and atol, take an "
        "implicit method if the problem is stiff, or end the run before."
    ),
    EvolveStatus.EVENT: (
        "A terminal event happened, and the state is the one at its time: nothing to do. The "
        "checkpoint is of the step before."
    ),
    EvolveStatus.DRIFTED: (
        "A watched quantity left its tolerance: take a smaller step or tolerance, or look whether "
        "the problem conserves it."
    ),
    EvolveStatus.UNSTABLE: (
        "The state grew as no solution does, so that it is no solution: take a smaller dt, an "
        "implicit method, or rtol to have the steps chosen. The last checkpoint, if any, is of an "
        "earlier state."
    ),
    EvolveStatus.NOT_PHYSICAL: (
        "A density, temperature or other divisor of the right-hand side is not positive; the state "
        "is that of the last good step. Take a finer grid or a smaller step."
    ),
}


@dataclass(frozen=True, eq=False)
class EvolveState:
    """The present state of a run, passed to its callback.

    Parameters
    ----------
    u : ndarray, shape (N,)
        The state. The next step overwrites it, so copy it to keep it. It is read-only; CuPy has no
        read-only arrays, so on a device you must not write to it.
    t : float
        The time of the state.
    step : int
        Number of steps from t0.
    steps : int or None
        Number of steps of the whole run; None for adaptive steps.
    dt : float
        The time step; for adaptive steps the one to try next.
    last_error : float or None
        For adaptive steps, the error of the last step, relative to the tolerance.
    problem : TimeProblem
        The problem; in a run whose grid changes, on the grid of ``u``.
    """

    u: NDArray[Any] = field(repr=False)
    t: float
    step: int
    steps: int | None
    dt: float
    last_error: float | None = None
    problem: Any = field(default=None, repr=False)


@dataclass(frozen=True, eq=False)
class Result:
    """The end of a run.

    Parameters
    ----------
    u : ndarray, shape (N,)
        The state at ``t``, a new array. After NOT_FINITE it may be the state that is not finite,
        after UNSTABLE it is the one that is too large, for inspection; after SOLVER_FAILED,
        NOT_PHYSICAL, and UNSTABLE because of a finer grid, it is the last good state.
    t : float
        The time of the state: t0 + steps · dt, and exactly ``until`` when completed. With equal
        steps that follow a grid, steps and dt are counted from the last change of dt.
    status : EvolveStatus
        Why the run ended.
    steps : int
        Number of steps from t0 to t, including those before a resumed checkpoint.
    history : list of dict
        Records that can be written as JSON: ``event`` ("step", "resume", or the status at the
        end), ``step``, ``t``, ``seconds``, for steps ``norm`` (‖u‖₂) and with implicit methods
        ``iterations`` of the linear solve; at most a few hundred. If the grid changes, all of them
        have the number of ``unknowns``; "adapt" records a change, with the numbers of cells
        ``added`` and ``removed``, and "repeat" steps that are taken again with more cells.
    dt : float
        The time step; for adaptive steps the one that would have been tried next.
    method : str
        The stepper's name.
    seconds : float
        Wall-clock seconds of this call.
    message : str
        The status in words: what happened, at which step, and what to do.
    rejected : int
        Number of steps of this call that were computed and rejected.
    samples : list of (float, ndarray)
        The times of ``at`` that this call has passed, and the states there.
    sample_problems : list of TimeProblem
        For each sample the problem, on the grid of its state.
    events : list of EventRecord
        The events that occurred, in order of time.
    watched : dict of str to Watched
        The change of each watched quantity.
    last_error : float or None
        For adaptive steps, the error of the last step, relative to the tolerance.
    problem : TimeProblem
        The problem; in a run whose grid changes, on the grid of ``u``. There it begins at the time
        of the last change: ``problem.on_grid(problem.grid, u, t)`` begins at the run's end.
    """

    u: NDArray[Any] = field(repr=False)
    t: float
    status: EvolveStatus
    steps: int
    history: list[dict[str, Any]] = field(repr=False)
    dt: float
    method: str
    seconds: float
    message: str
    rejected: int = 0
    samples: list[tuple[float, NDArray[Any]]] = field(default_factory=list, repr=False)
    events: list[EventRecord] = field(default_factory=list, repr=False)
    watched: dict[str, Watched] = field(default_factory=dict)
    last_error: float | None = None
    problem: Any = field(default=None, repr=False)
    sample_problems: list[Any] = field(default_factory=list, repr=False)
