"""A Kronecker product of which each rank has a block of every vector."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from batchkron.arrays import on_host_layout
from batchkron.backends import Owners
from batchkron.distributed.communication.communicator import Pending
from batchkron.distributed.exchanges.exchange import Exchange
from batchkron.distributed.exchanges.shared_buffers import SharedBuffers
from batchkron.distributed.operator import DistributedFactors, Ranks
from batchkron.distributed.products.product_plan import ExchangeRule, Plan, Round, make_plan
from batchkron.distributed.vectors.layout import Layout
from batchkron.operators import KroneckerProduct
from batchkron.spec.identities import identity_matrix, is_identity
from batchkron.spec.kron import Array, Precision, structured_copies

__all__ = ["DistributedProduct", "ProductOptions", "shapes_of", "vectors_at_a_time"]

# Bytes that a rank has of a chunk of vectors, at least, and the number of chunks, at most: one is
# exchanged while the next one is multiplied. Chosen by hand.
_MIN_CHUNK_BYTES = 1 << 20
_MAX_CHUNKS = 8


@dataclass(frozen=True, slots=True)
class ProductOptions:
    """How a product is distributed: the arguments of `distribute` beside the grid.

    ``precision``, ``tune``: those of the whole product.
    """

    rows: int
    exchange: ExchangeRule
    redistribute: bool
    transpose: bool
    precision: Precision | None = None
    tune: bool = False


def shapes_of(factors: Sequence[Array]) -> tuple[tuple[int, int], ...]:
    """Return rows and columns of the factors."""
    return tuple((factor.shape[0], factor.shape[1]) for factor in factors)


class DistributedProduct(DistributedFactors):
    """The operator A_1 ⊗ … ⊗ A_d on blocks of vectors; `distribute` makes it.

    ``factors``: A_1 … A_d, all on every rank; they are copied.
    """

    def __init__(self, factors: Sequence[Array], ranks: Ranks, options: ProductOptions) -> None:
        dtype = factors[0].dtype
        self.factors, self.options = structured_copies(factors, dtype), options
        parts = ranks.grid[1]
        self.plan = make_plan(shapes_of(factors), parts, options.exchange, options.redistribute)
        first, last = self.plan.rounds[0], self.plan.rounds[-1].exchange
        layout = Layout(ranks.grid, options.rows, first.bounds)
        if options.redistribute or parts == 1:
            output = Layout(ranks.grid, options.rows, last.targets)
        else:
            output = Layout(ranks.grid, options.rows, last.sources, last.moved)
        super().__init__(ranks, layout, output, dtype, self.plan)
        spans = {(p.first, p.last) for each in self.plan.rounds for p in each.products}
        self._pieces = {
            (first, last): KroneckerProduct(
                factors[first : last + 1], precision=options.precision, tune=options.tune
            )
            for first, last in spans
        }
        self._workspace = self._backend.workspace()
        self._shared = SharedBuffers(self.communicator, dtype, self._arrays)
        self._largest_part = max(
            _part(each.exchange, rank) for each in self.plan.rounds for rank in range(parts)
        )

    def _assign(self, matrices: Sequence[Array], weights: Array | None) -> None:
        self.factors = structured_copies(matrices, self.dtype)
        for (first, last), piece in self._pieces.items():
            piece.update(self.factors[first : last + 1])

    def _run(
        self, x: Array, y: Array, outer: int, inner: int, alpha: complex, accumulate: bool
    ) -> None:
        if self.plan.parts == 1:
            (piece,) = self._pieces.values()
            piece._run(x, y, outer, inner, alpha, accumulate)
        else:
            _Run(self, outer, inner, alpha, accumulate).apply(x, y)

    def _like(
        self, function: Callable[[Array], Array], dtype: np.dtype[Any] | None = None
    ) -> DistributedProduct:
        """Return the product of a function of each factor that is not the identity."""
        factors = [
            identity_matrix(len(factor), dtype or self.dtype)
            if is_identity(factor)
            else function(factor)
            for factor in self.factors
        ]
        return DistributedProduct(factors, self.ranks, self.options)

    def _build_transpose(self) -> DistributedProduct:
        if not self.options.redistribute:
            raise ValueError(
                "the operator leaves its results where the last exchange is left out, so that its "
                "transpose cannot take them; distribute it with redistribute=True"
            )
        return self._like(lambda factor: factor.swapaxes(-1, -2))

    def _build_conjugate(self) -> DistributedProduct:
        return self._like(np.ndarray.conj)

    def _build_as(self, dtype: np.dtype[Any]) -> DistributedProduct:
        return self._like(lambda factor: factor.astype(dtype), dtype)

    def describe(self) -> str:
        """Return a text with the grid, what is sent, and the multiplies between exchanges."""
        groups = " | ".join(
            ", ".join(
                str(p.first) if p.first == p.last else f"{p.first} to {p.last}"
                for p in each.products
            )
            for each in self.plan.rounds
        )
        shapes = " ⊗ ".join(f"{rows}×{columns}" for rows, columns in self.plan.shapes)
        return f"{super().describe()}\n  {shapes}, factors between exchanges: {groups}"


class _Run:
    """One product: its numbers of vectors, and its buffers.

    A rank has buffers of one chunk of vectors for the results of local multiplies, two in turn and
    one for transposed ones; for what it sends and for what it receives, two each, because one chunk
    is under way while the next is packed; and two of all vectors, for its parts between rounds.
    Those that this product has no use for are empty.
    """

    def __init__(
        self, operator: DistributedProduct, outer: int, inner: int, alpha: complex, accumulate: bool
    ) -> None:
        self.operator, self.plan = operator, operator.plan
        self.backend = operator._backend
        self.rank, self.communicator = operator.communicator.rank, operator.communicator
        self.outer, self.inner = outer, inner
        self.alpha, self.accumulate = alpha, accumulate
        self.chunk = vectors_at_a_time(self.plan, outer, inner * operator.dtype.itemsize)
        self._reserve()

    def _reserve(self) -> None:
        sizes = [each.sizes(self.rank) for each in self.plan.rounds]
        parts = [_part(each.exchange, self.rank) for each in self.plan.rounds]
        product, part = max(map(max, sizes)), max(parts)
        several = any(len(each.products) > 1 for each in self.plan.rounds)
        turned, chunks = self.operator.options.transpose, self.outer > self.chunk
        stores = self.communicator.stores
        wanted = True, several, stores and chunks, stores and chunks and several, turned
        lengths = [self.chunk * product * each for each in wanted]
        if stores:  # straight to the memory of other ranks
            lengths += [0] * 6
            self._take(lengths)
            return
        largest = max(each[-1] for each in sizes)
        lengths += [self.chunk * largest * wanted for wanted in (True, chunks)]
        lengths += [self.chunk * part * wanted for wanted in (True, chunks)]
        between = len(sizes) - 1 + self.accumulate  # whose results are read again
        lengths += [self.outer * part * (between > number) for number in range(2)]
        self._take(lengths)

    def _take(self, lengths: Sequence[int]) -> None:
        """Divide the operator's workspace into buffers of these numbers of elements."""
        ends = np.cumsum([length * self.inner for length in lengths])
        memory = self.operator._workspace.array(int(ends[-1]), self.operator.dtype)
        pieces = [memory[begin:end] for begin, end in pairwise([0, *ends.tolist()])]
        self.products, self.turned = (pieces[:2], pieces[2:4]), pieces[4]
        self.sent, self.received, self.parts = pieces[5:7], pieces[7:9], pieces[9:]

    def apply(self, x: Array, y: Array) -> None:
        """Map x to alpha A x, added to y or overwriting it."""
        self._do_rounds(x, y)
        if self.communicator.stores and len(self.plan.exchanges) % 2:
            self.communicator.meet(x)  # the next product begins with the same buffer

    def _do_rounds(self, x: Array, y: Array) -> None:
        source, last = x.reshape(-1), len(self.plan.rounds) - 1
        for number, each in enumerate(self.plan.rounds):
            alpha = self.alpha if number == last else 1
            if number == last and not self.plan.exchanges[number:]:
                self._multiply(each, source, self.outer, alpha, y.reshape(-1))
                return
            if self.communicator.stores:
                source = self._store(each, number, source, alpha)
                continue
            count = self.outer * self.inner * _part(each.exchange, self.rank)
            direct = number == last and not self.accumulate
            target = y.reshape(-1) if direct else self.parts[number % 2][:count]
            self._exchange(each, source, target, alpha)
            source = target
        if self.accumulate:
            y.reshape(-1)[...] += source
        elif self.communicator.stores:
            y.reshape(-1)[...] = source

    def _store(self, each: Round, number: int, source: Array, alpha: complex) -> Array:
        """Multiply, and write results to where their owners need them; return this rank's part.

        Exchanges take turns with two buffers on each rank. When all ranks have met behind an
        exchange, all have used up what the one before has brought, so that its buffer is free.
        """
        exchange, communicator = each.exchange, self.communicator
        before = each.bounds[self.rank + 1] - each.bounds[self.rank]
        given = source.reshape(self.outer, before * self.inner)
        elements = self.operator._largest_part * self.outer * self.inner
        parts = self.operator._shared.take(number % 2, elements)
        owned = [
            memory[: self.outer * _part(exchange, rank) * self.inner].reshape(
                self.outer, _part(exchange, rank), self.inner
            )
            for rank, memory in enumerate(parts)
        ]
        shaped = [on_host_layout(part) for part in owned]
        under_way: list[Pending | None] = [None, None]
        for turn, begin in enumerate(range(0, self.outer, self.chunk)):
            rows, slot = slice(begin, min(begin + self.chunk, self.outer)), turn % 2
            count, pending = rows.stop - rows.start, under_way[slot]
            if pending is not None:
                pending.wait()  # for the product that this one overwrites
            middle = self._before_last(each, given[rows].reshape(-1), count, slot)
            if self._spread(each, middle, alpha, [part[rows] for part in owned]):
                continue
            product = self._last(each, middle, count, alpha, None, slot)
            blocks = self._blocks(each, on_host_layout(product), count)
            views = exchange.store(self.rank, blocks, [part[rows] for part in shaped])
            last = rows.stop == self.outer
            under_way[slot] = communicator.beside(partial(self.backend.copy_views, views), last)
        for pending in under_way:
            if pending is not None:
                pending.wait()
        scale = self.outer * self.inner
        counts = [scale * count for count in exchange.send_counts(self.rank)]
        communicator.traffic.count(self.rank, counts, source.itemsize)
        communicator.meet(source)
        return parts[self.rank][: scale * _part(exchange, self.rank)]

    def _spread(self, each: Round, source: Array, alpha: complex, parts: Sequence[Array]) -> bool:
        """Let the last multiply write to where its owners need it; False if none can.

        ``parts``, (vectors, elements of a rank, inner): the ranks' memory.
        """
        exchange, vectors = each.exchange, len(parts[0])
        first, end = exchange.sources[self.rank : self.rank + 2]
        equal = len({part.shape for part in parts}) == 1 and 0 not in parts[0].shape
        if not equal or parts[0].shape[1] % exchange.others or first == end or not each.products:
            return False
        local, inner = each.products[-1], self.inner
        if local.outputs != exchange.moved or local.behind != 1:
            return False
        rows = parts[0].shape[1] // exchange.others * inner  # elements of an l
        if exchange.in_place:
            begin, group, row = first * rows, end - first, inner
        elif each.behind is not None:
            begin, group, row = first * inner, 1, exchange.others * inner
        else:
            return False
        memory = tuple(part.reshape(-1)[begin:] for part in parts)
        owners = Owners(memory, group, exchange.others * rows, rows, row)
        piece, _, outer, width = self._local(each, len(each.products) - 1, vectors)
        return piece._spread(owners, source, outer, width, alpha)

    def _exchange(self, each: Round, source: Array, target: Array, alpha: complex) -> None:
        """Multiply and exchange chunk after chunk, each while the next one is multiplied."""
        part = _part(each.exchange, self.rank)
        before = each.bounds[self.rank + 1] - each.bounds[self.rank]
        given = source.reshape(self.outer, before * self.inner)
        places = target.reshape(self.outer, part, self.inner)
        under_way: tuple[Pending | None, Array, Array] | None = None
        for number, begin in enumerate(range(0, self.outer, self.chunk)):
            rows = slice(begin, min(begin + self.chunk, self.outer))
            count = rows.stop - rows.start
            product = self._multiply(each, given[rows].reshape(-1), count, alpha, None)
            started = self._begin(each, product, count, number % 2)
            if under_way is not None:
                self._finish(each.exchange, *under_way)
            under_way = (*started, places[rows])
        if under_way is not None:
            self._finish(each.exchange, *under_way)

    def _begin(
        self, each: Round, product: Array, vectors: int, slot: int
    ) -> tuple[Pending | None, Array]:
        """Pack a chunk and begin to send it; return the exchange and what it will have received.

        None for an exchange that is done, because there is no other chunk to multiply meanwhile.
        """
        exchange, blocks = each.exchange, self._blocks(each, product, vectors)
        sent = self.sent[slot][: product.size]
        if self.operator.options.transpose:
            blocks = self._transposed(blocks, self.turned[: product.size])
        views = exchange.pack(self.rank, on_host_layout(blocks), on_host_layout(sent))
        self.backend.copy_views(views)
        scale = vectors * self.inner
        send_counts = [scale * count for count in exchange.send_counts(self.rank)]
        receive_counts = [scale * count for count in exchange.receive_counts(self.rank)]
        received = self.received[slot][: sum(receive_counts)]
        given = sent, send_counts, received, receive_counts
        if self.outer > self.chunk:
            return self.communicator.ialltoallv(*given), received
        self.communicator.alltoallv(*given)
        return None, received

    def _blocks(self, each: Round, product: Array, vectors: int) -> Array:
        """Return a view (vectors, l, s, inner) of the products before an exchange."""
        exchange = each.exchange
        width = exchange.sources[self.rank + 1] - exchange.sources[self.rank]
        if each.behind is None:
            return product.reshape(vectors, width, exchange.moved, self.inner)
        return product.reshape(vectors, exchange.moved, width, self.inner).transpose(0, 2, 1, 3)

    def _transposed(self, blocks: Array, memory: Array) -> Array:
        """Return the same elements after a pass that writes (l, s) as (s, l), as other codes do."""
        vectors, others, moved, inner = blocks.shape
        turned = memory.reshape(vectors, moved, others, inner)
        views = on_host_layout(turned), on_host_layout(blocks).transpose(0, 2, 1, 3)
        self.backend.copy_views([views])
        return turned.transpose(0, 2, 1, 3)

    def _finish(
        self, exchange: Exchange, pending: Pending | None, received: Array, part: Array
    ) -> None:
        if pending is not None:
            pending.wait()
        views = exchange.unpack(self.rank, on_host_layout(received), on_host_layout(part))
        self.backend.copy_views(views)

    def _multiply(
        self,
        each: Round,
        source: Array,
        vectors: int,
        alpha: complex,
        target: Array | None,
        slot: int = 0,
    ) -> Array:
        """Apply a round's local products, to ``target`` or to a buffer, which is returned."""
        middle = self._before_last(each, source, vectors, slot)
        return self._last(each, middle, vectors, alpha, target, slot)

    def _last(
        self,
        each: Round,
        source: Array,
        vectors: int,
        alpha: complex,
        target: Array | None,
        slot: int,
    ) -> Array:
        """Apply the last of a round's local products, to ``target`` or to a buffer."""
        if not each.products:
            return self._copy(source, alpha, target, slot)
        last = len(each.products) - 1
        piece, size, outer, inner = self._local(each, last, vectors)
        result = self.products[slot][last % 2][:size] if target is None else target
        accumulate = target is not None and self.accumulate
        piece._run(source, result, outer, inner, alpha, accumulate)
        return result

    def _before_last(self, each: Round, source: Array, vectors: int, slot: int) -> Array:
        """Apply a round's local products but the last one."""
        for number in range(len(each.products) - 1):
            piece, size, outer, inner = self._local(each, number, vectors)
            result = self.products[slot][number % 2][:size]
            piece._run(source, result, outer, inner, 1, False)
            source = result
        return source

    def _local(
        self, each: Round, number: int, vectors: int
    ) -> tuple[KroneckerProduct, int, int, int]:
        """Return a local product, the elements of its results, and outer and inner vectors."""
        local, sizes = each.products[number], each.sizes(self.rank)
        behind = local.behind * (1 if each.behind is None else each.behind[self.rank])
        outer = vectors * (sizes[number] // max(local.inputs * behind, 1))
        elements = vectors * sizes[number + 1] * self.inner
        piece = self.operator._pieces[local.first, local.last]
        return piece, elements, outer, behind * self.inner

    def _copy(self, source: Array, alpha: complex, target: Array | None, slot: int) -> Array:
        """Do what `_multiply` does where all factors have been applied in earlier rounds."""
        if target is None:
            target = self.products[slot][0][: source.size]
            np.multiply(source, alpha, out=target)
            return target
        if self.accumulate:
            target += alpha * source
        else:
            np.multiply(source, alpha, out=target)
        return target


def _part(exchange: Exchange, rank: int) -> int:
    """Return how many elements of a vector a rank has after an exchange."""
    return exchange.targets[rank + 1] - exchange.targets[rank]


def vectors_at_a_time(plan: Plan, outer: int, nbytes: int) -> int:
    """Return how many vectors are multiplied, and then exchanged, at a time.

    It is the same on every rank: ``nbytes`` is that of an element.
    """
    largest = max(each.exchange.moved * each.exchange.others for each in plan.rounds)
    part = max(largest // plan.parts * nbytes, 1)
    return max(-(-outer // _MAX_CHUNKS), min(-(-_MIN_CHUNK_BYTES // part), max(outer, 1)), 1)
