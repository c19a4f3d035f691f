"""How sums over edges are cut where children are staged, and their loads; no device is needed."""

import math
from dataclasses import replace

import numpy as np
import pytest
from edge_tables import block_modes, table_of
from nvrtc import DEVICES

from batchkron.backends.cuda.segmented.edges import edge_list, edge_table
from batchkron.backends.cuda.segmented.staged import ModeBundle, staged_loads, staged_tiling

LIMITS = DEVICES["90"]


@pytest.mark.parametrize("nodes", [20, 100_000])
@pytest.mark.parametrize("itemsize", [4, 8, 16])
@pytest.mark.parametrize(
    "sizes", [(3,) * 6, (5,) * 4, (7,) * 3, (3,) * 7, (3,) * 8, (5,) * 5], ids=str
)
def test_tilings_fit_the_device(sizes, itemsize, nodes):
    tiling = staged_tiling(block_modes(sizes), itemsize, nodes, False, LIMITS)
    if tiling is None:
        assert math.prod(sizes) * itemsize >= 50_000  # too many sums or too large
        return
    counts = [bundle.modes for bundle in tiling.bundles]
    assert sum(counts) == len(sizes)
    behind = 1
    for bundle in tiling.bundles:  # the last modes first
        assert behind == bundle.R
        assert bundle.L * bundle.size * bundle.R == math.prod(sizes)
        assert bundle.items * tiling.group >= bundle.L * bundle.R
        assert bundle.items * bundle.size * itemsize <= 72 * 4
        behind *= bundle.size
    assert tiling.group % 32 == 0
    assert tiling.block <= 128
    assert tiling.blocks * (tiling.shared_bytes + 1024) <= LIMITS.shared_bytes + 1024
    assert tiling.shared_bytes % 128 == 0


def test_other_blocks_are_not_staged():
    assert staged_tiling(block_modes((3,) * 6), 8, 10_000, False, LIMITS) is not None
    for sizes in [(3,) * 5, (2,) * 9, (4,) * 6, (8,) * 3, (3, 5, 5, 5), (729,), (9, 9, 9)]:
        assert staged_tiling(block_modes(sizes), 8, 10_000, False, LIMITS) is None
    assert staged_tiling(block_modes((3,) * 6)[:5], 8, 10_000, False, LIMITS) is None
    assert staged_tiling(block_modes((3,) * 6), 8, 10_000, False, DEVICES["80"]) is None
    little = replace(LIMITS, shared_bytes=4096)
    assert staged_tiling(block_modes((3,) * 6), 8, 10_000, False, little) is None


def test_groups_share_nodes_where_these_are_few():
    table = table_of([20] * 3 + [4] * 497)
    tiling = staged_tiling(block_modes((3,) * 6), 8, 500, False, LIMITS)
    assert tiling.groups == 2
    assert tiling.nodes_by_group_count(table, 1, LIMITS) == ([500, 0, 0, 0, 0], 500)
    assert tiling.nodes_by_group_count(table, 200, LIMITS) == ([3, 0, 0, 0, 0], 3 + 249)
    assert replace(tiling, groups=1).nodes_by_group_count(table, 1, LIMITS) == ([0] * 5, 500)
    even = table_of([20] * 500)
    assert tiling.nodes_by_group_count(even, 200, LIMITS) == ([0] * 5, 250)


def test_all_nodes_on_the_device_at_a_time_have_more_groups():
    fewer, more = (
        staged_tiling(block_modes((3,) * 6), 4, nodes, False, LIMITS) for nodes in (500, 1000)
    )
    assert (fewer.groups, more.groups) == (4, 2)
    assert fewer.bundles == more.bundles  # one table of loads for both


def edges_of_loads(starts, loads, bundles, modes):
    """(node, mode, child, matrix) of all loads, and the node's bundles' modes."""
    first = modes
    for number, bundle in enumerate(bundles):
        first -= bundle.modes
        for part in range(number, len(starts) - 1, len(bundles)):
            for code, *words in loads[starts[part] : starts[part + 1]].tolist():
                child, present = divmod(code, 8)
                found = [(first + k, child, word) for k, word in enumerate(words) if word >= 0]
                assert found
                assert present == sum(1 << mode - first for mode, *_ in found)
                for mode, child, word in found:
                    yield part // len(bundles), mode, child, word


@pytest.mark.parametrize("kinds", [3, 300], ids=["edges that are alike", "different edges"])
def test_loads_hold_each_edge_once(rng, kinds):
    modes, nodes = 5, 40
    lists = []
    for mode in range(modes):
        count = rng.integers(0, 6, nodes)
        count[7] = 0  # a node without edges
        starts = np.concatenate([[0], np.cumsum(count)])
        children, words = rng.integers(0, kinds, starts[-1]), rng.integers(0, 10**6, starts[-1])
        lists.append(edge_list(mode, 0, starts, children, words))
    bundles = [ModeBundle(3, 2, 27, 1, 1), ModeBundle(3, 3, 1, 9, 1)]
    table = edge_table([(0, nodes)], lists, modes)
    first, loads = staged_loads(table, bundles)
    expected = sorted(
        (list(table.targets).index(node), mode, int(child), int(word))
        for edges in lists
        for node, mode, child, word in zip(*edges, strict=True)
    )
    assert sorted(edges_of_loads(first, loads, bundles, modes)) == expected
    assert len(loads) <= len(expected)
    pairs = {(node, mode >= 3, child) for node, mode, child, _ in expected}
    repeated = len(expected) - len({edge[:3] for edge in expected})
    assert len(loads) <= len(pairs) + repeated


def test_no_edges():
    starts, none = np.zeros(4, np.int64), np.zeros(0, np.int64)
    lists = [edge_list(mode, 0, starts, none, none) for mode in range(2)]
    first, loads = staged_loads(
        edge_table([(0, 3)], lists, 2), [ModeBundle(3, 1, 3, 1, 1), ModeBundle(3, 1, 1, 3, 1)]
    )
    assert loads.shape == (0, 4)
    assert not first.any()
