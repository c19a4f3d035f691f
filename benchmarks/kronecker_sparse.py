"""Kronecker-sparse matrices on a CPU: ``python -m benchmarks.kronecker_sparse [--threads 1,2]``.

Products of a batch of vectors with one matrix of the pattern (a, b, c, d), by the operator of
batchkron, and by what NumPy and SciPy offer: einsum, matmul on permuted data (the "bmm" of Gonon,
Zheng, Carrivain and Le, 2024, with its copies), sparse matrices in CSR and BSR, and a dense matrix.
Patterns are the twelve of the quick set of the paper's generator, and some of each ratio
(b + c) / (b c), drawn by a seed.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from threadpoolctl import threadpool_limits

import batchkron as bk
from benchmarks.cpu.contenders import OURS, Contender
from benchmarks.cpu.data import Array, Data, random_array
from benchmarks.cpu.timing import Effort, Failure, Times, measure
from benchmarks.machine import machine

Pattern = tuple[int, int, int, int]
QUICK_SET: tuple[Pattern, ...] = (
    (1, 192, 48, 2), (2, 48, 192, 1), (1, 768, 192, 2), (6, 64, 64, 1), (1, 48, 48, 64),
    (1, 64, 64, 16), (4, 128, 128, 4), (16, 64, 64, 16), (1, 256, 1024, 4), (1, 96, 96, 48),
    (3, 48, 192, 4), (64, 48, 48, 4),
)  # fmt: skip
A_SIZES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
SIZES = (48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
MAX_ELEMENTS = 1 << 25  # of x, y or the values: 256 MiB in float64
MAX_DENSE = 1 << 27  # elements of a dense matrix that is compared with
LAYOUTS = ("batch-first", "batch-last")


def generated() -> Iterator[Pattern]:
    """The patterns of the paper's figure 8, without those that need too much memory here."""
    for a in A_SIZES:
        for d in A_SIZES if a == 1 else (4, 16, 64):
            for b in SIZES:
                for c in SIZES:
                    if (b == c or b == 4 * c or c == 4 * b) and a * b * c * d <= MAX_ELEMENTS:
                        yield a, b, c, d


def chosen_patterns(count: int, seed: int, batch: int) -> list[Pattern]:
    """The quick set, and others up to ``count``, in turn of each ratio (b + c) / (b c)."""
    rng = np.random.default_rng(seed)
    by_ratio: dict[float, list[Pattern]] = {}
    for pattern in generated():
        a, b, c, d = pattern
        if batch * a * max(b, c) * d <= MAX_ELEMENTS and pattern not in QUICK_SET:
            by_ratio.setdefault((b + c) / (b * c), []).append(pattern)
    found = list(QUICK_SET)
    lists = [list(rng.permutation(np.array(own))) for _, own in sorted(by_ratio.items())]
    while len(found) < count and any(lists):
        for own in lists:
            if own and len(found) < count:
                found.append(tuple(int(n) for n in own.pop()))  # type: ignore[arg-type]
    return found[:count]


class SparseData(Data):
    """A matrix of a pattern, and a batch of vectors in a layout."""

    def __init__(
        self, pattern: Pattern, batch: int, dtype: str, layout: str, rng: np.random.Generator
    ) -> None:
        super().__init__(np.dtype(dtype), 1, rng)
        a, b, c, d = self.pattern = pattern
        self.batch, self.layout = batch, layout
        self.values = (random_array(rng, pattern, self.dtype) / math.sqrt(c)).astype(dtype)
        sizes = [a * c * d, a * b * d]
        shapes = [(batch, n) if layout == "batch-first" else (n, batch) for n in sizes]
        self.inputs = [random_array(rng, shapes[0], self.dtype)]
        self.outputs = [np.empty(shapes[1], self.dtype)]

    @cached_property
    def reference(self) -> tuple[Any, Array, Array]:
        """Some vectors of the result in double precision, and bounds of the errors."""
        a, _, c, d = self.pattern
        few = np.linspace(0, self.batch - 1, min(self.batch, 8)).astype(int)
        first = self.layout == "batch-first"
        x = self.inputs[0] if first else self.inputs[0].T
        blocks = x[few].astype(np.float64).reshape(len(few), a, c, d)
        values = self.values.astype(np.float64)
        sums = [
            np.einsum("nacd,abcd->nabd", *pair, optimize=True).reshape(len(few), -1)
            for pair in ((blocks, values), (np.abs(blocks), np.abs(values)))
        ]
        bound = 2 * np.finfo(self.dtype).eps * (c + 4) * sums[1]
        if first:
            return few, sums[0], bound
        return (slice(None), few), sums[0].T, bound.T


def einsum(data: SparseData) -> Callable[[], Array]:
    """The one line that defines the product."""
    a, _, c, d = data.pattern
    x, first = data.inputs[0], data.layout == "batch-first"
    blocks = x.reshape(data.batch, a, c, d) if first else x.reshape(a, c, d, data.batch)
    formula = "nacd,abcd->nabd" if first else "acdn,abcd->abdn"
    return lambda: np.einsum(formula, blocks, data.values, optimize=True)


