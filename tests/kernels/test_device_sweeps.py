"""Tables of sweeps for a device, in streams and in tiles: the edges they list, and their limits."""

import math

import numpy as np
import pytest

from batchkron.backends.device_segments import EdgeTable, SegmentMode
from batchkron.backends.device_sweep_streams import stream_cut, sweep_streams
from batchkron.backends.device_sweep_tiles import SweepCut, sweep_cut, sweep_groups, sweep_tiles
from batchkron.backends.device_tiling import DeviceLimits

H200 = DeviceLimits(227 << 10, 132, 8)
SIZES = [(3,) * 6, (5,) * 4, (3, 2, 3, 5, 5)]


def modes_of(sizes):
    return [
        SegmentMode(math.prod(sizes[:k]), n, n, math.prod(sizes[k + 1 :]))
        for k, n in enumerate(sizes)
    ]


def random_table(rng, modes, nodes, children, most=5):
    """Targets in any order, some without edges."""
    degrees = rng.integers(0, most, nodes * modes) * rng.integers(0, 2, nodes * modes)
    starts = np.concatenate([[0], np.cumsum(degrees)])
    edges = np.stack(
        [rng.integers(0, children, starts[-1]), rng.integers(0, 1000, starts[-1])], axis=1
    )
    return EdgeTable(rng.permutation(nodes).astype(np.int32), starts, edges.astype(np.int32), 0)


def edges_of(table, modes, wanted):
    """(target, mode, child, matrix) of a table, sorted; of some modes only."""
    owner = np.repeat(np.arange(len(table.starts) - 1), np.diff(table.starts))
    found = zip(
        table.targets[owner // modes].tolist(),
        (owner % modes).tolist(),
        *table.edges.T.tolist(),
        strict=True,
    )
    return sorted(edge for edge in found if edge[1] in wanted)


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("nodes", [1, 5, 150, 2000])
def test_streams_list_all_edges(rng, sizes, nodes):
    modes = modes_of(sizes)
    table = random_table(rng, len(modes), nodes, 3 * nodes)
    cut = stream_cut(sizes, modes, np.dtype(np.float64), nodes, H200)
    streams = sweep_streams(table, modes, sizes, cut)
    assert cut.shared_bytes <= H200.shared_bytes
    assert cut.nodes <= cut.warps
    assert cut.blocks <= max(1, nodes)
    assert len(streams.starts) == cut.blocks + 1
    assert streams.starts[-1] == len(streams.children)
    found, made = [], []
    for stream, place in enumerate(streams.streams):
        block = stream // cut.warps
        own = streams.children[streams.starts[block] : streams.starts[block + 1]]
        edges, last = [], -1
        for key, word in streams.records[place:].tolist():
            mode, number = key % 16, key // 16
            if mode == 14:
                break
            if mode == 15:
                found += [(word, *edge) for edge in edges]
                made.append(word)
                edges = []
                continue
            assert number >= last  # a warp never goes back
            last = number
            edges.append((mode, int(own[number]), word))
        assert mode == 14
        assert not edges
    assert sorted(found) == edges_of(table, len(modes), range(len(modes)))
    assert sorted(made) == sorted(table.targets.tolist())
    assert len(streams.records) >= place + 4  # read ahead


def test_streams_share_children_and_work(rng):
    """Nodes in a row that read what their neighbours read."""
    sizes, count = (3,) * 6, 3000
    modes = modes_of(sizes)
    places = np.arange(count * 6)
    children = np.stack([places // 6, np.maximum(places // 6 - places % 6, 0)], axis=1).reshape(-1)
    edges = np.stack([children, np.zeros_like(children)], axis=1).astype(np.int32)
    table = EdgeTable(np.arange(count, dtype=np.int32), 2 * np.arange(count * 6 + 1), edges, 0)
    cut = stream_cut(sizes, modes, np.dtype(np.float64), count, H200)
    streams = sweep_streams(table, modes, sizes, cut)
    assert len(streams.children) <= count * (cut.nodes + 5) / cut.nodes + 5 * cut.blocks
    read = np.diff(streams.starts)
    assert read.max() <= 1.5 * read.mean()


@pytest.mark.parametrize(
    ("sizes", "dtype", "limits"),
    [
        ((3,) * 3, "float64", H200),  # halves of too few elements
        ((4,) * 4, "float64", H200),  # an even half: slices would meet in banks
        ((3,) * 7, "float64", H200),  # a half of too many
        ((3,) * 6, "complex128", H200),  # too many registers
        ((3,) * 6, "float64", DeviceLimits(163 << 10, 108)),  # no bulk copies
    ],
)
def test_no_streams(sizes, dtype, limits):
    assert stream_cut(sizes, modes_of(sizes), np.dtype(dtype), 1000, limits) is None


@pytest.mark.parametrize("sizes", [(3,) * 6, (4,) * 4, (8, 8), (4, 3, 3, 4)])
@pytest.mark.parametrize("nodes", [1, 5, 150, 2000])
@pytest.mark.parametrize("cut", [None, SweepCut(128, 1, 24 << 10, 100)])
def test_tiles_list_all_edges(rng, sizes, nodes, cut):
    modes = modes_of(sizes)
    groups = sweep_groups(sizes, modes, 8)
    assert [n for group in reversed(groups) for n in group.sizes] == list(sizes)
    table = random_table(rng, len(modes), nodes, 3 * nodes)
    cut = cut or sweep_cut(nodes, groups[0].slices, H200)
    written = set()
    for group, tiles in sweep_tiles(table, groups, cut, 8):
        found, slices = [], {}
        for first, count, node, made, begin, at_once, *_ in tiles.tiles.tolist():
            assert 1 <= at_once <= 32
            assert count <= cut.children(group, at_once, 8) or made == 1
            for target, edge in tiles.nodes[node : node + made].tolist():
                slices.setdefault(target, []).extend(range(begin, begin + at_once))
                while tiles.edges[edge, 0] % 8 != 7:
                    child, word = tiles.edges[edge].tolist()
                    assert child // 8 < count
                    own = int(tiles.children[first + child // 8])
                    if begin == 0:
                        number = target if target >= 0 else ~target
                        found.append((number, group.modes[child % 8], own, word))
                    edge += 1
        assert sorted(found) == edges_of(table, len(modes), group.modes)
        for target, of_target in slices.items():
            assert sorted(of_target) == list(range(group.slices))
            assert (target < 0) == ((~target if target < 0 else target) in written)
        written |= {~target if target < 0 else target for target in slices}
    assert written == set(table.targets.tolist())
