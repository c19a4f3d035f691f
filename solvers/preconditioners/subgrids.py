"""The full grids of the combination technique, and the positions of their unknowns."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchkron.operators import KroneckerTerms

__all__ = ["Subgrid", "cells_of", "coloured_levels", "combination_coefficients", "subgrids"]


@dataclass(frozen=True, eq=False)
class Subgrid:
    """One full grid of the combination.

    ``levels``: the finest level of each mode.
    ``coefficient``: the factor of its solution.
    ``places`` (ndarray of int64, (unknowns,), or None): the position in the sparse grid's vector of
      each unknown of the full grid, last mode fastest; the vector's length for unknowns that the
      sparse grid does not have. None if the full grid is the whole vector, in the same order.
    ``complete``: whether the sparse grid has all unknowns of the full grid.
    """

    levels: tuple[int, ...]
    coefficient: int
    places: NDArray[np.int64] | None
    complete: bool


def combination_coefficients(levels: NDArray[np.int64]) -> dict[tuple[int, ...], int]:
    """Return the coefficients c_l of the combination technique on a set of level multi-indices.

    The set consists of ``levels``, (count, d), and all that are below one of them. Those that are
    not zero are c_l = Σ_z (-1)^|z| [l + z in the set] over z in {0, 1}^d. Source: M. Griebel, M.
    Schneider, C. Zenger, A combination technique for the solution of sparse grid problems (1992);
    for general sets M. Hegland, ANZIAM J. 44 (2003).

    Examples
    --------
    >>> import numpy as np
    >>> print(combination_coefficients(np.array([[1, 0], [0, 1]])))
    {(0, 0): -1, (0, 1): 1, (1, 0): 1}
    """
    known: set[tuple[int, ...]] = set()
    waiting = [tuple(int(v) for v in row) for row in np.unique(levels, axis=0)]
    while waiting:
        level = waiting.pop()
        if level in known:
            continue
        known.add(level)
        for k, value in enumerate(level):
            if value:
                waiting.append((*level[:k], value - 1, *level[k + 1 :]))
    corners = list(product((0, 1), repeat=levels.shape[1]))
    found = {}
    for level in sorted(known):
        number = sum(
            (-1) ** sum(z) for z in corners if tuple(map(sum, zip(level, z, strict=True))) in known
        )
        if number:
            found[level] = number
    return found


def coloured_levels(levels: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Return the maximal level multi-indices of a set, by the parity of their largest level.

    These are one group or two. In two dimensions the neighbours (i, j) and (i + 1, j - 1) are in
    different groups, except the two middle ones if i + j is odd. Grids with the same largest level
    are in the same group.

    Examples
    --------
    >>> import numpy as np
    >>> for group in coloured_levels(np.array([[3, 0], [2, 1], [1, 2], [0, 3], [1, 1]])):
    ...     print(group.tolist())
    [[1, 2], [2, 1]]
    [[0, 3], [3, 0]]
    """
    found = np.unique(levels, axis=0)
    known = {tuple(row) for row in found.tolist()}
    above = np.eye(found.shape[1], dtype=np.int64)
    tops = [
        row for row in found if not any(tuple((row + step).tolist()) in known for step in above)
    ]
    colours = np.array([row.max() % 2 for row in tops])
    return [np.array(tops)[colours == colour] for colour in np.unique(colours)]


def subgrids(terms: KroneckerTerms, tops: NDArray[np.int64] | None = None) -> list[Subgrid]:
    """Return the full grids whose signed sum is the grid of an operator, or a part of that.

    Without cells there is one full grid. ``tops``, (count, d), restricts the grid to levels that
    are below one of these.
    """
    if terms.cells is None:
        return [Subgrid((0,) * len(terms.sizes), 1, None, True)]
    wanted_levels = terms.levels if tops is None else tops
    widths = 1 << terms.levels.max(axis=0)
    keys = np.ravel_multi_index(tuple(terms.cells.T), tuple(widths))
    order = np.argsort(keys)
    sorted_keys = keys[order]
    found = []
    for levels, coefficient in combination_coefficients(wanted_levels).items():
        cells = np.indices([1 << level for level in levels]).reshape(len(levels), -1)
        wanted = np.ravel_multi_index(tuple(cells), tuple(widths))
        at = np.minimum(np.searchsorted(sorted_keys, wanted), len(keys) - 1)
        present = sorted_keys[at] == wanted
        cell = np.where(present, order[at], len(keys))
        places = _unknowns(cell, levels, terms.sizes)
        np.minimum(places, terms.unknowns, out=places)
        found.append(Subgrid(levels, coefficient, places, bool(present.all())))
    return found


def _unknowns(
    cells: NDArray[np.int64], levels: tuple[int, ...], sizes: tuple[int, ...]
) -> NDArray[Any]:
    """Return the position of each unknown, in the order cell and function of mode 1, mode 2, …."""
    d = len(sizes)
    block = math.prod(sizes)
    inner = np.arange(block).reshape(sizes)
    boxes = cells.reshape([1 << level for level in levels])
    wide = boxes.reshape(*boxes.shape, *(1,) * d) * block + inner
    axes = [axis for k in range(d) for axis in (k, d + k)]
    return np.ascontiguousarray(wide.transpose(axes).ravel())


def cells_of(
    grid: Subgrid, widths: tuple[int, ...], sizes: tuple[int, ...]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the cells of a full grid that the sparse grid has, and where they are in its vector.

    ``widths``, ``sizes``: the 1-D cells of the full grid, and the functions of one, for each mode.

    Returns ``cells`` (ndarray of int64, (count, modes)): multi-indices in the full grid, last mode
    fastest; ``blocks`` (ndarray of int64, (count,)): numbers of the cells' blocks in the sparse
    grid's vector.
    """
    cells = np.indices(widths).reshape(len(widths), -1).T
    if grid.places is None:
        return cells, np.arange(len(cells))
    shape = [size for pair in zip(widths, sizes, strict=True) for size in pair]
    first = grid.places.reshape(shape)[(slice(None), 0) * len(widths)].ravel()
    present = np.ones(len(first), bool) if grid.complete else first < grid.places.max()
    return cells[present], first[present] // math.prod(sizes)
