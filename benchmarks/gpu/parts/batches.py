"""Batch lists next to gathers and batched multiplies."""

from collections.abc import Iterator
from functools import partial

import cupy
import numpy as np

import batchkron as bk
from benchmarks.core.device_timing import Contender
from benchmarks.gpu.cases.cases import BatchCase, Figures
from benchmarks.gpu.cases.floors import atomic_floor, batch_bytes, batch_floor
from benchmarks.gpu.data import ListSubject, free_memory
from benchmarks.gpu.options import Choice
from benchmarks.gpu.peers import cublas, gathers, torch_chain
from benchmarks.gpu.report import Cell, least

MIN_GAIN = 1.2  # over ASGarD as recorded, of the atomic form


def batch_cells(choice: Choice) -> Iterator[Cell]:
    case, dtype = choice.case, choice.dtype
    subject = ListSubject(case, dtype)
    kind = "batch" if case.unknowns == BatchCase.unknowns else "small batch"
    cell = Cell(kind, case.name, dtype, subject.time_of(subject.calls))
    cell.figures = case.figures[dtype]
    cell.floor = batch_floor(case, dtype)
    if cell.microseconds:
        cell.more["tflops"] = case.flops / cell.microseconds / 1e6
        gathered = batch_bytes(case, dtype) / cell.microseconds / 1e6
        cell.more["gathered_terabytes_per_second"] = gathered
    pools, ids, inputs, outputs = subject.content
    on_device = [cupy.asarray(pool) for pool in pools]
    columns = [cupy.asarray(one.astype(np.int64)) for one in (*ids.T, inputs, outputs)]
    *columns, sources, targets = columns
    lists, vectors = (case, on_device, columns, sources), (subject.x, subject.out)

    def by_cublas() -> Contender:
        calls = gathers.cublas_calls(*lists, *vectors)
        return Contender("cuBLAS", calls, cublas.library().on)

    def by_torch() -> Contender:
        return Contender("torch", gathers.torch_calls(*lists, targets, *vectors), torch_chain.on)

    needed = gathers.needed_bytes(case, subject.x.itemsize)
    free = cupy.cuda.runtime.memGetInfo()[0]
    large = f"not measured: needs {needed >> 30} GiB" if needed > free else ""
    for name, make in (("cuBLAS", by_cublas), ("torch", torch_chain.missing() or by_torch)):
        cell.peers |= subject.times_of({name: make if isinstance(make, str) else large or make})
        free_memory()
    yield cell


def atomic_cells(choice: Choice) -> Iterator[Cell]:
    """The list in random order: added atomically by an operator and by the function; owned sums."""
    case, dtype = choice.case, choice.dtype
    subject = ListSubject(case, dtype, "atomic")
    x, y = subject.x, subject.out
    pools, ids, inputs, outputs = subject.content
    given = [list(map(cupy.asarray, pools)), *map(cupy.asarray, (ids, x, inputs, outputs))]

    def once() -> None:
        y.data.memset_async(0, y.nbytes)
        bk.batched_kron(*given, y)

    cell = Cell("atomic", case.name, dtype, subject.time_of(subject.calls))
    cell.floor = atomic_floor(case, dtype)
    recorded = case.figures[dtype].recorded if dtype in case.figures else {}
    goal = least(recorded["ASGarD"]) / MIN_GAIN if recorded else None
    cell.figures = Figures(goal, recorded=recorded)
    cell.more["function"] = subject.time_of(lambda: [once])
    cell.more["owner"] = subject.time_of(partial(subject.calls_of, "owner"))
    yield cell
