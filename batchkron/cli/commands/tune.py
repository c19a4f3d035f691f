"""`batchkron tune`: the fastest kernels of a shape, or of all that a problem needs."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from batchkron.backends import Tuning, backend_on, reserve, tuned_plans
from batchkron.backends.cuda.interface.host import (
    DEFAULT_CANDIDATES,
    DEFAULT_SECONDS,
    Outcome,
    RejectedError,
    private_folder,
)
from batchkron.cli.arguments.name_types import PROBLEM, stepper_option
from batchkron.cli.arguments.parameters import positive_number
from batchkron.cli.arguments.problem import chosen_problem, default_method, gallery_options
from batchkron.cli.arguments.shapes import (
    KronShape,
    SparseProduct,
    kron_shapes,
    sparse_products,
)
from batchkron.cli.exit_codes import ExitCode
from batchkron.cli.failure import CommandError, usage_errors
from batchkron.cli.output.printing import print_line
from batchkron.cli.output.text import one_line, plural, printable
from batchkron.cli.running.warm_step import take_warm_up_step
from batchkron.spec.kron import KronSpec
from batchkron.spec.kron_sparse import Pattern

__all__ = ["tune"]

_DTYPES = ("float32", "float64", "complex64", "complex128", "float16")
_HEAD = ("rule µs", "best µs", "gain", "tried", "pruned", "failed", "seconds")
_WIDTH = 10  # characters of a column


@click.command()
@click.argument("problem", metavar="[FILE-or-NAME]", required=False, type=PROBLEM)
@gallery_options
@stepper_option("Time stepper of the runs (default: that of the problem).")
@click.option(
    "--shape",
    "shapes",
    multiple=True,
    metavar="ROWS:PxQ,...",
    callback=kron_shapes,
    help="Instead of a problem: a number of rows, and the factors to multiply them by, such as "
    "1024:8^5 or 10:52x50,65x20. May be repeated.",
)
@click.option(
    "--pattern",
    "patterns",
    multiple=True,
    metavar="VECTORS:a,b,c,d",
    callback=sparse_products,
    help="Instead of a problem: a number of vectors, and the pattern of a Kronecker-sparse matrix "
    "to multiply them by, such as 25088:1,192,48,2. May be repeated.",
)
@click.option(
    "--columns",
    is_flag=True,
    help="The vectors of --shape and --pattern are columns, as for gekmm and batch-last.",
)
@click.option(
    "--dtype",
    "dtypes",
    multiple=True,
    type=click.Choice(_DTYPES),
    help="Data type of --shape and --pattern, where float16 also stands for bfloat16. May be "
    "repeated (default: float32 and float64).",
)
@click.option(
    "--seconds",
    type=float,
    default=DEFAULT_SECONDS,
    callback=positive_number,
    help="Time limit of the search for each shape (default: 120).",
)
@click.option(
    "--candidates",
    type=click.IntRange(min=1),
    default=DEFAULT_CANDIDATES,
    help="Largest number of candidates for each shape (default: 10000).",
)
@click.option("--again", is_flag=True, help="Search again for shapes that have been tuned before.")
@click.option(
    "--device",
    type=click.Choice(["cuda"]),
    default="cuda",
    help="Device to tune for: cuda is the current CUDA device and needs CuPy.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the table as one JSON object.")
@click.option("--quiet", is_flag=True, help="Print neither progress nor the table.")
def tune(
    problem: str | None,
    degree: int | None,
    level: int | tuple[int, ...] | None,
    grid: str | None,
    stepper: str | None,
    shapes: tuple[KronShape, ...],
    patterns: tuple[SparseProduct, ...],
    columns: bool,
    dtypes: tuple[str, ...],
    seconds: float,
    candidates: int,
    again: bool,
    device: str,
    as_json: bool,
    quiet: bool,
) -> ExitCode:
    """Find the fastest kernels for a device.

    Tunes either a problem, for "batchkron run" with --device cuda, or products: Kron-Matmuls given
    by --shape, and products with Kronecker-sparse matrices given by --pattern. The choices are
    stored beside the compiled kernels. All later processes of the user use them.
    """
    products: tuple[KronShape | SparseProduct, ...] = (*shapes, *patterns)
    _check(problem, products, {"columns": columns, "dtype": dtypes})
    if shapes and "float16" in dtypes:
        raise CommandError("float16 is for --pattern; the kernels of --shape do not take it.")
    chosen = None if problem is None else chosen_problem(problem, degree, level, grid)
    if chosen is None and (given := _given(degree=degree, level=level, grid=grid, stepper=stepper)):
        raise CommandError(f"--{given[0]} is for problems; --shape and --pattern need no more.")
    backend_on(device).current_device()  # raises before any work if there is no device
    with usage_errors((RuntimeError,)):
        folder = private_folder()
    bar = _Bar() if sys.stderr.isatty() and not quiet else None
    tuning = Tuning(seconds, candidates, again, bar)
    with tuned_plans(tuning):
        try:
            if chosen is not None:
                content = chosen.read(stepper, device)
                method = default_method(content, stepper)
                with usage_errors((ValueError,)):
                    take_warm_up_step(content, method)
            for product in products:
                for dtype in dtypes or _DTYPES[:2]:
                    _build(product, columns, np.dtype(dtype), device)
        except RejectedError as error:
            raise CommandError(
                f"the rule's own kernels do not work: {one_line(str(error))}", ExitCode.FAILED_CHECK
            ) from error
        finally:
            if bar is not None:
                bar.close()
    _report(tuning.outcomes, str(folder), as_json, quiet)
    return ExitCode.DONE


def _given(**options: Any) -> list[str]:
    """Return the names of the options that were given."""
    return [name for name, value in options.items() if value not in (None, False, ())]


def _check(problem: str | None, products: Sequence[Any], of_products: dict[str, Any]) -> None:
    """Check that either a problem or products are given, and not both."""
    if (problem is None) == (not products):
        came = "neither came" if problem is None else "both came"
        raise CommandError(
            f"expected a problem, or --shape or --pattern, {came}; see 'batchkron tune --help'."
        )
    if problem is not None and (given := _given(**of_products)):
        raise CommandError(
            f"--{given[0]} is for --shape and --pattern; the problem {problem} has its own."
        )


def _build(
    product: KronShape | SparseProduct, columns: bool, dtype: np.dtype[Any], device: str
) -> None:
    """Build the plans of a product, which tunes them: for an operator, and for the functions.

    Raises `CommandError` if the device has too little memory for the vectors.
    """
    chosen: Any = backend_on(device)
    rows, sizes = product
    outer, inner = (1, rows) if columns else (rows, 1)
    try:
        if isinstance(sizes, Pattern):
            largest = max(sizes.shape)
            reserve(chosen.kron_sparse_product(_ones(sizes, dtype), None), outer, inner)
        else:
            inputs, outputs = zip(*sizes, strict=True)
            largest = max(math.prod(inputs), math.prod(outputs))
            matrices = [np.ones((Q, P), dtype) for P, Q in sizes]
            reserve(chosen.kron_product(matrices), outer, inner)
            chosen.kron_plan(KronSpec(inputs, outputs, outer, inner, dtype)).prepare()
    except MemoryError as error:
        gigabytes = rows * largest * dtype.itemsize / 1e9
        raise CommandError(
            f"the device has no room for several vectors of {gigabytes:.3g} GB; take fewer rows."
        ) from error


def _ones(pattern: Pattern, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return the values of a matrix; `CommandError` if there is no room for so many."""
    try:
        return np.ones(pattern, dtype)
    except (MemoryError, ValueError) as error:  # a ValueError where bytes do not fit in 64 bits
        raise CommandError(
            f"there is no room for the {float(pattern.nonzeros):.3g} entries of the pattern "
            f"{','.join(map(str, pattern))}; take a smaller one."
        ) from error


