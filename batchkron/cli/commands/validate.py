"""`batchkron validate`: compare batched products with dense Kronecker products."""

from __future__ import annotations

import click

from batchkron.cli.arguments.problem import chosen_problem, gallery_options, operator_option
from batchkron.cli.exit_codes import ExitCode
from batchkron.cli.failure import usage_errors
from batchkron.cli.output.problem_size import added_cells, describe_size
from batchkron.cli.output.text import printable, table

__all__ = ["validate"]


@click.command()
@click.argument("problem", metavar="FILE-or-NAME")
@gallery_options
@operator_option
@click.option(
    "--samples",
    type=click.IntRange(min=1),
    help="Number of blocks to compare, chosen at random (default: all).",
)
def validate(
    problem: str,
    degree: int | None,
    level: int | tuple[int, ...] | None,
    grid: str | None,
    operator: str | None,
    samples: int | None,
) -> ExitCode:
    """Compare a problem's operator with dense Kronecker products.

    Products with random vectors are computed a second time, from dense Kronecker products, and
    each difference is compared with its rounding bound: for one vector and for several, for
    results that are added to others, and for the transpose. The exit status is 0 if all
    differences are within their bounds, and 1 otherwise.
    """
    chosen = chosen_problem(problem, degree, level, grid)
    content = chosen.read(form=operator)
    with usage_errors((ValueError,)):
        report = content.validate(samples)
    rows = [
        ("problem", f"{content.name}, {describe_size(content)}"),
        *added_cells(content),
        ("blocks", f"{report.samples} compared"),
        ("products", f"{report.products} formed densely"),
        ("largest error", f"{report.max_error:.3e}"),
        (
            "error over bound",
            f"{report.max_error_over_bound:.3e}, expected at most 1; of {report.worst}",
        ),
        ("verdict", "ok" if report.ok else "FAILED"),
    ]
    click.echo(printable(table(rows)))
    return ExitCode.DONE if report.ok else ExitCode.FAILED_CHECK
