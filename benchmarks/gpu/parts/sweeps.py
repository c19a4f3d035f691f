"""Operators on sparse grids next to their floors and to the CPU."""

import statistics
from functools import partial
from unittest import mock

import numpy as np

import batchkron as bk
from batchkron.backends.cuda.runtime.launch import Launch
from benchmarks.core.timing import seconds_of
from benchmarks.gpu.cases.list_cases import GOAL, LARGE, sweep_floors
from benchmarks.gpu.data import SweepSubject
from benchmarks.gpu.report import Cell

CPU_SECONDS = 0.3  # of timing on the CPU, within these bounds of rounds
MIN_ROUNDS, MAX_ROUNDS = 3, 200


def launches_of(call):
    plain, count = Launch.__call__, []

    def counted(self, *arguments):
        count.append(1)
        plain(self, *arguments)

    with mock.patch.object(Launch, "__call__", counted):
        call()
    return len(count)


def sweep_cells(choice):
    case, dtype = choice.case, choice.dtype
    made = []
    seconds = seconds_of(lambda: made.append(case.operator(dtype)))
    op = made[0]
    subject = SweepSubject(case, dtype, op)
    host = subject.pairs[-1][0].get()
    subject.expected = np.empty_like(host)
    op.matvec(host, out=subject.expected)
    times = []
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
