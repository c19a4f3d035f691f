"""Which modes are multiplied between two exchanges, and what is exchanged."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

from batchkron.distributed.exchanges.exchange import Exchange
from batchkron.distributed.vectors.partition import mode_bounds, whole_modes

__all__ = ["ExchangeRule", "LocalProduct", "Plan", "Round", "make_plan"]

ExchangeRule = Literal["group", "every"]
"""When ranks exchange: after a group of local multiplies, or after every one."""

Shapes = Sequence[tuple[int, int]]  # (rows, columns) of each factor


@dataclass(frozen=True, slots=True)
class LocalProduct:
    """A multiply by neighbouring factors, of modes that every rank holds whole.

    It maps (vectors · before, inputs, behind) to (vectors · before, outputs, behind).

    ``first``, ``last``: the factors, both inclusive.
    ``inputs``, ``outputs``: the products of their columns and of their rows.
    ``behind``: the product of the sizes of the modes behind them, on every rank.
    """

    first: int
    last: int
    inputs: int
    outputs: int
    behind: int


@dataclass(frozen=True)
class Round:
    """Local products, and the exchange that follows them.

    ``bounds`` (tuple of int, (parts + 1,)): of the ranks' parts before the first product.
    ``products``: in the order in which they are applied.
    ``behind`` (tuple of int, (parts,), or None): if the exchange before has left the modes that it
      has moved behind all others: how many elements of them each rank has. None if they come first.
    """

    bounds: tuple[int, ...]
    products: tuple[LocalProduct, ...]
    exchange: Exchange
    behind: tuple[int, ...] | None = None

    def sizes(self, rank: int) -> list[int]:
        """Return the elements of a vector on a rank before, between and after the products."""
        found = [self.bounds[rank + 1] - self.bounds[rank]]
        for product in self.products:
            found.append(found[-1] // max(product.inputs, 1) * product.outputs)
        return found


@dataclass(frozen=True)
class Plan:
    """The rounds of a product with A_1 ⊗ … ⊗ A_d whose vectors are spread over ranks.

    ``shapes``: rows and columns of the factors.
    ``parts``: the number of ranks that a vector is spread over.
    ``redistribute``: whether the exchange of the last round is made, so that each rank has
      consecutive elements of y.
    ``multiply_adds``: those of a vector by the busiest rank of each round.
    """

    shapes: tuple[tuple[int, int], ...]
    parts: int
    rounds: tuple[Round, ...]
    redistribute: bool
    multiply_adds: float

    @property
    def exchanges(self) -> tuple[Exchange, ...]:
        """The exchanges that are made."""
        if self.parts == 1:
            return ()
        made = tuple(each.exchange for each in self.rounds)
        return made if self.redistribute else made[:-1]

    @property
    def num_exchanges(self) -> int:
        """How many exchanges are made."""
        return len(self.exchanges)

    def sent(self, rank: int) -> int:
        """Return the elements of a vector that a rank sends to others."""
        return sum(exchange.sent[rank] for exchange in self.exchanges)


def make_plan(shapes: Shapes, parts: int, rule: ExchangeRule, redistribute: bool) -> Plan:
    """Return the plan of the smallest volume, and of those the one with the fewest rounds.

    Modes are multiplied from the last to the first. Before each exchange a rank multiplies a group
    of the last modes, as many as it holds whole unless a smaller group makes the exchanges smaller
    (rectangular factors), or spreads the work better. With ``rule="every"`` a group is one mode.

    Among the modes that a rank holds whole but does not exchange yet, those whose factors have
    fewer rows than columns are multiplied at once, because that makes the exchange smaller.

    ``shapes``: rows and columns of the factors.
    ``parts``: the number of ranks that a vector is spread over.
    ``rule`` ({"group", "every"}).
    """
    search = _Search(tuple(shapes), parts, rule, redistribute)
    cost, rounds = search.best((len(shapes), frozenset()))
    if parts > 1 and redistribute:
        rounds = _in_place(rounds)
    return Plan(search.shapes, parts, rounds, redistribute, cost[-1])


def _in_place(rounds: tuple[Round, ...]) -> tuple[Round, ...]:
    """Let the last exchange but one leave the modes that it moves behind the others, if it can.

    All other modes are multiplied in the last round, whatever is behind them. So ranks copy long
    runs, and none of the copies turns rows into columns.
    """
    if len(rounds) < 2:
        return rounds
    *others, before, last = rounds
    exchange = before.exchange
    whole = exchange.others > 0 and not any(end % exchange.others for end in exchange.targets)
    if not whole or last.exchange.others != exchange.moved:
        return rounds
    behind = tuple((end - begin) // exchange.others for begin, end in pairwise(exchange.targets))
    kept = replace(before, exchange=replace(exchange, in_place=True))
    return (*others, kept, replace(last, behind=behind))


_State = tuple[int, frozenset[int]]
"""Modes from the number ``ahead`` on are done and first in the order of elements, then come the
others; of these some are done, multiplied already."""

_Cost = tuple[int, int, float]  # elements sent, rounds, multiply-adds


class _Search:
    """The best rounds from a state on; states that are reached twice are searched once."""

    def __init__(
        self, shapes: tuple[tuple[int, int], ...], parts: int, rule: str, redistribute: bool
    ) -> None:
        self.shapes, self.parts = shapes, parts
        self._every = rule == "every" and parts > 1
        self.redistribute = redistribute
        self._known: dict[_State, tuple[_Cost, tuple[Round, ...]]] = {}

    def best(self, state: _State) -> tuple[_Cost, tuple[Round, ...]]:
        """Return the cost of the best rounds, and the rounds."""
        if state[0] == 0:
            return (0, 0, 0.0), ()
        if state not in self._known:
            best: tuple[_Cost, tuple[Round, ...]] | None = None
            for cost, here, following in self._candidates(state):
                later, rounds = self.best(following)
                total = _sum(cost, later)
                if best is None or total < best[0]:
                    best = total, (here, *rounds)
            assert best is not None
            self._known[state] = best
        return self._known[state]

    def _candidates(self, state: _State) -> Iterator[tuple[_Cost, Round, _State]]:
        """Yield rounds from a state, larger groups first."""
        sizes, (ahead, _) = self._sizes(state), state
        whole = max(ahead - whole_modes(sizes, self.parts), 0)
        first = ahead - 1 if self._every else whole
        for cut in range(first, ahead):
            early = range(0) if self._every else range(whole, cut)
            yield self._round(state, sizes, cut, [k for k in early if self._shrinks(state, k)])

    def _shrinks(self, state: _State, k: int) -> bool:
        rows, columns = self.shapes[k]
        return rows < columns and k not in state[1]

    def _size(self, state: _State, k: int) -> int:
        ahead, done = state
        return self.shapes[k][0 if k >= ahead or k in done else 1]

    def _sizes(self, state: _State) -> list[int]:
        """Return the modes' sizes in the order of elements."""
        order = [*range(state[0], len(self.shapes)), *range(state[0])]
        return [self._size(state, k) for k in order]

    def _round(
        self, state: _State, sizes: list[int], cut: int, early: list[int]
    ) -> tuple[_Cost, Round, _State]:
        """Return the round that multiplies and exchanges the modes from ``cut`` on."""
        ahead, done = state
        following = cut, (done | frozenset(early)).intersection(range(cut))
        after, group = self._sizes(following), ahead - cut
        bounds, whole = mode_bounds(sizes, self.parts), whole_modes(sizes, self.parts)
        held = math.prod(sizes[len(sizes) - whole :])  # of one slice of the modes that are whole
        left = math.prod(after[len(after) - whole + group :])  # of those that are not exchanged
        exchange = Exchange(
            moved=math.prod(after[:group]),
            others=math.prod(after[group:]),
            sources=tuple(bound // max(held, 1) * left for bound in bounds),
            targets=mode_bounds(after, self.parts),
        )
        moved = [k for k in range(cut, ahead) if k not in done]
        products = self._products(state, [*_runs(early), *_runs(moved)])
        here = Round(bounds, products, exchange)
        made = self.parts > 1 and (cut > 0 or self.redistribute)
        return (sum(exchange.sent) if made else 0, 1, self._work(here)), here, following

    def _products(self, state: _State, runs: list[tuple[int, int]]) -> tuple[LocalProduct, ...]:
        """Return the products with runs of neighbouring factors, one after another."""
        sizes = [self._size(state, k) for k in range(state[0])]
        products = []
        for first, last in runs:
            rows, columns = zip(*self.shapes[first : last + 1], strict=True)
            behind = math.prod(sizes[last + 1 :])
            products.append(LocalProduct(first, last, math.prod(columns), math.prod(rows), behind))
            sizes[first : last + 1] = rows
        return tuple(products)

    def _work(self, each: Round) -> float:
        """Return the multiply-adds of a vector by the busiest rank, the last factor first."""
        bounds, work = each.bounds, 0.0
        size = float(max(end - begin for begin, end in pairwise(bounds)))
        for product in each.products:
            for rows, columns in reversed(self.shapes[product.first : product.last + 1]):
                work += size * rows
                size *= rows / max(columns, 1)
        return work


def _sum(a: _Cost, b: _Cost) -> _Cost:
    return a[0] + b[0], a[1] + b[1], a[2] + b[2]


def _runs(modes: Sequence[int]) -> list[tuple[int, int]]:
    """Return runs of neighbouring modes as (first, last), the last run first."""
    runs: list[tuple[int, int]] = []
    for k in sorted(modes, reverse=True):
        if runs and runs[-1][0] == k + 1:
            runs[-1] = k, runs[-1][1]
        else:
            runs.append((k, k))
    return runs
