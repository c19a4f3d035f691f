"""The contenders on a CPU: ours, and what NumPy and SciPy offer for the paper's baselines."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

import batchkron as bk
from benchmarks import kronecker_sparse
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
        data = kronecker_sparse.SparseData.of(pattern, layout, values, x)

        def ours() -> Call:
            op = bk.KroneckerSparse(values, layout=layout)  # type: ignore[arg-type]
            return partial(op.apply, x, np.full(given.shape, np.nan, dtype))

        def dense() -> Call:
            op = bk.KroneckerSparse(values, layout=layout)  # type: ignore[arg-type]
            return kronecker_sparse.by_matrix(data, op.to_dense())

        def bsr() -> Call:
            _, matrix = kronecker_sparse.bsr_matrix(values)
            if matrix is None:
                raise MemoryError("blocks with too many zeros")
            return kronecker_sparse.by_matrix(data, matrix)

        def alone() -> Call:
            blocks = np.ascontiguousarray(values.transpose(0, 3, 1, 2))
            if layout == "batch-last":
                given = np.ascontiguousarray(x.reshape(a, c, d, batch).transpose(0, 2, 1, 3))
                return lambda: blocks @ given
            given = np.ascontiguousarray(x.reshape(batch, a, c, d).transpose(1, 3, 0, 2))
            turned = np.ascontiguousarray(blocks.swapaxes(2, 3))
            return lambda: given @ turned

        return {
            OURS: ours,
            "einsum": lambda: kronecker_sparse.einsum(data),
            "bmm": lambda: kronecker_sparse.permuted(data),
            "bsr": bsr,
            "dense": dense,
            "sparse": lambda: kronecker_sparse.by_matrix(data, kronecker_sparse.csr_matrix(values)),
            ALONE: alone,
        }

    def vectors(self, result: Any, given: Problem) -> Any:
        flat = result.reshape(given.shape)
        found = flat[given.sampled] if given.key[3] == "batch-first" else flat[:, given.sampled].T
        return np.asarray(found, np.float64)
