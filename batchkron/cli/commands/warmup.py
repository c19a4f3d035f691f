"""`batchkron warmup`: compile the kernels of a problem before its runs."""

from __future__ import annotations

import click

from batchkron.cli.arguments.name_types import PROBLEM, stepper_option
from batchkron.cli.arguments.problem import chosen_problem, default_method, gallery_options
from batchkron.cli.exit_codes import ExitCode
from batchkron.cli.failure import CommandError, usage_errors
from batchkron.cli.output.text import plural, printable, table

__all__ = ["warmup"]


@click.command()
@click.argument("problem", metavar="FILE-or-NAME", type=PROBLEM)
@gallery_options
@stepper_option("Time stepper of the runs (default: that of the problem).")
@click.option(
    "--device",
    type=click.Choice(["cuda"]),
    default="cuda",
    help="Device of the runs: cuda is the current CUDA device and needs CuPy.",
)
def warmup(
    problem: str,
    degree: int | None,
    level: int | tuple[int, ...] | None,
    grid: str | None,
    stepper: str | None,
    device: str,
) -> ExitCode:
    """Compile the kernels that runs of a problem on a device need.

    They are stored in the kernel cache on disk. "batchkron run" of this problem with --device cuda
    then compiles nothing, on devices of the same architecture. To find the kernels, one step is
    taken, and its result is discarded.
    """
    # what computes is loaded here, so that help and completion need not wait for it
    from batchkron.backends.cuda.interface.host import is_kept, private_folder, recorded_kernels
    from batchkron.cli.output.problem_size import describe_size
    from batchkron.cli.running.warm_step import take_warm_up_step

    chosen = chosen_problem(problem, degree, level, grid)
    with recorded_kernels() as kernels:
        content = chosen.read(stepper, device)
        with usage_errors((RuntimeError,)):
            folder = private_folder()
        method = default_method(content, stepper)
        with usage_errors((ValueError,)):
            take_warm_up_step(content, method)
    compiled = [key for key, is_new in kernels.items() if is_new]
    lost = sum(not is_kept(key) for key in compiled)
    if lost:
        raise CommandError(
            f"{plural(lost, 'kernel')} could not be kept in {folder}; see whether there is room.",
            ExitCode.BAD_FILE,
        )
    rows = [
        ("problem", f"{content.name}, {describe_size(content)}"),
        ("stepper", method),
        ("compiled", plural(len(compiled), "kernel")),
        ("in the cache", f"{plural(len(kernels) - len(compiled), 'kernel')} already"),
        ("cache", str(folder)),
    ]
    click.echo(printable(table(rows)))
    return ExitCode.DONE
