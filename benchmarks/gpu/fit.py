"""Fit the constants of kernels' estimated times to measured kernels; needs no device.

python -m benchmarks.gpu.fit MEASUREMENTS.json [--output COSTS.json]
"""

from __future__ import annotations

import json
import math
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np
from scipy.optimize import least_squares

from batchkron.backends.cuda.kron.families import FAMILY_OF
from batchkron.backends.cuda.kron.fibres import cost as fibres_cost
from batchkron.backends.cuda.kron.fibres.cost import FibreCosts, PassWork
from batchkron.backends.cuda.kron.fibres.cuts import Shape, cut_with
from batchkron.backends.cuda.kron.general import cost as general_cost
from batchkron.backends.cuda.kron.general.cost import GeneralCosts
from batchkron.backends.cuda.kron.panels import cost as panels_cost
from batchkron.backends.cuda.kron.panels.cost import PanelCosts
from batchkron.backends.cuda.kron.registers import cost as registers_cost
from batchkron.backends.cuda.kron.registers.cost import RegisterCosts
from batchkron.backends.cuda.kron.slices import cost as slices_cost
from batchkron.backends.cuda.kron.slices.cost import SliceCosts
from batchkron.backends.cuda.runtime.hardware import DeviceLimits
from benchmarks.gpu.measured_kernels import MeasuredKernel, Measurements, read

LARGE_ERROR = 0.2  # of log(estimate / measured), from which on errors count less than squared
OTHERS = 0.2  # weight of kernels that their family would not choose: estimates compare the others
PULL = 0.02  # weight that pulls the logarithm of a constant to its start: all are determined
DIGITS = 3  # significant ones of a constant

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Family:
    """``work`` counts what a kernel does, ``seconds`` estimates its time from counts and costs.

    ``start`` are the costs where the fit begins.
    """

    work: Callable[[MeasuredKernel, DeviceLimits], Any]
    seconds: Callable[[Any, Any], Any]
    start: Any


def tile_of(kernel: MeasuredKernel, limits: DeviceLimits) -> Any:
    """The tile that a measured kernel was compiled for."""
    family = FAMILY_OF[kernel.family]
    found = family.kernel(kernel.run, family.variant_type(*kernel.variant), limits)
    assert found is not None, f"there is no such kernel: {kernel}"
    return found.tile


def register_work(kernel: MeasuredKernel, limits: DeviceLimits) -> Any:
    variant = FAMILY_OF["registers"].variant_type(*kernel.variant)
    return registers_cost.register_work(kernel.run, variant, limits)


def fibre_work(kernel: MeasuredKernel, limits: DeviceLimits) -> Any:
    run = kernel.run
    *way, units = kernel.variant
    sizes = run.inputs, run.outputs, run.L, run.R, run.itemsize
    shape = Shape(*sizes, run.products if units else 0)
    cut = cut_with(shape, *way, limits)
    assert cut is not None, f"there is no such kernel: {kernel}"
    return fibres_cost.fibre_work(shape, cut, limits)


def slice_work(kernel: MeasuredKernel, limits: DeviceLimits) -> Any:
    return slices_cost.slice_work(kernel.run, tile_of(kernel, limits), limits)


def panel_work(kernel: MeasuredKernel, limits: DeviceLimits) -> Any:
    return panels_cost.panel_work(kernel.run, tile_of(kernel, limits), limits)


def general_work(kernel: MeasuredKernel, limits: DeviceLimits) -> Any:
    return general_cost.general_work(kernel.run, tile_of(kernel, limits).tiling, limits)


FAMILIES = {
    "registers": Family(
        register_work,
        registers_cost.seconds,
        RegisterCosts(
            launch=1000,
            factor=150,
            factor_turn=100,
            constant_line=100,
            turn=120,
            multiply_add=0.6,
            tile=20,
            warp_multiply_add=0.2,
            warp_factor=0.1,
            line=0.3,
            memory_latency=2500,
            memory_rate=3000,
            cache_rate=5000,
            cache_bytes=7e6,
            scattered=0.1,
            sharpness=1.7,
        ),
    ),
    "fibres": Family(
        fibre_work,
        fibres_cost.seconds,
        FibreCosts(
            launch=1500,
            factor_kilobyte=30,
            factor_word=100,
            multiply_add=0.4,
            store=7,
            step=8,
            unit_store=30,
            tf32_load=15,
            place=30,
            warp_multiply_add=0.16,
            warp_unit=1.2,
            warp_tf32_unit=1.2,
            warp_convert=0.5,
            warp_item=20,
            thread_copy=0.16,
            memory_latency=1000,
            memory_rate=3000,
            cache_rate=5000,
            cache_bytes=7e6,
            narrow=0.8,
            unaligned=3,
            sharpness=2.4,
        ),
    ),
    "slices": Family(
        slice_work,
        slices_cost.seconds,
        SliceCosts(
            launch=6000,
            element=0.16,
            multiply_add=0.004,
            single=0.8,
            memory_rate=3000,
            sharpness=2.5,
        ),
    ),
    "panels": Family(
        panel_work,
        panels_cost.seconds,
        PanelCosts(
            launch=1300,
            multiply_add=1.5,
            unit=11,
            tile=280,
            warp_multiply_add=0.16,
            factor_word=0.25,
            result_word=0.4,
            complex=0.65,
            memory_latency=500,
            memory_rate=3000,
            cache_rate=5000,
            cache_bytes=7e6,
            unaligned=2,
            sharpness=3,
        ),
    ),
    "general": Family(
        general_work,
        general_cost.seconds,
        GeneralCosts(
            launch=1300,
            factor=80,
            factor_turn=120,
            turn=200,
            multiply_add=0.9,
            copy=60,
            tile=20,
            warp_word=0.6,
            warp_copy=4.5,
            memory_rate=3000,
            sharpness=1.2,
        ),
    ),
}


