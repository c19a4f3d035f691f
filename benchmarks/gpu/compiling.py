"""Compile all kernels ahead, in several processes, into the cache of kernels.

Each process builds the operators that will be measured, which compiles their kernels. They are
built in managed memory, which takes no room on the device until it is touched.
"""

from __future__ import annotations

import math
import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np

from benchmarks.cpu.shapes import KronMatmul
from benchmarks.gpu.cases.cases import BatchCase
from benchmarks.gpu.cases.list_cases import ListCase
from benchmarks.gpu.cases.sparse_cases import SparseCase

Job = Callable[[], None]


def _use_managed_memory() -> None:
    import cupy

    cupy.cuda.set_allocator(cupy.cuda.malloc_managed)


def compile_kron(shape: KronMatmul, dtype: str, precision: Any = None) -> None:
    """The kernels of an operator."""
    from batchkron.backends import backend_on
    from benchmarks.gpu.measuring.data import factors_of, that_fits

    fitting = that_fits(shape, dtype)
    if fitting is not None:
        cuda = backend_on("cuda")
        product = cuda.kron_product(factors_of(shape, dtype), precision)
        cuda.reserve(product, fitting.rows, 1)


def compile_function(shape: KronMatmul, dtype: str) -> None:
    """The kernels of a function of all factors at once."""
    from batchkron.backends import backend_on
    from batchkron.spec.kron import KronSpec

    inputs, outputs = zip(*shape.factors, strict=True)
    cuda: Any = backend_on("cuda")
    cuda.kron_plan(KronSpec(inputs, outputs, shape.rows, 1, np.dtype(dtype))).prepare()


def compile_functions(shape: KronMatmul, dtype: str) -> None:
    """The kernels of functions: all factors at once, and one at a time."""
    from batchkron.backends import backend_on
    from batchkron.spec.kron import KronSpec

    compile_function(shape, dtype)
    inputs = [p for p, _ in shape.factors]
    scalar = np.dtype(dtype)
    cuda: Any = backend_on("cuda")
    for mode, (p, q) in enumerate(shape.factors):
        outer = shape.rows * math.prod(inputs[:mode])
        inner = math.prod(inputs[mode + 1 :])
        cuda.kron_plan(KronSpec((p,), (q,), outer, inner, scalar)).prepare()


def compile_batch(case: BatchCase, dtype: str, accumulation: str = "owner") -> None:
    """The kernels of a batch list."""
    from benchmarks.gpu.measuring.data import operator

    operator(case, dtype, accumulation).to("cuda")


def compile_atomic(case: BatchCase, dtype: str) -> None:
    """The kernels of a batch list whose sums are owned, and added atomically."""
    for accumulation in ("owner", "atomic"):
        compile_batch(case, dtype, accumulation)


def compile_list(case: ListCase, dtype: str) -> None:
    """The kernels of a list of any factors."""
    from benchmarks.gpu.parts.lists import operator

    operator(case, dtype)


def compile_sparse(cases: Sequence[SparseCase], dtype: str) -> None:
    """The kernels of products with Kronecker-sparse matrices."""
    import cupy

    from batchkron.backends.cuda.kron_sparse.choose import fastest_kernel
    from batchkron.backends.cuda.runtime.device import device_limits, load_kernel
    from benchmarks.gpu.cases.sparse_cases import shape_of

    device = cupy.cuda.Device().id
    limits = device_limits(device)
    for case in cases:
        load_kernel(fastest_kernel(shape_of(case, dtype), limits).program(), device)


def _quietly(job: Job) -> str:
    """Run a job; what fails is compiled again where it is measured, and reported there."""
    try:
        _use_managed_memory()
        job()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def compile_all(jobs: Sequence[Job], processes: int) -> list[str]:
    """Do all jobs; return what went wrong."""
    if not jobs or processes < 1:
        return []
    context = multiprocessing.get_context("spawn")  # a device's context does not survive a fork
    with ProcessPoolExecutor(min(processes, len(jobs)), context) as pool:
        return [said for said in pool.map(_quietly, jobs) if said]


def default_processes() -> int:
    """As many as there are processors, at most 14."""
    count = os.cpu_count() or 1
    with suppress(AttributeError):
        count = len(os.sched_getaffinity(0))
    return min(14, count)


def jobs_of(
    kron: Sequence[tuple[Any, ...]],
    functions: Sequence[tuple[KronMatmul, str]],
    batches: Sequence[tuple[BatchCase, str]],
    lists: Sequence[tuple[ListCase, str]] = (),
) -> list[Job]:
    """The jobs of all cases, the longest first; ``kron``: arguments of `compile_kron`."""
    long_lists = sorted(lists, key=lambda pair: -pair[0].products)
    longest = sorted(batches, key=lambda pair: -pair[0].products)
    return [
        *(partial(compile_list, *pair) for pair in long_lists),
        *(partial(compile_batch, *pair) for pair in longest),
        *(partial(compile_kron, *pair) for pair in kron),
        *(partial(compile_functions, *pair) for pair in functions),
    ]
