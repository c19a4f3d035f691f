"""Times of the CUDA backend against its goals on one device.

GPU time by replaying captured graphs between two events; "latency" has the time of eager calls on
tiny data as the caller sees it, too. Inputs are rotated over several sets where
the cache would hold them. Every result is checked on a few entries against the CPU. The figures of
the best peer were measured on an H200 as well, but not in the same run.

    python benchmarks/gpu.py [--part kron --part latency …] [--json PATH]
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from time import perf_counter

import cupy
import numpy as np

import batchkron as bk

CACHE_BYTES = 240 << 20
REPLAY_MICROSECONDS = 20_000

# rows, factor size, number of factors; for each dtype the best peer and the goal on an H200, µs
KRON = [
    (20, 2, 9, {"float32": (5, 1.8), "float64": (5, 1.8)}),
    (1, 2, 11, {"float32": (7, 1.8), "float64": (8, 1.8)}),
    (20, 8, 3, {"float32": (3.3, 1.8), "float64": (3.8, 1.8)}),
    (156, 8, 3, {"float32": (3.5, 2), "float64": (3.9, 2)}),
    (1024, 3, 7, {"float32": (60, 8), "float64": (83, 14)}),
    (1526, 4, 6, {"float32": (56, 16), "float64": (89, 30)}),
    (1024, 4, 7, {"float32": (177, 42), "float64": (248, 85)}),
    (2967, 4, 7, {"float32": (493, 120), "float64": (829, 240)}),
    (1024, 6, 7, {"float32": (6419, 1400), "float64": (9652, 2700)}),
    (1024, 8, 5, {"float32": (246, 85), "float64": (390, 190)}),
    (1024, 8, 6, {"float32": (2213, 1150), "float64": (3339, 2300)}),
    (1024, 16, 4, {"float32": (515, 280), "float64": (818, 560)}),
    (1024, 16, 5, {"float32": (9972, 4700), "float64": (17148, 9400)}),
    (1024, 32, 3, {"float32": (315, 140), "float64": (480, 290)}),
    (1024, 32, 4, {"float32": (12872, 5500), "float64": (21091, 9400)}),
    (1024, 64, 2, {"float32": (41, 22), "float64": (46, 21)}),
    (1024, 64, 3, {"float32": (3303, 2000), "float64": (3575, 2350)}),
    (1024, 128, 2, {"float32": (237, 165), "float64": (207, 150)}),
    (320, 128, 3, {"float32": (12949, 9900), "float64": (14462, 8900)}),
    (16, 64, 3, {"float32": (61, 32), "float64": (77, 36)}),
    (16, 64, 4, {"float32": (4374, 2650), "float64": (5407, 2700)}),
    (16, 128, 3, {"float32": (673, 495), "float64": (622, 450)}),
    (16, 8, 8, {"float32": (2967, 1250), "float64": (4860, 2400)}),
    (16, 16, 6, {"float32": (2998, 1300), "float64": (4909, 2400)}),
    (16, 32, 5, {"float32": (8124, 3300), "float64": (12414, 6800)}),
]

# modes, factor size; best peer and goal, µs, at 2 million unknowns
BATCHES = [
    (1, 4, {"float32": (1238, 420), "float64": (1251, 800)}),
    (2, 2, {"float32": (1133, 300), "float64": (1240, 520)}),
    (2, 4, {"float32": (782, 260), "float64": (1010, 500)}),
    (2, 8, {"float64": (1656, 480)}),
    (3, 2, {"float32": (1139, 260), "float64": (1476, 430)}),
    (3, 3, {"float32": (1039, 260), "float64": (1358, 400)}),
    (3, 4, {"float32": (934, 170), "float64": (1143, 300)}),
    (3, 6, {"float64": (1922, 260)}),
    (3, 8, {"float64": (1887, 240)}),
    (4, 2, {"float32": (952, 220), "float64": (1245, 350)}),
    (4, 3, {"float32": (1838, 170), "float64": (2450, 280)}),
    (4, 4, {"float32": (1266, 130), "float64": (1943, 220)}),
    (4, 5, {"float64": (2481, 240)}),
    (5, 3, {"float32": (1733, 150), "float64": (2519, 250)}),
    (5, 4, {"float64": (2079, 240)}),
    (6, 2, {"float32": (1031, 150), "float64": (1253, 240)}),
    (6, 3, {"float32": (2093, 150), "float64": (2838, 270)}),
    (6, 4, {"float32": (2359, 150), "float64": (2712, 290)}),
]
UNKNOWNS = 2_000_000
CONTRIBUTIONS = 64
POOL = 4096

LATENCY = ["2^3", "8^2", "4^4"]  # and a batch list of 8 products (3, 2)
LATENCY_GOALS = {"call": 8, "node": 2.5}  # µs
LATENCY_CALLS = 2000
NODES = 100

EXPLICIT = [
    ((1024, 1024), (32, 32)),
    ((64, 64), (512, 512)),
    ((3, 3), (2000, 2000)),
    ((4096, 4096), (3, 3)),
    ((1000, 1001), (31, 31)),
    ((255, 257), (127, 129)),
    ((5, 3), (2001, 2003)),
]
EXPLICIT_GOAL = 4.2e12  # bytes per second

START = """
import time
began = time.perf_counter()
import cupy
cupy.zeros(1).sum().get()
ready = time.perf_counter()
import numpy as np, batchkron as bk
imported = time.perf_counter()
op = bk.KroneckerProduct([np.full((7, 7), 0.5)] * 3).to("cuda")
x, y = cupy.ones((9, 343)), cupy.empty((9, 343))
op.apply(x, out=y)
cupy.cuda.Device().synchronize()
done = time.perf_counter()
print(ready - began, imported - ready, done - imported)
"""


def random_array(shape, dtype, seed=0):
    """Standard normal numbers on the device; large arrays repeat a block of four million."""
    size = math.prod(shape)
    block = np.random.default_rng(seed).standard_normal(min(size, 1 << 22)).astype(dtype)
    repeats = -(-size // len(block))
    return cupy.tile(cupy.asarray(block), repeats)[:size].reshape(shape)


def microseconds(calls):
    """GPU time of one call: the median over replays of a graph of all ``calls`` in turn."""
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    with stream:
        for call in calls:
            call()
        once = elapsed(stream, lambda: [call() for call in calls])
        rounds = max(1, min(200, int(REPLAY_MICROSECONDS / max(once, 1)) // 5))
        stream.begin_capture()
        for _ in range(rounds):
            for call in calls:
                call()
        graph = stream.end_capture()
        graph.launch(stream)
        times = [elapsed(stream, lambda: graph.launch(stream)) for _ in range(5)]
    return statistics.median(times) / (rounds * len(calls))


def elapsed(stream, work):
    """Microseconds on the device between the events around ``work``."""
    start, stop = cupy.cuda.Event(), cupy.cuda.Event()
    start.record(stream)
    work()
    stop.record(stream)
    stop.synchronize()
    return 1000 * cupy.cuda.get_elapsed_time(start, stop)


def record(kind, name, dtype, time, peer_goal=None, **more):
    entry = {"kind": kind, "case": name, "dtype": str(dtype), "microseconds": time, **more}
    if peer_goal:
        peer, goal = peer_goal
        entry |= {"best_peer": peer, "goal": goal, "time_over_goal": time / goal}
    assert more.get("relative_error", 0) <= (1e-5 if dtype == "float32" else 1e-13), entry
    shown = [f"{time:10.1f} µs"]
    if peer_goal:
        shown.append(f"goal {goal:8.1f} µs  {time / goal:5.2f} × goal  {time / peer:5.2f} × peer")
    for key, unit in (("tflops", "TFLOP/s"), ("terabytes_per_second", "TB/s")):
        if key in more:
            shown.append(f"{more[key]:6.2f} {unit}")
    print(f"{kind:9} {name:20} {dtype!s:8} {'  '.join(shown)}", flush=True)
    return entry


def kron_cases():
    """Kron-Matmuls with powers of one factor."""
    for rows, size, modes, figures in KRON:
        columns = size**modes
        for dtype, peer_goal in figures.items():
            factors = np.random.default_rng(1).standard_normal((modes, size, size)) / size**0.5
            op = bk.KroneckerProduct(factors.astype(dtype))
            device = op.to("cuda")
            shape = (rows, columns)
            bytes_moved = 2 * rows * columns * np.dtype(dtype).itemsize
            sets = max(1, min(8, CACHE_BYTES // bytes_moved)) if bytes_moved > 1 << 20 else 1
            inputs = [random_array(shape, dtype, seed) for seed in range(sets)]
            outputs = [cupy.empty(shape, dtype) for _ in inputs]
            pairs = zip(inputs, outputs, strict=True)
            time = microseconds([partial(device.apply, x, out=out) for x, out in pairs])
            row = rows // 2
            expected = op.apply(inputs[-1][row].get())
            error = np.abs(outputs[-1][row].get() - expected).max() / np.abs(expected).max()
            yield record(
                "kron",
                f"{rows}: {size}^{modes}",
                dtype,
                time,
                peer_goal,
                tflops=2 * rows * columns * size * modes / time / 1e6,
                terabytes_per_second=bytes_moved / time / 1e6,
                relative_error=float(error),
            )
            del inputs, outputs
            cupy.get_default_memory_pool().free_all_blocks()


def batch_cases():
    """Batch lists with 64 contributions per output, factors and inputs drawn at random."""
    for modes, size, figures in BATCHES:
        rng = np.random.default_rng(2)
        block = size**modes
        blocks = UNKNOWNS // block
        products = blocks * CONTRIBUTIONS
        ids = rng.integers(0, POOL, (products, modes), dtype=np.int32)
        inputs = rng.integers(0, blocks, products, dtype=np.int32)
        outputs = np.repeat(np.arange(blocks), CONTRIBUTIONS)
        counts = {"num_inputs": blocks, "num_outputs": blocks}
        for dtype, peer_goal in figures.items():
            pools = rng.standard_normal((modes, POOL, size, size)).astype(dtype)
            x = random_array((blocks, block), dtype)
            first = slice(CONTRIBUTIONS)
            check = bk.BatchedKron(
                list(pools), ids[first], inputs[first], outputs[first], num_inputs=blocks
            )
            expected = check.apply(x.get())[0]
            for accumulation in ("owner", "atomic"):
                op = bk.BatchedKron(
                    list(pools), ids, inputs, outputs, accumulation=accumulation, **counts
                ).to("cuda")
                out = cupy.empty_like(x)
                time = microseconds([partial(op.apply, x, out=out)])
                error = np.abs(out[0].get() - expected).max() / np.abs(expected).max()
                yield record(
                    "batch",
                    f"({modes},{size}) {accumulation}",
                    dtype,
                    time,
                    peer_goal,
                    tflops=2 * products * block * size * modes / time / 1e6,
                    relative_error=float(error),
                )


def shape_name(rows, columns):
    return f"{rows}²" if rows == columns else f"{rows}×{columns}"


def explicit_cases():
    """Explicit products; the goal is a rate of writing."""
    for a_shape, b_shape in EXPLICIT:
        for dtype in ("float32", "float64"):
            a, b = random_array(a_shape, dtype, 3), random_array(b_shape, dtype, 4)
            out = cupy.empty([p * q for p, q in zip(a_shape, b_shape, strict=True)], dtype)
            time = microseconds([partial(bk.kron, a, b, out=out)])
            goal = out.nbytes / EXPLICIT_GOAL * 1e6
            rows = min(7, b_shape[0])
            assert (out[:rows].get() == bk.kron(a.get()[:1], b.get()[:rows])).all()
            yield record(
                "explicit",
                f"{shape_name(*a_shape)} ⊗ {shape_name(*b_shape)}",
                dtype,
                time,
                (goal, goal),
                terabytes_per_second=out.nbytes / time / 1e6,
            )


def start_cases():
    """Seconds to the first result in a first and a second process."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "BATCHKRON_CACHE_DIR": folder}
        for name, goal in (("first process", 2e6), ("second process", 5e4)):
            run = subprocess.run(
                [sys.executable, "-c", START],
                env=environment,
                capture_output=True,
                text=True,
                check=True,
            )
            context, imports, first = (float(text) for text in run.stdout.split())
            yield record(
                "start",
                name,
                "float64",
                1e6 * first,
                (goal, goal),
                seconds_for_cupy_and_context=context,
                seconds_for_import=imports,
            )


