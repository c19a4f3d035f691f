"""Batch lists next to gathers and batched multiplies."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import cupy
import numpy as np

import batchkron as bk
from benchmarks.core.device_timing import Contender, measured, random_array
from benchmarks.gpu.cases.cases import BatchCase, Figures
from benchmarks.gpu.cases.floors import atomic_floor, batch_bytes, batch_floor
from benchmarks.gpu.data import batch_list, shuffled_list
from benchmarks.gpu.peers import cublas, gathers, torch_chain
from benchmarks.gpu.report.report import Cell, least

MIN_GAIN = 1.2  # over ASGarD as recorded, of the atomic form


def batch_cells(case: BatchCase, dtype: str) -> Iterator[Cell]:
    """One case in one dtype."""
    pools, ids, inputs, outputs = batch_list(case, dtype)
    counts = {"num_inputs": case.blocks, "num_outputs": case.blocks}
    x = random_array((case.blocks, case.block), dtype)
    y = cupy.empty_like(x)
    first = slice(case.CONTRIBUTIONS)
    check = bk.BatchedKron(pools, ids[first], inputs[first], outputs[first], num_inputs=case.blocks)
    expected = check.apply(x.get())[0]

    def error() -> float:
        return float(np.abs(y[0].get() - expected).max() / np.abs(expected).max())

    def ours() -> Contender:
        op = bk.BatchedKron(pools, ids, inputs, outputs, accumulation="owner", **counts)
        return Contender("batchkron", {"": [partial(op.to("cuda").apply, x, out=y)]})

    kind = "batch" if case.unknowns == BatchCase.unknowns else "small batch"
    cell = Cell(kind, case.name, dtype, measured(ours, dtype, y, error))
    cell.figures = case.figures[dtype]
    cell.floor = batch_floor(case, dtype)
    if cell.microseconds:
        cell.more["tflops"] = case.flops / cell.microseconds / 1e6
        cell.more["gathered_terabytes_per_second"] = (
            batch_bytes(case, dtype) / cell.microseconds / 1e6
        )
    on_device = [cupy.asarray(pool) for pool in pools]
    columns = [cupy.asarray(ids[:, mode].astype(np.int64)) for mode in range(case.modes)]
    sources, targets = cupy.asarray(inputs.astype(np.int64)), cupy.asarray(outputs.astype(np.int64))
    peers = {
        "cuBLAS": lambda: Contender(
            "cuBLAS",
            gathers.cublas_calls(case, on_device, columns, sources, x, y),
            cublas.library().on,
        ),
        "torch": lambda: Contender(
            "torch",
            gathers.torch_calls(case, on_device, columns, sources, targets, x, y),
            torch_chain.on,
        ),
    }
    needed, free = gathers.needed_bytes(case, x.itemsize), cupy.cuda.runtime.memGetInfo()[0]
    for name, make in peers.items():
        if name == "torch" and (reason := torch_chain.missing()):
            cell.peers[name] = {"reason": reason}
        elif needed > free:
            cell.peers[name] = {"reason": f"not measured: needs {needed >> 30} GiB"}
        else:
            cell.peers[name] = measured(make, dtype, y, error)
        free_memory()
    yield cell


def atomic_cells(case: BatchCase, dtype: str) -> Iterator[Cell]:
    """The list in random order: added atomically by an operator and by the function; owned sums."""
    pools, ids, inputs, outputs = shuffled_list(case, dtype)
    counts = {"num_inputs": case.blocks, "num_outputs": case.blocks}
    x = random_array((case.blocks, case.block), dtype)
    y = cupy.empty_like(x)
    chosen = np.flatnonzero(outputs == 0)
    lists = ids[chosen], inputs[chosen], outputs[chosen]
    expected = bk.BatchedKron(pools, *lists, num_inputs=case.blocks).apply(x.get())[0]

    def error() -> float:
        return float(np.abs(y[0].get() - expected).max() / np.abs(expected).max())

    def operator(accumulation: str) -> Contender:
        op = bk.BatchedKron(pools, ids, inputs, outputs, accumulation=accumulation, **counts)
        return Contender(accumulation, {"": [partial(op.to("cuda").apply, x, out=y)]})

    given = [list(map(cupy.asarray, pools)), *map(cupy.asarray, (ids, x, inputs, outputs))]

    def once() -> None:
        y.data.memset_async(0, y.nbytes)
        bk.batched_kron(*given, y)

    cell = Cell("atomic", case.name, dtype, measured(partial(operator, "atomic"), dtype, y, error))
    cell.floor = atomic_floor(case, dtype)
    recorded = case.figures[dtype].recorded if dtype in case.figures else {}
    goal = least(recorded["ASGarD"]) / MIN_GAIN if recorded else None
    cell.figures = Figures(goal, recorded=recorded)
    function = measured(lambda: Contender("batched_kron", {"": [once]}), dtype, y, error)
    owner = measured(partial(operator, "owner"), dtype, y, error)
    cell.more |= {"owner": owner, "function": function}
    yield cell


def free_memory() -> None:
    """Give all unused memory back to the device, of torch as well."""
    cupy.get_default_memory_pool().free_all_blocks()
    if not torch_chain.missing():
        torch_chain.torch.cuda.empty_cache()
