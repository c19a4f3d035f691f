"""An exchange is a transpose of a matrix that lies on many ranks, whatever their parts."""

import numpy as np
import pytest

from batchkron.distributed.exchanges.exchange import Exchange
from batchkron.distributed.products.product_plan import make_plan


def random_bounds(rng, size, parts):
    """Consecutive parts of any sizes, some of them empty."""
    return (0, *sorted(rng.integers(0, size + 1, parts - 1).tolist()), size)


def copy(views):
    for target, source in views:
        target[...] = source


def send(exchange, packed, back=False):
    """What each rank receives of what all of them have packed; the counts have to agree."""
    parts = range(exchange.parts)
    sends, receives = (
        [counts(rank) for rank in parts]
        for counts in (exchange.send_counts, exchange.receive_counts)
    )
    if back:
        sends, receives = receives, sends
    scale = {buffer.size // sum(sends[r]) for r, buffer in enumerate(packed) if sum(sends[r])}
    assert len(scale) <= 1
    vectors = scale.pop() if scale else 1
    received = []
    for target in parts:
        assert receives[target] == [sends[source][target] for source in parts]
        pieces = []
        for source in parts:
            begin = vectors * sum(sends[source][:target])
            pieces.append(packed[source][begin : begin + vectors * sends[source][target]])
        received.append(np.concatenate(pieces))
    return received


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("part", range(10))
def test_random_exchanges_there_and_back(rng, part, in_place):
    for _ in range(10):
        moved, others, parts = (int(n) for n in rng.integers(1, 9, 3))
        vectors, inner = (int(n) for n in rng.integers(1, 4, 2))
        targets = random_bounds(rng, moved * others, parts)
        if in_place:  # whole rows
            targets = tuple(others * end for end in random_bounds(rng, moved, parts))
        sources = random_bounds(rng, others, parts)
        exchange = Exchange(moved, others, sources, targets, in_place)
        whole = rng.standard_normal((vectors, others, moved, inner))
        turned = whole.transpose(0, 2, 1, 3).reshape(vectors, moved * others, inner)
        before = [
            np.ascontiguousarray(whole[:, exchange.sources[r] : exchange.sources[r + 1]])
            for r in range(parts)
        ]
        after = [
            np.full((vectors, exchange.targets[r + 1] - exchange.targets[r], inner), np.nan)
            for r in range(parts)
        ]
        packed = [np.full(each.size, np.nan) for each in before]
        for rank in range(parts):
            copy(exchange.pack(rank, before[rank], packed[rank]))
        for rank, buffer in enumerate(send(exchange, packed)):
            copy(exchange.unpack(rank, buffer, after[rank]))
            begin, end = exchange.targets[rank : rank + 2]
            expected = turned[:, begin:end]
            if in_place:
                own = whole[:, :, begin // others : end // others]
                expected = own.reshape(vectors, end - begin, inner)
            np.testing.assert_array_equal(after[rank], expected)
            stays = exchange.count(rank, rank)
            assert exchange.sent[rank] == sum(exchange.send_counts(rank)) - stays
        written = [np.full_like(each, np.nan) for each in after]
        for rank in range(parts):
            copy(exchange.store(rank, before[rank], written))
        for one, other in zip(written, after, strict=True):
            np.testing.assert_array_equal(one, other)
        packed = [np.full(each.size, np.nan) for each in after]
        returned = [np.full_like(each, np.nan) for each in before]
        for rank in range(parts):
            copy(exchange.pack_back(rank, after[rank], packed[rank]))
        for rank, buffer in enumerate(send(exchange, packed, back=True)):
            copy(exchange.unpack_back(rank, buffer, returned[rank]))
            np.testing.assert_array_equal(returned[rank], before[rank])


def test_an_exchange_of_nothing():
    exchange = Exchange(3, 0, (0, 0, 0), (0, 0, 0))
    assert exchange.send_counts(0) == exchange.receive_counts(1) == [0, 0]
    assert exchange.sent == (0, 0)


@pytest.mark.parametrize(("size", "parts"), [(4, 2), (4, 4), (6, 2), (6, 3)])
def test_copies_between_the_last_rounds_have_long_runs(size, parts):
    """Neighbouring elements stay neighbours: no copy turns rows into columns."""
    plan = make_plan([(size, size)] * 3, parts, "group", True)
    first, last = (each.exchange for each in plan.rounds)
    assert first.in_place
    assert not last.in_place
    behind = plan.rounds[1].behind
    assert sum(behind) == size * size
    for rank in range(parts):
        width = first.sources[rank + 1] - first.sources[rank]
        products = np.zeros((2, width, first.moved, 1))
        packed = np.zeros(products.size)
        for target, source in first.pack(rank, products, packed):
            assert target.shape[1] in behind
            assert target.strides[1] == source.strides[1] == products.itemsize
        products = np.zeros((2, last.moved, behind[rank], 1)).transpose(0, 2, 1, 3)
        for target, source in last.pack(rank, products, packed):
            assert target.shape[2] == behind[rank]
            assert target.strides[2] == source.strides[2] == products.itemsize


def test_modes_stay_in_front_where_the_last_exchange_is_left_out():
    plan = make_plan([(4, 4)] * 3, 2, "group", False)
    assert not any(each.exchange.in_place or each.behind for each in plan.rounds)


@pytest.mark.parametrize("rank", range(3))
def test_stores_begin_with_the_next_rank(rank):
    exchange = Exchange(6, 6, (0, 2, 4, 6), (0, 12, 24, 36))
    places = [np.zeros((1, 12, 1)) for _ in range(3)]
    written = [target for target, _ in exchange.store(rank, np.ones((1, 2, 6, 1)), places)]
    owners = [
        next(owner for owner, place in enumerate(places) if np.shares_memory(place, target))
        for target in written
    ]
    assert owners == [(rank + 1) % 3, (rank + 2) % 3, rank]
