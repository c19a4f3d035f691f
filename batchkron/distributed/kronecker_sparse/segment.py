"""Factors of a chain that ranks multiply by without exchanging anything between them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from batchkron.distributed.exchanges.rearrangement import Elements
from batchkron.distributed.vectors.partition import even_bounds
from batchkron.spec.kron import Array
from batchkron.spec.kron_sparse import Pattern

__all__ = ["Segment", "Split", "units_of"]

Split = Literal["blocks", "residues", "products"]
"""What ranks divide of I_a ⊗ 1_{b×c} ⊗ I_d: a, d, or its a · d small dense matrices."""


def units_of(patterns: Sequence[Pattern], split: Split) -> int:
    """Return what is divided among ranks: gcd of all a, gcd of all d, or a · d of one pattern."""
    if split == "blocks":
        return math.gcd(*(pattern.a for pattern in patterns))
    if split == "residues":
        return math.gcd(*(pattern.d for pattern in patterns))
    (pattern,) = patterns
    return pattern.a * pattern.d


@dataclass(frozen=True)
class Segment:
    """Neighbouring factors, split in one way.

    "blocks": a vector of n elements consists of g = gcd(a) equal pieces, which no factor mixes; a
    rank has consecutive ones. "residues": no factor mixes elements e of different e mod g, for
    g = gcd(d); a rank has some consecutive residues, and its elements in the order (residue, rest).
    "products": of one factor. A rank has consecutive ones of the a · d small matrices b × c. If
    there are fewer than ranks, several ranks share one and have some of its rows each.

    ``patterns``: in the order in which the factors are applied.
    ``split`` ({"blocks", "residues", "products"}).
    ``parts``: the number of ranks that a vector is spread over.
    """

    patterns: tuple[Pattern, ...]
    split: Split
    parts: int

    @cached_property
    def units(self) -> int:
        """The number of pieces, residues or small matrices that are dealt out."""
        return units_of(self.patterns, self.split)

    @cached_property
    def bounds(self) -> tuple[int, ...]:
        """Where the ranks' units begin and end, (parts + 1,), if they do not share any."""
        return even_bounds(self.units, self.parts)

    def transposed(self) -> Segment:
        """Return the same split of the transposed factors."""
        patterns = [Pattern(a, c, b, d) for a, b, c, d in reversed(self.patterns)]
        return Segment(tuple(patterns), self.split, self.parts)

    def reads(self, rank: int) -> Elements:
        """Return the elements that a rank multiplies, in the order in which it does."""
        first = self.patterns[0]
        if self.split != "products":
            return self._elements(rank, first.shape[1])
        _, _, c, d = first
        return self._of_products(rank, c, d, range(c))

    def writes(self, rank: int) -> Elements:
        """Return the elements of the result that a rank computes, in the order in which it does."""
        last = self.patterns[-1]
        if self.split != "products":
            return self._elements(rank, last.shape[0])
        _, b, _, d = last
        return self._of_products(rank, b, d, self._share(rank)[1])

    def local_values(self, values: Sequence[Array], rank: int) -> list[Array]:
        """Return the values of a rank's part of the factors, each (a', b', c', d')."""
        return [self._local(each, rank) for each in values]

    def multiply_adds(self, rank: int) -> int:
        """Return those of a vector by a rank."""
        own, rows = self._share(rank)
        if self.split == "products":
            return len(own) * len(rows) * self.patterns[0].c
        return len(own) * sum(each.nonzeros for each in self.patterns) // max(self.units, 1)

    def _share(self, rank: int) -> tuple[range, range]:
        """Return a rank's units, and its rows of them."""
        units, parts, rows = self.units, self.parts, self.patterns[-1].b
        if self.split != "products" or units == 0 or units >= parts:
            return range(self.bounds[rank], self.bounds[rank + 1]), range(rows)
        unit = rank * units // parts
        first, last = -(-unit * parts // units), -(-(unit + 1) * parts // units)
        cuts = even_bounds(rows, last - first)
        return range(unit, unit + 1), range(cuts[rank - first], cuts[rank - first + 1])

    def _elements(self, rank: int, size: int) -> Elements:
        """Return a rank's elements of a vector of a size, of which no factor mixes the units."""
        begin, end = self.bounds[rank], self.bounds[rank + 1]
        rest = size // max(self.units, 1)
        if self.split == "blocks":
            return np.arange(begin * rest, end * rest)
        return (np.arange(begin, end)[:, None] + np.arange(rest) * self.units).reshape(-1)

    def _of_products(self, rank: int, size: int, d: int, chosen: range) -> Elements:
        """Return the elements (product, chosen) of a vector (a, size, d)."""
        own = self._share(rank)[0]
        i, j = np.divmod(np.asarray(own, np.int64), max(d, 1))
        found: Elements = (i * size * d + j)[:, None] + np.asarray(chosen, np.int64) * d
        return found.reshape(-1)

    def _local(self, values: Array, rank: int) -> Array:
        a, b, c, d = values.shape
        own, rows = self._share(rank)
        if self.split == "blocks":
            per = a // max(self.units, 1)
            return values[own.start * per : own.stop * per]
        if self.split == "residues":
            rest = d // max(self.units, 1)
            shaped = values.reshape(a, b, c, rest, self.units)[..., own.start : own.stop]
            return shaped.transpose(4, 0, 1, 2, 3).reshape(len(own) * a, b, c, rest)
        products = values.transpose(0, 3, 1, 2).reshape(a * d, b, c)
        return products[own.start : own.stop, rows.start : rows.stop, :, None]
