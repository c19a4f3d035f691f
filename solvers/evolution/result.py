"""The return value of a run in time, and the state that is passed to its callback."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from batchkron.analysis.growth_fit import GrowthFit
from batchkron.analysis.recorded import Recorded, recorded_in
from batchkron.analysis.series_plot import plot_recorded, recorded_dataset
from batchkron.arrays import to_host
from batchkron.attributes import attribute
from batchkron.datasets import require_xarray
from batchkron.storage import ResultFile

from ..products import ranks_of_problem
from .adapt.outcome import AdaptOutcome
from .observation.events import EventRecord
from .observation.observers import Watched
from .start.provenance import problem_hash

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes


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
        "No step that time resolves meets the tolerance, or equal steps are too short for it; the "
        "state is that of the last good step. The solution may blow up here or f be discontinuous: "
        "loosen rtol and atol, take an implicit method if the problem is stiff, or end the run "
        "before. If times are large, count them from another origin, near t = 0."
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
        "The right-hand side is not defined there, as where a density, temperature or other "
        "divisor is not positive; the state is that of the last good step. Take a finer grid or a "
        "smaller step."
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
        ``added`` and ``removed``, and "repeat" steps that are taken again with more cells. Of a
        resumed run "checkpoint" has the quantities there, if no step that is recorded does.
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
    adapt : AdaptOutcome or None
        Whether ``max_level`` kept the grid from following the solution within its tolerance; None
        if the grid does not change. ``message`` says it, too.
    problem_hash : str
        In a run whose grid changes, what identifies the problem that was passed to `evolve`; else
        empty.
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
    adapt: AdaptOutcome | None = None
    problem_hash: str = field(default="", repr=False)

    def file_content(self) -> ResultFile:
        """Return what `batchkron.storage.save_result` writes, with the errors if they are known.

        Returns
        -------
        ResultFile
            As ``batchkron run`` writes it: loaded with `batchkron.storage.load_result`, shown by
            ``batchkron info``. States in single precision become float64. After a run whose grid
            followed the solution it has the grid, and the hash of the problem that was passed to
            `evolve`.

        Raises
        ------
        TypeError
            If the problem's vectors are spread over ranks, or the state is complex.
        """
        problem = self.problem
        if ranks_of_problem(problem) is not None:
            raise TypeError(
                "each rank has a part of the state; call problem.gather(result.u), and save a "
                "ResultFile with the whole state on one rank"
            )
        u = to_host(self.u, "u")
        if u.dtype.kind == "c":
            raise TypeError(f"the state is {u.dtype}; result files hold real states")
        known = attribute(problem, "exact") is not None and bool(np.isfinite(u).all())
        measures = (problem.l2_error, problem.relative_error) if known else ()
        errors = [float(measure(u, self.t)) for measure in measures]
        l2_error, relative_error = [e if math.isfinite(e) else None for e in errors] or (None, None)
        return ResultFile(
            u=u.astype(np.float64),
            t=float(self.t),
            status=str(self.status),
            steps=self.steps,
            dt=float(self.dt),
            method=self.method,
            problem_hash=self.problem_hash or problem_hash(problem, problem.initial),
            problem_name=str(attribute(problem, "name", type(problem).__name__)),
            l2_error=l2_error,
            relative_error=relative_error,
            history=self.history,
            grid=problem.stored_grid() if self.problem_hash else None,
        )

    @cached_property
    def recorded(self) -> Recorded:
        """The values over time of the quantities in ``watch``.

        They are those of the records in ``history``: some 2000 steps of a run, and the first and
        the last state. A run that is resumed has those of the run before it, too.
        """
        return recorded_in(self.history)

    def plot(
        self,
        quantities: str | Sequence[str] | None = None,
        *,
        log: bool | None = None,
        fit: GrowthFit | None = None,
        slice: Mapping[Any, float] | None = None,  # noqa: A002
        marginal: Any = None,
        show: str | None = None,
        limits: tuple[float, float] | None = None,
        ax: Axes | None = None,
        **options: Any,
    ) -> Any:
        """Draw the last state, or recorded quantities over time.

        Parameters
        ----------
        quantities : str or sequence of str, optional
            Names of quantities in ``watch``. By default the state is drawn.
        log : bool, optional
            Whether quantities have a logarithmic axis, for their sizes; by default those that are
            positive and vary by more than a factor of 100, and those with a ``fit``.
        fit : GrowthFit, optional
            A fit of the only quantity, whose envelope is drawn, too.
        ax : matplotlib.axes.Axes, optional
            Where to draw; by default a new figure is made, which needs no display.
        slice, marginal, show, limits : optional
            For states, as of `batchkron.problems.Problem.plot`, such as ``slice={v: 0.0}``.
        **options
            Other options of the problem's own ``plot``, such as ``along`` of a `LinearProblem`.

        Returns
        -------
        matplotlib.figure.Figure or matplotlib.axes.Axes
            The new figure, with ``savefig``; or ``ax``.

        Raises
        ------
        BackendUnavailableError
            If Matplotlib is not installed (``pip install 'batchkron[plot]'``).
        TypeError
            If the problem has no ``plot(u, t)``, or an option is given that does not belong.
        ValueError
            If a quantity was not recorded.
        """
        named = {"slice": slice, "marginal": marginal, "show": show, "limits": limits}
        options |= {name: value for name, value in named.items() if value is not None}
        if quantities is None:
            if log is not None or fit is not None:
                raise TypeError("log and fit belong to quantities; name those that are drawn")
            return self._problem_with("plot")(self.u, self.t, ax=ax, **options)
        if options:
            raise TypeError(
                f"{', '.join(options)} belong to a state, and quantities are drawn over time"
            )
        labels, units = self._texts
        title = attribute(self.problem, "name", "")
        return plot_recorded(
            self.recorded, quantities, labels=labels, units=units, log=log, fit=fit, title=title,
            ax=ax,
        )  # fmt: skip

    def to_xarray(
        self,
        what: Literal["state", "samples", "quantities"] = "state",
        *,
        points: Any = None,
        slice: Mapping[Any, float] | None = None,  # noqa: A002
        marginal: Any = None,
        **options: Any,
    ) -> Any:
        """Return the last state, the samples or recorded quantities as an xarray.Dataset.

        Parameters
        ----------
        what : {"state", "samples", "quantities"}
            "state": the last state on a uniform grid of points. "samples": the states of ``at``,
            with the time as the first dimension. "quantities": those of ``watch`` over time.
        points, slice, marginal : optional
            For states, as of `batchkron.problems.Problem.to_xarray`, such as ``points=64`` or
            ``marginal=[x]``.
        **options
            Other options of the problem's own ``to_xarray``.

        Returns
        -------
        xarray.Dataset
            Its coordinates and variables have the attributes ``long_name`` and, where the problem
            knows it, ``units``; the dataset has the run's ``status`` and ``method``.

        Raises
        ------
        BackendUnavailableError
            If xarray is not installed (``pip install 'batchkron[xarray]'``).
        TypeError, ValueError
            If ``what`` is another word, there are no samples or quantities, or the problem has no
            ``to_xarray(u, t)``.
        """
        named = {"points": points, "slice": slice, "marginal": marginal}
        options |= {name: value for name, value in named.items() if value is not None}
        about = {"status": str(self.status), "method": self.method}
        if what == "quantities":
            if options:
                raise TypeError(f"{', '.join(options)} belong to states, not to quantities")
            labels, units = self._texts
            title = attribute(self.problem, "name", "")
            return recorded_dataset(self.recorded, labels, units, {"title": title, **about})
        if what == "state":
            make = self._problem_with("to_xarray")
            return make(self.u, self.t, **options).assign_attrs(about)
        if what != "samples":
            raise ValueError(f"what is {what!r}; expected 'state', 'samples' or 'quantities'")
        if not self.samples:
            raise ValueError("there are no samples; name their times in evolve(problem, at=…)")
        self._problem_with("to_xarray")
        options.setdefault("points", None)
        if options["points"] is None:  # the same for all, though grids may differ
            first = self.sample_problems[0].to_xarray(self.samples[0][1], None, **options)
            options["points"] = {name: first.sizes[name] for name in first["f"].dims}
        parts = [
            problem.to_xarray(u, t, **options)
            for (t, u), problem in zip(self.samples, self.sample_problems, strict=True)
        ]
        joined = require_xarray("to_xarray").concat(parts, dim="t", combine_attrs="drop_conflicts")
        return joined.assign_attrs(about)

    def _problem_with(self, name: str) -> Any:
        """Return a method of the problem that shows states."""
        method = attribute(self.problem, name)
        if method is None:
            raise TypeError(
                f"the problem is a {type(self.problem).__name__} without {name}(u, t), which those "
                "of batchkron.problems have"
            )
        return method

    @property
    def _texts(self) -> tuple[dict[str, str], dict[str, str]]:
        """What the quantities are, and the units of them and of the time."""
        labels = {name: watched.label for name, watched in self.watched.items()}
        units = {name: watched.unit for name, watched in self.watched.items()}
        units["t"] = attribute(self.problem, "units", {}).get("t", "")
        return labels, units
