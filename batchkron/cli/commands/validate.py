"""`batchkron validate`: compare batched products with dense Kronecker products."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from batchkron.cli.arguments.name_types import PROBLEM
from batchkron.cli.arguments.problem import chosen_problem, gallery_options, operator_option
from batchkron.cli.exit_codes import ExitCode
from batchkron.cli.failure import usage_errors
from batchkron.cli.output.text import finite, printable, table

if TYPE_CHECKING:
    from batchkron.operators import ValidationReport

__all__ = ["validate"]


@click.command()
@click.argument("problem", metavar="FILE-or-NAME", type=PROBLEM)
@gallery_options
@operator_option
@click.option(
    "--samples",
    type=click.IntRange(min=1),
    help="Number of blocks to compare, chosen at random (default: all).",
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as one JSON object.")
def validate(
    problem: str,
    degree: int | None,
    level: int | tuple[int, ...] | None,
    grid: str | None,
    operator: str | None,
    samples: int | None,
    as_json: bool,
) -> ExitCode:
    """Compare a problem's operator with dense Kronecker products.

    Products with random vectors are computed a second time, from dense Kronecker products, and
    each difference is compared with its rounding bound: for one vector and for several, for
    results that are added to others, and for the transpose. Functions of "pointwise", electric
    fields of several positions, and the Maxwellian of "bgk" are no such products, and are not
    compared. The exit status is 0 if all differences are within their bounds, and 1 otherwise.
    """
    # what computes is loaded here, so that help and completion need not wait for it
    from batchkron.cli.output.problem_size import added_cells, describe_size

    chosen = chosen_problem(problem, degree, level, grid)
    content = chosen.read(form=operator)
    with usage_errors((ValueError,)):
        report = content.validate(samples)
    if as_json:
        click.echo(json.dumps(_values(content, report), allow_nan=False))
        return ExitCode.DONE if report.ok else ExitCode.FAILED_CHECK
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


def _values(problem: Any, report: ValidationReport) -> dict[str, object]:
    """Return the report as JSON has it."""
    return {
        "problem": problem.name,
        "unknowns": problem.unknowns,
        "blocks": report.samples,
        "products": report.products,
        "max_error": finite(report.max_error),
        "max_error_over_bound": finite(report.max_error_over_bound),
        "worst": report.worst,
        "ok": report.ok,
    }
