"""Explicit products next to CuPy's and torch's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial, reduce
from typing import Any

import cupy
import numpy as np

import batchkron as bk
from benchmarks.core.device_timing import CACHE_BYTES, Contender, measured, random_array
from benchmarks.gpu.cases.cases import EXPLICIT_GOAL, Figures
from benchmarks.gpu.cases.floors import explicit_bytes, explicit_floor, explicit_traffic
from benchmarks.gpu.peers import torch_chain
from benchmarks.gpu.report.report import Cell
from benchmarks.shapes import squares


def explicit_name(sizes: Sequence[int]) -> str:
    """The name of a product, such as "64² ⊗ 512²"."""
    return squares(*sizes).name


def explicit_cells(sizes: Sequence[int], dtype: str) -> Iterator[Cell]:
    """One product in one dtype; its goal is a rate of reading each matrix once, and writing."""
    matrices = [random_array((n, n), dtype, seed) for seed, n in enumerate(sizes)]
    written = explicit_bytes(sizes, dtype)
    side = int(np.prod(sizes))
    outs = [cupy.empty((side, side), dtype) for _ in range(max(1, min(4, CACHE_BYTES // written)))]
    results = {"": outs[-1]}
    host = [matrix.get() for matrix in matrices]
    row = side // 2
    places, rest = [], row
    for n in reversed(sizes):
        places.append(rest % n)
        rest //= n
    expected = reduce(np.kron, [m[k] for m, k in zip(host, reversed(places), strict=True)])

    def error() -> float:
        return float(np.abs(results[""][row].get() - expected).max() / np.abs(expected).max())

    def cupy_kron() -> None:
        results[""] = None  # CuPy allocates its result: the memory of the last one
        results[""] = reduce(cupy.kron, matrices)

    ours = Contender("batchkron", {"": [partial(bk.kron, *matrices, out=out) for out in outs]})
    cell = Cell(
        "explicit", explicit_name(sizes), dtype, measured(lambda: ours, dtype, outs[-1], error)
    )
    moved = explicit_traffic(sizes, dtype)
    cell.figures = Figures(1e6 * moved / EXPLICIT_GOAL)
    cell.floor = explicit_floor(sizes, dtype)
    if cell.microseconds:
        cell.more["terabytes_per_second"] = written / cell.microseconds / 1e6
        cell.more["terabytes_per_second_moved"] = moved / cell.microseconds / 1e6

    def by_torch() -> Contender:
        calls = [torch_kron(matrices, out) for out in outs]
        return Contender("torch", {"": calls}, torch_chain.on)

    absent = torch_chain.missing()
    cell.peers["torch"] = (
        {"reason": absent} if absent else measured(by_torch, dtype, outs[-1], error)
    )
    last = outs[-1]
    outs.clear()
    cell.peers["CuPy"] = measured(lambda: Contender("CuPy", {"": [cupy_kron]}), dtype, last, error)
    yield cell


def torch_kron(matrices: Sequence[Any], out: Any) -> Any:
    """torch.kron, which multiplies two matrices at a time."""
    torch = torch_chain.torch
    *left, last = [torch_chain.tensor(matrix) for matrix in matrices]
    target = torch_chain.tensor(out)
    return lambda: torch.kron(reduce(torch.kron, left), last, out=target)
