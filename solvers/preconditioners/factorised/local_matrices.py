"""The operator on full grids as sparse matrices of blocks, one for each pair of coupled cells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from batchkron.operators.couplings import Ids

from ..bases import ModeBases
from ..wavelets import sum_of_blocks, wavelets

__all__ = ["LocalMatrices"]

_ROUNDING = (
    1e-14  # entries of a 1-D matrix below this, relative to the largest, are rounding errors
)

Matrix = NDArray[Any]


_Table: TypeAlias = tuple[Ids, Matrix]
"""The number of the block of each pair of cells of a 1-D matrix, or -1; the blocks, (count, n, n).
"""


class LocalMatrices:
    """P_l A P_l* for full grids l, or for some cells of them, from A's 1-D matrices.

    Where the two-scale filters of a mode are known and a grid is ``nodal``, rows and columns belong
    to the functions of the finest cells: there only neighbours are coupled by derivatives, and a
    coefficient couples no cells. Otherwise they belong to the hierarchical functions. On a whole
    tensor product each 1-D index counts as a cell.

    ``sizes``: functions of a 1-D cell of each mode.
    ``filters`` (tuple of (ndarray (4, n, n) or None)): the two-scale filters of each mode.
    """

    def __init__(self, bases: ModeBases) -> None:
        self._bases, terms = bases, bases.terms
        whole = terms.cells is None
        self.sizes = (1,) * len(terms.sizes) if whole else terms.sizes
        known = None if whole else terms.transforms
        self.filters: tuple[Matrix | None, ...] = known or (None,) * len(self.sizes)
        self._tables: dict[tuple[int, int, int, bool], _Table] = {}

    def widths(self, levels: Sequence[int]) -> tuple[int, ...]:
        """Return the number of 1-D cells of each mode of a full grid."""
        rows = [self._bases.terms.rows(mode, level) for mode, level in enumerate(levels)]
        return tuple(count // n for count, n in zip(rows, self.sizes, strict=True))

    def pattern(self, levels: Sequence[int], cells: Ids, nodal: bool) -> csr_matrix:
        """Return which of some cells of a full grid, (count, modes), are coupled, symmetric."""
        coupled = np.eye(len(cells), dtype=bool)
        for numbers in self._bases.numbers:
            coupled |= self._coupled(numbers, levels, cells, nodal)
        return csr_matrix(coupled | coupled.T)

    def matrix(self, levels: Sequence[int], cells: Ids, nodal: bool) -> csr_matrix:
        """Return the matrix on some cells of a full grid, (count, modes), functions innermost."""
        count = len(cells)
        keys, blocks = [], []
        for weight, numbers in zip(self._bases.coefficients, self._bases.numbers, strict=True):
            rows, columns = np.nonzero(self._coupled(numbers, levels, cells, nodal))
            product = np.full((len(rows), 1, 1), weight)
            for mode, (number, level) in enumerate(zip(numbers, levels, strict=True)):
                own, blocks_of_mode = self._table(mode, level, number, nodal)
                factors = blocks_of_mode[own[cells[rows, mode], cells[columns, mode]]]
                n = product.shape[1] * factors.shape[1]
                outer = product[:, :, None, :, None] * factors[:, None, :, None, :]
                product = outer.reshape(-1, n, n)
            keys.append(rows * count + columns)
            blocks.append(product)
        size = int(np.prod(self.sizes))
        if not sum(map(len, keys)):
            return csr_matrix((count * size, count * size))
        return sum_of_blocks(np.concatenate(keys), np.concatenate(blocks), count)

    def _coupled(
        self, numbers: Sequence[int], levels: Sequence[int], cells: Ids, nodal: bool
    ) -> NDArray[np.bool_]:
        """Return which pairs of cells, (count, count), a product of 1-D matrices couples."""
        found = np.ones((len(cells), len(cells)), bool)
        for mode, (number, level) in enumerate(zip(numbers, levels, strict=True)):
            own, _ = self._table(mode, level, number, nodal)
            found &= (own >= 0)[np.ix_(cells[:, mode], cells[:, mode])]
        return found

    def _table(self, mode: int, level: int, number: int, nodal: bool) -> _Table:
        key = (mode, level, number, nodal)
        if key not in self._tables:
            n, rows = self.sizes[mode], self._bases.terms.rows(mode, level)
            cells = rows // n
            if number < 0:
                self._tables[key] = np.eye(cells, dtype=np.int64) - 1, np.eye(n)[None]
                return self._tables[key]
            dense = self._bases.matrices(mode, level)[number]
            filters = self.filters[mode]
            if nodal and filters is not None:
                W = wavelets(level, filters)
                dense = W.T @ (W.T @ dense.T).T
            size = np.abs(dense)
            dense = np.where(size > _ROUNDING * size.max(initial=0.0), dense, 0.0)
            blocks = dense.reshape(cells, n, cells, n).swapaxes(1, 2)
            used = (blocks != 0).any(axis=(2, 3))
            self._tables[key] = _numbered(used), blocks[used]
        return self._tables[key]


def _numbered(used: NDArray[np.bool_]) -> Ids:
    """Return -1 where a pair is not used, and the number of the pair among those that are."""
    return np.where(used, np.cumsum(used).reshape(used.shape) - 1, -1)