def _report(outcomes: Sequence[Outcome], folder: str, as_json: bool, quiet: bool) -> None:
    """Print the outcomes, and why candidates failed."""
    for outcome in outcomes:
        for reason in outcome.reasons:
            print_line(f"batchkron: {outcome.shape}: left out {one_line(reason)}", err=True)
    if as_json:
        found = [{**asdict(outcome), "gain": outcome.gain} for outcome in outcomes]
        print_line(json.dumps({"shapes": found, "folder": folder}, allow_nan=False))
    elif not quiet:
        for line in _table(outcomes):
            print_line(printable(line))
        print_line(printable(f"kept in {folder}"))


def _table(outcomes: Sequence[Outcome]) -> list[str]:
    """Return the lines of the table."""
    if not outcomes:
        return ["nothing to choose: there is one kernel for each of these shapes"]
    width = max(len(outcome.shape) for outcome in outcomes)
    lines = [f"{'shape':<{width}}" + "".join(f"{head:>{_WIDTH}}" for head in _HEAD)]
    for one in outcomes:
        texts = [f"{one.rule_microseconds:.2f}", f"{one.microseconds:.2f}", f"{one.gain:.2f}"]
        counts = [str(count) for count in (one.tried, one.pruned, one.failed)]
        texts += ["known"] if one.was_known else [*counts, f"{one.seconds:.0f}"]
        ended = "" if one.is_complete else "  (bounds reached)"
        lines.append(f"{one.shape:<{width}}" + "".join(f"{t:>{_WIDTH}}" for t in texts) + ended)
    best = max(outcome.gain for outcome in outcomes)
    lines.append(f"{plural(len(outcomes), 'shape')}, gain up to {best:.2f}")
    return lines


class _Bar:
    """A progress bar of a search: number of candidates, and the speedup so far."""

    def __init__(self) -> None:
        self._shape, self._bar = "", None

    def __call__(self, shape: str, looked_at: int, gain: float) -> None:
        from tqdm import tqdm  # only where a bar is shown

        if shape != self._shape:
            self.close()
            self._shape, self._bar = shape, tqdm(desc=shape, unit=" candidates", leave=False)
        bar: Any = self._bar
        bar.set_postfix_str(f"gain {gain:.2f}", refresh=False)
        bar.update(looked_at - bar.n)

    def close(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None
