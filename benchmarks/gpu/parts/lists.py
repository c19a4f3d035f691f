"""Batch lists next to their floors, to other libraries, and to one vector after another."""

from functools import cache, partial
from pathlib import Path

import cupy
import numpy as np

import batchkron as bk
from benchmarks.core.device_timing import random_array, timed
from benchmarks.gpu.cases.cases import UNKNOWNS, atomic_floor, batch_bytes, batch_floor
from benchmarks.gpu.cases.list_cases import HUGE, OVER_FLOOR, OVER_MEASURED_FLOOR, list_floor
from benchmarks.gpu.data import ListSubject, free_memory, random_ids
from benchmarks.gpu.peers import cublas, torch_chain
from benchmarks.gpu.peers.chains import Multiply, gemm, run_all
from benchmarks.gpu.report import Cell, least

MIN_GAIN = 1.2  # over ASGarD as recorded, of the atomic form
MAX_GATHERS = 8_000_000  # blocks that `gather_rate` reads
WORDS = {16: "uint4", 8: "uint2", 4: "unsigned"}  # CUDA types by their bytes
SOURCE = Path(__file__).with_name("gather.cu")


def _steps(case, *given):
    """A batch of multiplies for each mode, where it reads and writes, and what each mode has."""
    n, buffers = case.size, given[0]
    for mode, own in enumerate(zip(*given[1:], strict=True)):
        step = Multiply("turned", mode, case.products, n, n, case.input_block // n)
        yield step, buffers[mode % 2], buffers[(mode + 1) % 2], *own


def cublas_calls(case, pools, ids, inputs, x, y):
    """Gathers and sums by CuPy, multiplies by cuBLAS."""
    buffers = [cupy.empty((case.products, case.input_block), x.dtype) for _ in range(2)]
    gathered = cupy.empty((case.products, case.size, case.size), x.dtype)
    calls = [partial(cupy.take, x, inputs, axis=0, out=buffers[0])]
    for step, source, target, pool, indices in _steps(case, buffers, pools, ids):
        calls.append(partial(cupy.take, pool, indices, axis=0, out=gathered))
        one = gemm(step, own_factors=True)
        calls.append(cublas.library().call(one, gathered, source, target))
    result = buffers[case.modes % 2].reshape(-1, case.CONTRIBUTIONS, case.input_block)
    calls.append(partial(cupy.sum, result, axis=1, out=y))
    return {"": [partial(run_all, calls)]}


def torch_calls(case, pools, ids, inputs, outputs, x, y):
    """index_select, bmm and index_add_."""
    torch, tensor = torch_chain.torch, torch_chain.tensor
    first, result, count, n = tensor(x), tensor(y), case.products, case.size
    made = {"dtype": first.dtype, "device": "cuda"}
    buffers = [torch.empty((count, case.input_block), **made) for _ in range(2)]
    gathered = torch.empty((count, n, n), **made)
    select = torch.index_select
    calls = [partial(select, first, 0, tensor(inputs), out=buffers[0]), result.zero_]
    for step, source, target, pool, indices in _steps(case, buffers, pools, ids):
        calls.append(partial(select, tensor(pool), 0, tensor(indices), out=gathered))
        vectors = source.view(count, n, step.others).transpose(1, 2)
        out = target.view(count, step.others, n)
        calls.append(partial(torch.bmm, vectors, gathered.transpose(1, 2), out=out))
    calls.append(partial(result.index_add_, 0, tensor(outputs), buffers[case.modes % 2]))
    return {"": [partial(run_all, calls)]}


def batch_cells(choice):
    case, dtype = choice.case, choice.dtype
    subject = ListSubject(case, dtype)
    kind = "batch" if case.unknowns == UNKNOWNS else "small batch"
    cell = Cell(kind, case.name, dtype, subject.time_of(subject.calls))
    cell.goal, cell.recorded = case.figures[dtype]
    cell.floor = batch_floor(case, dtype)
    gathered = batch_bytes(case, dtype)
    cell.add_rates(tflops=case.flops, gathered_terabytes_per_second=gathered)
    pools, ids, inputs, outputs = subject.content
    columns = [cupy.asarray(one.astype(np.int64)) for one in (*ids.T, inputs, outputs)]
    *columns, sources, targets = columns
    lists, vectors = (case, pools, columns, sources), (subject.x, subject.out)

    def by_cublas():
        return cublas_calls(*lists, *vectors), cublas.library().on

    def by_torch():
        return torch_calls(*lists, targets, *vectors), torch_chain.on

    # a chain has two buffers, the factors of one mode, and indices
    elements = 2 * case.input_block + case.size**2
    needed = case.products * (elements * subject.x.itemsize + 8 * (case.modes + 2))
    free = cupy.cuda.runtime.memGetInfo()[0]
    large = f"not measured: needs {needed >> 30} GiB" if needed > free else ""
    for name, make in (("cuBLAS", by_cublas), ("torch", torch_chain.missing() or by_torch)):
        cell.peers |= subject.times_of({name: make if isinstance(make, str) else large or make})
        free_memory()
    yield cell


def atomic_cells(choice):
    """The list in random order: added atomically by an operator and by the function; owned sums."""
    case, dtype = choice.case, choice.dtype
    subject = ListSubject(case, dtype, "atomic")
    x, y = subject.x, subject.out
    pools, ids, inputs, outputs = subject.content
    given = [pools, *map(cupy.asarray, (ids, x, inputs, outputs))]

    def once():
        y.data.memset_async(0, y.nbytes)
        bk.batched_kron(*given, y)

    cell = Cell("atomic", case.name, dtype, subject.time_of(subject.calls))
    cell.floor = atomic_floor(case, dtype)
    _, cell.recorded = case.figures[dtype]
    cell.goal = least(cell.recorded["ASGarD"]) / MIN_GAIN
    cell.more["function"] = subject.time_of(lambda: [once])
    cell.more["owner"] = subject.time_of(partial(subject.calls, "owner"))
    yield cell


@cache
def gather_rate(block, blocks, dtype):
    x = random_array((blocks * block,), dtype)
    size = block * x.itemsize
    word = max(width for width in WORDS if size % width == 0)
    module = cupy.RawModule(
        code=SOURCE.read_text(),
        options=("-std=c++17",),
        name_expressions=[f"gather<{name}>" for name in WORDS.values()],
    )
    kernel = module.get_function(f"gather<{WORDS[word]}>")
    count = min(MAX_GATHERS, 64 * blocks)
    ids, out = random_ids(count, blocks, 30), cupy.zeros(1, np.uint32)
    arguments = x, ids, out, np.int64(count), np.int32(size // word)
    grid = 16 * cupy.cuda.Device().attributes["MultiProcessorCount"]
    call = partial(kernel, (grid,), (128,), arguments)
    return count * size / (1e-6 * timed([call]))


def list_cells(choice):
    case, dtype = choice.case, choice.dtype
    subject = ListSubject(case, dtype)

    def one_by_one():
        apply = subject.operator().apply

        def call():
            for source, target in zip(subject.x, subject.out, strict=True):
                apply(source, out=target)

        return [call]

    cell = Cell("list", case.name, dtype, subject.time_of(subject.calls))
    rate = gather_rate(case.input_block, case.blocks, dtype) if case.unknowns == HUGE else None
    cell.floor = list_floor(case, dtype, rate)
    if rate is not None:
        cell.more["random_gathers_terabytes_per_second"] = rate / 1e12
        cell.goal = OVER_MEASURED_FLOOR * cell.floor
    elif case.vectors == 1:
        cell.goal = OVER_FLOOR * cell.floor
    elif cell.microseconds:
        cell.peers["one by one"] = subject.time_of(one_by_one)
    cell.add_rates(tflops=case.flops)
    yield cell
