"""Batch lists of any factors next to their floors; several vectors next to one after another."""

from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path

import cupy
import numpy as np

from benchmarks.core.device_timing import Call, random_array, timed
from benchmarks.gpu.cases.cases import Figures
from benchmarks.gpu.cases.list_cases import HUGE, OVER_FLOOR, OVER_MEASURED_FLOOR, list_floor
from benchmarks.gpu.data import ListSubject, random_ids
from benchmarks.gpu.options import Choice
from benchmarks.gpu.report import Cell

MAX_GATHERS = 8_000_000  # blocks that `gather_rate` reads
WORDS = {16: "uint4", 8: "uint2", 4: "unsigned"}  # CUDA types by their bytes
SOURCE = Path(__file__).with_name("gather.cu")


@cache
def gather_rate(block: int, blocks: int, dtype: str) -> float:
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
    return count * size / (1e-6 * timed([call]).microseconds)


def list_cells(choice: Choice) -> Iterator[Cell]:
    case, dtype = choice.case, choice.dtype
    subject = ListSubject(case, dtype)

    def one_by_one() -> list[Call]:
        apply = subject.operator().apply

        def call() -> None:
            for source, target in zip(subject.x, subject.out, strict=True):
                apply(source, out=target)

        return [call]

    cell = Cell("list", case.name, dtype, subject.time_of(subject.calls))
    rate = gather_rate(case.input_block, case.blocks, dtype) if case.unknowns == HUGE else None
    cell.floor = list_floor(case, dtype, rate)
    if rate is not None:
        cell.more["random_gathers_terabytes_per_second"] = rate / 1e12
        cell.figures = Figures(OVER_MEASURED_FLOOR * cell.floor)
    elif case.vectors == 1:
        cell.figures = Figures(OVER_FLOOR * cell.floor)
    elif cell.microseconds:
        cell.peers["one by one"] = subject.time_of(one_by_one)
    if cell.microseconds:
        cell.more["tflops"] = case.flops / cell.microseconds / 1e6
    yield cell
