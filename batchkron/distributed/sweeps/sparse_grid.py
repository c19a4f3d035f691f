"""An operator on a sparse grid of whose cells each rank has some."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from batchkron.backends import Backend, backend
from batchkron.distributed.communication.communicator import Communicator, Pending
from batchkron.distributed.exchanges.blocks import BlockExchange
from batchkron.distributed.exchanges.shared_buffers import SharedBuffers
from batchkron.distributed.operator import DistributedOperator, Ranks
from batchkron.distributed.sweeps.memory import Places, arrival_places, common_places, own_places
from batchkron.distributed.sweeps.partial_sums import with_partial_sums
from batchkron.distributed.sweeps.sweeps_plan import Halo, SweepsPlan, X, Y, plan_sweeps
from batchkron.distributed.vectors.layout import Layout
from batchkron.operators import KroneckerTerms
from batchkron.operators.couplings import Ids
from batchkron.operators.sparse_grid.listing import SweepListing, SweepSum, list_sweeps
from batchkron.operators.sparse_grid.spec import (
    SweepSpec,
    checked_values,
    conjugated,
    of_dtype,
    terms_of_sweeps,
    transposed,
    with_values,
)
from batchkron.spec.kron import Array
from batchkron.spec.sweeps import SweepList, SweepPart, SweepStep, SweepVector

__all__ = ["DistributedSweeps"]


class DistributedSweeps(DistributedOperator):
    """The operator of a sparse grid on blocks of vectors; `distribute` makes it.

    Each rank has some consecutive cells of x and of y, and works on flat vectors of their blocks.
    On a device it first multiplies its own blocks of x, while those of other ranks are on their
    way, and then adds the products of these, or their sums: sums have another order than on one
    device. On the CPU ranks of one machine exchange nothing, but write vectors to common memory and
    read them there.

    ``spec``: the whole operator, on every rank.
    ``listed``: its list of sweeps, and the grid's cells followed by added ones, of `list_sweeps`.
    ``rows``: the number of vectors.
    ``bounds`` (tuple of int, (G_K + 1,)): where the ranks' cells begin and end.
    """

    def __init__(
        self,
        spec: SweepSpec,
        listed: tuple[SweepListing, Ids],
        ranks: Ranks,
        rows: int,
        bounds: tuple[int, ...],
    ) -> None:
        if spec.given != spec.sizes or spec.plus_identity:
            raise ValueError(
                f"the operator maps blocks of {spec.given} functions to blocks of {spec.sizes}, or "
                "has plus_identity; only sums of terms that keep sizes are dealt out"
            )
        listing, cells = listed
        self._spec = spec
        plan = plan_sweeps(listing, cells, bounds)
        # whether products of a rank's own blocks of x are added up before those of others
        self._multiplies_own_first = _is_on_device()
        if self._multiplies_own_first:
            plan = with_partial_sums(plan)
        self.plan = plan
        elements = tuple(spec.block_size * bound for bound in bounds)
        layout = Layout(ranks.grid, rows, elements)
        super().__init__(ranks, layout, layout, spec.dtype, plan)
        rank = self.communicator.rank
        self._memory = self._places(rank)
        arrived, blocks_of_ranks = arrival_places(plan, has_x=self._memory.has_x)
        self._blocks_of_ranks = blocks_of_ranks.tolist()
        self._moves = {
            number: _Move(halo, rank, self._memory, number, arrived[number], self._backend)
            for number, halo in enumerate(plan.halos)
            if len(halo.blocks)
        }
        self._steps = _local_steps(plan, rank, self._memory, self._backend, spec)
        self._workspace = self._backend.workspace()
        self._shared = SharedBuffers(self.communicator, spec.dtype, self._arrays)

    def _places(self, rank: int) -> Places:
        """Return where this rank finds vectors."""
        if self.device == "cpu" and self.plan.num_exchanges:
            common = common_places(self.plan, rank)
            size = common.blocks * self._spec.block_size * self.dtype.itemsize
            if self.communicator.has_common_memory(size):
                return common
        return own_places(self.plan, rank, has_x=not self._multiplies_own_first)

    def update(
        self, blocks: Sequence[ArrayLike] | None = None, coefficients: ArrayLike | None = None
    ) -> None:
        """Replace blocks or coefficients; see `SparseGridOperator.update`. Every rank does this.

        ``blocks`` (sequence of array_like, (count, n, n)): the blocks of each distinct 1-D
          operator, all of them.
        ``coefficients`` (array_like, (terms,)).

        Raises `ValueError`, `TypeError` as for `SparseGridOperator.update`.
        """
        self._update(*checked_values(self._spec, blocks, coefficients))

    def kronecker_terms(self) -> KroneckerTerms:
        """Return the terms of the whole operator on the cells of the grid, on every rank."""
        return terms_of_sweeps(self._spec)

    def _assign(self, matrices: Sequence[Array], weights: Array | None) -> None:
        self._spec = with_values(self._spec, matrices, weights)
        for step in self._steps:
            step.set_values(self._spec)

    def _run(
        self, x: Array, y: Array, outer: int, inner: int, alpha: complex, accumulate: bool
    ) -> None:
        size, places = self._spec.block_size * inner, self._memory
        needed = places.blocks * outer * size * self.dtype.itemsize
        if places.is_common and outer > 1 and not self.communicator.has_common_memory(needed):
            for some in (slice(outer // 2), slice(outer // 2, outer)):  # of the vectors
                rows = [vectors.reshape(outer, -1)[some] for vectors in (x, y)]
                self._run(rows[0], rows[1], len(rows[0]), inner, alpha, accumulate)
            return
        vectors, memories = self._memories(outer, size)
        own = x.reshape(outer, places.owned[X], size)
        if places.has_x:
            begin = places.starts[X]
            vectors[:, begin : begin + places.owned[X]] = own
        results = y.reshape(outer, places.owned[Y], size)
        exchanges = _Exchanges(self, own, vectors, memories)
        exchanges.begin_early(X)
        for step in self._steps:
            end = exchanges.begin(step.arriving)
            if step.target == Y:
                step.run(own, vectors, results, inner, alpha, accumulate or step.adds, end)
            else:
                begin = places.starts[step.target]
                target = vectors[:, begin : begin + places.owned[step.target]]
                step.run(own, vectors, target, inner, 1, step.adds, end)
                if step.is_last:
                    exchanges.begin_early(step.target)
        if not self._steps and not accumulate:
            y[...] = 0

    def _memories(self, outer: int, size: int) -> tuple[Array, Sequence[Array]]:
        """Return memory for all vectors, (outer, blocks, size), and what exchanges write to.

        That is the same memory of each rank where they can store to it, otherwise two pieces.
        """
        blocks = self._memory.blocks
        if self._memory.is_common:
            elements = outer * blocks * size
            memory = self.communicator.common_memory(elements * self.dtype.itemsize)
            common = memory[: elements * self.dtype.itemsize].view(self.dtype)
            return common.reshape(outer, blocks, size), ()
        if self.communicator.stores and self._moves:
            memories = self._shared.take_blocks(outer, self._blocks_of_ranks, size)
            return memories[self.communicator.rank], memories
        moves = [move.blocks for move in self._moves.values()]
        messages = max((max(move.sent, move.received) for move in moves), default=0)
        ends = np.cumsum([0, blocks, messages, messages]) * outer * size
        every = self._workspace.array(int(ends[-1]), self.dtype)
        parts = [every[begin:end] for begin, end in pairwise(ends.tolist())]
        return parts[0].reshape(outer, blocks, size), parts[1:]

    def _like(self, spec: SweepSpec) -> DistributedSweeps:
        """Return the operator of other terms on the same cells, which ranks own likewise."""
        bounds = self.plan.bounds
        return DistributedSweeps(spec, list_sweeps(spec), self.ranks, self.layout.rows, bounds)

    def _build_transpose(self) -> DistributedSweeps:
        return self._like(transposed(self._spec))

    def _build_conjugate(self) -> DistributedSweeps:
        return self._like(conjugated(self._spec))

    def _build_as(self, dtype: np.dtype[Any]) -> DistributedSweeps:
        return self._like(of_dtype(self._spec, dtype))

    def describe(self) -> str:
        """Return a text with the grid of ranks, what is sent, and how evenly work is dealt out."""
        plan, bounds = self.plan, self.plan.bounds
        most = max(bounds[rank + 1] - bounds[rank] for rank in range(plan.parts))
        mean = plan.work.mean()
        uneven = plan.multiply_adds / mean if mean else 1.0
        return (
            f"{super().describe()}\n"
            f"  {bounds[-1]} cells, at most {most} on a rank\n"
            f"  {plan.multiply_adds:.4g} multiply-adds by the busiest rank, {uneven:.2f} times "
            "the mean"
        )


class _Exchanges:
    """The exchanges of one product: what has begun, and what ends it.

    ``own``, (outer, blocks, size): the rank's blocks of x; ``vectors``, ``memories``: of
    `DistributedSweeps._memories`.
    """

    def __init__(
        self, operator: DistributedSweeps, own: Array, vectors: Array, memories: Sequence[Array]
    ) -> None:
        self._moves, self._places = operator._moves, operator._memory
        self._communicator = operator.communicator
        self._own, self._vectors, self._memories = own, vectors, memories
        self._ends: dict[int, Callable[[], None]] = {}
        self._begun: set[int] = set()
        self._first: Pending | None = None  # the meeting before all stores
        self._stores: list[Pending | None] = []  # that may be under way

    def begin_early(self, number: int) -> None:
        """Begin the exchange of a vector that is computed, if others may go on meanwhile."""
        several = len(self._own) > 1 and not self._communicator.stores  # then they share memory
        if number in self._moves and not (self._places.is_common or several):
            self._begin(number)

    def begin(self, numbers: Sequence[int]) -> Callable[[], None] | None:
        """Begin to bring vectors' blocks of other ranks; return what ends it, if there is any."""
        if self._places.is_common:
            for number in numbers:
                self._moves[number].count(self._communicator, self._own)
            if numbers:
                self._communicator.meet(self._own)
            return None
        for number in numbers:
            if number not in self._begun:
                self._end(tuple(self._ends))  # all exchanges use the same memory
                self._begin(number)
        if numbers and self._stores:
            meet = partial(self._communicator.meet, self._own)
            stores, self._stores = tuple(self._stores), []
            met = self._communicator.beside(partial(_after, stores, meet), last=False)
            return None if met is None else met.wait
        return partial(self._end, numbers) if numbers else None

    def _begin(self, number: int) -> None:
        is_own = number == X and not self._places.has_x
        source, move = self._own if is_own else self._vectors, self._moves[number]
        communicator = self._communicator
        if communicator.stores:
            if not self._begun:  # others may still read what the last product brought
                self._first = communicator.beside(partial(communicator.meet, source), last=False)
            store = partial(move.store, communicator, source, self._memories)
            work = partial(_after, (self._first,), store)
            lane = int(number != X)  # x and partial sums go different ways at the same time
            self._stores.append(communicator.beside(work, last=False, lane=lane))
        else:
            self._ends[number] = move.begin(communicator, source, self._vectors, self._memories)
        self._begun.add(number)

    def _end(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            if number in self._ends:
                self._ends.pop(number)()


def _after(earlier: Sequence[Pending | None], work: Callable[[], object]) -> None:
    """Do work behind other work."""
    for pending in earlier:
        if pending is not None:
            pending.wait()
    work()


class _Move:
    """The exchange of one vector's blocks, as a rank makes it."""

    def __init__(
        self, halo: Halo, rank: int, memory: Places, number: int, arrived: Ids, backend: Backend
    ) -> None:
        is_apart = number == X and not memory.has_x  # then x itself is what blocks are taken of
        start = 0 if is_apart else memory.starts[number]
        places = start + np.searchsorted(halo.owned(rank), halo.sent(rank))
        chosen = np.split(places, np.cumsum(halo.counts[rank])[:-1])
        self.blocks = BlockExchange(chosen, halo.counts[:, rank].tolist(), backend)
        self._begin = memory.arrived[number]
        self._counts = halo.counts[rank].tolist()
        self._places = (arrived + halo.counts[:rank].sum(axis=0)).tolist()  # in ranks' memory

    def count(self, communicator: Communicator, own: Array) -> None:
        """Count blocks that others read as if they were sent; ``own`` has their size."""
        counts = [own.shape[0] * own.shape[2] * count for count in self._counts]
        communicator.traffic.count(communicator.rank, counts, own.itemsize)

    def store(self, communicator: Communicator, source: Array, memories: Sequence[Array]) -> None:
        """Write blocks (outer, blocks, size) to their places in each rank's memory."""
        self.blocks.store(communicator, source, memories, self._places)

    def begin(
        self, communicator: Communicator, source: Array, vectors: Array, scratch: Sequence[Array]
    ) -> Callable[[], None]:
        """Begin to bring blocks (outer, blocks, size) of other ranks to their places.

        It returns what ends that.
        """
        out, into = scratch
        target = vectors[:, self._begin : self._begin + self.blocks.received]
        return self.blocks.begin(communicator, source, (out, into), target)


class _Multiplies:
    """Some of the multiplies of a step, all of whose sources are in one array."""

    def __init__(self) -> None:
        self.parts: list[SweepPart] = []
        self.sums: list[tuple[SweepSum, Ids]] = []  # the matrices of each part, and the used ones
        self.plan: Any = None  # the backend's; None if nothing is to be added up

    def add(self, mode: int, total: SweepSum, starts: Ids, ids: Ids, places: Ids) -> None:
        """Add a part, of which each edge has a matrix and the place of its block."""
        if len(ids):
            distinct, numbers = np.unique(ids, return_inverse=True)
            self.parts.append(SweepPart(X, mode, len(distinct), starts, numbers, places))
            self.sums.append((total, distinct))

    def make(
        self, blocks: int, results: int, backend: Backend, spec: SweepSpec, adds: bool
    ) -> None:
        """Plan the multiplies of vectors of so many blocks; ``adds``: to what is there always."""
        if self.parts:
            vectors = (SweepVector(0, blocks), SweepVector(0, results))
            steps = (SweepStep(Y, adds, tuple(self.parts)),)
            listed = SweepList(spec.sizes, spec.given, vectors, steps, spec.dtype)
            self.plan = backend.sweep_plan(listed, _matrices(self.sums, spec))

    def run(self, sources: Array, target: Array, inner: int, alpha: complex, adds: bool) -> bool:
        """Do the multiplies, and return whether there are any."""
        if self.plan is None:
            return False
        for source, result in zip(sources, target, strict=True):
            self.plan.run(source, result, 1, inner, alpha, adds)
        return True

    def set_values(self, spec: SweepSpec) -> None:
        """Copy the matrices and coefficients of an operator of the same structure."""
        if self.plan is not None:
            self.plan.set_values(_matrices(self.sums, spec))


@dataclass(frozen=True, eq=False)
class _LocalStep:
    """A step of the list for the blocks of its target that a rank owns.

    ``target``: the vector that it computes.
    ``adds``: whether it adds to it.
    ``is_last``: whether no later step adds to it.
    ``arriving``: vectors whose blocks of other ranks are needed for the first time.
    ``of_x``, ``of_others`` (_Multiplies): those of the rank's own blocks of x, and of blocks in
      memory.
    """

    target: int
    adds: bool
    is_last: bool
    arriving: tuple[int, ...]
    of_x: _Multiplies
    of_others: _Multiplies

    def run(
        self,
        own: Array,
        vectors: Array,
        target: Array,
        inner: int,
        alpha: complex,
        adds: bool,
        end: Callable[[], None] | None,
    ) -> None:
        """Compute blocks (outer, blocks, size) from a rank's own x and its other vectors.

        ``end`` waits for blocks that are on their way. ``vectors`` and ``target`` may be one array;
        the blocks that are written are not among those that are read.
        """
        adds = self.of_x.run(own, target, inner, alpha, adds) or adds
        if end is not None:
            end()
        adds = self.of_others.run(vectors, target, inner, alpha, adds) or adds
        if not adds:
            target[...] = 0

    def set_values(self, spec: SweepSpec) -> None:
        """Copy the matrices and coefficients of an operator of the same structure."""
        self.of_x.set_values(spec)
        self.of_others.set_values(spec)


def _is_on_device() -> bool:
    """Whether new operators are on a device."""
    return backend().name == "cuda"


def _matrices(sums: Sequence[tuple[SweepSum, Ids]], spec: SweepSpec) -> list[Array]:
    return [np.ascontiguousarray(each.blocks(spec)[used]) for each, used in sums]


def _local_steps(
    plan: SweepsPlan, rank: int, memory: Places, backend: Backend, spec: SweepSpec
) -> list[_LocalStep]:
    """Return the steps of a rank, those in which it has nothing to compute as well."""
    halos, found = plan.halos, []
    sums = iter(plan.sums)
    arrived: set[int] = set()
    last = {step.target: number for number, step in enumerate(plan.sweeps.steps)}
    place_in_x = np.cumsum(halos[X].owners == rank) - 1
    for number, step in enumerate(plan.sweeps.steps):
        sources = {
            part.source
            for part in step.parts
            # in common memory ranks also have to meet before a vector is overwritten
            if memory.is_common or len(plan.needs(part, plan.owners[step.target]))
        } - arrived
        arrived |= sources
        own = halos[step.target].owned(rank)
        of_x, of_others = _Multiplies(), _Multiplies()
        for part in step.parts:
            starts, ids, children = plan.local_part(part, own)
            total, places = next(sums), memory.of(part.source, children)
            is_here = places >= 0
            rows = np.repeat(np.arange(len(own)), np.diff(starts))
            for multiplies, chosen, at in (
                (of_x, ~is_here, place_in_x[children] if part.source == X else places),
                (of_others, is_here, places),
            ):
                counts = np.bincount(rows[chosen], minlength=len(own))
                begins = np.concatenate(([0], np.cumsum(counts, dtype=np.int64)))
                multiplies.add(part.mode, total, begins, ids[chosen], at[chosen])
        of_x.make(memory.owned[X], len(own), backend, spec, adds=False)
        of_others.make(memory.blocks, len(own), backend, spec, adds=of_x.plan is not None)
        arriving = tuple(sorted(source for source in sources if len(halos[source].blocks)))
        is_last = last[step.target] == number
        found.append(_LocalStep(step.target, step.adds, is_last, arriving, of_x, of_others))
    return found
