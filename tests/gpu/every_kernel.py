"""Every kernel template of the CUDA backend at small sizes, for compute-sanitizer.

compute-sanitizer --tool memcheck python tests/gpu/every_kernel.py
compute-sanitizer --tool initcheck python tests/gpu/every_kernel.py
compute-sanitizer --tool racecheck python tests/gpu/every_kernel.py --small --only fibres

Results are compared with the CPU's. Prints the kernels of each template that were loaded; ends with
status 1 if one of the chosen templates had none. ``--small`` cuts work as for a device of one
multiprocessor, so that a few thread blocks go through every loop: for racecheck, which takes a
thousand times as long, in a process for each ``--only`` and ``--dtype``.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

import cupy
import numpy as np

from batchkron.backends.cuda.runtime import device

sys.path += [str(Path(__file__).parent), str(Path(__file__).parents[1] / "support")]
from kernel_parts import batches, gradients, interpolated, kron_sparse, products, systems

OF_REAL_NUMBERS = {"cuda/gram/registers.cuh"}
DTYPES = ("float32", "float64", "complex64", "complex128")

# what each part runs, and the templates that it must have reached
PARTS = {
    "registers": (products.registers, {"cuda/kron/registers/kernel.cuh"}),
    "fibres": (products.fibres, {"cuda/kron/fibres/kernel.cuh"}),
    "slices": (products.slices, {"cuda/kron/slices.cuh"}),
    "panels": (products.panels, {"cuda/kron/panels.cuh"}),
    "modes": (products.modes, {"cuda/kron/general.cuh"}),
    "batches": (
        batches.batches,
        {"cuda/batch/general.cuh", "cuda/batch/registers.cuh", "cuda/batch/slices.cuh"},
    ),
    "systems": (systems.systems, {"cuda/kron_sum/systems.cuh", "cuda/krylov/systems.cuh"}),
    "triangles": (systems.triangles, {"cuda/kron_sum/back_substitution.cuh"}),
    "units": (batches.units, {"cuda/batch/matrix_units.cuh", "cuda/batch/unit_slices.cuh"}),
    "segmented": (batches.segmented, {"cuda/segmented/general.cuh", "cuda/segmented/staged.cuh"}),
    "gram": (
        gradients.gram,
        {"cuda/gram/tiles.cuh", "cuda/gram/registers.cuh", "cuda/gram/total.cuh"},
    ),
    "gradients": (gradients.gradients, {"cuda/gram/rows.cuh", "cuda/gram/total.cuh"}),
    "interpolated": (
        interpolated.interpolated,
        {f"cuda/interpolated/{name}.cuh" for name in ("fold", "gather", "scatter", "segments")},
    ),
    "kron_sparse": (
        kron_sparse.kron_sparse,
        {
            f"cuda/kron_sparse/{name}.cuh"
            for name in (*kron_sparse.KRON_SPARSE, "store", "transpose_blocks")
        },
    ),
    "explicit": (
        products.explicit,
        {"cuda/explicit/bands.cuh", "cuda/explicit/tiles.cuh"},
    ),
}


def count_kernels():
    """Count the kernels that are loaded from now on, by their templates."""
    counts, load = Counter(), device._load

    def counted(program, number):
        counts[program.header] += 1
        return load(program, number)

    device._load = counted
    return counts


def pretend_one_multiprocessor():
    """Cut all work as for a device that has one."""
    ask = device.runtime.deviceGetAttribute

    def answer(attribute, number):
        count = device.runtime.cudaDevAttrMultiProcessorCount
        return 1 if attribute == count else ask(attribute, number)

    device.runtime.deviceGetAttribute = answer


def main():
    parser = argparse.ArgumentParser(description="Run every kernel template once or more.")
    parser.add_argument("--small", action="store_true", help="with few thread blocks")
    parser.add_argument("--only", choices=PARTS, action="append", help="all parts by default")
    parser.add_argument("--dtype", choices=DTYPES, action="append", help="two of them by default")
    options = parser.parse_args()
    if options.small:
        pretend_one_multiprocessor()
    counts, missing = count_kernels(), []
    rng = np.random.default_rng(0)
    for dtype in options.dtype or ("float64", "complex64"):
        for part in options.only or PARTS:
            if part in ("fibres", "slices", "units", "gradients") and np.dtype(dtype).kind == "c":
                continue
            counts.clear()
            device._loaded.cache_clear()  # count what an earlier dtype has loaded, too
            run, templates = PARTS[part]
            run(rng, dtype, options.small)
            cupy.cuda.Device().synchronize()
            for template, count in sorted(counts.items()):
                print(f"{part} {dtype}: {count} kernels of {template}", flush=True)
            needed = templates - (OF_REAL_NUMBERS if np.dtype(dtype).kind == "c" else set())
            missing += [f"{part} {dtype}: none of {one}" for one in needed - set(counts)]
    print("\n".join(missing) or "all results are right")
    raise SystemExit(bool(missing))


if __name__ == "__main__":
    main()
