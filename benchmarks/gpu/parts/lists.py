"""Batch lists of any factors next to their floors; several vectors next to one after another."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import cupy
import numpy as np

import batchkron as bk
from benchmarks.core.device_timing import Contender, measured, random_array, timed
from benchmarks.gpu.cases.cases import Figures
from benchmarks.gpu.cases.list_cases import (
    HUGE,
    OVER_FLOOR,
    OVER_MEASURED_FLOOR,
    ListCase,
    list_floor,
)
from benchmarks.gpu.report.report import Cell

Array = Any
MAX_GATHERS = 8_000_000  # blocks that `gather_rate` reads
WORDS = {16: "uint4", 8: "uint2", 4: "unsigned"}  # CUDA types by their bytes
SOURCE = Path(__file__).with_name("gather.cu")


def random_ids(count: int, below: int, seed: int) -> Array:
    """Random numbers from 0 to ``below`` - 1, made on the device (splitmix64)."""
    z = (cupy.arange(count, dtype=np.uint64) + np.uint64(seed << 40)) * np.uint64(
        0x9E3779B97F4A7C15
    )
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        z = (z ^ (z >> np.uint64(shift))) * np.uint64(factor)
    return ((z ^ (z >> np.uint64(31))) % np.uint64(below)).astype(np.int32)


def list_of(case: ListCase, dtype: str) -> tuple[list[Array], Any, Any, Any]:
    """Pools on the device; factor ids, inputs and outputs on the host, sorted by output."""
    pools = [
        random_array((case.POOL, p, q), dtype, seed) for seed, (p, q) in enumerate(case.factors)
    ]
    ids = np.empty((case.products, len(case.factors)), np.int32)
    for mode in range(len(case.factors)):
        ids[:, mode] = random_ids(case.products, case.POOL, mode + 1).get()
    inputs = random_ids(case.products, case.blocks, 20).get()
    outputs = np.repeat(np.arange(case.blocks, dtype=np.int32), case.CONTRIBUTIONS)
    return pools, ids, inputs, outputs


def operator(case: ListCase, dtype: str, content: Any = None) -> Any:
    """The operator of such a list, or of a given one, on the device."""
    counts = {"num_inputs": case.blocks, "num_outputs": case.blocks}
    content = content or list_of(case, dtype)
    return bk.BatchedKron(*content, accumulation="owner", **counts)


@cache
def gather_rate(block: int, blocks: int, dtype: str) -> float:
    """Measured bytes per second of reading random blocks of a vector of ``blocks`` blocks."""
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
    seconds: float = 1e-6 * timed([call]).microseconds
    return count * size / seconds


def list_cells(case: ListCase, dtype: str) -> Iterator[Cell]:
    """One case in one dtype."""
    x = random_array((case.vectors, case.blocks, case.input_block), dtype)
    y = cupy.empty((case.vectors, case.blocks, case.output_block), dtype)
    made: dict[str, Any] = {}

    def error() -> float:
        first = slice(case.CONTRIBUTIONS)
        pools, ids, inputs, outputs = made["list"]
        rows, position = np.unique(inputs[first], return_inverse=True)
        host = [pool.get() for pool in pools]
        check = bk.BatchedKron(host, ids[first], position, outputs[first], num_inputs=len(rows))
        last = case.vectors - 1
        expected = check.apply(x[last][cupy.asarray(rows)].get())[0]
        return float(np.abs(y[last, 0].get() - expected).max() / np.abs(expected).max())

    def ours() -> Contender:
        made["list"] = list_of(case, dtype)
        made["op"] = operator(case, dtype, made["list"])
        return Contender("batchkron", {"": [partial(made["op"].apply, x, out=y)]})

    def one_by_one() -> Contender:
        def call() -> None:
            for source, target in zip(x, y, strict=True):
                made["op"].apply(source, out=target)

        return Contender("one by one", {"": [call]})

    cell = Cell("list", case.name, dtype, measured(ours, dtype, y, error))
    rate = gather_rate(case.input_block, case.blocks, dtype) if case.unknowns == HUGE else None
    cell.floor = list_floor(case, dtype, rate)
    if rate is not None:
        cell.more["random_gathers_terabytes_per_second"] = rate / 1e12
        cell.figures = Figures(OVER_MEASURED_FLOOR * cell.floor)
    elif case.vectors == 1:
        cell.figures = Figures(OVER_FLOOR * cell.floor)
    elif "op" in made:
        cell.peers["one by one"] = measured(one_by_one, dtype, y, error)
    if cell.microseconds:
        cell.more["tflops"] = case.flops / cell.microseconds / 1e6
    yield cell
