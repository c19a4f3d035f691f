"""Sweeps along fibres as a list for backends: which vector is made of which, block by block."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["SweepList", "SweepPart", "SweepStep", "SweepVector"]

_Ids = NDArray[np.int64]


class SweepVector(NamedTuple):
    """A vector of blocks. Number 0 is x, 1 is y, the others are scratch memory.

    Attributes
    ----------
    start : int
        Place in the scratch memory, in blocks; vectors that are not needed at once share room.
    blocks : int
        How many it has.
    """

    start: int
    blocks: int


class SweepPart(NamedTuple):
    """One mode's multiply, summed over the edges of each block of a target.

    Attributes
    ----------
    source : int
        Number of the vector that is read.
    mode : int
    matrices : int
        How many there are.
    starts : ndarray of int32 or int64, (blocks of the target + 1,)
        Block i has the edges ``starts[i]`` to ``starts[i + 1] - 1``.
    ids, children : ndarray of int32 or int64, (edges,)
        The matrix of an edge, and the block of the source that it multiplies.
    """

    source: int
    mode: int
    matrices: int
    starts: _Ids
    ids: _Ids
    children: _Ids


class SweepStep(NamedTuple):
    """A sum of multiplies that makes one vector.

    Attributes
    ----------
    target : int
        Number of the vector that is written: overwritten, unless
    adds : bool
        the sum is added to what it has.
    parts : tuple of SweepPart
    """

    target: int
    adds: bool
    parts: tuple[SweepPart, ...]


class SweepList(NamedTuple):
    """Steps in their order.

    Attributes
    ----------
    sizes : tuple of int
        Of a block's modes.
    vectors : tuple of SweepVector
    steps : tuple of SweepStep
        The last ones write vector 1.
    dtype : dtype
    """

    sizes: tuple[int, ...]
    vectors: tuple[SweepVector, ...]
    steps: tuple[SweepStep, ...]
    dtype: np.dtype[Any]

    @property
    def block_size(self) -> int:
        """Elements of a block."""
        return math.prod(self.sizes)

    @property
    def num_edges(self) -> int:
        """Edges of all steps."""
        return sum(len(part.ids) for step in self.steps for part in step.parts)

    @property
    def multiply_adds(self) -> int:
        """Multiply-adds of all steps, on one vector."""
        return self.block_size * sum(
            len(part.ids) * self.sizes[part.mode] for step in self.steps for part in step.parts
        )
