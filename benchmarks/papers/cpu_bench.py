"""The contenders on a CPU: ours, and what NumPy and SciPy offer for the paper's baselines."""

from collections.abc import Callable, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

import batchkron as bk
from benchmarks import kronecker_sparse as peers
from benchmarks.core.records import machine
from benchmarks.core.timing import OURS, Call
from benchmarks.papers.measuring import Bench, Problem
from benchmarks.papers.results import ALONE


class CpuBench(Bench):
    """Runs contenders on the threads of this process."""

    def __init__(self) -> None:
        described = machine()
        self.machine = {**described, "device": described["processor"]}

    def prepare(self, given: Problem) -> Mapping[str, Callable[[], Call]]:
        pattern, batch, dtype, layout = given.key
        values, (a, _, c, d) = given.values, pattern
        x = given.few[given.repeated]
        if layout == "batch-last":
            x = np.ascontiguousarray(x.T)
        how = {"pattern": pattern, "batch": batch, "layout": layout}
        data: Any = SimpleNamespace(**how, values=values, inputs=[x])
        op = bk.KroneckerSparse(values, layout=layout)  # type: ignore[arg-type]

        def bsr() -> Call:
            _, matrix = peers.bsr_matrix(values)
            if matrix is None:
                raise MemoryError("blocks with too many zeros")
            return peers.by_matrix(data, matrix)

        def alone() -> Call:
            blocks = np.ascontiguousarray(values.transpose(0, 3, 1, 2))
            if layout == "batch-last":
                given = np.ascontiguousarray(x.reshape(a, c, d, batch).transpose(0, 2, 1, 3))
                return lambda: blocks @ given
            given = np.ascontiguousarray(x.reshape(batch, a, c, d).transpose(1, 3, 0, 2))
            turned = np.ascontiguousarray(blocks.swapaxes(2, 3))
            return lambda: given @ turned

        return {
            OURS: lambda: partial(op.apply, x, np.full(given.shape, np.nan, dtype)),
            "einsum": lambda: peers.einsum(data),
            "bmm": lambda: peers.permuted(data),
            "bsr": bsr,
            "dense": lambda: peers.by_matrix(data, op.to_dense()),
            "sparse": lambda: peers.by_matrix(data, peers.csr_matrix(values)),
            ALONE: alone,
        }

    def vectors(self, result: Any, given: Problem) -> Any:
        flat = result.reshape(given.shape)
        found = flat[given.sampled] if given.key[3] == "batch-first" else flat[:, given.sampled].T
        return np.asarray(found, np.float64)
