"""One exchange: ranks that have rows of a matrix get consecutive elements of its transpose.

The columns of an intermediate are a matrix (L, S): the S values of a group of multiplied modes for
each of L indices of the other modes. Before the exchange a rank has consecutive l, for all s, in
the order (l, s); afterwards it has consecutive elements of the order (s, l). So the next modes,
which are the last ones of l, lie together again. This is the shuffle of FastKron (Jangda and Yadav,
PPoPP 2024, section 5) for parts of any sizes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from batchkron.spec.kron import Array

__all__ = ["Exchange", "Views"]

Views = list[tuple[Array, Array]]  # (target, source) of copies, of one shape


Span = tuple[int, int, int, int]  # s0, s1, l0, l1: elements (s, l), s in [s0, s1), l in [l0, l1)


@dataclass(frozen=True)
class Exchange:
    """Who sends what in one exchange; numbers of elements are those of one vector.

    ``moved``: S, the product of the multiplied modes' sizes.
    ``others``: L, the product of the other modes' sizes.
    ``sources`` (tuple of int, (parts + 1,)): bounds of the parts of l before the exchange.
    ``targets`` (tuple of int, (parts + 1,)): bounds of the parts of s L + l after it.
    ``in_place``: whether each rank, which then has all l of its s, stores them in the order (l, s)
      as before, so that runs of neighbouring s are copied. If not, in the order (s, l).
    """

    moved: int
    others: int
    sources: tuple[int, ...]
    targets: tuple[int, ...]
    in_place: bool = False

    @property
    def parts(self) -> int:
        """The number of ranks that take part."""
        return len(self.sources) - 1

    def spans(self, target: int) -> list[Span]:
        """Return the part of a target as at most three rectangles, in the order of its elements."""
        begin, end = self.targets[target], self.targets[target + 1]
        if begin == end:
            return []
        first, skipped = divmod(begin, self.others)
        last, rest = divmod(end, self.others)
        if first == last:
            return [(first, first + 1, skipped, rest)]
        found = []
        if skipped:
            found.append((first, first + 1, skipped, self.others))
            first += 1
        if first < last:
            found.append((first, last, 0, self.others))
        if rest:
            found.append((last, last + 1, 0, rest))
        return found

    def pieces(self, source: int, target: int) -> Iterator[tuple[int, Span]]:
        """Yield the number of the target's rectangle and what of it comes from the source."""
        begin, end = self.sources[source], self.sources[source + 1]
        for number, (s0, s1, first, last) in enumerate(self.spans(target)):
            l0, l1 = max(first, begin), min(last, end)
            if l0 < l1:
                yield number, (s0, s1, l0, l1)

    def count(self, source: int, target: int) -> int:
        """Return how many elements of a vector go from one rank to another, or stay."""
        pieces = self.pieces(source, target)
        return sum((s1 - s0) * (l1 - l0) for _, (s0, s1, l0, l1) in pieces)

    def send_counts(self, source: int) -> list[int]:
        """Return the elements that go to each rank."""
        return [self.count(source, target) for target in range(self.parts)]

    def receive_counts(self, target: int) -> list[int]:
        """Return the elements that come from each rank."""
        return [self.count(source, target) for source in range(self.parts)]

    @cached_property
    def sent(self) -> tuple[int, ...]:
        """The elements of a vector that each rank sends to others."""
        return tuple(
            (self.sources[rank + 1] - self.sources[rank]) * self.moved - self.count(rank, rank)
            for rank in range(self.parts)
        )

    def pack(self, rank: int, products: Array, buffer: Array) -> Views:
        """Return what is copied so that all that a rank has is in the order of its targets.

        ``products`` (ndarray, (vectors, l, S, inner)).
        ``buffer`` (ndarray, flat, of as many elements).

        Returns list of (target, source): views (vectors, s, l, inner) of the buffer and of the
        products, which `Backend.copy_views` copies. The arrays may be layouts without elements.
        """
        views = self._in_turn(self._by_target(rank, products), buffer)
        return [(packed, view) for view, packed in views]

    def unpack(self, rank: int, buffer: Array, part: Array) -> Views:
        """Return what is copied to bring all that came from ranks, in their order, to its places.

        ``buffer`` (ndarray, flat).
        ``part`` (ndarray, (vectors, elements of the rank, inner)).
        """
        return list(self._in_turn(self._by_source(rank, part), buffer))

    def pack_back(self, rank: int, part: Array, buffer: Array) -> Views:
        """Return what is copied to bring what a rank has after the exchange in its sources' order.

        With `unpack_back` this is the exchange the other way: what `receive_counts` says is sent.
        """
        views = self._in_turn(self._by_source(rank, part), buffer)
        return [(packed, view) for view, packed in views]

    def unpack_back(self, rank: int, buffer: Array, products: Array) -> Views:
        """Return what is copied to bring all that came back to where it was before the exchange."""
        return list(self._in_turn(self._by_target(rank, products), buffer))

    def store(self, rank: int, products: Array, parts: Sequence[Array]) -> Views:
        """Return what is copied to write all that a rank has to where its targets need it.

        ``products`` (ndarray, (vectors, l, S, inner)).
        ``parts`` (sequence of ndarray, (vectors, elements of a rank, inner)): those of all ranks,
          whose memory this rank can write to.
        """
        begin, found = self.sources[rank], []
        for target in ((rank + k) % self.parts for k in range(1, self.parts + 1)):
            # begin with the next rank: not all ranks write to the same one at first
            rectangles = self._rectangles(target, parts[target])
            for number, (s0, s1, l0, l1) in self.pieces(rank, target):
                first, rectangle = rectangles[number]
                view = products[:, l0 - begin : l1 - begin, s0:s1].transpose(0, 2, 1, 3)
                found.append((rectangle[:, :, l0 - first : l1 - first], view))
        return found

    def _by_target(self, rank: int, products: Array) -> Iterator[Array]:
        """Yield views (vectors, s, l, inner) of what a rank has before, target after target."""
        begin = self.sources[rank]
        for target in range(self.parts):
            for _, (s0, s1, l0, l1) in self.pieces(rank, target):
                yield products[:, l0 - begin : l1 - begin, s0:s1].transpose(0, 2, 1, 3)

    def _by_source(self, rank: int, part: Array) -> Iterator[Array]:
        """Yield views (vectors, s, l, inner) of what a rank has after, source after source."""
        rectangles = self._rectangles(rank, part)
        for source in range(self.parts):
            for number, (_, _, l0, l1) in self.pieces(source, rank):
                first, rectangle = rectangles[number]
                yield rectangle[:, :, l0 - first : l1 - first]

    def _rectangles(self, rank: int, part: Array) -> list[tuple[int, Array]]:
        """Return the first l of each rectangle of a rank and its view (vectors, s, l, inner)."""
        vectors, _, inner = part.shape
        views, place = [], 0
        for s0, s1, l0, l1 in self.spans(rank):
            rows, columns = s1 - s0, l1 - l0
            values = part[:, place : place + rows * columns]
            if self.in_place:
                shaped = values.reshape(vectors, columns, rows, inner).transpose(0, 2, 1, 3)
            else:
                shaped = values.reshape(vectors, rows, columns, inner)
            views.append((l0, shaped))
            place += rows * columns
        return views

    def _in_turn(self, views: Iterator[Array], buffer: Array) -> Iterator[tuple[Array, Array]]:
        """Yield views (vectors, s, l, inner), and the parts of a buffer that they have in turn."""
        place = 0
        for view in views:
            values = buffer[place : place + view.size]
            if self.in_place:
                shape = view.transpose(0, 2, 1, 3).shape
                yield view, values.reshape(shape).transpose(0, 2, 1, 3)
            else:
                yield view, values.reshape(view.shape)
            place += view.size
