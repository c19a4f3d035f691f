"""The grid of ranks: how many share a vector, by estimated times."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from batchkron.distributed.traffic_plan import TrafficPlan

__all__ = ["Grid", "check_grid", "choose_grid", "estimated_time"]

Grid = tuple[int, int]  # (G_M, G_K): ranks along the vectors, and along their elements

# Rough figures of a rank that has some processors of a machine, and its share of a fast network;
# chosen by hand. Only their ratios matter: compute grows with the vectors' length times the
# factors' sizes, traffic with the length alone.
_MULTIPLY_ADDS_PER_SECOND = 1e10  # of real numbers, per second
_BYTES_PER_SECOND = 5e9  # sent by a rank, per second
_LATENCY = 5e-6  # seconds that each message takes besides


def estimated_time(plan: TrafficPlan, rows: int, dtype: np.dtype[np.generic]) -> float:
    """Return the estimated seconds of a product with ``rows`` vectors on each rank."""
    reals = 4 if dtype.kind == "c" else 1
    busiest = max(plan.sent(rank) for rank in range(plan.parts))
    messages = plan.num_exchanges * (plan.parts - 1)
    compute = rows * reals * plan.multiply_adds / _MULTIPLY_ADDS_PER_SECOND
    return compute + rows * busiest * dtype.itemsize / _BYTES_PER_SECOND + messages * _LATENCY


def choose_grid(
    ranks: int, rows: int, dtype: np.dtype[np.generic], plan_of: Callable[[int], TrafficPlan]
) -> Grid:
    """Return the grid (G_M, G_K) of the least estimated time.

    With as many vectors as ranks each rank takes whole vectors and nothing is exchanged; one vector
    is spread over all ranks.

    ``rows``: the number of vectors.
    ``plan_of``: ``plan_of(G_K)`` returns the plan of a product spread over G_K ranks.
    """
    best, least = (1, ranks), np.inf
    for parts in range(1, ranks + 1):
        if ranks % parts == 0 and rows > 1:
            share = -(-rows // (ranks // parts))
            seconds = estimated_time(plan_of(parts), share, dtype)
            if seconds < least:
                best, least = (ranks // parts, parts), seconds
    return best


def check_grid(grid: object, ranks: int) -> Grid:
    """Return a grid that the user gave.

    Raises `ValueError` if it is not two positive integers whose product is the number of ranks.
    """
    numbers = tuple(grid) if isinstance(grid, (tuple, list)) else ()
    integers = all(isinstance(n, (int, np.integer)) and n > 0 for n in numbers)
    if len(numbers) != 2 or not integers or numbers[0] * numbers[1] != ranks:
        raise ValueError(
            f"grid is {grid!r}; expected 'auto' or (G_M, G_K) with G_M * G_K = {ranks}, the number "
            "of ranks"
        )
    return int(numbers[0]), int(numbers[1])
