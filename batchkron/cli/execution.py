"""A run from its options to its files: the order in which things are checked and done."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

import click

import batchkron
from batchkron.cli.exit_codes import ExitCode
from batchkron.cli.failure import usage_errors
from batchkron.cli.gallery import describe_size
from batchkron.cli.plotting import require_plotting, save_plot
from batchkron.cli.problem_argument import ProblemArgument
from batchkron.cli.report import RunReport, errors_of
from batchkron.cli.run_files import RunFiles, plan_files
from batchkron.cli.stopping import StopOnSignal
from batchkron.cli.text import number, one_line, printable
from batchkron.cli.timing import TimedProblem
from batchkron.problems import Problem
from batchkron.solvers import EvolveStatus, Result, evolve
from batchkron.solvers.checkpointing import surroundings
from batchkron.solvers.evolve_plan import Plan, plan_run
from batchkron.storage import (
    Checkpoint,
    ResultFile,
    load_checkpoint,
    save_checkpoint,
    save_result,
)

__all__ = ["RunOptions", "execute"]


@dataclass(frozen=True)
class RunOptions:
    """The options of `batchkron run`, as far as they are not about the problem."""

    until: float | None
    dt: float | None
    stepper: str | None
    threads: int | None
    plot: Path | None
    output: Path | None
    force: bool
    checkpoint: Path | None
    checkpoint_every: int | float | None
    resume: Path | None
    quiet: bool

    @property
    def keeps_checkpoints(self) -> bool:
        """Whether checkpoints are wanted of a run that nobody stops."""
        return self.checkpoint is not None or self.checkpoint_every is not None


def execute(
    chosen: ProblemArgument, options: RunOptions, words: list[str]
) -> tuple[RunReport, ExitCode]:
    """Check everything, run, and write what there is to write.

    Parameters
    ----------
    chosen : ProblemArgument
        What to run.
    options : RunOptions
        How.
    words : list of str
        The words of the command line after "run", to say how the run can be resumed.

    Returns
    -------
    report : RunReport
    exit_code : ExitCode

    Raises
    ------
    CommandError
        If the run cannot be done as asked, before any step.
    ProblemFileError, OSError
        If a file is not sound, cannot be read or cannot be written.
    """
    files = _plan_files(chosen, options)
    if options.threads is not None:
        batchkron.set_num_threads(options.threads)
    problem = chosen.read()
    plan, resumed = _plan(problem, options, files)
    if not options.quiet:
        _announce(problem, plan)
    timed = TimedProblem(problem)
    timed.assemble()
    with StopOnSignal() as stop:
        result = _march(timed, plan, resumed, options, files, stop)
    stopped = result.status is EvolveStatus.STOPPED
    if stopped and not options.keeps_checkpoints:
        save_checkpoint(files.checkpoint, _checkpoint_of(problem, result, plan))
    report = RunReport(
        problem,
        result,
        timed.clock,
        plan.first_step,
        plan.until,
        *errors_of(problem, result),
        written=files,
        checkpointed=stopped
        or (options.keeps_checkpoints and result.status is not EvolveStatus.NOT_FINITE),
    )
    if report.completed:
        _write(report, options.force)
    else:
        _explain(report, plan, stop, words)
    return report, _exit_code(result.status, stop)


def _plan_files(chosen: ProblemArgument, options: RunOptions) -> RunFiles:
    files = plan_files(
        chosen,
        output=options.output,
        checkpoint=options.checkpoint,
        plot=options.plot,
        resume=options.resume,
        force=options.force,
    )
    if files.plot is not None:
        require_plotting(files.plot)
    return files


def _plan(problem: Problem, options: RunOptions, files: RunFiles) -> tuple[Plan, Checkpoint | None]:
    """Read the checkpoint and check the run's arguments, as `evolve` will."""
    resumed = None if files.resume is None else load_checkpoint(files.resume)
    until = options.until
    if until is None:
        until = problem.stepper.until if resumed is None else resumed.until
    with usage_errors():
        plan = plan_run(problem, until=until, method=options.stepper, dt=options.dt, resume=resumed)
    return plan, resumed


def _announce(problem: Problem, plan: Plan) -> None:
    begin = f"from step {plan.first_step}, " if plan.resumed else ""
    text = (
        f"{problem.name}: {describe_size(problem)}; {plan.stepper.name}, {begin}"
        f"{plan.steps} steps of dt = {number(plan.dt)} to t = {number(plan.until, 8)}"
    )
    click.echo(printable(text), err=True)


def _march(
    timed: TimedProblem,
    plan: Plan,
    resumed: Checkpoint | None,
    options: RunOptions,
    files: RunFiles,
    stop: StopOnSignal,
) -> Result:
    """Take the steps."""
    # a ValueError here is about a time that a tabulated function of time does not reach
    with usage_errors((ValueError,)):
        return evolve(
            timed,
            until=plan.until,
            method=options.stepper,
            dt=options.dt,
            callback=stop,
            checkpoint=files.checkpoint if options.keeps_checkpoints else None,
            checkpoint_every=options.checkpoint_every,
            resume=resumed,
            progress=not options.quiet,
        )


def _checkpoint_of(problem: Problem, result: Result, plan: Plan) -> Checkpoint:
    """Return the checkpoint of a run that was not to write any, and was stopped."""
    return Checkpoint(
        u=result.u,
        t0=plan.t0,
        dt=result.dt,
        step=result.steps,
        until=plan.until,
        method=result.method,
        problem_hash=problem.content_hash,
        dtype=str(result.u.dtype),
        history=list(result.history),
        **surroundings(),
    )


def _write(report: RunReport, force: bool) -> None:
    """Write the result file and the picture."""
    problem, result, files = report.problem, report.result, report.written
    content = ResultFile(
        u=result.u,
        t=result.t,
        status=str(result.status),
        steps=result.steps,
        dt=result.dt,
        method=result.method,
        problem_hash=problem.content_hash,
        problem_name=problem.name,
        l2_error=report.l2_error,
        relative_error=report.relative_error,
        history=result.history,
    )
    save_result(files.result, content, overwrite=force)
    if files.plot is not None:
        save_plot(files.plot, report, overwrite=force)


def _explain(report: RunReport, plan: Plan, stop: StopOnSignal, words: list[str]) -> None:
    """Say on standard error why there is no result, and how to go on."""
    result = report.result
    if stop.received is None or result.status is not EvolveStatus.STOPPED:
        click.echo(f"batchkron: {one_line(result.message)}", err=True)
        return
    command = ["batchkron", "run", *_without_resume(words)]
    command += ["--resume", str(report.written.checkpoint)]
    click.echo(
        f"batchkron: stopped by {stop.received.name} after step {result.steps} of {plan.steps}, "
        f"t = {number(result.t, 8)}; go on with\n  {printable(shlex.join(command))}",
        err=True,
    )


def _without_resume(words: list[str]) -> list[str]:
    """Return the words of a command line without the option --resume."""
    kept: list[str] = []
    left = iter(words)
    for word in left:
        if word == "--resume":
            next(left, None)
        elif not word.startswith("--resume="):
            kept.append(word)
    return kept


def _exit_code(status: EvolveStatus, stop: StopOnSignal) -> ExitCode:
    if status is EvolveStatus.STOPPED:
        assert stop.received is not None
        return ExitCode(128 + stop.received)
    return {
        EvolveStatus.COMPLETED: ExitCode.DONE,
        EvolveStatus.NOT_FINITE: ExitCode.NOT_FINITE,
        EvolveStatus.SOLVER_FAILED: ExitCode.SOLVER_FAILED,
    }[status]
