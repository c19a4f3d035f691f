"""What tuning gains over the rule (the choice by estimated times), and how long it takes."""

import os
from tempfile import TemporaryDirectory
from unittest import mock

import cupy

from batchkron.backends import Tuning, tuned_plans
from benchmarks.gpu.cases.cases import ListCase
from benchmarks.gpu.compiling import compile_batch, compile_kron
from benchmarks.gpu.report import Cell


def tune_cells(choice, seconds):
    """One case in one dtype, with the rule as peer; no cell where there is nothing to choose."""
    case, dtype = choice.case, choice.dtype
    tuning, is_list = Tuning(seconds=seconds), isinstance(case, ListCase)
    ours = {}
    try:
        # the cache is thrown away with what tuning finds, so that other parts go by the rule
        with (
            TemporaryDirectory() as folder,
            mock.patch.dict(os.environ, BATCHKRON_CACHE_DIR=folder),
            tuned_plans(tuning),
        ):
            compile_batch(case, dtype) if is_list else compile_kron(case.shape, dtype)
    except Exception as error:
        cupy.get_default_memory_pool().free_all_blocks()
        ours = {"reason": f"not measured: {type(error).__name__}: {error}"[:200]}
    cell = Cell("tune", case.name, dtype, ours)
    for outcome in tuning.outcomes:
        cell.ours = {"microseconds": outcome.microseconds, "captured": True}
        cell.peers["rule"] = {"microseconds": outcome.rule_microseconds, "captured": True}
        cell.note = "" if outcome.is_complete else "bounds reached"
        names = "gain", "tried", "pruned", "failed", "seconds", "choice"
        cell.more = {name: getattr(outcome, name) for name in names}
        cell.more |= {"complete": outcome.is_complete, "failures": list(outcome.reasons)}
    if cell.ours:
        yield cell
