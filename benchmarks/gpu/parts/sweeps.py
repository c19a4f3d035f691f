"""Operators on sparse grids next to their floors and to the CPU."""

import statistics
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

import batchkron as bk
from batchkron.backends.cuda.runtime.launch import Launch
from benchmarks.core.device_timing import Call
from benchmarks.core.timing import seconds_of
from benchmarks.gpu.cases.list_cases import GOAL, LARGE, sweep_floors
from benchmarks.gpu.data import SweepSubject
from benchmarks.gpu.options import Choice
from benchmarks.gpu.report import Cell

CPU_SECONDS = 0.3  # of timing on the CPU, within these bounds of rounds
MIN_ROUNDS, MAX_ROUNDS = 3, 200


def launches_of(call: Call) -> int:
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


def sweep_cells(choice: Choice) -> Iterator[Cell]:
    case, dtype = choice.case, choice.dtype
    made: list[Any] = []
    seconds = seconds_of(lambda: made.append(case.operator(dtype)))
    op = made[0]
    subject = SweepSubject(case, dtype, op)
    host = subject.pairs[-1][0].get()
    subject.expected = np.empty_like(host)
    op.matvec(host, out=subject.expected)
    times: list[float] = []
    while len(times) < MIN_ROUNDS or (sum(times) < CPU_SECONDS and len(times) < MAX_ROUNDS):
        times.append(seconds_of(partial(op.matvec, host, out=subject.expected)))
    cpu = {"microseconds": 1e6 * statistics.median(times), "captured": True}
    floors, size = sweep_floors(op, dtype), op.shape[0]
    calls = subject.calls(op)
    cell = Cell("sweeps", case.name, dtype, subject.time_of(lambda: calls))
    cell.peers[f"CPU, {bk.get_num_threads()} threads"] = cpu
    cell.floor = max(floors["memory"], floors["arithmetic"])
    if size >= LARGE:
        cell.goal = cell.floor / GOAL
    launches = launches_of(calls[-1])
    cell.more |= {"floors": floors, "launches": launches, "unknowns": size}
    cell.more |= {"seconds_to_build": seconds, "pairs_of_cells": op._program.num_edges}
    cell.note = f"{size} unknowns, {launches} launches, gathers' floor {floors['gathers']:.1f}"
    yield cell
