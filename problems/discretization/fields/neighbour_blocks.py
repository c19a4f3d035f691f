"""The hierarchical blocks of nodal matrices that couple each finest cell with its neighbours."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .local_blocks import BlockVector, halves_of, matrices_of, order_of_blocks
from .points import product

__all__ = ["NeighbourBlocks"]

Blocks = NDArray[np.float64]
Places = NDArray[np.int64]

_OFFSETS = (-1, 0, 1)  # of the left neighbour, the cell itself and the right neighbour


class NeighbourBlocks:
    """The map from the blocks of block-tridiagonal nodal matrices A to the blocks of W A Wᵀ.

    W is the change to the hierarchical basis. Two 1-D cells are coupled if their intervals overlap
    or touch; on a periodic axis the first and the last interval of a level touch, too.

    ``level``, ``degree``: finest level, and degree n - 1.
    ``is_periodic``: whether A couples the first finest cell with the last one.
    ``module``: numpy or cupy, the library of the blocks.
    ``parts``: number of matrices A that are transformed together.
    ``rows``, ``columns`` (ndarray, shape (count,), int64): the coupled pairs of 1-D cells, sorted
      by (row, column).

    As in `LocalBlocks`, the blocks S, C, D and B on a level follow from the S of the next finer
    level, here those of a cell with itself and with both neighbours: with F_s = [[H_s], [G_s]] and
    the blocks S_fine[i, j] of fine cells,

        [[S, B], [C, D]][c, c + d] = Σ_(s, t) F_s S_fine[2 c + s, 2 (c + d) + t] F_tᵀ,

    where a neighbour (d = ±1) has the one summand of the two halves that touch. C[c, c + d] of all
    three d, times the Tᵀ of the cells c + d, are the blocks of the cell with the functions of
    coarser levels. Those of neighbours with the same ancestor are added up. All this takes
    O(cells · level · n³) operations, in three products for each level and one for all ancestors.

    Examples
    --------
    >>> blocks = NeighbourBlocks(level=1, degree=0, is_periodic=False)
    >>> A = np.array([[0.0, 1.0, 2.0], [3.0, 6.0, 0.0]]).reshape(2, 3, 1, 1)
    >>> blocks(A).ravel().round(12)  # W A Wᵀ of A = [[1, 2], [3, 6]]
    array([6., 2., 3., 1.])
    """

    def __init__(
        self, level: int, degree: int, is_periodic: bool, module: Any = np, *, parts: int = 1
    ) -> None:
        self._level, self._n, self._module, self._parts = level, degree + 1, module, parts
        coarsen, upward = matrices_of(level, degree)
        q = self._n**2
        up, down = _coarsen_pairs(degree)
        own = np.vstack([coarsen[:q], up, down, coarsen[q:]])  # (s, t) = (0, 0), (0, 1), (1, 0) …
        self._own, self._left, self._right = (module.asarray(m) for m in (own, up, down))
        self._tree = _tree(level, is_periodic)
        self.rows, self.columns = self._tree.rows, self._tree.columns
        if level:
            self._transposed = module.asarray(self._places_of_transposed())
            self._upward = module.asarray(upward[self._tree.neighbours - 1])
            self._same = [
                module.asarray(np.repeat(mask, self._n, axis=1)[:, None].astype(np.float64))
                for mask in self._tree.same
            ]

    @property
    def _shapes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Shapes of the heap and of the blocks with ancestors."""
        n, cells = self._n, 1 << self._level
        heap = self._parts, cells, 3, 4 * n * n
        return heap, (self._parts, cells - 1, 3, 2 * n, n * self._level)

    @property
    def size(self) -> int:
        """Length of the vector of `vector`."""
        heap, ancestors = self._shapes
        return int(np.prod(heap) + np.prod(ancestors))

    def vector(self, memory: Blocks | None = None) -> BlockVector:
        """Return the views of a vector of `size` zeros, which is made if it is not given.

        Its heap is (parts, cells, 3, 4 n²): for each cell c ≥ 1 and offset the S, C, D and B; cell
        0 has S of the whole axis. Its ancestors are (parts, cells - 1, 3, 2 n, n level), the rows
        of C, then those of Bᵀ, times all Tᵀ.
        """
        whole = self._module.zeros(self.size) if memory is None else memory
        heap, ancestors = self._shapes
        stop = int(np.prod(heap))
        return BlockVector(whole, whole[:stop].reshape(heap), whole[stop:].reshape(ancestors))

    def write(self, blocks: Blocks, into: BlockVector) -> None:
        """Write the entries of hierarchical blocks, from blocks (parts, cells, 3, n, n) of each A.

        They are those of each cell with its left neighbour, itself, and its right one; zero for
        neighbours outside an axis that is not periodic.
        """
        q, parts = self._n**2, self._parts
        own = blocks.reshape(parts, -1, 3, q)
        for finer in range(self._level - 1, -1, -1):
            half = 1 << finer
            pairs = own.reshape(parts, half, 6 * q)  # left and own of the left half, and so on
            target = into.heap[:, half : 2 * half]
            target[:, :, 0] = product(pairs[..., :q], self._left)
            target[:, :, 1] = product(pairs[..., q : 5 * q], self._own)
            target[:, :, 2] = product(pairs[..., 5 * q :], self._right)
            own = target[..., :q]
        into.heap[:, 0, 1, :q] = own[:, 0].sum(axis=1)
        if not self._level:
            return
        self._write_ancestors(into)
        same_level = into.heap[..., 2 * q : 3 * q]  # D
        # the only interval is its own neighbour; two intervals are neighbours at both ends
        same_level[:, 1, 1] += same_level[:, 1, 0] + same_level[:, 1, 2]
        if self._level > 1:
            same_level[:, 2:4, 0] += same_level[:, 2:4, 2]

    def _write_ancestors(self, into: BlockVector) -> None:
        n, q = self._n, self._n**2
        target = into.ancestors
        rows = self._module.empty((*target.shape[:3], 2 * n, n))
        rows[..., :n, :] = into.heap[:, 1:, :, q : 2 * q].reshape(*target.shape[:3], n, n)  # C
        rows[..., n:, :] = into.heap.reshape(-1).take(self._transposed)  # Bᵀ
        found = product(rows, self._upward)
        left, right, both = self._same
        target[...] = found
        target[:, :, 1] += left * found[:, :, 0] + right * found[:, :, 2]
        target[:, :, 0] += both * found[:, :, 2]

    def _places_of_transposed(self) -> Places:
        """Return where in the heap Bᵀ of each cell's ψ, as row, with its neighbours' φ lies."""
        n, (heap, _) = self._n, self._shapes
        i, j = np.indices((n, n))
        row = np.arange(heap[0])[:, None, None] * heap[1] + self._tree.neighbours
        back = np.array([2, 1, 0])  # the cell's offset from its neighbour
        block = (row * 3 + back)[..., None, None]
        return np.asarray((block * 4 + 3) * n * n + n * j + i)

    def scale(self, part: int, factor: float, blocks: BlockVector) -> None:
        """Multiply the entries of one matrix's blocks in a vector by a number."""
        blocks.heap[part] *= factor
        blocks.ancestors[part] *= factor

    def places(self, part: int) -> Places:
        """Return where the entries of one matrix's blocks lie in the vector, (count, n, n)."""
        n, q, tree = self._n, self._n**2, self._tree
        heap, ancestors = self._shapes
        i, j = np.indices((n, n))
        cell, offset, slot, group = (
            entry[:, None, None] for entry in (tree.cell, tree.offset, tree.slot, tree.group)
        )
        own = ((part * heap[1] + cell) * 3 + offset) * 4 * q + n * i + j
        own = own + np.where(cell > 0, 2 * q, 0)  # D, or S of the whole axis
        of_cell, of_ancestor = np.where(group == 0, i, j), np.where(group == 0, j, i)
        row = ((part * ancestors[1] + cell - 1) * 3 + offset) * 2 * n + group * n + of_cell
        above = int(np.prod(heap)) + row * ancestors[4] + slot * n + of_ancestor
        return np.where(group < 0, own, above).astype(np.int64)

    def __call__(self, blocks: Blocks) -> Blocks:
        """Return the blocks (count, n, n) of coupled pairs from one A's blocks (cells, 3, n, n)."""
        vector = self.vector()
        self.write(blocks[None], vector)
        return vector.whole.take(self._module.asarray(self.places(0)))  # type: ignore[no-any-return]


