"""Inputs of the cases: matrices, lists, vectors. Peers are not imported here."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

import batchkron as bk
from benchmarks.core.device_timing import CACHE_BYTES, random_array
from benchmarks.gpu.cases.cases import BatchCase
from benchmarks.gpu.cases.floors import kron_bytes
from benchmarks.shapes import KronMatmul

MAX_BUFFER_SETS = 8  # pairs of input and output that calls rotate through
ARRAYS_AT_ONCE = 6  # input, output, the peers' two buffers, ours


def factors_of(shape: KronMatmul, dtype: str) -> list[Any]:
    """Matrices A_k (Q_k, P_k): y = x (A_1^T ⊗ …), rows of x are mapped by A_1 ⊗ …"""
    rng = np.random.default_rng(1)
    return [(rng.standard_normal((q, p)) / p**0.5).astype(dtype) for p, q in shape.factors]


def that_fits(shape: KronMatmul, dtype: str) -> KronMatmul | None:
    """The shape with fewer rows where the device's memory does not hold it."""
    free = cupy.cuda.runtime.memGetInfo()[0]
    return shape.reduced(int(0.9 * free) // np.dtype(dtype).itemsize // ARRAYS_AT_ONCE)


def vectors_of(shape: KronMatmul, dtype: str) -> list[tuple[Any, Any]]:
    """Inputs and outputs, so many that no cache holds them, unless one pair is tiny."""
    moved = kron_bytes(shape, dtype)
    sets = max(1, min(MAX_BUFFER_SETS, CACHE_BYTES // moved)) if moved > 1 << 20 else 1
    inputs, outputs = shape.columns
    return [
        (random_array((shape.rows, inputs), dtype, seed), cupy.empty((shape.rows, outputs), dtype))
        for seed in range(sets)
    ]


def buffers_of(shape: KronMatmul, dtype: str) -> list[Any]:
    """Two buffers for what chains compute on the way."""
    return [cupy.empty(shape.largest, dtype) for _ in range(min(2, len(shape.factors) - 1))]


def batch_list(case: BatchCase, dtype: str) -> tuple[list[Any], Any, Any, Any]:
    """Pools, factor ids, inputs and outputs, sorted by output."""
    rng = np.random.default_rng(2)
    pools = rng.standard_normal((case.modes, case.POOL, case.size, case.size)).astype(dtype)
    ids = rng.integers(0, case.POOL, (case.products, case.modes), dtype=np.int32)
    inputs = rng.integers(0, case.blocks, case.products, dtype=np.int32)
    outputs = np.repeat(np.arange(case.blocks, dtype=np.int32), case.CONTRIBUTIONS)
    return list(pools), ids, inputs, outputs


def shuffled_list(case: BatchCase, dtype: str) -> tuple[list[Any], Any, Any, Any]:
    """The same list in random order."""
    pools, *lists = batch_list(case, dtype)
    order = np.random.default_rng(3).permutation(case.products)
    ids, inputs, outputs = (one[order] for one in lists)
    return pools, ids, inputs, outputs


def operator(case: BatchCase, dtype: str, accumulation: str = "owner") -> Any:
    """The operator of such a list, on the host; in random order where its sums are not owned."""
    made = batch_list if accumulation == "owner" else shuffled_list
    return bk.BatchedKron(
        *made(case, dtype),
        num_inputs=case.blocks,
        num_outputs=case.blocks,
        accumulation=accumulation,
    )
