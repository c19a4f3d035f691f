"""Between which factors of a chain ranks exchange their parts of a vector."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from batchkron.distributed.exchanges.rearrangement import Rearrangement
from batchkron.distributed.kronecker_sparse.segment import Segment, Split, units_of
from batchkron.distributed.vectors.layout import Layout
from batchkron.distributed.vectors.partition import even_bounds, spreads_evenly
from batchkron.spec.kron_sparse import Pattern

__all__ = ["SparsePlan", "make_sparse_plan"]


@dataclass(frozen=True)
class SparsePlan:
    """The segments of a product with K_1 ⋯ K_L whose vectors are spread over ranks.

    ``parts``: the number of ranks that a vector is spread over.
    ``segments``: in the order in which they are applied.
    ``source``, ``target``: who owns what of x and of y, for one vector on these ranks.
    """

    parts: int
    segments: tuple[Segment, ...]
    source: Layout
    target: Layout

    @cached_property
    def moves(self) -> tuple[Rearrangement, ...]:
        """The exchange before each segment, and the one after the last."""
        ranks = range(self.parts)
        has = [[self.source.columns(rank) for rank in ranks]]
        has += [[each.writes(rank) for rank in ranks] for each in self.segments]
        needs = [[each.reads(rank) for rank in ranks] for each in self.segments]
        needs.append([self.target.columns(rank) for rank in ranks])
        return tuple(map(Rearrangement, has, needs))

    @property
    def num_exchanges(self) -> int:
        """How many exchanges are made."""
        return sum(move.is_needed for move in self.moves)

    def sent(self, rank: int) -> int:
        """Return the elements of a vector that a rank sends to others."""
        return sum(move.sent(rank) for move in self.moves)

    @cached_property
    def multiply_adds(self) -> float:
        """Those of a vector by the busiest rank of each segment."""
        busiest = (
            max(each.multiply_adds(rank) for rank in range(self.parts)) for each in self.segments
        )
        return float(sum(busiest))

    def transposed(self) -> SparsePlan:
        """Return the plan of the transposed chain, on whose vectors the layouts are the same."""
        segments = tuple(each.transposed() for each in reversed(self.segments))
        return SparsePlan(self.parts, segments, self.target, self.source)


def make_sparse_plan(patterns: Sequence[Pattern], parts: int, redistribute: bool) -> SparsePlan:
    """Return the plan in which vectors with the fewest elements are exchanged.

    ``patterns``: K_1 to K_L, from the left.
    ``parts``: the number of ranks that a vector is spread over.
    ``redistribute``: whether y of a square chain is brought to the layout of x.
    """
    search = _Search(tuple(reversed(patterns)), parts, redistribute)
    segments = search.best()
    source, last = _layout(segments[0], 1), _layout(segments[-1], 0)
    return SparsePlan(parts, segments, source, source if search.returns else last)


def _layout(segment: Segment, side: int) -> Layout:
    """Return the layout of a segment's outputs (side 0) or inputs (1)."""
    size = segment.patterns[-1 if side == 0 else 0].shape[side]
    grid, rest = (1, segment.parts), size // max(segment.units, 1)
    if segment.split == "residues":
        return Layout(grid, 1, segment.bounds, rest)
    if segment.split == "blocks":
        return Layout(grid, 1, tuple(rest * bound for bound in segment.bounds))
    return Layout(grid, 1, even_bounds(size, segment.parts))


_Cost = tuple[int, int]  # elements of exchanged vectors, segments


class _Search:
    """The best segments from a factor on, in the order in which they are applied."""

    def __init__(self, patterns: tuple[Pattern, ...], parts: int, redistribute: bool) -> None:
        self.patterns, self.parts = patterns, parts
        self.returns = redistribute and patterns[0].shape[1] == patterns[-1].shape[0]
        self._known: dict[int, tuple[_Cost, tuple[Segment, ...]]] = {}

    def best(self) -> tuple[Segment, ...]:
        """Return the segments of the whole chain."""
        found: tuple[_Cost, tuple[Segment, ...]] | None = None
        for first in self._beginning(0):
            self._known = {}
            self._first = first
            total = self._with(first, 0)
            if found is None or total[0] < found[0]:
                found = total
        assert found is not None
        return found[1]

    def _beginning(self, start: int) -> Iterator[Segment]:
        """Yield the segments that begin with a factor, longer ones first."""
        patterns = self.patterns
        splits: tuple[Split, Split] = "blocks", "residues"
        for end in range(len(patterns), start, -1):
            for split in splits:
                if spreads_evenly(units_of(patterns[start:end], split), self.parts):
                    yield Segment(patterns[start:end], split, self.parts)
        yield Segment(patterns[start : start + 1], "products", self.parts)

    def _with(self, segment: Segment, start: int) -> tuple[_Cost, tuple[Segment, ...]]:
        """Return the cost of a segment and the best ones after it, and all of them."""
        end = start + len(segment.patterns)
        before = segment.patterns[0].shape[1]
        own = before if start or segment.split == "products" else 0
        if end < len(self.patterns):
            (sent, count), others = self._after(end)
            return (own + sent, 1 + count), (segment, *others)
        first, after = self._first, segment.patterns[-1].shape[0]
        same = (first.split, first.units) == (segment.split, segment.units)
        if segment.split == "products" or (self.returns and not same):
            own += after
        return (own, 1), (segment,)

    def _after(self, start: int) -> tuple[_Cost, tuple[Segment, ...]]:
        if start not in self._known:
            found = (self._with(segment, start) for segment in self._beginning(start))
            self._known[start] = min(found, key=lambda each: each[0])
        return self._known[start]
