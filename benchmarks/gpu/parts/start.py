"""Seconds to the first result."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator

from benchmarks.gpu.cases.cases import Figures
from benchmarks.gpu.options import Choice
from benchmarks.gpu.report import Cell

PROGRAM = """
import time
began = time.perf_counter()
import cupy
x, y = cupy.ones((9, 343)), cupy.empty((9, 343))
x.sum().get()
ready = time.perf_counter()
import numpy as np, batchkron as bk
imported = time.perf_counter()
op = bk.KroneckerProduct([np.full((7, 7), 0.5)] * 3).to("cuda")
op.apply(x, out=y)
cupy.cuda.Device().synchronize()
done = time.perf_counter()
print(ready - began, imported - ready, done - imported)
"""
GOALS = {"first process": 2e6, "second process": 5e4}  # µs


def start_cells(_: Choice) -> Iterator[Cell]:
    with tempfile.TemporaryDirectory() as folder:
        places = os.pathsep.join(sys.path)  # finds what this process has found
        environment = {
            **os.environ,
            "BATCHKRON_CACHE_DIR": folder,
            "PYTHONPATH": places,
            "PYTHONPYCACHEPREFIX": folder,
            "PYTHONDONTWRITEBYTECODE": "",
        }
        for name, goal in GOALS.items():
            command = [sys.executable, "-P", "-c", PROGRAM]
            run = subprocess.run(command, env=environment, capture_output=True, text=True)
            if run.returncode:
                yield Cell("start", name, "float64", {"reason": run.stderr[-200:]})
                continue
            context, imports, first = (float(text) for text in run.stdout.split())
            cell = Cell("start", name, "float64", {"microseconds": 1e6 * first})
            cell.figures = Figures(goal)
            cell.more = {"seconds_for_cupy_and_context": context, "seconds_for_import": imports}
            yield cell
