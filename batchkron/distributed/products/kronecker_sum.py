"""A Kronecker sum of which each rank has a block of every vector."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from batchkron.arrays import on_host_layout
from batchkron.distributed.exchanges.exchange import Views
from batchkron.distributed.operator import DistributedFactors, Ranks
from batchkron.distributed.products.sum_plan import Stage, make_sum_plan
from batchkron.distributed.vectors.layout import Layout
from batchkron.operators import KroneckerSum
from batchkron.spec.kron import Array, read_only_copies

__all__ = ["DistributedSum"]


class DistributedSum(DistributedFactors):
    """The operator A_1 ⊕ … ⊕ A_d on blocks of vectors; `distribute` makes it.

    ``factors`` (sequence of ndarray, (n_k, n_k), of one dtype): A_1 … A_d, all on every rank; they
      are copied.
    ``rows``: the number of vectors.
    """

    def __init__(self, factors: Sequence[Array], ranks: Ranks, rows: int) -> None:
        dtype = factors[0].dtype
        self.factors = read_only_copies(factors, dtype)
        self.plan = make_sum_plan([len(factor) for factor in factors], ranks.grid[1])
        layout = Layout(ranks.grid, rows, self.plan.stages[0].bounds)
        super().__init__(ranks, layout, layout, dtype, self.plan)
        self._pieces = [KroneckerSum(self._factors_of(stage)) for stage in self.plan.stages]
        self._workspace = self._backend.workspace()

    def _factors_of(self, stage: Stage) -> tuple[Array, ...]:
        return self.factors[stage.first : stage.last + 1]

    def _assign(self, matrices: Sequence[Array], weights: Array | None) -> None:
        self.factors = read_only_copies(matrices, self.dtype)
        for stage, piece in zip(self.plan.stages, self._pieces, strict=True):
            piece.update(self._factors_of(stage))

    def _run(
        self, x: Array, y: Array, outer: int, inner: int, alpha: complex, accumulate: bool
    ) -> None:
        stages, rank = self.plan.stages, self.communicator.rank
        last = len(stages) - 1
        parts = [stage.bounds[rank + 1] - stage.bounds[rank] for stage in stages]
        apart = accumulate and last > 0  # sums that come back are added at the end
        lengths = [*parts[1:], *parts[1:], parts[0] * apart, max(parts), max(parts)]
        ends = np.cumsum([outer * inner * length for length in lengths])
        space = self._workspace.array(int(ends[-1]), self.dtype)
        memory = [space[begin:end] for begin, end in pairwise([0, *ends.tolist()])]
        vectors, first = [x.reshape(-1), *memory[:last]], y.reshape(-1)
        sums = [memory[2 * last] if apart else first, *memory[last : 2 * last]]
        move = partial(self._move, outer=outer, inner=inner, scratch=memory[-2:])
        for k in range(last):
            move(stages[k], vectors[k], vectors[k + 1])
        for k in range(last, -1, -1):
            if k < last:
                move(stages[k], sums[k + 1], sums[k], back=True)
            before = outer * (parts[k] // max(self._pieces[k].shape[0], 1))
            adds = k < last or (accumulate and not apart)
            self._pieces[k]._run(vectors[k], sums[k], before, inner, alpha, adds)
        if apart:
            first += sums[0]

    def _move(
        self,
        stage: Stage,
        source: Array,
        target: Array,
        *,
        outer: int,
        inner: int,
        scratch: Sequence[Array],
        back: bool = False,
    ) -> None:
        """Bring vectors from the order of elements of one stage to that of the next, or back."""
        exchange, rank = stage.exchange, self.communicator.rank
        assert exchange is not None
        width = exchange.sources[rank + 1] - exchange.sources[rank]
        part = exchange.targets[rank + 1] - exchange.targets[rank]
        ends: list[tuple[tuple[int, ...], list[int]]] = [
            ((outer, width, exchange.moved, inner), exchange.send_counts(rank)),
            ((outer, part, inner), exchange.receive_counts(rank)),
        ]
        ways: list[Callable[[int, Array, Array], Views]] = [exchange.pack, exchange.unpack]
        if back:
            ends.reverse()
            ways = [exchange.pack_back, exchange.unpack_back]
        (before, sends), (after, receives) = ends
        sent, received = scratch[0][: source.size], scratch[1][: target.size]
        self._copy(ways[0], source.reshape(before), sent)
        counts = [[outer * inner * count for count in own] for own in (sends, receives)]
        self.communicator.alltoallv(sent, counts[0], received, counts[1])
        self._copy(ways[1], received, target.reshape(after))

    def _copy(self, way: Callable[[int, Array, Array], Views], first: Array, second: Array) -> None:
        views = way(self.communicator.rank, on_host_layout(first), on_host_layout(second))
        self._backend.copy_views(views)

    def _build_transpose(self) -> DistributedSum:
        return self._like([factor.T for factor in self.factors])

    def _build_conjugate(self) -> DistributedSum:
        return self._like([factor.conj() for factor in self.factors])

    def _build_as(self, dtype: np.dtype[Any]) -> DistributedSum:
        return self._like([factor.astype(dtype) for factor in self.factors])

    def _like(self, factors: Sequence[Array]) -> DistributedSum:
        return DistributedSum(factors, self.ranks, self.layout.rows)
