"""Operators on sparse grids next to their floors and to the CPU."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import cupy
import numpy as np

import batchkron as bk
from batchkron.backends.cuda.runtime.launch import Launch
from benchmarks.core.device_timing import CACHE_BYTES, Call, Contender, measured, random_array
from benchmarks.gpu.cases.cases import Figures
from benchmarks.gpu.cases.sweep_cases import GOAL, LARGE, SweepCase, sweep_floors
from benchmarks.gpu.report.report import Cell

Array = Any
MAX_BUFFER_SETS = 8
CPU_SECONDS = 0.3  # of timing on the CPU, within these bounds of rounds
MIN_ROUNDS, MAX_ROUNDS = 3, 200


def launches_of(call: Call) -> int:
    """How many kernels a call launches."""
    plain, count = Launch.__call__, []

    def counted(self: Launch, *arguments: Any) -> None:
        count.append(1)
        plain(self, *arguments)

    Launch.__call__ = counted  # type: ignore[method-assign]
    try:
        call()
    finally:
        Launch.__call__ = plain  # type: ignore[method-assign]
    return len(count)


def cpu_microseconds(op: bk.SparseGridOperator, x: Array, out: Array) -> float:
    """The median time of an apply on the CPU, all threads."""
    op.matvec(x, out=out)
    times: list[float] = []
    while len(times) < MIN_ROUNDS or (sum(times) < CPU_SECONDS and len(times) < MAX_ROUNDS):
        begin = time.perf_counter()
        op.matvec(x, out=out)
        times.append(time.perf_counter() - begin)
    return 1e6 * statistics.median(times)


def sweep_cells(case: SweepCase, dtype: str) -> Iterator[Cell]:
    """One case in one dtype."""
    begin = time.perf_counter()
    op = case.operator(dtype)
    seconds = time.perf_counter() - begin
    size, itemsize = op.shape[0], np.dtype(dtype).itemsize
    sets = max(1, min(MAX_BUFFER_SETS, CACHE_BYTES // (2 * size * itemsize)))
    inputs = [random_array((size,), dtype, seed) for seed in range(sets)]
    outputs = [cupy.empty(size, dtype) for _ in range(sets)]
    host = inputs[-1].get()
    expected = np.empty_like(host)
    cpu = {"microseconds": cpu_microseconds(op, host, expected), "captured": True}
    device = op.to("cuda")

    def error() -> float:
        return float(np.abs(outputs[-1].get() - expected).max() / np.abs(expected).max())

    def ours() -> Contender:
        pairs = zip(inputs, outputs, strict=True)
        return Contender("batchkron", {"": [partial(device.matvec, x, out=y) for x, y in pairs]})

    floors = sweep_floors(op, dtype)
    cell = Cell("sweeps", case.name, dtype, measured(ours, dtype, outputs[-1], error))
    cell.peers[f"CPU, {bk.get_num_threads()} threads"] = cpu
    cell.floor = max(floors["memory"], floors["arithmetic"])
    if size >= LARGE:
        cell.figures = Figures(goal=cell.floor / GOAL)
    launches = launches_of(partial(device.matvec, inputs[-1], out=outputs[-1]))
    cell.more |= {"floors": floors, "launches": launches, "unknowns": size}
    cell.more |= {"seconds_to_build": seconds, "pairs_of_cells": op._program.num_edges}
    cell.note = f"{size} unknowns, {launches} launches, gathers' floor {floors['gathers']:.1f}"
    yield cell
