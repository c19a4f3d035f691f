"""An exchange is a transpose of a matrix that lies on many ranks, whatever their parts."""

import numpy as np
import pytest

from batchkron.distributed.exchange import Exchange


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


@pytest.mark.parametrize("part", range(10))
def test_random_exchanges_there_and_back(rng, part):
    for _ in range(10):
        moved, others, parts = (int(n) for n in rng.integers(1, 9, 3))
        vectors, inner = (int(n) for n in rng.integers(1, 4, 2))
        exchange = Exchange(
            moved,
            others,
            random_bounds(rng, others, parts),
            random_bounds(rng, moved * others, parts),
        )
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
            np.testing.assert_array_equal(after[rank], turned[:, begin:end])
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
