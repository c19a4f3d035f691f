"""The work and the messages of sweeps on a sparse grid that is spread over devices, by their plan.

The grid is that of the gallery's continuity-6d of degree 1; what is counted here for a product is
what `distribute` plans for its operator.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from batchkron.distributed.sweeps.sweeps_plan import cell_bounds, plan_sweeps, work_of_cells
from batchkron.operators.sparse_grid.listing import list_sweeps
from batchkron.problems import make


@dataclass(frozen=True)
class SweepTraffic:
    """Figures of a product with one vector.

    Parameters
    ----------
    unknowns : int
        Of the grid.
    share : float
        The work of the busiest device, as a part of the whole.
    near, far : int
        The elements that a device sends to, or gets from, devices of its host, and others: the
        largest numbers.
    exchanges : int
    """

    unknowns: int
    share: float
    near: int
    far: int
    exchanges: int


@cache
def _listed(level: int) -> tuple[int, Any, Any]:
    """Return the unknowns, the list of sweeps and the cells of a grid."""
    problem = make("continuity-6d", level=level, degree=1)
    listing, cells = list_sweeps(problem.operator._spec)
    return problem.unknowns, listing, cells


@cache
def traffic(level: int, parts: int, host: int) -> SweepTraffic:
    """Return the figures of a grid on ``parts`` devices, ``host`` of them in each machine."""
    unknowns, listing, cells = _listed(level)
    bounds = cell_bounds(work_of_cells(listing, cells), cells, parts)
    plan = plan_sweeps(listing, cells, bounds)
    counts = sum((halo.counts for halo in plan.halos), np.zeros((parts, parts), np.int64))
    hosts = np.arange(parts) // host
    inside = hosts[:, None] == hosts
    size = listing.sweeps.block_size
    near, far = (
        size * int(max(chosen.sum(axis=0).max(), chosen.sum(axis=1).max()))
        for chosen in (counts * inside, counts * ~inside)
    )
    share = plan.multiply_adds / float(plan.work.sum())
    return SweepTraffic(unknowns, share, near, far, plan.num_exchanges)
