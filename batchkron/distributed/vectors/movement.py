"""Whole vectors into blocks on ranks, and back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from batchkron.arrays import array_module, as_array
from batchkron.distributed.communication.communicator import Communicator
from batchkron.distributed.vectors.layout import Layout
from batchkron.spec.kron import Array, compute_dtype

__all__ = ["check_root", "gather", "scatter"]


def check_root(root: object, size: int) -> int | None:
    """Return the rank that has whole vectors, None for all of them.

    Raises `ValueError` if there is no such rank.
    """
    if root is None:
        return None
    if isinstance(root, bool) or not isinstance(root, (int, np.integer)) or not 0 <= root < size:
        raise ValueError(f"root is {root!r}; expected None or a rank from 0 to {size - 1}")
    return int(root)


def scatter(
    layout: Layout,
    communicator: Communicator,
    x: ArrayLike | None,
    root: int | None,
    module: Any = np,
) -> Array:
    """Return this rank's block of whole vectors that all ranks know, or one.

    ``module``: of the block, NumPy or CuPy; on a device the whole vectors may also be NumPy's.
    """
    rank, size = communicator.rank, communicator.size
    if root is None:
        return layout.block_of(_whole(x, layout, module), rank)
    whole, shape, dtype = _announced(layout, communicator, x, root, module)
    counts = [math.prod(layout.block_shape(shape, other)) for other in range(size)]
    block: Array = module.empty(layout.block_shape(shape, rank), dtype)
    received, sent = [0] * size, [0] * size
    received[root] = block.size
    blocks = module.empty(0, dtype)
    if whole is not None:
        sent = counts
        blocks = module.concatenate([layout.block_of(whole, r).reshape(-1) for r in range(size)])
    communicator.alltoallv(blocks, sent, block.reshape(-1), received)
    return block


def _announced(
    layout: Layout, communicator: Communicator, x: ArrayLike | None, root: int, module: Any
) -> tuple[Array | None, tuple[int, ...], np.dtype[Any]]:
    """Return the vectors on the rank that has them, and on all ranks their shape and dtype."""
    whole: Array | None = None
    known: Any = None
    if communicator.rank == root:
        try:
            whole = _whole(x, layout, module)
            known = whole.shape, whole.dtype
        except Exception as error:  # also MemoryError, and those of array-likes of the user
            known = error
    known = communicator.broadcast(known, root)
    if isinstance(known, Exception):
        raise known
    shape, dtype = known
    return whole, shape, dtype


def gather(
    layout: Layout, communicator: Communicator, block: ArrayLike, root: int | None, module: Any = np
) -> Array | None:
    """Return whole vectors of the blocks of all ranks, on all of them or on one."""
    rank, size = communicator.rank, communicator.size
    mine: Array = module.ascontiguousarray(as_array(block, "y", module))
    mine = mine.astype(mine.dtype.newbyteorder("="), copy=False)  # MPI knows no other
    leading = mine.shape[:-1] if layout.grid[0] == 1 else (layout.rows,)
    shape = (*leading, layout.size)
    if mine.shape != layout.block_shape(shape, rank):
        raise ValueError(
            f"y has shape {mine.shape}; expected {layout.block_shape(shape, rank)}, the block of "
            f"rank {rank}"
        )
    wanted = root is None or rank == root
    counts = [math.prod(layout.block_shape(shape, other)) for other in range(size)]
    received: Array = module.empty(sum(counts) if wanted else 0, mine.dtype)
    everybody = range(size) if root is None else (root,)
    sent = [mine.size if other in everybody else 0 for other in range(size)]
    parts = [mine.reshape(-1)] * len(everybody)
    communicator.alltoallv(
        module.concatenate(parts), sent, received, counts if wanted else [0] * size
    )
    return _joined(layout, received, counts, shape) if wanted else None


def _joined(layout: Layout, blocks: Array, counts: Sequence[int], shape: tuple[int, ...]) -> Array:
    """Return whole vectors of blocks that lie one after another."""
    whole: Array = array_module(blocks).empty(shape, blocks.dtype)
    place = 0
    for rank, count in enumerate(counts):
        layout.put_block(blocks[place : place + count], whole, rank)
        place += count
    return whole


def _whole(x: ArrayLike | None, layout: Layout, module: Any) -> Array:
    if x is None:
        raise TypeError(
            "x is None; expected the whole vectors, or root= for the rank that has them"
        )
    known = x if module is np or array_module(x) is not np else module.asarray(x)
    whole = as_array(known, "x", module)
    layout.check_whole(whole.shape)
    return whole.astype(compute_dtype(whole), copy=False)