@lru_cache(maxsize=16)
def _coarsen_pairs(degree: int) -> tuple[Blocks, Blocks]:
    """Return the matrices (n², 4 n²) from the entries of S_fine to those of S, C, D and B.

    The first is for a left half's row and a right half's column, the second the other way round.
    """
    n, (left, right) = degree + 1, halves_of(degree)
    columns = order_of_blocks(n)
    up, down = np.kron(left, right), np.kron(right, left)
    return np.asarray(up.T[:, columns]), np.asarray(down.T[:, columns])


class _Tree(NamedTuple):
    """Which cells are coupled, and where their blocks lie.

    ``neighbours`` (ndarray, (cells - 1, 3), int64): of the cells 1, 2, … the neighbours of the same
      level, with the cell itself between them.
    ``same`` ((ndarray, ndarray, ndarray), each (cells - 1, level), bool): for each cell and slot,
      whether the left neighbour has the same ancestor as the cell; the right neighbour has; both
      neighbours have the same, which is not the cell's.
    ``rows``, ``columns`` (ndarray, (count,), int64): the coupled pairs.
    ``cell``, ``offset``, ``slot``, ``group`` (ndarray, (count,), int64): of each pair the finer
      cell, the number of the neighbour's offset, the level of the other cell, and 0 if the finer
      cell is the row, 1 if it is the column; -1 for cells of one level.
    """

    neighbours: Places
    same: tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.bool_]]
    rows: Places
    columns: Places
    cell: Places
    offset: Places
    slot: Places
    group: Places


