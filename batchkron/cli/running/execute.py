"""A run of the command, from its options to its files: all checks, then the steps, then files."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

import batchkron
from batchkron.cli.arguments.problem import AnyProblem, ProblemArgument, default_method
from batchkron.cli.exit_codes import ExitCode
from batchkron.cli.failure import CommandError, describe_system_error, usage_errors
from batchkron.cli.output.figures import require_plotting, save_figure
from batchkron.cli.output.printing import print_line
from batchkron.cli.output.problem_size import describe_size
from batchkron.cli.output.text import number, one_line, printable
from batchkron.cli.running.clock import KernelClock
from batchkron.cli.running.files import RunFiles, plan_files
from batchkron.cli.running.last_state import LastState
from batchkron.cli.running.options import RunOptions
from batchkron.cli.running.pictures import PicturesDuringRun, require_movie_writer
from batchkron.cli.running.ranks import RunRanks
from batchkron.cli.running.report import RunReport
from batchkron.cli.running.shown import begin_pictures, plan_shown
from batchkron.cli.running.signals import StopOnSignal, exit_code_of
from batchkron.cli.running.solution_plot import draw
from batchkron.cli.running.stability import unstable_steps_refused
from batchkron.distributed import distribute
from batchkron.errors import NotPhysicalError
from batchkron.solvers import Adapt, CheckpointError, EvolveState, EvolveStatus, Result, Run
from batchkron.solvers.evolution.start.arguments import step_suits
from batchkron.storage import Checkpoint, checkpoint_obstacle, load_checkpoint, save_result
from batchkron.storage.content_limits import unreadable_state

__all__ = ["execute"]


def execute(
    chosen: ProblemArgument, options: RunOptions, words: list[str], ranks: RunRanks
) -> tuple[RunReport | None, ExitCode]:
    """Check all options, run, and write the files.

    ``chosen``: the problem.
    ``words``: the arguments of the command line after "run", for the text that says how to resume.
    ``ranks``: the ranks that share the state; all of them call this function.

    Returns ``report``: None on ranks other than the first one; ``exit_code``. Raises `CommandError`
    if the options cannot be satisfied; raised before any step. `ProblemFileError`, `OSError` if a
    file is not valid, cannot be read or cannot be written.
    """
    files = ranks.on_first(lambda: _plan_files(chosen, options))
    if options.threads is not None:
        batchkron.set_num_threads(options.threads)
    ranks.choose_device(options.device)
    resumed, whole = ranks.on_each(lambda: _read(chosen, options, files))
    rule = ranks.on_each(lambda: options.adapt_rule(whole))
    with ranks.not_alone():
        problem = _shared(whole, options, ranks)
        cut, watch = plan_shown(whole, options)
        run = _plan(problem, whole, options, files, resumed, rule, watch)
        pictures = begin_pictures(whole, run, cut, files, options)
        if not options.quiet:
            _announce(whole, run, ranks)
        clock, last_state = KernelClock(problem.initial), LastState(run, files.checkpoint, words)
        run.on_product, run.on_failure = clock.running, last_state.keep
        with StopOnSignal() as stop:
            result, unwritten = _take_steps(run, options, pictures, stop)
            ranks.share_signal(stop)
            unwritten = ranks.same(unwritten)
            try:
                report = _report(run, result, unwritten, clock, files, ranks)
            except Exception as error:
                if not result.status.is_lost:
                    last_state.keep(error)
                raise
            if report is not None and report.completed:
                _write_result(report, options, last_state)
        if report is not None and report.completed:
            if pictures is not None:
                pictures.finish()
            if files.plot is not None:
                save_figure(files.plot, draw(report, cut), overwrite=options.force)
    _say_end(result, unwritten, stop, last_state, files)
    exit_code = exit_code_of(result.status, stop)
    if unwritten is not None and result.status in (EvolveStatus.COMPLETED, EvolveStatus.STOPPED):
        exit_code = ExitCode.BAD_FILE
    return report, exit_code


# Before the steps.


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
    return files


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


def _plan(
    problem: Any,
    whole: AnyProblem,
    options: RunOptions,
    files: RunFiles,
    resumed: Checkpoint | None,
    rule: Adapt | None,
    watch: dict[str, Any],
) -> Run:
    """Return the run after checks of its arguments; the operator is assembled."""
    until = options.until
    if until is None:
        until = resumed.until if resumed is not None else _last_time(whole)
    if resumed is None:
        default_method(whole, options.stepper)  # raises if there is none
        if options.dt is None and not options.has_tolerance:
            _check_own_step(whole, options.stepper)
    # the first step raises NotPhysicalError again, and ends the run with its status
    with usage_errors((ValueError,)), suppress(NotPhysicalError):
        problem.rhs(problem.t0, problem.initial, np.empty_like(problem.initial))
    with usage_errors(), unstable_steps_refused():
        return Run(
            problem,
            until=until,
            method=options.stepper,
            dt=options.dt,
            checkpoint=files.checkpoint,
            checkpoint_every=options.checkpoint_every,
            # only checkpoints during the run have the grid and the state of the last adaptation
            checkpoint_at_end=options.asks_for_checkpoints or rule is not None,
            resume=resumed,
            rtol=options.rtol,
            atol=options.atol,
            solver=options.solver,
            preconditioner=options.preconditioner,
            allow_unstable=options.allow_unstable,
            watch=watch,
            adapt=rule or False,
        )


def _last_time(problem: AnyProblem) -> float:
    """Return a problem's own last time; raise CommandError if it has none."""
    if problem.stepper is None:
        raise CommandError(f"{problem.name} does not say when its runs end; give --until.")
    return problem.stepper.until


