"""SciPy's block-sparse matrices, for blocks so small that products can be stored."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import numpy as np
import scipy
import scipy.sparse

from benchmarks.core.timing import Contender
from benchmarks.cpu.contenders import Peer
from benchmarks.cpu.data import BatchData
from benchmarks.shapes import Batch

MAX_BLOCK_SIZE = 16  # elements of a vector's block, the side of a stored product


class SciPyBlocks(Peer):
    """Every product written out as a block of a BSR matrix, outside of the time."""

    name = "SciPy"
    shapes = (Batch,)

    def version(self) -> str:
        """The version of SciPy."""
        return str(scipy.__version__)

    def batch(self, data: BatchData) -> Iterable[Contender]:
        """One product of a sparse matrix and a vector."""
        shape = data.shape
        if shape.block > MAX_BLOCK_SIZE or shape.only is not None:
            return
        blocks = np.ones((shape.products, 1, 1), data.dtype)
        for pool, ids in zip(data.pools, data.ids.T, strict=True):
            size = blocks.shape[1] * shape.size
            blocks = np.einsum("bij,bkl->bikjl", blocks, pool[ids]).reshape(-1, size, size)
        starts = np.arange(shape.blocks + 1) * shape.contributions
        length = shape.blocks * shape.block
        matrix = scipy.sparse.bsr_matrix((blocks, data.sources, starts), shape=(length, length))
        calls = [partial(matrix.dot, x.reshape(-1)) for x in data.inputs]
        yield Contender(self.name, "BSR", list(calls), returns=True)