def tiny_operators():
    """The operators whose calls are timed for latency."""
    rng = np.random.default_rng(5)
    for name in LATENCY:
        size, modes = map(int, name.split("^"))
        yield name, bk.KroneckerProduct(rng.standard_normal((modes, size, size)))
    ids = rng.integers(0, 8, (8, 3))
    pool = rng.standard_normal((8, 2, 2))
    yield "8 × (3,2)", bk.BatchedKron(pool, ids, [0] * 8, [0] * 8)


def latency_cases():
    """Calls of `apply` on one row, eagerly and in a graph, beside a launch by CuPy itself."""
    x = cupy.ones(1)
    bare = cupy.RawKernel('extern "C" __global__ void bare(double* x) {}', "bare")
    yield record("latency", "bare RawKernel", "float64", call_microseconds(bare, (1,), (1,), (x,)))
    for name, op in tiny_operators():
        device = op.to("cuda")
        x = random_array((1, op.shape[1]), "float64")
        expected = op.apply(x.get())
        out = cupy.empty(expected.shape)
        call = partial(device.apply, x, out=out)
        times = {"call": call_microseconds(call), "node": node_microseconds(call)}
        error = float(np.abs(out.get() - expected).max() / np.abs(expected).max())
        for kind, time in times.items():
            goal = LATENCY_GOALS[kind]
            yield record(
                "latency", f"{name} {kind}", "float64", time, (goal, goal), relative_error=error
            )


