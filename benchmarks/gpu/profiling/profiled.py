"""Call each of some cells once.

    ncu … python -m benchmarks.gpu.profiling.profiled CELLS.json SECONDS

Only what lies between CuPy's `profiler.start` and `stop` is to be profiled: for each cell a marker
kernel and one call, which is not the first. Large vectors have fewer rows, since a profiler repeats
each kernel tens of times and restores what it has written.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import cupy
import numpy as np

import batchkron as bk
from benchmarks.core.device_timing import random_array
from benchmarks.gpu.data import factors_of
from benchmarks.gpu.data import operator as batch_operator
from benchmarks.gpu.options import Choice, all_choices
from benchmarks.gpu.parts.batches import free_memory
from benchmarks.gpu.parts.lists import operator as list_operator
from benchmarks.gpu.profiling.profiling import MARKER

MAX_BYTES = 512 << 20  # of a vector


def call_of(choice: Choice) -> Callable[[], object]:
    """One call of ours."""
    case, dtype = choice.case, choice.dtype
    precision = dtype if choice.part == "precision" else None
    if precision:
        dtype = "float32"
    itemsize = np.dtype(dtype).itemsize
    if choice.part in ("kron", "precision", "pde"):
        shape = case.shape.reduced(MAX_BYTES // itemsize) or case.shape
        inputs, outputs = shape.columns
        op = bk.KroneckerProduct(factors_of(shape, dtype), precision=precision).to("cuda")
        y = cupy.empty((shape.rows, outputs), dtype)
        return partial(op.apply, random_array((shape.rows, inputs), dtype), out=y)
    if choice.part == "sweeps":
        sweeps = case.operator(dtype).to("cuda")
        x = random_array((sweeps.shape[1],), dtype)
        return partial(sweeps.matvec, x, out=cupy.empty_like(x))
    if choice.part == "explicit":
        matrices = [random_array((n, n), dtype, seed) for seed, n in enumerate(case)]
        side = int(np.prod(case))
        return partial(bk.kron, *matrices, out=cupy.empty((side, side), dtype))
    if choice.part in ("batches", "atomic"):
        x = random_array((case.blocks, case.block), dtype)
        sums = "owner" if choice.part == "batches" else "atomic"
        op = batch_operator(case, dtype, sums).to("cuda")
        return partial(op.apply, x, out=cupy.empty_like(x))
    x = random_array((case.vectors, case.blocks, case.input_block), dtype)
    y = cupy.empty((case.vectors, case.blocks, case.output_block), dtype)
    return partial(list_operator(case, dtype).apply, x, out=y)


def main() -> None:
    """Read part, name and dtype of each cell; call it, while there is time."""
    end = time.monotonic() + float(sys.argv[2])
    known = {(one.part, one.name, one.dtype): one for one in all_choices()}
    marker = cupy.RawKernel(f'extern "C" __global__ void {MARKER}(int* x) {{}}', MARKER)
    nothing = cupy.zeros(1, np.int32)
    marker((1,), (1,), (nothing,))
    for cell in json.loads(Path(sys.argv[1]).read_text()):
        if time.monotonic() > end:
            break
        call = call_of(known[tuple(cell)])
        call()
        cupy.cuda.Device().synchronize()
        cupy.cuda.profiler.start()
        marker((1,), (1,), (nothing,))
        call()
        cupy.cuda.Device().synchronize()
        cupy.cuda.profiler.stop()
        del call
        free_memory()


if __name__ == "__main__":
    main()
