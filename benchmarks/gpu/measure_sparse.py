"""Time kernels of Kronecker-sparse matrices: what `benchmarks.gpu.fit_sparse` fits costs to.

The variants with the least estimates of each family and kind, and some others.
"""

import time
from collections import defaultdict
from functools import partial
from itertools import product
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
    """The variants with the least estimates, of each family and kind of variants.

    Kinds of panels are the j of a warp, whether values are kept, and whether many threads run.
    """
    kinds = defaultdict(list)
    for family in FAMILIES:
        for variant in family.variants(shape, limits):
            kernel = family.kernel(shape, variant, limits)
            if kernel is not None:
                cut, is_tiles = kernel.tile, family.name == "tiles"
                many = is_tiles and cut.blocks * cut.threads > MANY_THREADS
                kind = (cut.atom, cut.kept > 0, many) if is_tiles else ()
                kinds[family.name, *kind].append(kernel)
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


def measured(case, dtype, kernels):
    data = SparseData(case, dtype)
    device = cupy.cuda.Device().id
    scalars = batch_scalars(sum_dtype(dtype))(1, False)
    about = {"case": case.name, "pattern": case.pattern, "layout": case.layout, "dtype": dtype}
    about["floor"] = max(case.floors(dtype, copy_rate()).values())
    for kernel in kernels:
        values = cupy.asarray(stored_values(data.values, kernel.family.stored))
        launch = launch_of(kernel, device, 3, "accumulate")

        def call(x, y, launch=launch, values=values):
            launch(ready_stream(device), (x.data.ptr, y.data.ptr, values.data.ptr), scalars)

        data.out.fill(np.nan)
        found = {"family": kernel.family.name, "variant": list(kernel.variant)}
        found |= {"kernel": kernel.program.expression, "estimate": 1e6 * kernel.seconds}
        found["microseconds"] = timed([partial(call, *pair) for pair in data.pairs])
        yield about | found | {"error": data.error()}


def main():
    parser = parser_of(__doc__)
    parser.add_argument("measurements", type=Path)
    options = parser.parse_args()
    begun = time.perf_counter()
    device = cupy.cuda.Device().id
    limits = device_limits(device)
    work = [
        (cases.SparseCase(*kind), dtype)
        for dtype, *kind in product(cases.SPARSE_DTYPES, cases.FIRST, cases.LAYOUTS)
    ]
    chosen = [chosen_kernels(cases.shape_of(*one), limits, VARIANTS) for one in work]
    programs = dict.fromkeys(kernel.program for kernels in chosen for kernel in kernels)
    compile_programs(programs, default_processes())
    print(f"{len(programs)} kernels compiled in {time.perf_counter() - begun:.0f} s")
    report = {"device": device_name(device), "copy": copy_rate(), "kernels": []}
    print(f"a copy moves {report['copy'] / 1e12:.2f} TB/s")
    for one, kernels in zip(work, chosen, strict=True):
        own = list(measured(*one, kernels))
        report["kernels"] += own
        best = min(own, key=lambda row: row["microseconds"])
        print(f"chosen: {words(own[0])}\nbest: {words(best)}", flush=True)
        save(options.measurements, report)
    print(f"{time.perf_counter() - begun:.0f} s")


if __name__ == "__main__":
    main()
