"""A run from its options to its files: the order in which things are checked and done."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import batchkron
from batchkron.arrays import to_host
from batchkron.cli.exit_codes import ExitCode
from batchkron.cli.failure import CommandError, usage_errors
from batchkron.cli.gallery import describe_size
from batchkron.cli.keeping import StateKeeper
from batchkron.cli.pictures import require_plotting, save_figure
from batchkron.cli.plotting import draw
from batchkron.cli.printing import print_line
from batchkron.cli.problem_argument import ProblemArgument
from batchkron.cli.report import RunReport, errors_of
from batchkron.cli.run_files import RunFiles, plan_files
from batchkron.cli.stopping import StopOnSignal, exit_code_of
from batchkron.cli.text import number, one_line, printable
from batchkron.cli.timing import TimedProblem
from batchkron.problems import Problem
from batchkron.solvers import EvolveState, EvolveStatus, Result, evolve
from batchkron.solvers.evolve_plan import Plan, plan_run, step_suits
from batchkron.storage import (
    Checkpoint,
    ResultFile,
    checkpoint_obstacle,
    load_checkpoint,
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
    device: str
    operator: str | None
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
    resumed = None if files.resume is None else load_checkpoint(files.resume)
    # a gallery's problem is another one with another stepper
    method = resumed.method if options.stepper is None and resumed is not None else options.stepper
    problem = chosen.read(method, options.device, options.operator)
    plan = _plan(problem, options, files, resumed)
    if not options.quiet:
        _announce(problem, plan)
    timed = TimedProblem(problem)
    with usage_errors((ValueError,)):
        timed.assemble()
    keeper = StateKeeper(problem, plan, files.checkpoint, words)
    with StopOnSignal() as stop, keeper:
        result = _march(timed, plan, resumed, options, files, stop, keeper)
        if result.status is EvolveStatus.NOT_FINITE:
            keeper.forget()
        else:
            keeper.note(result.u, result.steps, result.history)
        stopped = result.status is EvolveStatus.STOPPED
        if stopped and not options.keeps_checkpoints:
            keeper.save()
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
            keeper.forget()
    if report.completed:
        _draw(report, options.force)
    elif stop.received is not None and stopped:
        print_line(f"batchkron: stopped by {stop.received.name} after {keeper.advice()}", err=True)
    else:
        print_line(f"batchkron: {one_line(result.message)}", err=True)
    return report, exit_code_of(result.status, stop)


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


def _plan(
    problem: Problem, options: RunOptions, files: RunFiles, resumed: Checkpoint | None
) -> Plan:
    """Check the run's arguments, as `evolve` will."""
    obstacle = checkpoint_obstacle(files.checkpoint)
    if obstacle is not None:
        raise CommandError(f"checkpoints are to go to {files.checkpoint}, but {obstacle}.")
    until = options.until
    if until is None:
        until = problem.stepper.until if resumed is None else resumed.until
    if options.dt is None and resumed is None and not step_suits(problem, options.stepper):
        raise CommandError(
            f"{options.stepper} is explicit, and the step of {problem.name}, "
            f"{number(problem.stepper.dt)}, is one for {problem.stepper.method}; give a smaller "
            f"one with --dt."
        )
    with usage_errors():
        return plan_run(problem, until=until, method=options.stepper, dt=options.dt, resume=resumed)


def _announce(problem: Problem, plan: Plan) -> None:
    begin = f"from step {plan.first_step}, " if plan.resumed else ""
    place = "" if problem.device == "cpu" else f" on {problem.device}"
    text = (
        f"{problem.name}: {describe_size(problem)}{place}; {plan.stepper.name}, {begin}"
        f"{plan.steps} steps of dt = {number(plan.dt)} to t = {number(plan.until, 8)}"
    )
    print_line(printable(text), err=True)


def _march(
    timed: TimedProblem,
    plan: Plan,
    resumed: Checkpoint | None,
    options: RunOptions,
    files: RunFiles,
    stop: StopOnSignal,
    keeper: StateKeeper,
) -> Result:
    """Take the steps."""

    def after_step(state: EvolveState) -> bool:
        keeper.note(state.u, state.step)
        return stop(state)

    # a ValueError here is about a time that a function of time does not reach
    with usage_errors((ValueError,)):
        return evolve(
            timed,
            until=plan.until,
            method=options.stepper,
            dt=options.dt,
            callback=after_step,
            checkpoint=files.checkpoint if options.keeps_checkpoints else None,
            checkpoint_every=options.checkpoint_every,
            resume=resumed,
            progress=not options.quiet,
        )


def _write(report: RunReport, force: bool) -> None:
    """Write the result file."""
    problem, result, path = report.problem, report.result, report.written.result
    content = ResultFile(
        u=to_host(result.u, "u"),
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
    try:
        save_result(path, content, overwrite=force)
    except FileExistsError as error:
        raise CommandError(
            f"{path} has come to be since this run began, and is left as it is; give the result "
            f"another name with -o, or pass --force.",
            ExitCode.BAD_FILE,
        ) from error


def _draw(report: RunReport, force: bool) -> None:
    """Write the picture, if there is to be one."""
    path = report.written.plot
    if path is not None:
        save_figure(path, draw(report), overwrite=force)
