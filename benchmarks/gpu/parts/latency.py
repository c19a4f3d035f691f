"""Seconds to the first result; calls on tiny data, eagerly and in a graph, beside a launch by CuPy.

Operators are called by `apply`; functions, eagerly only, with and without `out=`.
"""

import os
import subprocess
import sys
import tempfile
from functools import partial, reduce

import cupy
import numpy as np

import batchkron as bk
from benchmarks.core.checks import relative_error
from benchmarks.core.device_timing import call_microseconds, random_array, timed
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
START_GOALS = {"first process": 2e6, "second process": 5e4}  # µs
POWERS = ("2^3", "8^2", "4^4")
GOALS = {"call": 8.0, "node": 2.5}  # µs, of an eager call and of one in a graph
CALLS = 2000  # between two synchronisations
REPEATS = 11


def start_cells(_):
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {
            "BATCHKRON_CACHE_DIR": folder,
            "PYTHONPATH": os.pathsep.join(sys.path),  # finds what this process has found
            "PYTHONPYCACHEPREFIX": folder,
            "PYTHONDONTWRITEBYTECODE": "",
        }
        for name, goal in START_GOALS.items():
            command = [sys.executable, "-P", "-c", PROGRAM]
            run = subprocess.run(command, env=environment, capture_output=True, text=True)
            if run.returncode:
                yield Cell("start", name, "float64", {"reason": run.stderr[-200:]})
                continue
            context, imports, first = (float(text) for text in run.stdout.split())
            cell = Cell("start", name, "float64", {"microseconds": 1e6 * first}, goal=goal)
            cell.more = {"seconds_for_cupy_and_context": context, "seconds_for_import": imports}
            yield cell


def latency_cells(_):
    def cell(name, time, goal=None, **more):
        return Cell("latency", name, "float64", {"microseconds": time, **more}, goal=goal)

    bare = cupy.RawKernel('extern "C" __global__ void bare(double* x) {}', "bare")
    time = call_microseconds(partial(bare, (1,), (1,), (cupy.ones(1),)), CALLS, REPEATS)
    yield cell("bare RawKernel call", time)
    for name, op in tiny_operators():
        device, x = op.to("cuda"), random_array((1, op.shape[1]), "float64")
        expected = op.apply(x.get())
        out = cupy.empty(expected.shape)
        call = partial(device.apply, x, out=out)
        times = {"call": call_microseconds(call, CALLS, REPEATS), "node": timed([call])}
        error = relative_error(out.get(), expected)
        for kind, goal in GOALS.items():
            yield cell(f"{name} {kind}", times[kind], goal, relative_error=error)
    for name, call, expected in function_calls():
        time = call_microseconds(call, CALLS, REPEATS)
        error = relative_error(call().get(), expected)
        yield cell(f"{name} call", time, GOALS["call"], relative_error=error)


def tiny_operators():
    rng = np.random.default_rng(5)
    for name in POWERS:
        size, modes = map(int, name.split("^"))
        yield name, bk.KroneckerProduct(rng.standard_normal((modes, size, size)))
    ids = rng.integers(0, 8, (8, 3))
    pool = rng.standard_normal((8, 2, 2))
    yield "8 × (3,2)", bk.BatchedKron(pool, ids, [0] * 8, [0] * 8)


def function_calls():
    for name in (*POWERS, "16^4"):
        size, modes = map(int, name.split("^"))
        factors = [random_array((size, size), "float64") for _ in range(modes)]
        x = random_array((1, size**modes), "float64")
        expected = bk.gemkm(x.get(), [factor.get() for factor in factors])
        out, column = cupy.empty(expected.shape), cupy.ascontiguousarray(x.T)
        yield f"gemkm {name}, out", partial(bk.gemkm, x, factors, out=out), expected
        yield f"gemkm {name}", partial(bk.gemkm, x, factors), expected
        transposed = [cupy.ascontiguousarray(factor.T) for factor in factors]
        yield f"gekmm {name}", partial(bk.gekmm, transposed, column), expected.T
    for shapes in ([8, 8], [4, 4, 4]):
        factors = [random_array((size, size), "float64") for size in shapes]
        expected = reduce(np.kron, [factor.get() for factor in factors])
        out, name = cupy.empty(expected.shape), " ⊗ ".join(map(str, shapes))
        yield f"kron {name}, out", partial(bk.kron, *factors, out=out), expected
        yield f"kron {name}", partial(bk.kron, *factors), expected
    a, b = (random_array((8, 4, 4), "float64") for _ in range(2))
    yield "batched_gemm 8: 4x4", partial(bk.batched_gemm, a, b), a.get() @ b.get()
