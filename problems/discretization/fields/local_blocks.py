"""The hierarchical blocks of block-diagonal nodal matrices, such as multiplications'."""

from __future__ import annotations

from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from batchkron.functions.segmented import SegmentedModeMultiply

from ..basis.multiwavelets import filters

__all__ = [
    "BlockVector",
    "LocalBlocks",
    "ancestor_sums",
    "halves_of",
    "matrices_of",
    "order_of_blocks",
]

Blocks = NDArray[np.float64]
Places = NDArray[np.int64]


class BlockVector(NamedTuple):
    """One vector in which all distinct entries of the hierarchical blocks of some matrices lie.

    ``whole`` (ndarray, (size,), float64): the vector.
    ``heap`` (ndarray, (cells, parts, 4 n²), float64): a view of it: for each cell c ≥ 1 and matrix
      the S, C, D and B of `LocalBlocks`; cell 0 has S of the whole axis.
    ``ancestors`` (ndarray, (cells - 1, rows, n level) or (cells - 1, parts, level, n, n), float64):
      a view of it: the blocks of the cells 1, 2, … with their ancestors, that of level 0 first.
    """

    whole: Blocks
    heap: Blocks
    ancestors: Blocks


class LocalBlocks:
    """The map from the blocks of block-diagonal nodal matrices A to the blocks of W A Wᵀ.

    W is the change to the hierarchical basis. Two cells are coupled if one is the other's ancestor
    in the tree of cells, or they are the same.

    ``level``, ``degree``: finest level, and degree n - 1.
    ``module``: numpy or cupy, the library of the blocks.
    ``parts``: number of matrices A that are transformed together.
    ``symmetric``: whether all A are symmetric; then half of the work is saved.
    ``by_block``: whether blocks with ancestors lie one after another, as `ancestor_sums` writes
      them; only for symmetric A.
    ``rows``, ``columns`` (ndarray, shape (count,), int64): the coupled pairs of 1-D cells, sorted
      by (row, column).

    Let S be the block of A on a cell, in the cell's nodal functions φ. On the next coarser level,

        [[S, B], [C, D]] = F_0 S_left F_0ᵀ + F_1 S_right F_1ᵀ,    F_s = [[H_s], [G_s]],

    has the block S of the cell's own nodal functions, and those with its multiwavelets ψ. So D is
    the block of the cell with itself. The ψ of an ancestor are, on the cell, T φ with a matrix T
    that depends on where the cell is in it; so C Tᵀ is the block of the cell with the ancestor, and
    T B that of the ancestor with the cell. All this takes O(cells · level · n³) operations, in one
    product for each level and one for all ancestors.

    Examples
    --------
    >>> halves = LocalBlocks(level=1, degree=0)
    >>> halves.rows.tolist(), halves.columns.tolist()
    ([0, 0, 1, 1], [0, 1, 0, 1])
    >>> halves(np.array([[[1.0]], [[3.0]]])).ravel()
    array([2., 1., 1., 2.])
    """

    def __init__(
        self,
        level: int,
        degree: int,
        module: Any = np,
        *,
        parts: int = 1,
        symmetric: bool = False,
        by_block: bool = False,
    ) -> None:
        self._level, self._n, self._module = level, degree + 1, module
        self._parts, self._symmetric, self._by_block = parts, symmetric, by_block
        coarsen, upward = matrices_of(level, degree)
        self._coarsen, self._upward = module.asarray(coarsen), module.asarray(upward)
        self.rows, self.columns = _pairs(level)

    @property
    def size(self) -> int:
        """Length of the vector of `vector`."""
        cells, n = 1 << self._level, self._n
        return cells * self._parts * 4 * n**2 + (cells - 1) * self._num_rows * n * self._level

    @property
    def _num_rows(self) -> int:
        """Rows of all C, and of all Bᵀ if they are not the same."""
        return self._parts * self._n * (1 if self._symmetric else 2)

    def vector(self, memory: Blocks | None = None) -> BlockVector:
        """Return the views of a vector of `size` zeros, which is made if it is not given."""
        whole = self._module.zeros(self.size) if memory is None else memory
        cells, n = 1 << self._level, self._n
        stop = cells * self._parts * 4 * n**2
        heap = whole[:stop].reshape(cells, self._parts, 4 * n**2)
        shape: tuple[int, ...] = (cells - 1, self._num_rows, n * self._level)
        if self._by_block:
            shape = (cells - 1, self._parts, self._level, n, n)
        ancestors = whole[stop:].reshape(shape)
        return BlockVector(whole, heap, ancestors)

    def write(self, blocks: Blocks, into: BlockVector) -> None:
        """Write the entries of hierarchical blocks from blocks (parts, cells, n, n) of the A."""
        q = self._n**2
        own = blocks.reshape(self._parts, -1, q)
        for finer in range(self._level - 1, -1, -1):
            half = 1 << finer
            target = into.heap[half : 2 * half].transpose(1, 0, 2)
            pairs = self._module.ascontiguousarray(own).reshape(self._parts, half, 2 * q)
            self._module.matmul(pairs, self._coarsen, out=target)
            own = target[:, :, :q]
        into.heap[0, :, :q] = own[:, 0]
        self.write_ancestors(into)

    def write_ancestors(self, into: BlockVector) -> None:
        """Write the blocks with ancestors, from the C and B of the vector's heap."""
        if not self._level:
            return
        n, q, cells = self._n, self._n**2, 1 << self._level
        C = into.heap[1:, :, q : 2 * q]
        if self._symmetric:
            rows = C.reshape(cells - 1, -1, n)
        else:
            B = into.heap[1:, :, 3 * q :].reshape(cells - 1, self._parts, n, n)
            C = C.reshape(cells - 1, self._parts, n, n)
            rows = self._module.concatenate([C, B.swapaxes(2, 3)], axis=1).reshape(cells - 1, -1, n)
        self._module.matmul(rows, self._upward, out=into.ancestors)

    def scale(self, part: int, factor: float, blocks: BlockVector) -> None:
        """Multiply the entries of one matrix's blocks in a vector by a number."""
        blocks.heap[:, part] *= factor
        ancestors = blocks.ancestors
        if self._level and not self._by_block:
            shape = len(ancestors), -1, self._parts, self._n, self._n * self._level
            ancestors = ancestors.reshape(shape).swapaxes(1, 2)
        ancestors[:, part] *= factor

    def places(self, part: int) -> Places:
        """Return where the entries of one matrix's blocks lie in the vector, (count, n, n)."""
        n, q, level, parts = self._n, self._n**2, self._level, self._parts
        cells = 1 << level
        i, j = np.indices((n, n))
        low, high = np.minimum(self.rows, self.columns), np.maximum(self.rows, self.columns)
        low, high = low[:, None, None], high[:, None, None]
        # C and D, of the cell with itself; S for cell 0
        own = (high * parts + part) * 4 * q + n * i + j + np.where(high > 0, 2 * q, 0)
        slot = np.where(low > 0, np.frexp(low.astype(np.float64))[1], 0)  # the ancestor's level
        start = cells * parts * 4 * q
        width = n * level

        def with_ancestor(group: int, of_cell: Any, of_ancestor: Any) -> Any:
            if self._by_block:
                block = ((high - 1) * parts + part) * level + slot
                return start + block * q + of_cell * n + of_ancestor
            row = (high - 1) * self._num_rows + (group * parts + part) * n + of_cell
            return start + row * width + slot * n + of_ancestor

        upper = with_ancestor(0, i, j)  # the cell's row, the ancestor's column
        lower = with_ancestor(0 if self._symmetric else 1, j, i)
        is_own, is_upper = low == high, (self.rows > self.columns)[:, None, None]
        return np.where(is_own, own, np.where(is_upper, upper, lower)).astype(np.int64)

    @cached_property
    def _order(self) -> Any:
        return self._module.asarray(self.places(0))

    def __call__(self, blocks: Blocks) -> Blocks:
        """Return the blocks (count, n, n) of coupled pairs from one A's blocks (cells, n, n)."""
        vector = self.vector()
        self.write(blocks, vector)
        return vector.whole.take(self._order)  # type: ignore[no-any-return]