class Errors(NamedTuple):
    """Of log(estimate / measured): root mean square, mean."""

    rms: float
    bias: float


class Fitted(NamedTuple):
    """A family's costs, the kernels they are fitted to, estimates of these, and how good they are.

    ``errors`` and ``held_out`` are of kernels that the family chooses, ``others`` of those near.
    """

    costs: Any
    kernels: tuple[MeasuredKernel, ...]
    estimates: Array  # seconds
    errors: Errors
    others: Errors
    held_out: Errors  # on a third of the runs, by a fit to the other two thirds


def fit_family(name: str, measured: Measurements) -> Fitted:
    family = FAMILIES[name]
    kernels = tuple(one for one in measured.kernels if one.family == name)
    if not kernels:
        raise click.ClickException(f"none of the measured kernels is of the family {name}")
    work = stacked([family.work(one, measured.limits) for one in kernels])
    times = np.array([one.microseconds for one in kernels]) * 1e-6
    chosen = np.array([one.chosen for one in kernels])
    held_out = np.array([zlib.crc32(repr(run_of(one)).encode()) % 3 == 0 for one in kernels])
    weights = np.where(chosen, 1.0, OTHERS)
    costs = fitted_costs(family, work, times, weights)
    blind = fitted_costs(family, work, times, np.where(held_out, 0.0, weights))
    errors = np.log(family.seconds(work, costs) / times)
    unseen = np.log(family.seconds(work, blind) / times)[chosen & held_out]
    return Fitted(
        costs,
        kernels,
        times * np.exp(errors),
        errors_of(errors[chosen]),
        errors_of(errors[~chosen]),
        errors_of(unseen),
    )


def stacked(counts: Sequence[Any]) -> Any:
    """One tuple of counts whose values are arrays over all kernels."""
    first = counts[0]
    columns = zip(*counts, strict=True)
    return type(first)(
        *(
            stacked(column) if isinstance(column[0], PassWork) else np.array(column, float)
            for column in columns
        )
    )


def fitted_costs(family: Family, work: Any, times: Array, weights: Array) -> Any:
    """The costs of the least weighted errors, rounded."""
    names = list(asdict(family.start))
    start = np.log(list(asdict(family.start).values()))

    def costs_at(logs: Array) -> Any:
        values = [float(f"{value:.{DIGITS}g}") for value in np.exp(logs)]
        return replace(family.start, **dict(zip(names, values, strict=True)))

    def residuals(logs: Array) -> Array:
        costs = replace(family.start, **dict(zip(names, np.exp(logs), strict=True)))
        errors = np.log(family.seconds(work, costs) / times)
        pull = PULL * math.sqrt(weights.sum() / 100)
        return np.concatenate([weights * errors, pull * (logs - start)])

    found = least_squares(residuals, start, loss="soft_l1", f_scale=LARGE_ERROR, max_nfev=200)
    return costs_at(found.x)


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
    losses = [
        math.log(min(ways)[1] / min(time for _, time in ways))
        for ways in runs.values()
        if len(ways) > 1
    ]
    return math.exp(sum(losses) / max(1, len(losses))), len(losses)


def table_of(name: str, measured: Measurements, found: dict[str, Fitted]) -> dict[str, Any]:
    """The costs of all families, as `batchkron.backends.cuda.costs` reads them."""
    kron = {family: asdict(one.costs) for family, one in found.items()}
    return {"device": measured.device, "measurements": name, "kron": kron}


@click.command()
@click.argument("measurements", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), help="File to write.")
def main(measurements: Path, output: Path | None) -> None:
    """Fit the costs of a device's kernels to MEASUREMENTS, print the errors."""
    measured = read(measurements)
    found = {name: fit_family(name, measured) for name in FAMILIES}
    print("family     kernels  chosen:   rms  bias  others:   rms  bias  held out:   rms  bias")
    for name, one in found.items():
        print(
            f"{name:10} {len(one.kernels):7}  {sum(kernel.chosen for kernel in one.kernels):7}"
            f" {one.errors.rms:5.3f} {one.errors.bias:+5.3f}"
            f"         {one.others.rms:5.3f} {one.others.bias:+5.3f}"
            f"          {one.held_out.rms:5.3f} {one.held_out.bias:+5.3f}"
        )
    loss, count = loss_of_choice(found.values())
    print(
        f"choosing a family by these costs {loss - 1:.1%} of the time, in the mean of {count} runs"
    )
    if output is not None:
        table = table_of(measurements.name, measured, found)
        output.write_text(json.dumps(table, indent=2) + "\n")


if __name__ == "__main__":
    main()
