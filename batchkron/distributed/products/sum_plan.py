"""Where the terms of a Kronecker sum are multiplied, and what is exchanged for it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from batchkron.distributed.exchanges.exchange import Exchange
from batchkron.distributed.vectors.partition import mode_bounds, whole_modes

__all__ = ["Stage", "SumPlan", "make_sum_plan"]


@dataclass(frozen=True)
class Stage:
    """The terms of neighbouring modes, in an order of the elements in which these are the last.

    ``first``, ``last``: the modes, both inclusive; every rank holds them whole.
    ``bounds`` (tuple of int, (parts + 1,)): of the ranks' parts.
    ``exchange``: to the order of the next stage; None for the last stage.
    """

    first: int
    last: int
    bounds: tuple[int, ...]
    exchange: Exchange | None


@dataclass(frozen=True)
class SumPlan:
    """The stages of a product with A_1 ⊕ … ⊕ A_d whose vectors are spread over ranks.

    The vector x goes from stage to stage. At the last one, the terms of the first modes are
    computed; the sum goes back, and each stage adds its terms.

    ``parts``: the number of ranks that a vector is spread over.
    ``multiply_adds``: those of a vector by the busiest rank of each stage.
    """

    parts: int
    stages: tuple[Stage, ...]
    multiply_adds: float

    @property
    def num_exchanges(self) -> int:
        """How many exchanges are made, there and back."""
        return 2 * (len(self.stages) - 1)

    def sent(self, rank: int) -> int:
        """Return the elements of a vector that a rank sends to others."""
        made = [stage.exchange for stage in self.stages if stage.exchange is not None]
        received = [
            each.targets[rank + 1] - each.targets[rank] - each.count(rank, rank) for each in made
        ]
        return sum(each.sent[rank] for each in made) + sum(received)


def make_sum_plan(sizes: Sequence[int], parts: int) -> SumPlan:
    """Return the plan with the fewest stages.

    ``sizes``: of the square factors.
    ``parts``: the number of ranks that a vector is spread over.
    """
    stages: list[Stage] = []
    ahead, work = len(sizes), 0.0
    while ahead:
        order = [*sizes[ahead:], *sizes[:ahead]]
        bounds = mode_bounds(order, parts)
        first = max(ahead - whole_modes(order, parts), 0)
        group = math.prod(sizes[first:ahead])
        following = [*sizes[first:], *sizes[:first]]
        exchange = None
        if first:
            exchange = Exchange(
                moved=group,
                others=math.prod(sizes) // max(group, 1),
                sources=tuple(bound // max(group, 1) for bound in bounds),
                targets=mode_bounds(following, parts),
            )
        stages.append(Stage(first, ahead - 1, bounds, exchange))
        largest = max(bounds[k + 1] - bounds[k] for k in range(parts))
        work += float(largest) * sum(sizes[first:ahead])
        ahead = first
    return SumPlan(parts, tuple(stages), work)
