"""Time kernels of Kronecker-sparse matrices: what `benchmarks.gpu.fit_sparse` fits costs to.

The variants with the least estimates of each family and kind, and some others.
"""

import time
from collections import defaultdict
from functools import partial
from pathlib import Path

import cupy
import numpy as np

from batchkron.backends.cuda.kernel_launch import launch_of
from batchkron.backends.cuda.kron_sparse.families import FAMILIES
from batchkron.backends.cuda.kron_sparse.kernel import sum_dtype
from batchkron.backends.cuda.kron_sparse.stored import stored_values
from batchkron.backends.cuda.runtime.device import device_limits, device_name, ready_stream
from batchkron.backends.cuda.runtime.launch import batch_scalars
from benchmarks.core.device_timing import timed
from benchmarks.core.options import parser_of
from benchmarks.core.records import default_processes, save
from benchmarks.core.tables import words
from benchmarks.gpu.cases import sparse_cases as cases
from benchmarks.gpu.compiling import compile_programs
from benchmarks.gpu.parts.kron_sparse import SparseData, copy_rate

VARIANTS = 12  # of each product that are measured, about
MANY_THREADS = 256  # of a multiprocessor
TOO_SLOW = 3.0  # estimates of variants over the least one, beyond which none is measured


def chosen_kernels(shape, limits, count):
    """The variants with the least estimates, of each family and kind of variants."""
    kinds = defaultdict(list)
    for family in FAMILIES:
        for variant in family.variants(shape, limits):
            kernel = family.kernel(shape, variant, limits)
            if kernel is not None:
                kinds[kind_of(kernel)].append(kernel)
    least = min(kernel.seconds for kernels in kinds.values() for kernel in kernels)
    found = []
    for kernels in kinds.values():
        kernels.sort(key=lambda kernel: kernel.seconds)
        near = [one for one in kernels if one.seconds <= TOO_SLOW * least]
        of_kind = -(-count // len(kinds))
        best, others = near[: of_kind * 2 // 3], near[of_kind * 2 // 3 :]
        rest = of_kind - len(best)
        found += best + others[:: max(1, len(others) // max(1, rest))][:rest]
    return sorted(found, key=lambda kernel: kernel.seconds)


def kind_of(kernel):
    """The family; of panels the j of a warp, whether values are kept, and many threads run."""
    cut = kernel.tile
    if kernel.family.name != "tiles":
        return (kernel.family.name,)
    return "tiles", cut.atom, cut.kept > 0, cut.blocks * cut.threads > MANY_THREADS


def measured(case, dtype, kernels):
    data = SparseData(case, dtype)
    device = cupy.cuda.Device().id
    scalars = batch_scalars(sum_dtype(dtype))(1, False)
    y = data.pairs[-1][1]
    for kernel in kernels:
        values = cupy.asarray(stored_values(data.values, kernel.family.stored))
        launch = launch_of(kernel, device, 3, "accumulate")

        def call(x, y, launch=launch, values=values):
            launch(ready_stream(device), (x.data.ptr, y.data.ptr, values.data.ptr), scalars)

        y.fill(np.nan)
        calls = [partial(call, *pair) for pair in data.pairs]
        yield {
            "case": case.name,
            "pattern": case.pattern,
            "layout": case.layout,
            "dtype": dtype,
            "family": kernel.family.name,
            "variant": list(kernel.variant),
            "kernel": kernel.program.expression,
            "microseconds": timed(calls),
            "estimate": 1e6 * kernel.seconds,
            "floor": max(case.floors(dtype, copy_rate()).values()),
            "error": data.error(),
        }


def main():
    parser = parser_of(__doc__)
    parser.add_argument("measurements", type=Path)
    options = parser.parse_args()
    begun = time.perf_counter()
    limits = device_limits(cupy.cuda.Device().id)
    work = [
        (case, dtype, chosen_kernels(cases.shape_of(case, dtype), limits, VARIANTS))
        for dtype in cases.SPARSE_DTYPES
        for case in (
            cases.SparseCase(one, layout) for one in cases.FIRST for layout in cases.LAYOUTS
        )
    ]
    programs = dict.fromkeys(kernel.program for _, _, kernels in work for kernel in kernels)
    compile_programs(programs, default_processes())
    print(f"{len(programs)} kernels compiled in {time.perf_counter() - begun:.0f} s")
    rate = copy_rate()
    print(f"a copy moves {rate / 1e12:.2f} TB/s")
    rows = []
    for case, dtype, kernels in work:
        own = list(measured(case, dtype, kernels))
        rows += own
        best = min(own, key=lambda row: row["microseconds"])
        print(f"chosen: {words(own[0])}\nbest: {words(best)}", flush=True)
        device = device_name(cupy.cuda.Device().id)
        report = {"device": device, "copy": rate, "kernels": rows}
        save(options.measurements, report)
    print(f"{time.perf_counter() - begun:.0f} s")


if __name__ == "__main__":
    main()