def permuted(data: SparseData) -> Callable[[], Array]:
    """Copies of x and y around a batched multiply."""
    a, _, c, d = data.pattern
    if data.layout == "batch-first":
        matrices = np.ascontiguousarray(data.values.transpose(0, 3, 2, 1))  # (a, d, c, b)

        def call() -> Array:
            blocks = data.inputs[0].reshape(data.batch, a, c, d).transpose(1, 3, 0, 2)
            return np.ascontiguousarray((blocks @ matrices).transpose(2, 0, 3, 1))

        return call
    matrices = np.ascontiguousarray(data.values.transpose(0, 3, 1, 2))  # (a, d, b, c)

    def call_last() -> Array:
        blocks = data.inputs[0].reshape(a, c, d, data.batch).transpose(0, 2, 1, 3)
        return np.ascontiguousarray((matrices @ blocks).transpose(0, 2, 1, 3))

    return call_last


def by_matrix(data: SparseData, matrix: Any) -> Callable[[], Array]:
    """A product with a sparse or dense matrix of the whole size."""
    if data.layout == "batch-last":
        return lambda: matrix @ data.inputs[0]
    if isinstance(matrix, np.ndarray):
        return lambda: data.inputs[0] @ matrix.T
    return lambda: (matrix @ data.inputs[0].T).T


def sparse_matrix(values: Array) -> Any:
    """The matrix in CSR."""
    a, b, c, d = values.shape
    i, k, c_, j = np.indices(values.shape, sparse=True)
    rows = np.broadcast_to((i * b + k) * d + j, values.shape).ravel()
    columns = np.broadcast_to((i * c + c_) * d + j, values.shape).ravel()
    return scipy.sparse.csr_array((values.ravel(), (rows, columns)), (a * b * d, a * c * d))


def contenders(data: SparseData) -> list[Contender]:
    """All ways to compute the product."""
    op = bk.KroneckerSparse(data.values, layout=data.layout)  # type: ignore[arg-type]
    calls: list[tuple[str, str, Callable[[], Any], bool]] = [
        (OURS, "operator", partial(op.apply, data.inputs[0], data.outputs[0]), False),
        ("einsum", "", einsum(data), True),
        ("permuted matmul", "", permuted(data), True),
    ]
    csr = sparse_matrix(data.values)
    calls.append(("SciPy CSR", "", by_matrix(data, csr), True))
    d = data.pattern[3]
    if d > 1:
        bsr = csr.tobsr((d, d))
        calls.append(("SciPy BSR", "d × d", by_matrix(data, bsr), True))
    else:
        blocks = csr.tobsr(data.pattern[1:3])
        calls.append(("SciPy BSR", "b × c", by_matrix(data, blocks), True))
    if op.shape[0] * op.shape[1] <= MAX_DENSE:
        calls.append(("dense", "", by_matrix(data, op.to_dense()), True))
    return [Contender(name, variant, [call], returns) for name, variant, call, returns in calls]


def set_threads(count: int) -> None:
    """Of batchkron and of NumPy's BLAS."""
    bk.set_num_threads(count)
    threadpool_limits(count)


def measured(data: SparseData, threads: list[int], effort: Effort) -> Iterator[dict[str, Any]]:
    """A record for each number of threads."""
    results = measure(contenders(data), data, threads, set_threads, effort)
    for count in threads:
        own = [one for one in results if one.threads == count]
        failed = {one.name: one.reason for one in own if isinstance(one, Failure)}
        seconds: dict[str, float] = {}
        for one in own:
            if isinstance(one, Times):
                seconds[one.name] = min(one.median, seconds.get(one.name, math.inf))
        peers = {name: value for name, value in seconds.items() if name != OURS}
        best = min(peers, key=peers.__getitem__)
        a, b, c, d = data.pattern
        yield {
            "pattern": data.pattern,
            "batch": data.batch,
            "dtype": data.dtype.name,
            "layout": data.layout,
            "threads": count,
            "seconds": seconds,
            "failed": failed,
            "best_peer": best,
            "gain": peers[best] / seconds[OURS],
            "gflops": 2e-9 * data.batch * a * b * c * d / seconds[OURS],
        }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--threads", default="1", help="numbers of threads, such as 1,2")
    parser.add_argument("--patterns", type=int, default=40)
    parser.add_argument("--batch", default="256,4096", help="numbers of vectors")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--turn", type=float, default=0.03, help="seconds of a turn")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    threads = [int(count) for count in options.threads.split(",")]
    rng, effort = np.random.default_rng(options.seed), Effort(3, options.turn)
    rows: list[dict[str, Any]] = []
    print("pattern, batch, dtype, layout, threads: ours, gain over the best peer")
    for batch in map(int, options.batch.split(",")):
        for pattern in chosen_patterns(options.patterns, options.seed, batch):
            for dtype in ("float32", "float64"):
                for layout in LAYOUTS:
                    data = SparseData(pattern, batch, dtype, layout, rng)
                    for row in measured(data, threads, effort):
                        rows.append(row)
                        print(
                            f"{pattern}, {batch}, {dtype}, {layout}, {row['threads']}: "
                            f"{row['seconds'][OURS] * 1e6:.0f} µs, {row['gflops']:.1f} GFlop/s, "
                            f"{row['gain']:.2f} × {row['best_peer']}",
                            flush=True,
                        )
    gains = np.array([row["gain"] for row in rows])
    for goal in (1.0, 1.5):
        print(f"at least {goal} × the best peer: {np.mean(gains >= goal):.1%} of {len(gains)}")
    print(f"median gain {np.median(gains):.2f}, least {gains.min():.2f}")
    if options.json:
        report = {"machine": machine("cpu"), "cells": rows}
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    return int(any(OURS in row["failed"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
