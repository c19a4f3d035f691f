"""Call each of some cells once: ``ncu … benchmarks.gpu.profiling.profiled CELLS.json SECONDS``.

Only what lies between CuPy's `profiler.start` and `stop` is profiled: for each cell a marker kernel
and a call that is not the first. Large vectors have fewer rows: a profiler repeats each kernel.
"""

import json
import sys
import time
from pathlib import Path

import cupy
import numpy as np

from benchmarks.gpu.data import free_memory, subject_of
from benchmarks.gpu.options import all_choices
from benchmarks.gpu.profiling.profiling import MARKER

MAX_BYTES = 512 << 20  # of a vector


def main() -> None:
    end = time.monotonic() + float(sys.argv[2])
    known = {(one.part, one.name, one.dtype): one for one in all_choices()}
    marker = cupy.RawKernel(f'extern "C" __global__ void {MARKER}(int* x) {{}}', MARKER)
    nothing = cupy.zeros(1, np.int32)
    marker((1,), (1,), (nothing,))
    for cell in json.loads(Path(sys.argv[1]).read_text()):
        if time.monotonic() > end:
            break
        subject = subject_of(known[tuple(cell)], MAX_BYTES)
        call = subject.calls()[-1]
        call()
        cupy.cuda.Device().synchronize()
        cupy.cuda.profiler.start()
        marker((1,), (1,), (nothing,))
        call()
        cupy.cuda.Device().synchronize()
        cupy.cuda.profiler.stop()
        del subject, call
        free_memory()


if __name__ == "__main__":
    main()
