"""The hierarchical blocks of a block-diagonal nodal matrix, such as a multiplication's."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..multiwavelets import filters

__all__ = ["LocalBlocks"]


class LocalBlocks:
    """The map from the blocks of a block-diagonal nodal matrix A to the blocks of W A Wᵀ.

    W is the change to the hierarchical basis. Two cells are coupled if one is the other's ancestor
    in the tree of cells, or they are the same.

    Parameters
    ----------
    level, degree : int
        Finest level, and degree n - 1.
    module : module
        numpy or cupy, the library of the blocks.

    Attributes
    ----------
    rows, columns : ndarray, shape (count,), int64
        The coupled pairs of 1-D cells, sorted by (row, column).

    Notes
    -----
    Let S be the block of A on a cell, in the cell's nodal functions φ. On the next coarser level,

        [[S, B], [C, D]] = F_0 S_left F_0ᵀ + F_1 S_right F_1ᵀ,    F_s = [[H_s], [G_s]],

    has the block S of the cell's own nodal functions, and those with its multiwavelets ψ. So D is
    the block (c, c) of a cell c. An ancestor's function is R φ on the cell, where R is the
    product of two-scale filters along the path between the two; therefore C Rᵀ is the block
    (c, ancestor), and R B the block (ancestor, c). This takes O(cells · level · n³) operations. All
    R are computed once.

    Examples
    --------
    >>> halves = LocalBlocks(level=1, degree=0)
    >>> halves.rows.tolist(), halves.columns.tolist()
    ([0, 0, 1, 1], [0, 1, 0, 1])
    >>> halves(np.array([[[1.0]], [[3.0]]])).ravel()
    array([2., 1., 1., 2.])
    """

    def __init__(self, level: int, degree: int, module: Any = np) -> None:
        self._level, self._n, self._module = level, degree + 1, module
        two_scale = filters(degree)
        halves = [
            np.vstack([two_scale.H0, two_scale.G0]),
            np.vstack([two_scale.H1, two_scale.G1]),
        ]
        # F S Fᵀ as a product of one row, the entries of S, with F ⊗ F: large matrix products
        self._coarsen = module.asarray(np.hstack([np.kron(F, F) for F in halves]).T.copy())
        cells, ancestors, paths = _paths(level, degree)
        self._cells = module.asarray(cells - 1)
        self._paths = module.asarray(paths)
        wavelets = np.arange(1, 1 << level)
        rows = np.concatenate([[0], wavelets, cells, ancestors])
        columns = np.concatenate([[0], wavelets, ancestors, cells])
        order = np.lexsort((columns, rows))
        self.rows, self.columns = rows[order], columns[order]
        self._order = module.asarray(order)

    def __call__(
        self, blocks: NDArray[np.float64], *, symmetric: bool = False
    ) -> NDArray[np.float64]:
        """Return the hierarchical blocks of the coupled pairs.

        Parameters
        ----------
        blocks : ndarray, shape (cells, n, n), float64
            The diagonal blocks of A.
        symmetric : bool
            Whether they are symmetric; then half of the work is saved.

        Returns
        -------
        ndarray, shape (count, n, n), float64
        """
        n, module = self._n, self._module
        found = []
        for _ in range(self._level):
            halves = blocks.reshape(len(blocks) // 2, 2 * n * n)
            both = (halves @ self._coarsen).reshape(-1, 2 * n, 2 * n)
            found.append(both)
            blocks = both[:, :n, :n]
        if not found:
            return blocks
        levels = module.concatenate(found[::-1])  # that of cell c is levels[c - 1]
        to_cells = levels[self._cells, n:, :n] @ self._paths.transpose(0, 2, 1)
        if symmetric:
            to_ancestors = to_cells.transpose(0, 2, 1)
        else:
            to_ancestors = self._paths @ levels[self._cells, :n, n:]
        stacked = module.concatenate([blocks, levels[:, n:, n:], to_cells, to_ancestors])
        return stacked[self._order]  # type: ignore[no-any-return]


def _paths(
    level: int, degree: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Return all pairs (cell, ancestor), and the matrix R of each: ancestor = R φ on the cell.

    φ are the nodal functions on the whole support of a cell ≥ 1; the functions of cell 0 are an
    ancestor, too.
    """
    two_scale, n = filters(degree), degree + 1
    H = np.stack([two_scale.H0, two_scale.H1])
    G = np.stack([two_scale.G0, two_scale.G1])
    nothing = np.zeros(0, dtype=np.int64)
    cells, ancestors, matrices = [nothing], [nothing], [np.zeros((0, n, n))]
    known = np.eye(n)[None, None]  # (cells of the level, ancestors, n, n)
    for finer in range(1, level + 1):
        own = np.arange(1 << (finer - 1), 1 << finer)
        if finer > 1:
            half = own % 2
            older = known[np.arange(len(own)) // 2] @ H[half][:, None]
            known = np.concatenate([G[half][:, None], older], axis=1)
        above = np.stack([own >> gap for gap in range(1, finer)] + [0 * own], axis=1)
        cells.append(np.repeat(own, finer))
        ancestors.append(above.ravel())
        matrices.append(known.reshape(-1, n, n))
    return np.concatenate(cells), np.concatenate(ancestors), np.concatenate(matrices)