def ancestor_sums(level: int, degree: int, parts: int) -> SegmentedModeMultiply:
    """Return the map from the heap of `BlockVector` to its blocks with ancestors, one by one.

    It is from blocks (cells · parts · 4, n²) to blocks ((cells - 1) · parts · level, n²).
    """
    n, cells = degree + 1, 1 << level
    upward = matrices_of(level, degree)[1].reshape(cells - 1, n, level, n)
    # the matrix of an edge maps the columns of C: y[i, j] = Σ_k T[j, k] C[i, k]
    matrices = upward.transpose(0, 2, 3, 1).reshape(-1, n, n)
    cell, part, slot = np.indices((cells - 1, parts, level)).reshape(3, -1)
    exists = slot < np.frexp(cell + 1.0)[1]
    return SegmentedModeMultiply(
        matrices,
        np.concatenate([[0], np.cumsum(exists)]),
        (cell * level + slot)[exists],
        (((cell + 1) * parts + part) * 4 + 1)[exists],
        before=n,
        behind=1,
        num_inputs=cells * parts * 4,
    )


@lru_cache(maxsize=16)
def matrices_of(level: int, degree: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the matrix of a coarsening, (2 n², 4 n²), and those of all ancestors.

    The first maps the entries of S of both halves of a cell to those of its S, C, D and B; the
    others, (cells - 1, n, n level), are the Tᵀ side by side.
    """
    # F S Fᵀ is a product of one row, the entries of S, with (F ⊗ F)ᵀ
    columns = order_of_blocks(degree + 1)
    coarsen = np.hstack([np.kron(half, half) for half in halves_of(degree)]).T[:, columns]
    found = np.ascontiguousarray(coarsen), np.ascontiguousarray(_upward(level, degree))
    for array in found:
        array.flags.writeable = False
    return found


def order_of_blocks(n: int) -> Places:
    """Return which entries of [[S, B], [C, D]], (2 n)², those of S, C, D and B are, (4 n²,)."""
    entry = np.arange(4 * n * n).reshape(2 * n, 2 * n)
    blocks = [entry[:n, :n], entry[n:, :n], entry[n:, n:], entry[:n, n:]]
    return np.concatenate([block.ravel() for block in blocks])


def halves_of(degree: int) -> list[NDArray[np.float64]]:
    """Return F_0 and F_1."""
    two_scale = filters(degree)
    left = np.vstack([two_scale.H0, two_scale.G0])
    return [left, np.vstack([two_scale.H1, two_scale.G1])]


def _upward(level: int, degree: int) -> NDArray[np.float64]:
    """Return for the cells 1, 2, … all Tᵀ side by side, (cells - 1, n, n level).

    The first n columns belong to φ of the whole axis, the next to the ancestor of level 1, and so
    on; those of levels that are not ancestors are zero.
    """
    n, halves = degree + 1, halves_of(degree)
    found = np.zeros(((1 << level) - 1, n, n * level))
    if level:
        found[0, :, :n] = np.eye(n)  # cell 1 covers the whole axis
    for cell in range(2, 1 << level):
        own = cell.bit_length()  # its level; its parent has one less
        parent, F = found[(cell >> 1) - 1], halves[cell & 1]
        # the parent's φ and ψ on this half: H φ and G φ
        found[cell - 1, :, : n * (own - 1)] = F[:n].T @ parent[:, : n * (own - 1)]
        found[cell - 1, :, n * (own - 1) : n * own] = F[n:].T
    return found


def _pairs(level: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return all pairs of cells of which one is the other's ancestor or both are the same."""
    above = [np.arange(1 << gap, 1 << level) for gap in range(1, level)]
    cells = np.arange(1, 1 << level)
    lower = np.concatenate([*above, cells])
    upper = np.concatenate([*[own >> gap for gap, own in enumerate(above, start=1)], 0 * cells])
    every = np.arange(1 << level)
    rows, columns = np.concatenate([lower, upper, every]), np.concatenate([upper, lower, every])
    order = np.lexsort((columns, rows))
    return rows[order], columns[order]
