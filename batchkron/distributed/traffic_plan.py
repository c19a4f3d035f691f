"""What the grid of ranks is chosen by, and what an operator says that it sends."""

from __future__ import annotations

from typing import Protocol

__all__ = ["TrafficPlan", "volume_of"]


class TrafficPlan(Protocol):
    """The work and the messages of a product whose vectors are spread over some ranks."""

    @property
    def parts(self) -> int:
        """The number of ranks that a vector is spread over."""
        ...

    @property
    def multiply_adds(self) -> float:
        """Those of a vector by the busiest rank, from exchange to exchange."""
        ...

    @property
    def num_exchanges(self) -> int:
        """How many exchanges are made."""
        ...

    def sent(self, rank: int) -> int:
        """Return the elements of a vector that a rank sends to others."""
        ...


def volume_of(plan: TrafficPlan) -> int:
    """Return the elements of a vector that all ranks send to others."""
    return sum(plan.sent(rank) for rank in range(plan.parts))
