"""Fit the constants of kernels' estimated times to measured kernels; needs no device.

A file of these has one kernel a line, after a header.

python -m benchmarks.gpu.fit MEASUREMENTS.json [--output COSTS.json]
"""

import json
import math
import zlib
from collections import defaultdict
from dataclasses import astuple
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
from scipy.optimize import least_squares

from batchkron.backends.cuda.kron.families import FAMILIES, FAMILY_OF
from batchkron.backends.cuda.runtime.hardware import DeviceLimits
from batchkron.backends.cuda.steps import ModeRun
from benchmarks.core.options import parser_of

LARGE_ERROR = 0.2  # of log(estimate / measured), from which on errors count less than squared
OTHERS = 0.2  # weight of kernels that their family would not choose
PULL = 0.02  # weight that pulls the logarithm of a constant to its start: all are determined
DIGITS = 3  # significant ones of a constant


class MeasuredKernel(NamedTuple):
    """One kernel x (L, inputs, R) -> (L, outputs, R), how it was chosen, and its time.

    ``variant``: the numbers of the family's variant. ``constant``: whether
    factors might be constants of the kernel. ``chosen``: whether it is the one that the family
    would choose, not one near it.
    """

    family: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    L: int
    R: int
    dtype: str
    products: int
    constant: bool
    variant: tuple[int, ...]
    chosen: bool
    microseconds: float

    @property
    def run(self):
        sizes = self.inputs, self.outputs, self.L, self.R
        dtype = np.dtype(self.dtype)
        return ModeRun(0, *sizes, dtype, self.products, self.constant, fixed_columns=True)


def read(path):
    content = json.loads(path.read_text())
    kernels = [
        MeasuredKernel(*(tuple(one) if isinstance(one, list) else one for one in row))
        for row in content["kernels"]
    ]
    return content["device"], DeviceLimits(*content["limits"]), kernels


def write(path, limits, date, kernels):
    header = {"device": limits.name, "date": date, "limits": astuple(limits)}
    header["columns"] = MeasuredKernel._fields
    lines = ",\n".join(json.dumps(one, separators=(",", ":")) for one in kernels)
    path.write_text(f'{json.dumps(header)[:-1]}, "kernels": [\n{lines}\n]}}\n')


def families_of(measured):
    """The families that were measured, in the order of their table."""
    names = {kernel.family for kernel in measured}
    return [family.name for family in FAMILIES if family.name in names]


def fit_family(name, limits, measured):
    """A family's costs, the kernels they are fitted to, estimates of these, and how good they are.

    "errors" are of log(estimate / measured), root mean square and mean: of kernels that the family
    chooses, of others near them, and of chosen ones of a third of the runs by a fit to the others.
    """
    family = FAMILY_OF[name]
    kernels = [one for one in measured if one.family == name]
    work = stacked(
        [family.work(one.run, family.variant_type(one.variant), limits) for one in kernels]
    )
    start = {constant: value for constant, (value, _) in family.constants.items()}
    times = np.array([one.microseconds for one in kernels]) * 1e-6
    chosen = np.array([one.chosen for one in kernels])
    held_out = np.array([zlib.crc32(repr(run_of(one)).encode()) % 3 == 0 for one in kernels])
    weights = np.where(chosen, 1.0, OTHERS)
    costs = fitted_costs(family.seconds, start, work, times, weights)
    blind = fitted_costs(family.seconds, start, work, times, np.where(held_out, 0.0, weights))
    errors, unseen = (
        np.log(family.seconds(work, SimpleNamespace(**one)) / times) for one in (costs, blind)
    )
    own = errors[chosen], errors[~chosen], unseen[chosen & held_out]
    found = {"costs": costs, "kernels": kernels, "estimates": times * np.exp(errors)}
    return {**found, "errors": list(map(errors_of, own))}


def stacked(counts):
    names = vars(counts[0])
    return SimpleNamespace(
        **{name: np.array([getattr(one, name) for one in counts], float) for name in names}
    )


def fitted_costs(seconds, start, work, times, weights):
    """The costs of the least weighted errors, rounded."""
    begin = np.log(list(start.values()))

    def residuals(logs):
        costs = SimpleNamespace(**dict(zip(start, np.exp(logs), strict=True)))
        errors = np.log(seconds(work, costs) / times)
        pull = PULL * math.sqrt(weights.sum() / 100) * (logs - begin)
        return np.concatenate([weights * errors, pull])

    found = least_squares(residuals, begin, loss="soft_l1", f_scale=LARGE_ERROR, max_nfev=200)
    values = (float(f"{value:.{DIGITS}g}") for value in np.exp(found.x))
    return dict(zip(start, values, strict=True))


def errors_of(logs):
    if not len(logs):
        return math.nan, math.nan
    return float(np.sqrt(np.mean(logs**2))), float(np.mean(logs))


def run_of(kernel):
    """The run of a kernel: kernels of the same run may stand for one another."""
    return kernel.inputs, kernel.outputs, kernel.L, kernel.R, kernel.dtype, kernel.products


def loss(found, chosen, least):
    """What choosing by estimates costs in the mean of runs of ``least`` or more kernels."""
    runs = defaultdict(list)
    for one in found:
        for kernel, estimate in zip(one["kernels"], one["estimates"], strict=True):
            if kernel.chosen or not chosen:
                runs[run_of(kernel), kernel.constant].append((estimate, kernel.microseconds))
    several = [ways for ways in runs.values() if len(ways) >= least]
    losses = [math.log(min(ways)[1] / min(time for _, time in ways)) for ways in several]
    share = math.exp(sum(losses) / max(1, len(losses))) - 1
    return f"{share:.1%} of the time, in the mean of {len(losses)} runs"


def main():
    parser = parser_of(__doc__)
    parser.add_argument("measurements", type=Path)
    parser.add_argument("--output", type=Path, help="file to write")
    options = parser.parse_args()
    measurements, output = options.measurements, options.output
    device, limits, kernels = read(measurements)
    found = {name: fit_family(name, limits, kernels) for name in families_of(kernels)}
    print("family     kernels  chosen:   rms  bias  others:   rms  bias  held out:   rms  bias")
    for name, one in found.items():
        errors = (f" {rms:5.3f} {bias:+5.3f}" for rms, bias in one["errors"])
        count = sum(kernel.chosen for kernel in one["kernels"])
        print(f"{name:10} {len(one['kernels']):7}  {count:7}" + "          ".join(errors))
    for name, one in found.items():
        print(f"{name}: choosing a variant costs {loss([one], False, 3)}")
    print(f"choosing a family by these costs {loss(found.values(), True, 2)}")
    if output is not None:
        known = json.loads(output.read_text()) if output.exists() else {}  # of other operations
        kron = {family: one["costs"] for family, one in found.items()}
        table = {**known, "device": device, "measurements": measurements.name, "kron": kron}
        output.write_text(json.dumps(table, indent=2) + "\n")


if __name__ == "__main__":
    main()