def call_microseconds(call, *arguments):
    """Time of an eager call: the median over batches, each from one synchronisation to the next."""
    device, times = cupy.cuda.Device(), []
    for _ in range(11):
        device.synchronize()
        begun = perf_counter()
        for _ in range(LATENCY_CALLS):
            call(*arguments)
        device.synchronize()
        times.append(1e6 * (perf_counter() - begun) / LATENCY_CALLS)
    return statistics.median(times)


def node_microseconds(call):
    """GPU time of one of many calls that a graph holds."""
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    with stream:
        call()
        stream.begin_capture()
        for _ in range(NODES):
            call()
        graph = stream.end_capture()
        graph.launch(stream)
        times = [elapsed(stream, lambda: graph.launch(stream)) for _ in range(11)]
    return statistics.median(times) / NODES


PARTS = {
    "start": start_cases,
    "kron": kron_cases,
    "batches": batch_cases,
    "explicit": explicit_cases,
    "latency": latency_cases,
}


def machine(commit):
    """What the figures belong to."""
    properties = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)
    return {
        "device": properties["name"].decode(),
        "driver": cupy.cuda.runtime.driverGetVersion(),
        "nvrtc": ".".join(map(str, cupy.cuda.nvrtc.getVersion())),
        "cupy": cupy.__version__,
        "batchkron": bk.__version__,
        "commit": commit,
        "python": platform.python_version(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", action="append", choices=PARTS, help="all by default")
    parser.add_argument("--commit", help="of the source, for the record")
    parser.add_argument("--json", type=Path, help="where the figures are written")
    options = parser.parse_args()
    report = {"machine": machine(options.commit), "results": []}
    print(json.dumps(report["machine"]))
    for part in options.part or PARTS:
        for entry in PARTS[part]():
            report["results"].append(entry)
            if options.json:
                options.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
