"""Whole vectors into blocks on ranks, and back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from batchkron.arrays import as_array
from batchkron.distributed.communicator import Communicator
from batchkron.distributed.layout import Layout
from batchkron.spec.kron import Array, compute_dtype

__all__ = ["check_root", "gather", "scatter"]


def check_root(root: object, size: int) -> int | None:
    """Return the rank that has whole vectors, None for all of them.

    Raises
    ------
    ValueError
        If there is no such rank.
    """
    if root is None:
        return None
    if isinstance(root, bool) or not isinstance(root, (int, np.integer)) or not 0 <= root < size:
        raise ValueError(f"root is {root!r}; expected None or a rank from 0 to {size - 1}")
    return int(root)


def scatter(
    layout: Layout, communicator: Communicator, x: ArrayLike | None, root: int | None
) -> Array:
    """Return this rank's block of whole vectors that all ranks know, or one."""
    rank, size = communicator.rank, communicator.size
    if root is None:
        return layout.block_of(_whole(x, layout), rank)
    whole, shape, dtype = _announced(layout, communicator, x, root)
    counts = [math.prod(layout.block_shape(shape, other)) for other in range(size)]
    block = np.empty(layout.block_shape(shape, rank), dtype)
    received, sent = [0] * size, [0] * size
    received[root] = block.size
    blocks = np.empty(0, dtype)
    if whole is not None:
        sent = counts
        blocks = np.concatenate([layout.block_of(whole, r).reshape(-1) for r in range(size)])
    communicator.alltoallv(blocks, sent, block.reshape(-1), received)
    return block


def _announced(
    layout: Layout, communicator: Communicator, x: ArrayLike | None, root: int
) -> tuple[Array | None, tuple[int, ...], np.dtype[Any]]:
    """Return the vectors on the rank that has them, and on all ranks their shape and dtype."""
    whole: Array | None = None
    known: Any = None
    if communicator.rank == root:
        try:
            whole = _whole(x, layout)
            known = whole.shape, whole.dtype
        except (ValueError, TypeError) as error:
            known = error
    known = communicator.broadcast(known, root)
    if isinstance(known, Exception):
        raise known
    shape, dtype = known
    return whole, shape, dtype


def gather(
    layout: Layout, communicator: Communicator, block: ArrayLike, root: int | None
) -> Array | None:
    """Return whole vectors of the blocks of all ranks, on all of them or on one."""
    rank, size = communicator.rank, communicator.size
    mine = np.ascontiguousarray(as_array(block, "y", np))
    leading = mine.shape[:-1] if layout.grid[0] == 1 else (layout.rows,)
    shape = (*leading, layout.size)
    if mine.shape != layout.block_shape(shape, rank):
        raise ValueError(
            f"y has shape {mine.shape}; expected {layout.block_shape(shape, rank)}, the block of "
            f"rank {rank}"
        )
    wanted = root is None or rank == root
    counts = [math.prod(layout.block_shape(shape, other)) for other in range(size)]
    received = np.empty(sum(counts) if wanted else 0, mine.dtype)
    everybody = range(size) if root is None else (root,)
    sent = [mine.size if other in everybody else 0 for other in range(size)]
    parts = [mine.reshape(-1)] * len(everybody)
    communicator.alltoallv(np.concatenate(parts), sent, received, counts if wanted else [0] * size)
    return _joined(layout, received, counts, shape) if wanted else None


def _joined(layout: Layout, blocks: Array, counts: Sequence[int], shape: tuple[int, ...]) -> Array:
    """Return whole vectors of blocks that lie one after another."""
    whole, place = np.empty(shape, blocks.dtype), 0
    for rank, count in enumerate(counts):
        layout.put_block(blocks[place : place + count], whole, rank)
        place += count
    return whole


def _whole(x: ArrayLike | None, layout: Layout) -> Array:
    if x is None:
        raise TypeError(
            "x is None; expected the whole vectors, or root= for the rank that has them"
        )
    whole = as_array(x, "x", np)
    layout.check_whole(whole.shape)
    return whole.astype(compute_dtype(whole), copy=False)
