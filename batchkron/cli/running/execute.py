"""A run of the command, from its options to its files: all checks, then the steps, then files."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

import batchkron
from batchkron.arrays import to_host
from batchkron.cli.arguments.adapt import AdaptRequest
from batchkron.cli.arguments.problem import AnyProblem, ProblemArgument, default_method
from batchkron.cli.exit_codes import ExitCode
from batchkron.cli.failure import CommandError, describe_system_error, usage_errors
from batchkron.cli.output.figures import require_plotting, save_figure
from batchkron.cli.output.printing import print_line
from batchkron.cli.output.problem_size import describe_size
from batchkron.cli.output.text import number, one_line, printable
from batchkron.cli.running.clock import TimedProblem
from batchkron.cli.running.emergency_checkpoint import EmergencyCheckpoint
from batchkron.cli.running.files import RunFiles, plan_files
from batchkron.cli.running.pictures import require_movie_writer
from batchkron.cli.running.ranks import RunRanks
from batchkron.cli.running.report import RunReport, errors_of
from batchkron.cli.running.shown import Shown, check_pictures, plan_shown
from batchkron.cli.running.signals import StopOnSignal, exit_code_of
from batchkron.cli.running.solution_plot import draw
from batchkron.cli.running.stability import unstable_steps_refused
from batchkron.distributed import distribute
from batchkron.errors import NotPhysicalError
from batchkron.problems.semidiscrete.output.cut import Cut
from batchkron.solvers import (
    Adapt,
    CheckpointError,
    EvolveState,
    EvolveStatus,
    Result,
    evolve,
)
from batchkron.solvers.evolution.start.arguments import step_suits
from batchkron.solvers.evolution.start.integration import Integration, plan_integration
from batchkron.storage import (
    Checkpoint,
    ResultFile,
    checkpoint_obstacle,
    load_checkpoint,
    save_result,
)
from batchkron.storage.content_limits import unreadable_state

__all__ = ["RunOptions", "execute"]


@dataclass(frozen=True)
class RunOptions:
    """The options of `batchkron run` except those of the problem; see ``batchkron run --help``."""

    until: float | None
    dt: float | None
    stepper: str | None
    rtol: float | None
    atol: float | None
    solver: str | None
    preconditioner: str | None
    threads: int | None
    device: str
    operator: str | None
    plot: Path | None
    output: Path | None
    force: bool
    checkpoint: Path | None
    checkpoint_every: int | float | None
    resume: Path | None
    allow_unstable: bool
    quiet: bool
    record: tuple[str, ...] = ()
    plot_every: float | None = None
    movie: Path | None = None
    slices: Mapping[str, float] = field(default_factory=dict)
    marginal: tuple[str, ...] = ()
    adapt_request: AdaptRequest = field(default_factory=AdaptRequest)
    adapt: Adapt | None = None  # what the request means for the problem

    @property
    def chooses_steps(self) -> bool:
        """Whether steps are adaptive: a tolerance is given."""
        return self.rtol is not None or self.atol is not None

    @property
    def keeps_checkpoints(self) -> bool:
        """Whether checkpoints are written, also of a run that is not stopped."""
        asked = self.checkpoint is not None or self.checkpoint_every is not None
        # only `evolve` knows the grid of a state, and the state of the last adaptation
        return asked or self.adapt is not None


def execute(
    chosen: ProblemArgument, options: RunOptions, words: list[str], ranks: RunRanks
) -> tuple[RunReport | None, ExitCode]:
    """Check all options, run, and write the files.

    Parameters
    ----------
    chosen : ProblemArgument
        The problem.
    options : RunOptions
        The options.
    words : list of str
        The arguments of the command line after "run", for the text that says how to resume.
    ranks : RunRanks
        The ranks that share the state; all of them call this function.

    Returns
    -------
    report : RunReport or None
        None on ranks other than the first one.
    exit_code : ExitCode

    Raises
    ------
    CommandError
        If the options cannot be satisfied; raised before any step.
    ProblemFileError, OSError
        If a file is not valid, cannot be read or cannot be written.
    """
    files = ranks.on_first(lambda: _plan_files(chosen, options))
    if options.threads is not None:
        batchkron.set_num_threads(options.threads)
    ranks.choose_device(options.device)
    resumed, whole = ranks.on_each(lambda: _read(chosen, options, files))
    rule = ranks.on_each(lambda: options.adapt_request.rule(whole))
    options = replace(options, adapt=rule)
    with ranks.not_alone():
        problem = _shared(whole, options, ranks)
        integration = _plan(problem, whole, options, resumed)
        shown = plan_shown(whole, integration, files, options)
        if not options.quiet:
            _announce(whole, integration, ranks)
        timed = TimedProblem(problem)
        # the first step raises NotPhysicalError again, and ends the run with its status
        with usage_errors((ValueError,)), suppress(NotPhysicalError):
            timed.assemble()
        emergency = EmergencyCheckpoint(problem, integration, files.checkpoint, words, ranks)
        with StopOnSignal() as stop, emergency:
            result, unwritten = _march(
                timed, integration, resumed, options, files, stop, emergency, shown
            )
            ranks.share_signal(stop)
            unwritten = ranks.same(unwritten)
            if unwritten is not None:
                print_line(f"batchkron: {one_line(describe_system_error(unwritten))}", err=True)
            if result.status.is_lost or options.adapt is not None:
                emergency.forget()
            else:
                emergency.note(result, result.history)
            stopped = result.status is EvolveStatus.STOPPED
            if stopped and not options.keeps_checkpoints:
                emergency.save()
            moved = problem if options.adapt is None else result.problem.untimed
            if ranks.several:
                result = replace(result, u=moved.gather(result.u, 0))
            if not integration.method.implicit:  # on a device, graphs have done most of them
                trials = result.steps - integration.first_step + result.rejected
                timed.clock.extrapolate(trials * integration.method.stages)
            report: RunReport | None = None
            last = whole if options.adapt is None else getattr(moved, "whole", moved)
            if ranks.first:
                report = RunReport(
                    last,
                    result,
                    timed.clock,
                    integration.first_step,
                    integration.until,
                    *errors_of(last, result),
                    written=files,
                    checkpointed=unwritten is None
                    and (stopped or (options.keeps_checkpoints and not result.status.is_lost)),
                    ranks=ranks.size,
                )
            if report is not None and report.completed:
                _write(report, whole, options)
                emergency.forget()
        if report is not None and report.completed:
            shown.finish()
            _draw(report, shown.cut, options.force)
    completed = result.status is EvolveStatus.COMPLETED
    if not completed and stop.received is not None and stopped:
        resume_hint = f"; {emergency.resume_hint()}"
        if options.adapt is None:
            resume_hint = _resume_hint(emergency, unwritten, files)
        print_line(f"batchkron: stopped by {stop.received.name}{resume_hint}", err=True)
    elif not completed:
        print_line(f"batchkron: {one_line(result.message)}", err=True)
    elif ranks.first and result.adapt is not None and not result.adapt.tolerance_met:
        print_line(f"batchkron: warning: {one_line(result.adapt.text)}", err=True)
    exit_code = exit_code_of(result.status, stop)
    if unwritten is not None and (completed or stopped):
        exit_code = ExitCode.BAD_FILE
    return report, exit_code


def _read(
    chosen: ProblemArgument, options: RunOptions, files: RunFiles
) -> tuple[Checkpoint | None, Any]:
    """Return the checkpoint to resume from, and the problem, after checks of both."""
    resumed = None if files.resume is None else load_checkpoint(files.resume)
    # A problem of the gallery depends on the stepper, which determines its default step.
    method = resumed.method if options.stepper is None and resumed is not None else options.stepper
    problem = chosen.read(method, options.device, options.operator)
    obstacle = checkpoint_obstacle(files.checkpoint)
    if obstacle is not None:
        raise CommandError(f"checkpoints are to go to {files.checkpoint}, but {obstacle}.")
    fault = unreadable_state(problem.unknowns)
    if fault is not None:
        raise CommandError(f"{problem.name}: {fault}; take a lower level or degree.")
    if problem.initial.dtype.kind == "c":
        raise CommandError(
            f"{problem.name} has complex states, and files of results and checkpoints hold real "
            "ones; run it with evolve in Python."
        )
    return resumed, problem


def _shared(whole: AnyProblem, options: RunOptions, ranks: RunRanks) -> Any:
    """Return the problem whose state all ranks share; the problem itself on one."""
    if not ranks.several:
        return whole
    asked = {
        "--record": options.record,
        "--movie": options.movie,
        "--plot-every": options.plot_every,
    }
    for name, value in asked.items():
        if value:
            raise CommandError(
                f"{name} needs the whole state after each step, of which each rank has a part; "
                "leave it out, or run in one process."
            )
    with usage_errors((ValueError, TypeError)):
        return distribute(whole, ranks.communicator)


def _resume_hint(
    emergency: EmergencyCheckpoint, unwritten: CheckpointError | None, files: RunFiles
) -> str:
    """Return a text: where a run was stopped, and how to resume from its last checkpoint."""
    if unwritten is None:
        return f" after {emergency.advice()}"
    is_there = unwritten.kept or files.checkpoint == files.resume
    return f"; {emergency.resume_hint()}" if is_there else ""


def _plan_files(chosen: ProblemArgument, options: RunOptions) -> RunFiles:
    files = plan_files(
        chosen,
        output=options.output,
        checkpoint=options.checkpoint,
        plot=options.plot,
        resume=options.resume,
        force=options.force,
        movie=options.movie,
    )
    if files.plot is not None:
        require_plotting(files.plot)
    if files.movie is not None:
        require_movie_writer(files.movie)
    check_pictures(options)
    return files


def _plan(
    problem: Any, whole: AnyProblem, options: RunOptions, resumed: Checkpoint | None
) -> Integration:
    """Return the integration after checking its arguments in the same way as `evolve`."""
    until = options.until
    if until is None:
        until = resumed.until if resumed is not None else _last_time(whole)
    if resumed is None:
        default_method(whole, options.stepper)  # raises if there is none
    given = options.dt is not None or options.chooses_steps or resumed is not None
    if not given and whole.stepper is None:
        raise CommandError(f"{whole.name} does not suggest a step; give --dt, or --rtol.")
    if not given and not step_suits(whole, options.stepper):
        assert whole.stepper is not None
        raise CommandError(
            f"{options.stepper} is explicit, and the step of {whole.name}, "
            f"{number(whole.stepper.dt)}, is one for {whole.stepper.method}; give a smaller "
            f"one with --dt."
        )
    with usage_errors():
        integration = plan_integration(
            problem,
            until=until,
            method=options.stepper,
            dt=options.dt,
            resume=resumed,
            rtol=options.rtol,
            atol=options.atol,
            adapts=options.adapt is not None,
        )
    if not integration.method.implicit and (options.solver or options.preconditioner):
        raise CommandError(
            f"{integration.method.name} is explicit and solves no system; leave --solver and "
            f"--preconditioner out."
        )
    return integration


def _last_time(problem: AnyProblem) -> float:
    """Return a problem's own last time.

    Raises
    ------
    CommandError
        If it has none.
    """
    if problem.stepper is None:
        raise CommandError(f"{problem.name} does not say when its runs end; give --until.")
    return problem.stepper.until


def _announce(problem: AnyProblem, integration: Integration, ranks: RunRanks) -> None:
    begin = f"from step {integration.first_step}, " if integration.resumed else ""
    place = "" if problem.device == "cpu" else f" on {problem.device}"
    place += f" on {ranks.size} ranks" if ranks.several else ""
    text = (
        f"{problem.name}: {describe_size(problem)}{place}; {integration.method.name}, {begin}"
        f"{_steps(integration)} to t = {number(integration.until, 8)}"
    )
    print_line(printable(text), err=True)


def _steps(integration: Integration) -> str:
    """Return a text about the steps: their number, or the tolerances."""
    tolerances = integration.tolerances
    if tolerances is None:
        return f"{integration.last_step} steps of dt = {number(integration.dt)}"
    return f"steps by rtol = {number(tolerances.rtol)}, atol = {number(tolerances.atol)},"


def _march(
    timed: TimedProblem,
    integration: Integration,
    resumed: Checkpoint | None,
    options: RunOptions,
    files: RunFiles,
    stop: StopOnSignal,
    emergency: EmergencyCheckpoint,
    shown: Shown,
) -> tuple[Result, CheckpointError | None]:
    """Take the steps; return the result, and the error if its checkpoint was not written."""

    def after_step(state: EvolveState) -> bool:
        if options.adapt is None:
            emergency.note(state)
        shown.after_step(state)
        return stop(state)

    # where a look at a state waits for a device
    after_step.may_skip = options.device == "cuda" and shown.may_skip  # type: ignore[attr-defined]
    try:
        # A ValueError here means that a function of time is not defined at some time of the run.
        with usage_errors((ValueError,)), unstable_steps_refused():
            result = evolve(
                timed,
                until=integration.until,
                method=options.stepper,
                dt=options.dt,
                callback=after_step,
                checkpoint=files.checkpoint if options.keeps_checkpoints else None,
                checkpoint_every=options.checkpoint_every,
                resume=resumed,
                progress=not options.quiet,
                rtol=options.rtol,
                atol=options.atol,
                solver=options.solver,
                preconditioner=options.preconditioner,
                allow_unstable=options.allow_unstable,
                watch=shown.watch,
                adapt=options.adapt or False,
            )
    except CheckpointError as error:
        return error.result, error
    return result, None


def _write(report: RunReport, problem: AnyProblem, options: RunOptions) -> None:
    """Write the result file of a run of a problem, whose grid may have followed the solution."""
    result, path = report.result, report.written.result
    last: Any = report.problem
    content = ResultFile(
        u=to_host(result.u, "u").astype(np.float64, copy=False),
        t=result.t,
        status=str(result.status),
        steps=result.steps,
        dt=result.dt,
        method=result.method,
        problem_hash=str(problem.content_hash),
        problem_name=problem.name,
        l2_error=report.l2_error,
        relative_error=report.relative_error,
        history=result.history,
        grid=None if options.adapt is None else last.stored_grid(),
    )
    try:
        save_result(path, content, overwrite=options.force)
    except FileExistsError as error:
        raise CommandError(
            f"{path} has come to be since this run began, and is left as it is; give the result "
            f"another name with -o, or pass --force.",
            ExitCode.BAD_FILE,
        ) from error


def _draw(report: RunReport, cut: Cut | Mapping[str, float], force: bool) -> None:
    """Write the plot, if one is wanted."""
    path = report.written.plot
    if path is not None:
        save_figure(path, draw(report, cut), overwrite=force)
