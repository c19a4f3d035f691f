"""Lists of sweeps divided into levels: one launch computes all vectors of a level.

A sweep multiplies a vector by a 1-D operator along one mode and adds the result to another vector.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchkron.backends.cuda.segmented.edges import (
    WORD,
    EdgeTable,
    SegmentMode,
    edge_list,
    edge_table,
    laid_out_matrices,
    matrix_words,
)
from batchkron.spec.kron import Array
from batchkron.spec.sweeps import SweepList, SweepPart


@dataclass(frozen=True, slots=True)
class SweepLevels:
    """A list of sweeps as one launch per level."""

    modes: tuple[SegmentMode, ...]  # the distinct mode multiplies
    # one for each level. Children are numbered through x's blocks, then the scratch memory's;
    # targets through y's blocks, then the scratch memory's.
    tables: tuple[EdgeTable, ...]
    scratch: int  # blocks of the scratch memory, which holds intermediate vectors
    # for each part of the list, in order, the index in ``modes`` of its matrices' mode
    places: tuple[int, ...]

    def laid_out(self, matrices: Sequence[Array]) -> Array:
        """Return the matrices of all parts in one array with the kernel's layout."""
        return np.concatenate(
            [
                laid_out_matrices(self.modes[mode], array)
                for mode, array in zip(self.places, matrices, strict=True)
            ]
        )

    def linked_elements(
        self,
        parts: Sequence[tuple[int, NDArray[np.int64], complex]],
        counts: Sequence[int],
        count: int,
        dtype: np.dtype[Any],
    ) -> tuple[NDArray[np.int64], Array | None]:
        """Return where each element of all matrices comes from if some are linked to values.

        ``parts``: of each linked part its number, the places (count, n, n) of its entries among the
        values, and a factor; ``counts``: number of matrices of every part; ``count``: number of
        values; ``dtype``: of the matrices. The results are, for each element in the kernel's
        layout, its place in the vector that consists of the values, one zero, and all matrices as
        they were; and the factor of each element, None if all are 1.
        """
        linked = {number: (places, factor) for number, places, factor in parts}
        lengths = [
            matrices * matrix_words(self.modes[mode], dtype.itemsize) * WORD // dtype.itemsize
            for mode, matrices in zip(self.places, counts, strict=True)
        ]
        starts = np.concatenate([[0], np.cumsum(lengths)])
        found = count + 1 + np.arange(starts[-1])
        factors = np.ones(starts[-1], dtype)
        for number, (places, factor) in linked.items():
            # The layout fills up with zeros, so that the place of the zero is counted as 0.
            shifted = (places - count).astype(np.dtype(f"i{min(dtype.itemsize, 8)}"))
            own = laid_out_matrices(self.modes[self.places[number]], shifted, dtype.itemsize)
            found[starts[number] : starts[number + 1]] = own.astype(np.int64) + count
            factors[starts[number] : starts[number + 1]] = factor
        return found, None if (factors == 1).all() else factors


@dataclass
class _Made:
    """A vector that sweeps compute: the sweeps into it, and the levels that compute and read it.

    ``parts`` are triples: the sweep, the index of its mode, the first 16-byte word of its matrices.
    """

    blocks: int
    parts: list[tuple[SweepPart, int, int]] = field(default_factory=list)
    level: int = 0  # level that computes it
    last: int = 0  # last level that reads it
    start: int = 0  # its first block in the scratch memory


def sweep_levels(sweeps: SweepList) -> SweepLevels:
    """Divide a list of sweeps into levels: a vector's level is above those of its sources.

    All sweeps into a vector, of whichever step, are done as one sum. There are at most as many
    levels as a term has modes. Vectors that are not needed at the same time share memory. If all
    steps add, to what is there or to x, blocks to which nothing is added are left out.

    Raises ValueError if there are too many blocks for 32-bit numbers.
    """
    shapes = [_shape(sweeps.sizes, sweeps.given, mode) for mode in range(len(sweeps.sizes))]
    used = {shapes[part.mode] for step in sweeps.steps for part in step.parts}
    modes = tuple(dict.fromkeys(shape for shape in shapes if shape in used))
    vectors = [_Made(vector.blocks) for vector in sweeps.vectors]
    places, word = [], 0
    for step in sweeps.steps:
        for part in step.parts:
            mode = modes.index(shapes[part.mode])
            vectors[step.target].parts.append((part, mode, word))
            level = vectors[part.source].level + 1
            vectors[step.target].level = max(vectors[step.target].level, level)
            places.append(mode)
            word += part.matrices * matrix_words(modes[mode], sweeps.dtype.itemsize)
    for made in vectors[1:]:
        for part, _, _ in made.parts:
            source = vectors[part.source]
            source.last = max(source.last, made.level)
    scratch = _share_memory(vectors[2:])
    itemsize = sweeps.dtype.itemsize
    last = max((made.level for made in vectors), default=0)
    adds = all(step.adds or step.adds_x for step in sweeps.steps)
    tables = tuple(_table(vectors, level, modes, itemsize, adds) for level in range(1, last + 1))
    return SweepLevels(modes, tables, scratch, tuple(places))


def _shape(sizes: Sequence[int], given: Sequence[int], mode: int) -> SegmentMode:
    before, behind = math.prod(sizes[:mode]), math.prod(sizes[mode + 1 :])
    return SegmentMode(before, given[mode], sizes[mode], behind)


def _share_memory(vectors: Sequence[_Made]) -> int:
    """Set each vector's start so that none overlap that are needed together; return the total."""
    placed: list[_Made] = []
    for made in sorted(vectors, key=lambda one: one.level):
        start = 0
        for other in sorted(placed, key=lambda one: one.start):
            is_needed = max(other.last, other.level) >= made.level
            if is_needed and other.start < start + made.blocks:
                start = max(start, other.start + other.blocks)
        made.start = start
        placed.append(made)
    return max((made.start + made.blocks for made in placed), default=0)


def _table(
    vectors: Sequence[_Made], level: int, modes: Sequence[SegmentMode], itemsize: int, adds: bool
) -> EdgeTable:
    """Return the edges into all vectors that a level computes."""
    inputs, outputs = vectors[0].blocks, vectors[1].blocks
    made, lists = [], []
    for number, vector in enumerate(vectors):
        if number == 0 or vector.level != level:
            continue
        target = 0 if number == 1 else outputs + vector.start
        made.append((target, vector.blocks))
        for part, mode, word in vector.parts:
            source = 0 if part.source == 0 else inputs + vectors[part.source].start
            words = word + part.ids.astype(np.int64) * matrix_words(modes[mode], itemsize)
            children = source + part.children.astype(np.int64)
            lists.append(edge_list(mode, target, part.starts, children, words))
    return edge_table(made, lists, len(modes), only_with_edges=adds)
