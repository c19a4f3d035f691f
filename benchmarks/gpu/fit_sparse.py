"""Fit the costs of kernels of Kronecker-sparse matrices to measured ones; needs no device."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from batchkron.backends.cuda.costs import costs_for
from batchkron.backends.cuda.kron_sparse.families import FAMILIES
from batchkron.backends.cuda.runtime.hardware import DeviceLimits
from benchmarks.core.options import parser_of
from benchmarks.core.tables import groups
from benchmarks.gpu.cases.sparse_cases import SparseCase, shape_of
from benchmarks.gpu.fit import errors_of, fitted_costs, stacked

NEAR = 0.3  # kernels this much slower than the best count fully, those twice as far a quarter
SHARED_BYTES = 227 << 10  # of a thread block, from compute capability 9.0 on


def kernel_of(record, limits):
    (family,) = [one for one in FAMILIES if one.name == record["family"]]
    if len(record["variant"]) != len(family.numbers):
        return None
    shape = shape_of(SparseCase(tuple(record["pattern"]), record["layout"]), record["dtype"])
    kernel = family.kernel(shape, family.variant_type(record["variant"]), limits)
    same = kernel is not None and kernel.program.expression == record["kernel"]
    return kernel if same else None


def key_of(record):
    return record["case"], record["dtype"]


def weights_of(records):
    """Kernels count by how close they are to the best one of their product."""
    products = groups(records, key_of)
    best = {key: min(one["microseconds"] for one in own) for key, own in products.items()}
    far = np.array([one["microseconds"] / best[key_of(one)] - 1 for one in records])
    return np.minimum(1, NEAR / np.maximum(far, NEAR)) ** 2


def choice(records, estimates):
    """How much slower the chosen kernel of each product is than its best one, and that one."""
    found = []
    ways = groups(zip(records, estimates, strict=True), lambda pair: key_of(pair[0]))
    for own in ways.values():
        record, _ = min(own, key=lambda way: way[1])
        best = min(one["microseconds"] for one, _ in own)
        found.append((record["microseconds"] / best - 1, record))
    return sorted(found, key=lambda one: -one[0])


def main(words=None):
    parser = parser_of(__doc__)
    parser.add_argument("measurements", type=Path)
    parser.add_argument("--write", type=Path, help="a table of costs whose costs are replaced")
    options = parser.parse_args(words)
    content, write = json.loads(options.measurements.read_text()), options.write
    device = content["device"]
    limits = DeviceLimits(SHARED_BYTES, int(device.split()[-2]), 8, True, device)
    known = [(one, kernel_of(one, limits)) for one in content["kernels"]]
    pairs = [(one, kernel) for one, kernel in known if kernel is not None]
    if len(pairs) < len(known):
        print(f"{len(known) - len(pairs)} of {len(known)} kernels are not those of this version")
    records = [one for one, _ in pairs]
    weights = weights_of(records)
    estimates = np.zeros(len(records))
    table = {}
    for family in FAMILIES:
        name = family.name
        table[name] = dict(costs_for(device).families["kron_sparse"][name])
        own = [n for n, one in enumerate(records) if one["family"] == name]
        if not own:
            continue
        kernels = [pairs[n][1] for n in own]
        work = stacked([family.work(one.work, one.variant, limits) for one in kernels])
        times = np.array([records[n]["microseconds"] for n in own]) * 1e-6
        table[name] = fitted_costs(family.seconds, table[name], work, times, weights[own])
        found = family.seconds(work, SimpleNamespace(**table[name]))
        estimates[own] = found
        errors = np.log(found / times)
        (every, _), (rms, bias) = errors_of(errors), errors_of(errors[weights[own] == 1])
        said = f"{name}: {len(own)} kernels, error {every:.3f}"
        print(f"{said}, of the good ones {rms:.3f}, bias {bias:+.3f}")
    losses = choice(records, list(estimates))
    for dtype in dict.fromkeys(one["dtype"] for one in records):
        own_losses = [loss for loss, one in losses if one["dtype"] == dtype]
        print(f"{dtype}: the choice is {np.mean(own_losses):.1%} slower than the best in the mean")
    for loss, one in losses[:8]:
        print(f"  {loss:.0%} {one['dtype']} {one['case']} {one['family']} {one['variant']}")
    print(json.dumps(table, indent=2))
    if write is not None:
        costs_table = json.loads(write.read_text())
        costs_table["kron_sparse"] |= table
        write.write_text(json.dumps(costs_table, indent=2) + "\n")


if __name__ == "__main__":
    main()
