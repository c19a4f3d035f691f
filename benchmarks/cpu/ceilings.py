"""The machine's ceilings, measured in the run that uses them: flops, matrix multiplies, traffic."""

import ctypes
import os
import subprocess
import tempfile
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.core.timing import in_turn

SOURCE = Path(__file__).with_name("ceilings.c")
# the last flag keeps the copy loop from becoming a call of memcpy
FLAGS = [
    *("-O3", "-march=native", "-fopenmp", "-fPIC", "-shared"),
    *("-ffp-contract=fast", "-fno-tree-loop-distribute-patterns"),
]
DTYPES = ("float64", "float32")
ARRAYS = {"fill": 1, "copy": 2, "triad": 3}  # how many arrays each loop reads or writes


def compile_kernels():
    compiler = os.environ.get("CC", "cc")
    with tempfile.TemporaryDirectory() as folder:
        library = str(Path(folder) / "ceilings.so")
        subprocess.run([compiler, *FLAGS, str(SOURCE), "-o", library], check=True)
        kernels = ctypes.CDLL(library)
    for dtype, real in (("float64", ctypes.c_double), ("float32", ctypes.c_float)):
        function = getattr(kernels, f"fma_{dtype}")
        function.argtypes, function.restype = [ctypes.c_long, ctypes.c_int, real], real
        getattr(kernels, f"fma_{dtype}_flops").restype = ctypes.c_long
    kernels.vector_bytes.restype = ctypes.c_long
    return kernels


def shortest(call, repetitions):
    """Seconds of the fastest of some calls, after one that is not counted."""
    return min(in_turn({"": call}, repetitions)[""])


def multiply_add_rate(kernels, dtype, threads, repetitions):
    rounds = 1_000_000
    function = getattr(kernels, f"fma_{dtype}")
    seconds = shortest(partial(function, rounds, threads, 0.5), repetitions)
    flops = getattr(kernels, f"fma_{dtype}_flops")()
    return float(rounds * threads * flops / seconds)


def gemm_rate(dtype, sizes, repetitions):
    """Flops per second of the best square matrix multiply of NumPy's BLAS."""
    rng = np.random.default_rng()
    best = 0.0
    for size in sizes:
        a, b = rng.standard_normal((2, size, size)).astype(dtype)
        out = np.empty_like(a)
        seconds = shortest(partial(np.matmul, a, b, out=out), repetitions)
        best = max(best, 2.0 * size**3 / seconds)
    return best


def aligned(count, vector):
    memory = np.empty((count + 1) * vector, np.uint8)
    offset = -memory.ctypes.data % vector
    return memory[offset : offset + count * vector]


def traffic_rates(kernels, array_bytes, threads, repetitions):
    """Bytes read and written per second, with ordinary and with non-temporal stores."""
    vector = kernels.vector_bytes()
    count = array_bytes // vector
    arrays = [aligned(count, vector) for _ in range(3)]
    pointers = [ctypes.c_void_p(array.ctypes.data) for array in arrays]
    arguments = (*pointers, ctypes.c_long(count), threads)
    for rotated in range(3):  # places each page near the thread that uses it
        kernels.fill(*pointers[rotated:], *pointers[:rotated], *arguments[3:])
    rates = {}
    for kind, moved in ARRAYS.items():
        for name in (kind, f"{kind}_nontemporal"):
            if hasattr(kernels, name):  # only x86 has non-temporal stores
                function = getattr(kernels, name)
                seconds = shortest(partial(function, *arguments), repetitions)
                rates[name] = moved * count * vector / seconds
    return rates


def measure_ceilings(kernels, threads, array_bytes, quick):
    """Flops per second for "fma float64" and the like, bytes per second for the others.

    "bandwidth" is the best of reading and writing, "write" of writing alone.
    """
    repetitions = 3 if quick else 7
    sizes = (768,) if quick else (512, 768, 1024, 1536)
    rates = traffic_rates(kernels, array_bytes, threads, repetitions)
    for dtype in DTYPES:
        rates[f"fma {dtype}"] = multiply_add_rate(kernels, dtype, threads, 3 * repetitions)
        rates[f"gemm {dtype}"] = gemm_rate(dtype, sizes, repetitions)
    rates["bandwidth"] = max(rates[name] for name in rates if name.startswith(("copy", "triad")))
    rates["write"] = max(rates[name] for name in rates if name.startswith("fill"))
    return rates


def best_of(first, second):
    return {name: max(first[name], second[name]) for name in first}
