"""Fit the constants of kernels' estimated times to measured kernels; needs no device.

python -m benchmarks.gpu.fit MEASUREMENTS.json [--output COSTS.json]
"""

from __future__ import annotations

import json
import math
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import click
import numpy as np
from scipy.optimize import least_squares

from batchkron.backends.cuda.kron.families import FAMILIES, FAMILY_OF
from benchmarks.gpu.measured_kernels import MeasuredKernel, Measurements, read

LARGE_ERROR = 0.2  # of log(estimate / measured), from which on errors count less than squared
OTHERS = 0.2  # weight of kernels that their family would not choose
PULL = 0.02  # weight that pulls the logarithm of a constant to its start: all are determined
DIGITS = 3  # significant ones of a constant

Array = np.ndarray[Any, Any]
Seconds = Callable[[Any, Any], Any]  # estimated times by counts and costs


class Errors(NamedTuple):
    """Of log(estimate / measured): root mean square, mean."""

    rms: float
    bias: float


class Fitted(NamedTuple):
    """A family's costs, the kernels they are fitted to, estimates of these, and how good they are.

    ``errors`` and ``held_out`` are of kernels that the family chooses, ``others`` of those near.
    """

    costs: dict[str, float]
    kernels: tuple[MeasuredKernel, ...]
    estimates: Array  # seconds
    errors: Errors
    others: Errors
    held_out: Errors  # on a third of the runs, by a fit to the other two thirds


def families_of(measured: Measurements) -> list[str]:
    """The families that were measured, in the order of their table."""
    names = {kernel.family for kernel in measured.kernels}
    return [family.name for family in FAMILIES if family.name in names]


def fit_family(name: str, measured: Measurements) -> Fitted:
    family = FAMILY_OF[name]
    kernels = tuple(one for one in measured.kernels if one.family == name)
    if not kernels:
        raise click.ClickException(f"none of the measured kernels is of the family {name}")
    variants = [family.variant_type(*one.variant) for one in kernels]
    work = stacked(
        [
            family.work(kernel.run, variant, measured.limits)
            for kernel, variant in zip(kernels, variants, strict=True)
        ]
    )
    start = {constant: value for constant, (value, _) in family.constants.items()}
    times = np.array([one.microseconds for one in kernels]) * 1e-6
    chosen = np.array([one.chosen for one in kernels])
    runs = list(map(run_of, kernels))
    held_out = np.array([zlib.crc32(repr(run).encode()) % 3 == 0 for run in runs])
    weights = np.where(chosen, 1.0, OTHERS)
    costs = fitted_costs(family.seconds, start, work, times, weights)
    blind = fitted_costs(family.seconds, start, work, times, np.where(held_out, 0.0, weights))
    errors = np.log(family.seconds(work, SimpleNamespace(**costs)) / times)
    unseen = np.log(family.seconds(work, SimpleNamespace(**blind)) / times)[chosen & held_out]
    return Fitted(
        costs,
        kernels,
        times * np.exp(errors),
        errors_of(errors[chosen]),
        errors_of(errors[~chosen]),
        errors_of(unseen),
    )


def stacked(counts: Sequence[Any]) -> SimpleNamespace:
    names = vars(counts[0])
    return SimpleNamespace(
        **{name: np.array([getattr(one, name) for one in counts], float) for name in names}
    )


def fitted_costs(
    seconds: Seconds,
    start: Mapping[str, float],
    work: Any,
    times: Array,
    weights: Array,
) -> dict[str, float]:
    """The costs of the least weighted errors, rounded."""
    begin = np.log(list(start.values()))

    def costs_at(logs: Array) -> SimpleNamespace:
        return SimpleNamespace(**dict(zip(start, np.exp(logs), strict=True)))

    def residuals(logs: Array) -> Array:
        errors = np.log(seconds(work, costs_at(logs)) / times)
        pull = PULL * math.sqrt(weights.sum() / 100) * (logs - begin)
        return np.concatenate([weights * errors, pull])

    found = least_squares(residuals, begin, loss="soft_l1", f_scale=LARGE_ERROR, max_nfev=200)
    values = (float(f"{value:.{DIGITS}g}") for value in np.exp(found.x))
    return dict(zip(start, values, strict=True))


def errors_of(logs: Array) -> Errors:
    if not len(logs):
        return Errors(math.nan, math.nan)
    return Errors(float(np.sqrt(np.mean(logs**2))), float(np.mean(logs)))


def run_of(kernel: MeasuredKernel) -> tuple[Any, ...]:
    """The run of a kernel: kernels of the same run may stand for one another."""
    sizes = kernel.inputs, kernel.outputs, kernel.L, kernel.R
    return *sizes, kernel.dtype, kernel.products


def loss_of_choice(found: Iterable[Fitted]) -> tuple[float, int]:
    """What choosing among families by their estimates costs, and the number of runs it is of.

    The geometric mean of the time of the least estimate over the least time, over runs of which
    several families' choices were measured.
    """
    runs = defaultdict(list)
    for one in found:
        for kernel, estimate in zip(one.kernels, one.estimates, strict=True):
            if kernel.chosen:
                runs[run_of(kernel), kernel.constant].append((estimate, kernel.microseconds))
    return _loss(ways for ways in runs.values() if len(ways) > 1)


def loss_of_variants(found: Fitted) -> tuple[float, int]:
    """The same of choosing among a family's variants, over runs of which several were measured."""
    runs = defaultdict(list)
    for kernel, estimate in zip(found.kernels, found.estimates, strict=True):
        runs[run_of(kernel), kernel.constant].append((estimate, kernel.microseconds))
    return _loss(ways for ways in runs.values() if len(ways) > 2)


def _loss(runs: Iterable[Sequence[tuple[float, float]]]) -> tuple[float, int]:
    losses = [math.log(min(ways)[1] / min(time for _, time in ways)) for ways in runs]
    return math.exp(sum(losses) / max(1, len(losses))), len(losses)


def table_of(name: str, measured: Measurements, found: dict[str, Fitted]) -> dict[str, Any]:
    kron = {family: one.costs for family, one in found.items()}
    return {"device": measured.device, "measurements": name, "kron": kron}


@click.command()
@click.argument("measurements", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), help="File to write.")
def main(measurements: Path, output: Path | None) -> None:
    """Fit the costs of a device's kernels to MEASUREMENTS, print the errors."""
    measured = read(measurements)
    found = {name: fit_family(name, measured) for name in families_of(measured)}
    print("family     kernels  chosen:   rms  bias  others:   rms  bias  held out:   rms  bias")
    for name, one in found.items():
        print(
            f"{name:10} {len(one.kernels):7}  {sum(kernel.chosen for kernel in one.kernels):7}"
            f" {one.errors.rms:5.3f} {one.errors.bias:+5.3f}"
            f"         {one.others.rms:5.3f} {one.others.bias:+5.3f}"
            f"          {one.held_out.rms:5.3f} {one.held_out.bias:+5.3f}"
        )
    for name, one in found.items():
        loss, count = loss_of_variants(one)
        print(f"{name}: choosing a variant costs {loss - 1:.1%}, in the mean of {count} runs")
    loss, count = loss_of_choice(found.values())
    print(
        f"choosing a family by these costs {loss - 1:.1%} of the time, in the mean of {count} runs"
    )
    if output is not None:
        table = table_of(measurements.name, measured, found)
        if output.exists():  # other operations have parts of their own
            table = {**json.loads(output.read_text()), **table}
        output.write_text(json.dumps(table, indent=2) + "\n")


if __name__ == "__main__":
    main()