def _check_own_step(problem: AnyProblem, stepper: str | None) -> None:
    """Raise CommandError if a problem suggests no step, or none that suits the stepper."""
    if problem.stepper is None:
        raise CommandError(f"{problem.name} does not suggest a step; give --dt, or --rtol.")
    if not step_suits(problem, stepper):
        raise CommandError(
            f"{stepper} is explicit, and the step of {problem.name}, "
            f"{number(problem.stepper.dt)}, is one for {problem.stepper.method}; give a smaller "
            "one with --dt."
        )


def _announce(problem: AnyProblem, run: Run, ranks: RunRanks) -> None:
    integration = run.integration
    begin = f"from step {run.step}, " if integration.resumed else ""
    place = "" if problem.device == "cpu" else f" on {problem.device}"
    place += f" on {ranks.size} ranks" if ranks.several else ""
    tolerances = integration.tolerances
    steps = f"{integration.last_step} steps of dt = {number(integration.dt)}"
    if tolerances is not None:
        rtol, atol = (number(float(one)) for one in (tolerances.rtol, tolerances.atol))
        steps = f"steps by rtol = {rtol}, atol = {atol},"
    text = (
        f"{problem.name}: {describe_size(problem)}{place}; {integration.method.name}, {begin}"
        f"{steps} to t = {number(integration.until, 8)}"
    )
    print_line(printable(text), err=True)


# The steps, and after them.


def _take_steps(
    run: Run, options: RunOptions, pictures: PicturesDuringRun | None, stop: StopOnSignal
) -> tuple[Result, CheckpointError | None]:
    """Take the steps; return the result, and the error if its checkpoint was not written."""

    def draw_and_look_for_signals(state: EvolveState) -> bool:
        assert pictures is not None
        pictures.after_step(state)
        return stop(state)

    run.on_step = stop if pictures is None else draw_and_look_for_signals
    try:
        # A ValueError here means that a function of time is not defined at some time of the run.
        with usage_errors((ValueError,)):
            return run.to_end(progress=not options.quiet), None
    except CheckpointError as error:
        print_line(f"batchkron: {one_line(describe_system_error(error))}", err=True)
        return error.result, error


def _report(
    run: Run,
    result: Result,
    unwritten: CheckpointError | None,
    clock: KernelClock,
    files: RunFiles,
    ranks: RunRanks,
) -> RunReport | None:
    """Return the report of a run, on the first rank; the others give their parts of the state."""
    if ranks.several:
        whole_u = result.problem.gather(result.u, 0)
        result = replace(result, u=whole_u, problem=result.problem.whole)
    if not ranks.first:
        return None
    is_kept = unwritten is None and run.last_checkpoint is not None and not result.status.is_lost
    seconds = clock.seconds_of(run.products)
    return RunReport(run, result, result.file_content(), seconds, files, is_kept, ranks.size)


def _write_result(report: RunReport, options: RunOptions, last_state: LastState) -> None:
    """Write the result file, or a checkpoint if that fails."""
    path = report.written.result
    try:
        save_result(path, report.content, overwrite=options.force)
    except Exception as error:
        last_state.keep(error)
        if not isinstance(error, FileExistsError):
            raise
        raise CommandError(
            f"{path} has come to be since this run began, and is left as it is; give the result "
            f"another name with -o, or pass --force.",
            ExitCode.BAD_FILE,
        ) from error


def _say_end(
    result: Result,
    unwritten: CheckpointError | None,
    stop: StopOnSignal,
    last_state: LastState,
    files: RunFiles,
) -> None:
    """Say on standard error why a run did not reach its end, or not within its tolerance."""
    if result.status is EvolveStatus.COMPLETED:
        if result.adapt is not None and not result.adapt.tolerance_met:
            print_line(f"batchkron: warning: {one_line(result.adapt.text)}", err=True)
        return
    if result.status is not EvolveStatus.STOPPED or stop.received is None:
        print_line(f"batchkron: {one_line(result.message)}", err=True)
        return
    hint = f" after {last_state.stopped_place()}; {last_state.how_to_go_on()}"
    if unwritten is not None:  # an earlier checkpoint may be there
        is_there = unwritten.kept or files.checkpoint == files.resume
        hint = f"; {last_state.how_to_go_on()}" if is_there else ""
    print_line(f"batchkron: stopped by {stop.received.name}{hint}", err=True)
