"""The part of a known solution that a grid cannot represent, for the L2 error of a state.

Let c be the coefficients of the state u, P the projection onto the grid, and
f = Σ_r a_r(t) Π_k Φ_kr the solution. Then

    ‖u - f‖² = ‖c - Pf‖² + Σ_rs a_r a_s tail_rs.

The tail is the sum of all products of one-dimensional coefficients outside the grid. It is summed
directly and not computed as ‖f‖² - ‖Pf‖², because of cancellation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ...discretization.parts import ExactSolution
from ...grids.sparse_grid import SparseGrid

__all__ = ["norm_matrix", "tail_matrix"]

Prefixes: TypeAlias = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Prefixes (i_1, …, i_(k+1)) of a grid's multi-indices, numbered lexicographically.

For each, the number of its own prefix of length k, ascending; and its last entry, a 1-D cell.
"""

_CHUNK = 1 << 22  # entries of a dense table (prefixes, cells) that is made at once: 32 MiB


def norm_matrix(exact: ExactSolution, sizes: Sequence[int]) -> NDArray[np.float64]:
    """Return the Gram matrix ∫ Π_k Φ_kr Π_k Φ_ks dx (m, m) of the m parts of a known solution."""
    result = np.ones((len(exact.parts),) * 2)
    for k, remainder in enumerate(exact.remainders):
        result *= _cell_grams(exact, k, sizes[k]).sum(axis=0) + remainder
    return result


def tail_matrix(
    exact: ExactSolution, grid: SparseGrid, sizes: Sequence[int]
) -> NDArray[np.float64]:
    """Return the Gram matrix of the projection errors of the m parts of a known solution.

    That is ∫ (F_r - P F_r)(F_s - P F_s) dx with F_r = Π_k Φ_kr, (m, m); its diagonal entries are
    sums of non-negative terms. The grid may be any set of cells, such as an adaptive one.

    Consider all multi-indices whose entries are 1-D cells or "the remainder beyond the finest
    level". Each one outside the grid has a longest prefix (i_1, …, i_k) that also begins a cell of
    the grid. So for every such prefix of length k, sum over the cells and the remainder of the next
    axis that do not extend it inside the grid, and multiply by the full norms of the axes after
    that one.
    """
    parts = len(exact.parts)
    grams = [_cell_grams(exact, k, n).reshape(-1, parts * parts) for k, n in enumerate(sizes)]
    remainders = exact.remainders.reshape(grid.dimensions, -1)
    wholes = _products_of_later_axes(
        [gram.sum(axis=0) + rest for gram, rest in zip(grams, remainders, strict=True)]
    )
    tail = np.zeros(parts * parts)
    weights = np.ones((1, parts * parts))
    for gram, rest, whole, tree in zip(grams, remainders, wholes, _prefixes(grid), strict=True):
        tail += (_missing_cells(tree, gram, weights) + weights.sum(axis=0) * rest) * whole
        parents, last_entries = tree
        weights = weights[parents] * gram[last_entries]
    return tail.reshape(parts, parts)


def _prefixes(grid: SparseGrid) -> list[Prefixes]:
    """Return the distinct prefixes of the grid's multi-indices, for each length from 1 to d."""
    found = []
    prefix = np.zeros(grid.num_cells, dtype=np.int64)
    for k in range(grid.dimensions):
        column = grid.cells[:, k]
        starts = np.ones(grid.num_cells, dtype=bool)
        starts[1:] = (np.diff(prefix) != 0) | (np.diff(column) != 0)
        found.append((prefix[starts], column[starts]))
        prefix = np.cumsum(starts) - 1
    return found


def _missing_cells(
    tree: Prefixes, gram: NDArray[np.float64], weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Sum weights[prefix] * gram[cell] over all pairs (prefix, cell) that are not in ``tree``."""
    parents, last_entries = tree
    cells, prefixes = gram.shape[0], weights.shape[0]
    chunk = max(1, _CHUNK // cells)
    total = np.zeros(gram.shape[1])
    for first in range(0, prefixes, chunk):
        last = min(first + chunk, prefixes)
        inside = slice(*np.searchsorted(parents, [first, last]))
        absent = np.ones((last - first, cells))
        absent[parents[inside] - first, last_entries[inside]] = 0.0
        total += np.sum((absent @ gram) * weights[first:last], axis=0)
    return total


def _cell_grams(exact: ExactSolution, k: int, n: int) -> NDArray[np.float64]:
    """Return, for each 1-D cell of axis k, the Gram matrix (m, m) of the parts' coefficients."""
    coefficients = np.stack([part.factors[k].reshape(-1, n) for part in exact.parts])
    return np.asarray(np.einsum("rcj,scj->crs", coefficients, coefficients))


def _products_of_later_axes(
    totals: Sequence[NDArray[np.float64]],
) -> list[NDArray[np.float64]]:
    """Return, for each axis, the product of the totals of all axes after it."""
    products = [np.ones_like(totals[0])]
    for total in reversed(totals[1:]):
        products.append(products[-1] * total)
    return products[::-1]
