"""The hierarchical blocks of a block-diagonal nodal matrix, such as a multiplication's."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..multiwavelets import filters

__all__ = ["LocalBlocks"]

Blocks = NDArray[np.float64]


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
    the block of the cell with itself. On a half s of a larger cell, that one's φ are H_s φ and its
    ψ are G_s φ, in terms of the half's φ. So C G_sᵀ is the block of ψ with the ψ of the parent,
    C H_sᵀ that with the parent's φ, with which the next ancestor follows in the same way, up to the
    φ of the whole axis, which are the functions of cell 0. Blocks from ancestors follow from Bᵀ.
    All this takes O(cells · level · n³) operations, in products of a few large matrices.

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
        two_scale, q = filters(degree), (degree + 1) ** 2
        F = [np.vstack([two_scale.H0, two_scale.G0]), np.vstack([two_scale.H1, two_scale.G1])]
        # F S Fᵀ is a product of one row, the entries of S, with (F ⊗ F)ᵀ; its columns are put into
        # the order S, C, D, B
        n = self._n
        entry = np.arange(4 * q).reshape(2 * n, 2 * n)
        parts = [entry[:n, :n], entry[n:, :n], entry[n:, n:], entry[:n, n:]]
        columns = np.concatenate([part.ravel() for part in parts])
        coarsen = np.hstack([np.kron(half, half) for half in F]).T[:, columns]
        self._coarsen = module.asarray(np.ascontiguousarray(coarsen))
        self._upward = module.asarray(np.stack([half.T for half in F]))  # (half, n, 2n)
        cells, ancestors = _pairs(level)
        wavelets = np.arange(1, 1 << level)
        rows = np.concatenate([[0], wavelets, cells, ancestors])
        others = np.concatenate([[0], wavelets, ancestors, cells])
        order = np.lexsort((others, rows))
        self.rows, self.columns = rows[order], others[order]
        self._order = module.asarray(order)

    def __call__(self, blocks: Blocks, *, symmetric: bool = False) -> Blocks:
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
        n, q, module = self._n, self._n**2, self._module
        own, found = blocks.reshape(len(blocks), q), []
        for _ in range(self._level):
            both = own.reshape(len(own) // 2, 2 * q) @ self._coarsen
            found.append(both)
            own = module.ascontiguousarray(both[:, :q])
        if not found:
            return blocks
        levels = module.concatenate(found[::-1]).reshape(-1, 4, n, n)  # of cells 1, 2, …
        down = self._to_ancestors(levels[:, 1])
        up = down if symmetric else self._to_ancestors(levels[:, 3].transpose(0, 2, 1))
        parts = [own.reshape(1, n, n), levels[:, 2], down, up.transpose(0, 2, 1)]
        stacked = module.concatenate(parts).reshape(-1, q)
        return stacked.take(self._order, axis=0).reshape(-1, n, n)  # type: ignore[no-any-return]

    def _to_ancestors(self, blocks: Blocks) -> Blocks:
        """Return the blocks of cells with their ancestors, in the order of `_pairs`.

        ``blocks`` (cells - 1, n, n) are those of the cells 1, 2, … with their own φ.
        """
        n, module = self._n, self._module
        rest, whole, found = blocks[1:], [blocks[:1]], []
        for gap in range(1, self._level):  # rest are the cells from 2^gap on
            halves = module.ascontiguousarray(rest).reshape(-1, 2, n << (gap - 1), n)
            both = (halves @ self._upward).reshape(-1, n, 2 * n)
            found.append(both[:, :, n:])
            whole.append(both[: 1 << gap, :, :n])
            rest = both[1 << gap :, :, :n]
        return module.concatenate([*found, *whole])  # type: ignore[no-any-return]


def _pairs(level: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return all pairs of a cell ≥ 1 and an ancestor: parents first, cell 0 last."""
    above = [np.arange(1 << gap, 1 << level) for gap in range(1, level)]
    cells = np.arange(1, 1 << level)
    ancestors = [own >> gap for gap, own in enumerate(above, start=1)]
    return np.concatenate([*above, cells]), np.concatenate([*ancestors, 0 * cells])
