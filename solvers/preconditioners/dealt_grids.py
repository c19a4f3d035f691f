"""The full grids of a combination, dealt out to ranks."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .factorised import FactorisedGrids
from .grid_inverses import GridInverses
from .subgrids import Subgrid

__all__ = ["DealtGrids", "deal_grids"]


@dataclass(frozen=True, eq=False)
class DealtGrids:
    """Some full grids of a signed sum, those of one rank.

    ``whole``: the sum over all grids.
    ``grids``: the rank's.
    ``elements`` (ndarray of int64): the elements of the sparse grid's vector that these grids read,
      and add to, ascending.
    """

    whole: GridInverses | FactorisedGrids
    grids: tuple[Subgrid, ...]
    elements: NDArray[np.int64]

    @property
    def cost(self) -> float:
        """Multiply-adds of the solves, up to what grids share."""
        return sum(map(cost_of, self.grids))

    @property
    def padding(self) -> int:
        """Elements after ``elements`` in the vectors of `inverses`: one for absent unknowns."""
        return int(not all(grid.complete for grid in self.grids))

    def inverses(self, scale: Any) -> GridInverses | FactorisedGrids:
        """Return the sum for a scale over these grids, on vectors of ``elements`` and padding."""
        # absent unknowns are at the end
        placed = [
            replace(grid, places=np.searchsorted(self.elements, _places(grid)))
            for grid in self.grids
        ]
        return self.whole.restricted(placed).shifted(scale)


def cost_of(grid: Subgrid) -> float:
    """Return the multiply-adds of a solve by diagonalisation: two products along each mode.

    The sizes of the modes are not known here; they are as 2^level.
    """
    return 2.0 * len(_places(grid)) * sum(1 << level for level in grid.levels)


def deal_grids(whole: GridInverses | FactorisedGrids, parts: int, size: int) -> list[DealtGrids]:
    """Deal grids out to ranks, each in turn to the rank with the least work, costly ones first.

    ``size`` is the number of unknowns of the sparse grid. Some ranks have no grids if there are
    fewer than ranks. Costs differ by at most that of one grid.
    """
    ranks: list[tuple[float, int]] = [(0.0, rank) for rank in range(parts)]
    chosen: list[list[int]] = [[] for _ in ranks]
    costs = [cost_of(grid) for grid in whole.grids]
    for number in sorted(range(len(costs)), key=lambda k: (-costs[k], k)):
        work, rank = heapq.heappop(ranks)
        chosen[rank].append(number)
        heapq.heappush(ranks, (work + costs[number], rank))
    dealt = []
    for own in chosen:
        grids = tuple(whole.grids[number] for number in sorted(own))
        elements = np.unique(np.concatenate([np.zeros(0, np.int64), *map(_places, grids)]))
        dealt.append(DealtGrids(whole, grids, elements[elements < size]))
    return dealt


def _places(grid: Subgrid) -> NDArray[np.int64]:
    assert grid.places is not None
    return grid.places
