"""Sweeps on a sparse grid as a list of steps that a backend can run.

A sweep applies one mode's 1-D operator along all fibres of a sparse grid (the sets of blocks whose
indices differ in one mode only). An operator on the grid is a sequence of sweeps; each reads one
vector of blocks and adds into another, which may be x, y or scratch memory.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["SweepList", "SweepPart", "SweepStep", "SweepVector"]

_Ids = NDArray[np.int64]


class SweepVector(NamedTuple):
    """A vector of blocks. In a list of vectors, number 0 is x, 1 is y, the others are scratch.

    ``start``: offset in the scratch memory, in blocks; vectors that are not needed at the same time
      may overlap there.
    ``blocks``: number of blocks.
    """

    start: int
    blocks: int


class SweepPart(NamedTuple):
    """One mode's multiply, target[i] += Σ_e A_ids[e] ·_mode source[children[e]].

    The sum runs over the edges e of block i.

    ``source``: number of the vector that is read.
    ``mode``: the mode that the matrices act on.
    ``matrices``: number of distinct matrices A; they are passed separately.
    ``starts`` (ndarray of int32 or int64, (blocks of the target + 1,)): block i has the edges
      ``starts[i]`` to ``starts[i + 1] - 1``.
    ``ids``, ``children`` (ndarray of int32 or int64, (edges,)): the matrix of an edge, and the
      block of the source that it multiplies.
    """

    source: int
    mode: int
    matrices: int
    starts: _Ids
    ids: _Ids
    children: _Ids


class SweepStep(NamedTuple):
    """The computation of one vector as a sum of multiplies.

    Attributes
    ----------
    target : int
        Number of the vector that is written.
    adds : bool
        Whether the sum is added to the target's values; otherwise these are overwritten.
    parts : tuple of SweepPart
        The terms of the sum.
    adds_x : bool
        Whether x, which then has blocks as the target, is added, too.
    """

    target: int
    adds: bool
    parts: tuple[SweepPart, ...]
    adds_x: bool = False


class SweepList(NamedTuple):
    """All steps of an operator, in the order in which they run.

    Attributes
    ----------
    sizes : tuple of int
        Size of each mode of a block.
    given : tuple of int
        The same of a block of x. They differ along one mode at most, along which all parts read x
        then.
    vectors : tuple of SweepVector
    steps : tuple of SweepStep
        The last ones write vector 1, which is y.
    dtype : dtype
        Of the matrices and the vectors.
    """

    sizes: tuple[int, ...]
    given: tuple[int, ...]
    vectors: tuple[SweepVector, ...]
    steps: tuple[SweepStep, ...]
    dtype: np.dtype[Any]

    @property
    def block_size(self) -> int:
        """Number of elements of a block."""
        return math.prod(self.sizes)

    @property
    def input_block_size(self) -> int:
        """Number of elements of a block of x."""
        return math.prod(self.given)

    @property
    def num_edges(self) -> int:
        """Number of edges of all steps together."""
        return sum(len(part.ids) for step in self.steps for part in step.parts)

    @property
    def multiply_adds(self) -> int:
        """Number of multiply-adds of all steps, for one vector x."""
        return self.block_size * sum(
            len(part.ids) * self.given[part.mode] for step in self.steps for part in step.parts
        )