@lru_cache(maxsize=32)
def _tree(level: int, is_periodic: bool) -> _Tree:
    """Return the coupled pairs of cells of an axis; at most a few per cell and level."""
    cells = np.arange(1, 1 << level)
    depth = np.frexp(cells.astype(np.float64))[1].astype(np.int64) - 1  # the level of its interval
    first = 1 << depth
    moved = (cells - first)[:, None] + np.array(_OFFSETS)
    exists = (moved >= 0) & (moved < first[:, None]) | is_periodic
    inside = moved % first[:, None]
    slots = np.arange(level)
    shift = depth[:, None] - np.maximum(slots - 1, 0)
    is_coarser = slots <= depth[:, None]
    above = inside[:, :, None] >> np.maximum(shift, 0)[:, None, :]  # (cells, 3, slots)
    same_left, same_right = above[:, 0] == above[:, 1], above[:, 2] == above[:, 1]
    same_both = (above[:, 0] == above[:, 2]) & ~same_right
    kept = (exists[:, :, None] & is_coarser[:, None, :]).copy()
    kept[:, 0] &= ~same_left
    kept[:, 2] &= ~same_right & ~(same_both & exists[:, :1])
    own, offset, slot = np.nonzero(kept)
    ancestor = np.where(slot == 0, 0, (1 << np.maximum(slot - 1, 0)) + above[own, offset, slot])
    beside = exists.copy()
    beside[:, 0] &= inside[:, 0] != inside[:, 1]
    beside[:, 2] &= inside[:, 2] != inside[:, 1]
    beside[:, 2] &= (inside[:, 2] != inside[:, 0]) | ~exists[:, 0]
    level_own, level_offset = np.nonzero(beside)
    finer, level_cell = cells[own], cells[level_own]
    level_column = first[level_own] + inside[level_own, level_offset]
    none = 0 * level_own
    # rows, columns, cell, offset, slot, group; the last one is the whole axis with itself
    as_row = np.stack([finer, ancestor, finer, offset, slot, 0 * own])
    as_column = np.stack([ancestor, finer, finer, offset, slot, 0 * own + 1])
    beside_it = np.stack([level_cell, level_column, level_cell, level_offset, none, none - 1])
    whole = np.array([[0], [0], [0], [1], [0], [-1]])
    table = np.concatenate([as_row, as_column, beside_it, whole], axis=1).astype(np.int64)
    table = table[:, np.lexsort((table[1], table[0]))]
    neighbours = (first[:, None] + inside).astype(np.int64)
    return _Tree(neighbours, (same_left, same_right, same_both), *table)
