"""What a run in time returns, and what its callback sees."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from numpy.typing import NDArray


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

    @property
    def advice(self) -> str:
        """What the status means for the caller, in a sentence or two."""
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
}


@dataclass(frozen=True, eq=False)
class EvolveState:
    """Where a run is, for its callback.

    Parameters
    ----------
    u : ndarray, shape (N,)
        The state, overwritten by the next step: copy what you keep. It is read-only; CuPy has no
        such arrays, so on a device do not write to it.
    t : float
        Its time.
    step, steps : int
        The steps done from t0, and those of the whole run.
    dt : float
        The time step.
    """

    u: NDArray[Any] = field(repr=False)
    t: float
    step: int
    steps: int
    dt: float


@dataclass(frozen=True, eq=False)
class Result:
    """The end of a run.

    Parameters
    ----------
    u : ndarray, shape (N,)
        The state at ``t``, a fresh array. After NOT_FINITE it may be the state that is not
        finite, to look at; after SOLVER_FAILED it is the last good one.
    t : float
        Its time: t0 + steps · dt, and exactly ``until`` when completed.
    status : EvolveStatus
        Why the run ended.
    steps : int
        Steps from t0 to t, those before a resumed checkpoint included.
    history : list of dict
        JSON-able records: ``event`` ("step", "resume", or the status at the end), ``step``,
        ``t``, ``seconds``, for steps ``norm`` (‖u‖₂) and with implicit methods ``iterations`` of
        the linear solve; at most a few hundred.
    dt : float
        The time step.
    method : str
        The stepper's name.
    seconds : float
        Wall-clock seconds of this call.
    message : str
        The status in words: what happened, at which step, and what to do.
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
