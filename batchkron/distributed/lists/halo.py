"""Which blocks of x a rank needs of other ranks for its outputs of a batch list."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from batchkron.distributed.vectors.partition import even_bounds
from batchkron.spec.kron import BatchSpec

__all__ = ["HaloPlan"]

Blocks = NDArray[np.int64]


@dataclass(frozen=True)
class HaloPlan:
    """A batch list whose outputs, and the inputs' blocks, are dealt out to ranks.

    A rank owns consecutive blocks of x and of y. It computes its outputs from blocks of its own and
    from its halo: those of other ranks, which are sent once, however many products read them.

    ``spec``: of the whole list, with one system.
    ``parts``: the number of ranks that a vector is spread over.
    ``bounds`` (tuple of int, (parts + 1,)): where the ranks' blocks of x, and those of y, begin and
      end. By default ranks have equally many.
    """

    spec: BatchSpec
    parts: int
    bounds: tuple[int, ...] | None = None

    @cached_property
    def input_bounds(self) -> tuple[int, ...]:
        """Where the ranks' blocks of x begin and end, (parts + 1,)."""
        return self.bounds or even_bounds(self.spec.num_inputs, self.parts)

    @cached_property
    def output_bounds(self) -> tuple[int, ...]:
        """Where the ranks' blocks of y begin and end, (parts + 1,)."""
        return self.bounds or even_bounds(self.spec.num_outputs, self.parts)

    def products(self, rank: int) -> Blocks:
        """Return the products of a rank's outputs, in the order of the list."""
        begin, end = self.output_bounds[rank], self.output_bounds[rank + 1]
        return np.flatnonzero((self.spec.outputs >= begin) & (self.spec.outputs < end))

    @cached_property
    def _needed(self) -> tuple[Blocks, ...]:
        """The blocks of x that each rank reads, ascending."""
        return tuple(np.unique(self.spec.inputs[self.products(r)]) for r in range(self.parts))

    def needed(self, rank: int) -> Blocks:
        """Return the blocks of x that a rank's products read, ascending."""
        return self._needed[rank]

    def from_rank(self, source: int, target: int) -> Blocks:
        """Return the blocks of one rank that another one needs, ascending."""
        needed = self._needed[target]
        begin, end = np.searchsorted(needed, self.input_bounds[source : source + 2])
        return needed[begin:end]

    @property
    def num_exchanges(self) -> int:
        """One, if anything is sent."""
        return int(any(self.sent(rank) for rank in range(self.parts)))

    def sent(self, rank: int) -> int:
        """Return the elements of a vector that a rank sends to others."""
        others = [target for target in range(self.parts) if target != rank]
        blocks = sum(len(self.from_rank(rank, target)) for target in others)
        return blocks * self.spec.input_size

    @cached_property
    def multiply_adds(self) -> float:
        """Those of a vector by the busiest rank, the first factor first."""
        size, work = float(self.spec.input_size), 0.0
        for pool in self.spec.pools:
            rows, columns = pool.shape[2:]
            work += size * rows
            size *= rows / max(columns, 1)
        most = max(len(self.products(rank)) for rank in range(self.parts))
        return work * most if math.isfinite(work) else math.inf
