"""Explicit products next to CuPy's and torch's."""

from functools import reduce

import cupy

from benchmarks.gpu.cases import cases
from benchmarks.gpu.data import ExplicitSubject
from benchmarks.gpu.peers import torch_chain
from benchmarks.gpu.report import Cell


def explicit_cells(choice):
    """One product in one dtype; its goal is a rate of reading each matrix once, and writing."""
    sizes, dtype = choice.case, choice.dtype
    subject = ExplicitSubject(sizes, dtype)
    written, moved = cases.explicit_bytes(sizes, dtype), cases.explicit_traffic(sizes, dtype)
    cell = Cell("explicit", choice.name, dtype, subject.time_of(subject.calls))
    cell.goal, cell.floor = 1e6 * moved / cases.EXPLICIT_GOAL, cases.explicit_floor(sizes, dtype)
    cell.add_rates(terabytes_per_second=written, terabytes_per_second_moved=moved)

    def by_torch():
        torch = torch_chain.torch
        *left, last = map(torch_chain.tensor, subject.matrices)

        def call(target):  # two matrices at a time
            return lambda: torch.kron(reduce(torch.kron, left), last, out=target)

        calls = [call(torch_chain.tensor(out)) for out in subject.outs]
        return {"": calls}, torch_chain.on

    def cupy_kron():
        subject.out = None  # CuPy allocates its result: the memory of the last one
        subject.out = reduce(cupy.kron, subject.matrices)

    cell.peers |= subject.times_of({"torch": torch_chain.missing() or by_torch})
    subject.outs.clear()
    cell.peers["CuPy"] = subject.time_of(lambda: [cupy_kron])
    yield cell
