"""Explicit products next to CuPy's and torch's."""

from collections.abc import Iterator
from functools import reduce
from typing import Any

import cupy

from benchmarks.core.device_timing import Contender
from benchmarks.gpu.cases.cases import (
    EXPLICIT_GOAL,
    explicit_bytes,
    explicit_floor,
    explicit_traffic,
)
from benchmarks.gpu.data import ExplicitSubject
from benchmarks.gpu.options import Choice
from benchmarks.gpu.peers import torch_chain
from benchmarks.gpu.report import Cell


def explicit_cells(choice: Choice) -> Iterator[Cell]:
    """One product in one dtype; its goal is a rate of reading each matrix once, and writing."""
    sizes, dtype = choice.case, choice.dtype
    subject = ExplicitSubject(sizes, dtype)
    written, moved = explicit_bytes(sizes, dtype), explicit_traffic(sizes, dtype)
    cell = Cell("explicit", choice.name, dtype, subject.time_of(subject.calls))
    cell.goal, cell.floor = 1e6 * moved / EXPLICIT_GOAL, explicit_floor(sizes, dtype)
    cell.add_rates(terabytes_per_second=written, terabytes_per_second_moved=moved)

    def by_torch() -> Contender:
        torch = torch_chain.torch
        *left, last = map(torch_chain.tensor, subject.matrices)

        def call(target: Any) -> Any:  # two matrices at a time
            return lambda: torch.kron(reduce(torch.kron, left), last, out=target)

        calls = [call(torch_chain.tensor(out)) for out in subject.outs]
        return {"": calls}, torch_chain.on

    def cupy_kron() -> None:
        subject.out = None  # CuPy allocates its result: the memory of the last one
        subject.out = reduce(cupy.kron, subject.matrices)

    cell.peers |= subject.times_of({"torch": torch_chain.missing() or by_torch})
    subject.outs.clear()
    cell.peers["CuPy"] = subject.time_of(lambda: [cupy_kron])
    yield cell
