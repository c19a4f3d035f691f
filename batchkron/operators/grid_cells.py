"""The cells of sparse and full grids of given levels, as multi-indices of 1-D cells."""

from __future__ import annotations

import math
from collections import Counter
from typing import Literal

import numpy as np

from batchkron.operators.couplings import Ids, levels_of

__all__ = ["cells_of_levels", "count_cells_of_levels"]


def cells_of_levels(kind: Literal["sparse", "full"], levels: tuple[int, ...]) -> Ids:
    """Return the cells of a grid in lexicographic order, (num_cells, modes).

    With the largest level L_i ≥ 0 of each mode, "sparse" are all cells with Σ l_i / L_i ≤ 1, and
    "full" all with l_i ≤ L_i. A mode of level 0 has cell 0 only.

    The condition is decided in integers, as Σ (m / L_i) l_i ≤ m with m the least common multiple of
    the positive L_i.

    Examples
    --------
    >>> cells_of_levels("sparse", (1, 1)).tolist()
    [[0, 0], [0, 1], [1, 0]]
    """
    costs, budget = _costs(kind, levels)
    cells = np.zeros((1, 0), dtype=np.int64)
    left = np.array([budget], dtype=np.int64)
    for limit, cost in zip(levels, costs, strict=True):
        largest = np.minimum(left // cost, limit) if cost else np.full(left.size, limit)
        counts = np.int64(1) << largest
        stops = np.cumsum(counts)
        new = np.arange(stops[-1]) - np.repeat(stops - counts, counts)
        cells = np.column_stack((np.repeat(cells, counts, axis=0), new))
        left = np.repeat(left, counts) - cost * levels_of(new)
    return cells


def count_cells_of_levels(kind: Literal["sparse", "full"], levels: tuple[int, ...]) -> int:
    """Return the number of cells of `cells_of_levels` without making them.

    Examples
    --------
    >>> count_cells_of_levels("sparse", (6, 6)), count_cells_of_levels("full", (30,))
    (256, 1073741824)
    """
    costs, budget = _costs(kind, levels)
    ways = {budget: 1}  # remaining budget → number of multi-indices along the modes so far
    for limit, cost in zip(levels, costs, strict=True):
        more: Counter[int] = Counter()
        for left, number in ways.items():
            for level in range(min(limit, left // cost if cost else limit) + 1):
                more[left - cost * level] += number * (1 << max(level - 1, 0))
        ways = more
    return sum(ways.values())


def _costs(kind: str, levels: tuple[int, ...]) -> tuple[tuple[int, ...], int]:
    """Return the cost of one level along each mode, and the budget for all levels of a cell."""
    if kind == "full":
        return (0,) * len(levels), 0
    budget = math.lcm(*(limit for limit in levels if limit > 0))
    return tuple(budget // limit if limit else 0 for limit in levels), budget
