"""Compile all kernels ahead, in several processes, into the cache of kernels.

Each process builds the operators that will be measured, which compiles their kernels. They are
built in managed memory, which takes no room on the device until it is touched.
"""

import math
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import numpy as np

from batchkron.backends.cuda.kron_sparse.choose import fastest_way
from batchkron.backends.cuda.kron_sparse.transposed import programs_of
from benchmarks.gpu.cases.sparse_cases import shape_of
from benchmarks.shapes import KronMatmul


def compile_kron(shape, dtype, precision=None):
    from batchkron.backends import backend_on, reserve
    from benchmarks.gpu.data import factors_of, that_fits

    fitting = that_fits(shape, dtype)
    if fitting is not None:
        cuda = backend_on("cuda")
        product = cuda.kron_product(factors_of(shape, dtype), precision)
        reserve(product, fitting.rows, 1)


def compile_function(shape, dtype, inner=1):
    from batchkron.backends import backend_on
    from batchkron.spec.kron import KronSpec

    inputs, outputs = zip(*shape.factors, strict=True)
    cuda = backend_on("cuda")
    cuda.kron_plan(KronSpec(inputs, outputs, shape.rows, inner, np.dtype(dtype))).prepare()


def compile_functions(shape, dtype):
    compile_function(shape, dtype)
    inputs = [p for p, _ in shape.factors]
    for mode, factor in enumerate(shape.factors):
        outer = shape.rows * math.prod(inputs[:mode])
        compile_function(KronMatmul(outer, (factor,)), dtype, math.prod(inputs[mode + 1 :]))


def compile_batch(case, dtype, accumulation="owner"):
    from benchmarks.gpu.data import ListSubject

    ListSubject(case, dtype, accumulation).operator()


def compile_sparse(cases, dtype):
    for program in sparse_programs(shape_of(case, dtype) for case in cases):
        compile_program(program)


def sparse_programs(shapes):
    import cupy

    from batchkron.backends.cuda.runtime.device import device_limits

    limits = device_limits(cupy.cuda.Device().id)
    ways = (fastest_way(shape, limits) for shape in shapes)
    return list(dict.fromkeys(program for way in ways for program in programs_of(way)))


def compile_program(program):
    import cupy

    from batchkron.backends.cuda.runtime.device import load_kernel

    load_kernel(program, cupy.cuda.Device().id)


def compile_programs(programs, processes):
    """Compile kernels ahead, and print what was not possible."""
    print(*compile_all([partial(compile_program, one) for one in programs], processes), sep="\n")


def _quietly(job):
    """Do a job with arrays in managed memory; what fails is compiled again, and reported there."""
    try:
        import cupy

        cupy.cuda.set_allocator(cupy.cuda.malloc_managed)
        job()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def compile_all(jobs, processes):
    if processes < 1 or not jobs:
        return []
    context = multiprocessing.get_context("spawn")  # a device's context does not survive a fork
    with ProcessPoolExecutor(min(processes, len(jobs)), context) as pool:
        futures = [pool.submit(_quietly, job) for job in jobs]
        return [said for said in map(_outcome, futures) if said]


def _outcome(future):
    error = future.exception()  # of a process that has died
    return future.result() if error is None else f"{type(error).__name__}: {error}"
