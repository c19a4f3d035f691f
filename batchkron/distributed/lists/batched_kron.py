"""A batch of Kronecker products whose output blocks are dealt out to ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from batchkron.arrays import to_host
from batchkron.distributed.exchanges.blocks import BlockExchange
from batchkron.distributed.exchanges.shared_buffers import SharedBuffers
from batchkron.distributed.lists.halo import HaloPlan
from batchkron.distributed.operator import DistributedOperator, Ranks
from batchkron.distributed.vectors.layout import Layout
from batchkron.operators import BatchedKron, KroneckerTerms
from batchkron.operators.diagonal_blocks import DiagonalBlocks, blocks_of_list
from batchkron.operators.factored_list.choice import PlanName
from batchkron.operators.recovered_terms import KnownTerms, TermsOfList
from batchkron.spec.batch import (
    conjugated,
    of_dtype,
    pool_arrays,
    pool_values,
    transposed,
    weight_values,
)
from batchkron.spec.kron import Array, BatchSpec

__all__ = ["DistributedBatch"]


class DistributedBatch(TermsOfList, DistributedOperator):
    """The operator of a batch list on blocks of vectors; `distribute` makes it.

    Each rank has some blocks of x and of y, and works on flat vectors of these.

    ``spec``: the whole batch list, on every rank.
    ``rows``: the number of vectors.
    ``bounds`` (tuple of int, (G_K + 1,)): where the ranks' blocks of x, and those of y, begin and
      end. By default ranks have equally many.
    ``known``: what is known of the whole list's terms.
    ``tune``, ``way`` ({"direct", "factored", "auto"}): how a rank plans the list of its products.
    """

    def __init__(
        self,
        spec: BatchSpec,
        ranks: Ranks,
        rows: int,
        bounds: tuple[int, ...] | None = None,
        known: KnownTerms | None = None,
        tune: bool = False,
        way: PlanName = "direct",
    ) -> None:
        self._spec, self._bounds, self._known = spec, bounds, known or KnownTerms()
        self._tune, self._way = tune, way
        self.plan = plan = HaloPlan(spec, ranks.grid[1], bounds)
        layout = Layout(ranks.grid, rows, _elements(plan.input_bounds, spec.input_size))
        output = Layout(ranks.grid, rows, _elements(plan.output_bounds, spec.output_size))
        super().__init__(ranks, layout, output, spec.dtype, plan)
        rank = self.communicator.rank
        self._products = plan.products(rank)
        self._local = BatchedKron._from_spec(self._local_spec(rank), tune, wanted=way)
        parts, begin = range(plan.parts), plan.input_bounds[rank]
        self._move = BlockExchange(
            [plan.from_rank(rank, target) - begin for target in parts],
            [len(plan.from_rank(source, rank)) for source in parts],
            self._backend,
        )
        self._blocks_of_ranks = [len(plan.needed(each)) for each in parts]
        before = plan.input_bounds[rank]
        self._places = [int(np.searchsorted(plan.needed(each), before)) for each in parts]
        self._workspace = self._backend.workspace()
        self._shared = SharedBuffers(self.communicator, spec.dtype, self._arrays)

    @classmethod
    def of(
        cls, whole: BatchedKron, ranks: Ranks, rows: int, bounds: tuple[int, ...] | None = None
    ) -> DistributedBatch:
        """Return a whole batch list on ranks, with its options; see the class."""
        known, way = replace(whole._known), whole._choice.wanted
        return cls(whole._spec, ranks, rows, bounds, known, whole._tune, way)

    def _local_spec(self, rank: int) -> BatchSpec:
        """Return the list of this rank's products, on the blocks that it needs."""
        spec, chosen, needed = self._spec, self._products, self.plan.needed(rank)
        begin, end = self.plan.output_bounds[rank : rank + 2]
        return replace(
            spec,
            factor_ids=spec.factor_ids[chosen],
            inputs=np.searchsorted(needed, spec.inputs[chosen]),
            outputs=spec.outputs[chosen] - begin,
            weights=spec.weights[:, chosen],
            num_inputs=len(needed),
            num_outputs=end - begin,
        )

    def update(
        self, pools: Sequence[ArrayLike] | Array | None = None, weights: ArrayLike | None = None
    ) -> None:
        """Replace matrices or weights by others of the same shapes; see `BatchedKron.update`.

        Every rank does this, with the whole pools and weights.
        """
        spec = self._spec
        new_pools, new_weights = spec.pools, spec.weights
        given = None if weights is None else to_host(weights, "weights")
        if given is not None and given.shape != spec.weights.shape[-1:]:
            raise ValueError(
                f"weights has shape {given.shape}; expected {spec.weights.shape[-1:]}, one for "
                "each product of the whole list"
            )
        self._local.update(pools, None if given is None else given[self._products])  # checks them
        if pools is not None:
            new_pools = pool_values(pool_arrays(pools, len(spec.pools)), (), self.dtype)
        if given is not None:
            new_weights = weight_values(given, (), self.dtype)
        self._update(new_pools, new_weights)

    def kronecker_terms(self) -> KroneckerTerms:
        """Return the terms of the whole operator, on every rank.

        Raises `TypeError` if they are not known, or `update` has replaced the entries since.
        """
        terms = self._known.terms
        return super().kronecker_terms() if terms is None else terms

    def diagonal_blocks(self) -> DiagonalBlocks:
        """Return the diagonal blocks of the whole list, on every rank."""
        terms = self._known.terms
        if terms is not None and terms.cells is not None:
            return super().diagonal_blocks()
        return blocks_of_list(self._spec)

    def _assign(self, matrices: Sequence[Array], weights: Array | None) -> None:
        self._forget_terms()
        pools = tuple(np.ascontiguousarray(matrix, self.dtype) for matrix in matrices)
        known = self._spec.weights if weights is None else np.asarray(weights, self.dtype)
        self._spec = replace(self._spec, pools=pools, weights=known)
        self._local.update([pool[0] for pool in pools], known[0, self._products])

    def _run(
        self, x: Array, y: Array, outer: int, inner: int, alpha: complex, accumulate: bool
    ) -> None:
        size = self._spec.input_size * inner
        own = x.reshape(outer, self.shape[1] // max(self._spec.input_size, 1), size)
        move = self._move
        if self.communicator.stores and self.plan.num_exchanges:
            memories = self._shared.take_blocks(outer, self._blocks_of_ranks, size)
            self.communicator.meet(own)
            move.store(self.communicator, own, memories, self._places)
            self.communicator.meet(own)
            blocks = memories[self.communicator.rank].reshape(-1)
            self._local._run(blocks, y, outer, inner, alpha, accumulate)
            return
        ends = np.cumsum([move.sent, move.received, move.received]) * outer * size
        memory = self._workspace.array(int(ends[-1]), self.dtype)
        out, received, blocks = (
            memory[: ends[0]],
            memory[ends[0] : ends[1]],
            memory[ends[1] : ends[2]],
        )
        together = blocks.reshape(outer, move.received, size)
        move.make(self.communicator, own, (out, received), together)
        self._local._run(blocks, y, outer, inner, alpha, accumulate)

    def _like(self, spec: BatchSpec) -> DistributedBatch:
        rows, bounds = self.layout.rows, self._bounds
        return DistributedBatch(spec, self.ranks, rows, bounds, None, self._tune, self._way)

    def _build_transpose(self) -> DistributedBatch:
        return self._like(transposed(self._spec))

    def _build_conjugate(self) -> DistributedBatch:
        return self._like(conjugated(self._spec))

    def _build_as(self, dtype: np.dtype[Any]) -> DistributedBatch:
        return self._like(of_dtype(self._spec, dtype))


def _elements(bounds: Sequence[int], size: int) -> tuple[int, ...]:
    """Return bounds of blocks as bounds of elements."""
    return tuple(size * bound for bound in bounds)
