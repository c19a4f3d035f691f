"""How sums over edges, and lists of sweeps, are cut for a device; no device is needed."""

import itertools
import math

import numpy as np
import pytest
from dense_oracle import DTYPES, random_array
from edge_tables import block_modes, table_of
from nvrtc import DEVICES

from batchkron.backends.cuda.segmented.edges import (
    SegmentMode,
    edge_list,
    edge_table,
    laid_out_matrices,
    matrix_words,
)
from batchkron.backends.cuda.segmented.general import segment_tiling
from batchkron.backends.cuda.segmented.levels import sweep_levels
from batchkron.backends.reference import ReferenceBackend
from batchkron.spec.sweeps import SweepList, SweepPart, SweepStep, SweepVector

BLOCKS = [
    (1,),
    (3,) * 6,
    (2,) * 9,
    (8,) * 3,
    (5, 1, 7),
    (4,) * 6,
    (40, 50),
    (3, 3),
    (1, 1),
    (8,) * 6,
]


@pytest.mark.parametrize("capability", DEVICES)
@pytest.mark.parametrize("sizes", BLOCKS, ids=str)
def test_tilings_fit_the_device(sizes, capability):
    limits = DEVICES[capability]
    for itemsize, nodes, inner in itertools.product((4, 8, 16), (1, 1700, 10**6), (1, 3, 64)):
        tiling = segment_tiling(block_modes(sizes), itemsize, nodes, 1, inner, limits)
        assert tiling.group & (tiling.group - 1) == tiling.width & (tiling.width - 1) == 0
        assert 1 <= tiling.block <= 1024
        assert tiling.group == 32 or tiling.group % 32 == 0 or 32 % tiling.group == 0
        # a group of several warps takes a named barrier, of which a thread block has 16
        assert tiling.groups < 16 or tiling.group <= 32
        assert tiling.shared_bytes <= limits.shared_bytes
        assert tiling.in_shared or math.prod(sizes) * tiling.width * itemsize > 48 << 10
        assert (tiling.width == 1) == (inner == 1)
        for mode in tiling.modes:
            registers = mode.items * mode.tile * itemsize // 4
            assert registers <= 32 or mode.items == 1
            assert 1 <= mode.tile <= mode.K


def test_few_nodes_have_larger_groups():
    few, many = (
        segment_tiling(block_modes((3,) * 6), 8, nodes, 1, 1, DEVICES["90"])
        for nodes in (100, 10**6)
    )
    assert few.group > many.group
    assert many.group * many.modes[0].items >= 243


def test_matrices_are_laid_out_by_columns(rng, dtype):
    for outputs, inputs in itertools.product((1, 2, 3, 5, 8, 9, 13), (1, 3, 6)):
        mode = SegmentMode(1, inputs, outputs, 1)
        matrices = random_array(rng, (4, outputs, inputs), dtype)
        words = matrix_words(mode, dtype.itemsize)
        flat = laid_out_matrices(mode, matrices)
        assert flat.nbytes == 4 * words * 16
        rows = flat.reshape(4, -1)
        pitch = (
            next(  # the distance of columns, each of which begins at a whole word
                p
                for p in range(outputs, 33)
                if np.array_equal(rows[:, p : p + outputs], matrices[:, :, 1])
            )
            if inputs > 1
            else 0
        )
        for c in range(inputs):
            np.testing.assert_array_equal(rows[:, c * pitch :][:, :outputs], matrices[:, :, c])


def test_tables_hold_each_edge_once(rng):
    counts = rng.integers(0, 4, (2, 50))
    counts[1, 7] = 300
    lists = []
    for mode, count in enumerate(counts):
        starts = np.concatenate([[0], np.cumsum(count)])
        children, words = (rng.integers(0, 99, starts[-1]) for _ in range(2))
        lists.append(edge_list(mode, 20, starts, children, words))
    table = edge_table([(20, 50), (5, 3)], lists, 2)
    assert sorted(table.targets) == [5, 6, 7, *range(20, 70)]
    assert table.targets[0] == 27
    assert table.classes == ((512, 1), (8, 52))
    for node, target in enumerate(table.targets):
        for mode, one in enumerate(lists):
            begin, end = table.starts[2 * node + mode : 2 * node + mode + 2]
            found = table.edges[begin:end]
            if target < 20:
                assert not len(found)
                continue
            outputs, _, children, words = one
            expected = np.stack([children, words], axis=1)[outputs == target]
            np.testing.assert_array_equal(found, expected)
    has_edges = counts.sum(axis=0) > 0
    assert not has_edges.all()
    fewer = edge_table([(20, 50), (5, 3)], lists, 2, only_with_edges=True)
    assert sorted(fewer.targets) == (20 + np.flatnonzero(has_edges)).tolist()
    np.testing.assert_array_equal(fewer.edges, table.edges)


def test_neighbours_stay_together():
    starts = np.arange(0, 202, 2)
    children = np.zeros(200, np.int64)
    table = edge_table([(0, 100)], [edge_list(0, 0, starts, children, children)], 1)
    np.testing.assert_array_equal(table.targets, np.arange(100))
    assert table.classes == ((8, 100),)


def test_nodes_are_sorted_by_classes(rng):
    counts = rng.integers(0, 70, 200)
    table = table_of(counts)
    assert [edges for edges, _ in table.classes] == [128, 64, 32, 16, 8]
    first = 0
    for edges, nodes in table.classes:
        own = table.targets[first : first + nodes]
        assert counts[own].max() <= edges
        assert edges == 8 or counts[own].min() > edges // 2
        np.testing.assert_array_equal(own, np.sort(own))
        first += nodes
    assert first == 200


def places(nodes_by_group_count, blocks, groups):
    """For each group: its node or None, its place among the groups of that node, their number."""
    for block in range(blocks):
        first, groups_per_node = 0, min(groups, 16)
        for nodes in nodes_by_group_count:
            own = groups // groups_per_node
            if block < -(-nodes // own):
                break
            block, first, groups_per_node = (
                block - -(-nodes // own),
                first + nodes,
                groups_per_node // 2,
            )
        for index in range(groups):
            at = block * own + index // groups_per_node
            yield (first + at if at < nodes else None), index % groups_per_node, groups_per_node


@pytest.mark.parametrize("sizes", BLOCKS, ids=str)
@pytest.mark.parametrize("nodes", [1, 300, 20_000])
def test_groups_make_each_node_once(rng, sizes, nodes):
    counts = np.where(
        rng.random(nodes) < 0.1, rng.integers(0, 300, nodes), rng.integers(0, 9, nodes)
    )
    table = table_of(counts)
    limits = DEVICES["90"]
    tiling = segment_tiling(block_modes(sizes), 8, nodes, 1, 1, limits)
    nodes_by_group_count, blocks = tiling.nodes_by_group_count(table, 1, limits)
    assert sum(nodes_by_group_count) == nodes
    found = {}
    for node, member, groups_per_node in places(nodes_by_group_count, blocks, tiling.groups):
        if node is not None:
            found.setdefault((node, groups_per_node), []).append(member)
    assert len(found) == nodes
    assert all(
        members == list(range(groups_per_node)) for (_, groups_per_node), members in found.items()
    )
    sizes_of = np.array([groups_per_node for _, groups_per_node in sorted(found)])
    assert np.all(np.diff(sizes_of) <= 0)  # those of the most edges first
    if nodes == 1:
        maximum = max(8, counts[0])
        assert sizes_of[0] == min(16, tiling.groups, 1 << int(np.ceil(np.log2(maximum))))


def test_groups_of_a_node_grow_until_the_device_is_full():
    counts = np.full(64, 32)
    table = table_of(counts)
    limits = DEVICES["90"]
    tiling = segment_tiling(block_modes((3, 3)), 8, 64, 1, 1, limits)
    largest = [
        tiling.nodes_by_group_count(table, slabs, limits)[0].index(64)
        for slabs in (1, 30, 60, 10**5)
    ]
    assert largest == sorted(largest)
    assert largest[0] == 0
    assert largest[-1] == 4  # a group alone


def test_what_32_bits_do_not_number_is_refused():
    starts, one = np.array([0, 1]), np.array([2**31])
    zero = np.array([0])
    with pytest.raises(
        ValueError, match=r"inputs .* number 2147483649; a device takes up to 2\^31"
    ):
        edge_table([(0, 1)], [edge_list(0, 0, starts, one, zero)], 1)
    with pytest.raises(ValueError, match="words of matrices"):
        edge_table([(0, 1)], [edge_list(0, 0, starts, zero, one)], 1)


def random_part(rng, source, mode, inputs, outputs, count=3):
    counts = rng.integers(0, 4, outputs)
    starts = np.concatenate([[0], np.cumsum(counts)])
    ids, children = rng.integers(0, count, starts[-1]), rng.integers(0, inputs, starts[-1])
    return SweepPart(source, mode, count, starts, ids, children)


def random_sweeps(rng, sizes, dtype, outputs=6):
    """From x (0) to vector 2 to 3 to y (1); x to y; x to 4, in the memory of 2, to y."""
    blocks = [6, outputs, 4, 5, 4]
    starts = [0, 0, 0, 4, 0]

    def part(source, target):
        return random_part(rng, source, rng.integers(len(sizes)), blocks[source], blocks[target])

    steps = [
        SweepStep(2, False, (part(0, 2),)),
        SweepStep(3, False, (part(2, 3), part(0, 3))),
        SweepStep(1, False, (part(3, 1), part(0, 1))),
        SweepStep(4, False, (part(0, 4),)),
        SweepStep(1, True, (part(4, 1),)),
    ]
    vectors = tuple(SweepVector(*pair) for pair in zip(starts, blocks, strict=True))
    return SweepList(sizes, sizes, vectors, tuple(steps), np.dtype(dtype))


def by_levels(levels, matrices, sweeps, x):
    """The launches as the kernel computes them, with scratch memory that begins as NaN."""
    shape = sweeps.block_size
    scratch = np.full((levels.scratch, shape), np.nan, sweeps.dtype)
    y = np.full((sweeps.vectors[1].blocks, shape), np.nan, sweeps.dtype)
    flat = levels.laid_out(matrices)
    for table in levels.tables:
        source = np.concatenate([x, scratch])
        for node, target in enumerate(table.targets):
            total = np.zeros(shape, sweeps.dtype)
            for number, mode in enumerate(levels.modes):
                begin, end = table.starts[node * len(levels.modes) + number :][:2]
                for child, word in table.edges[begin:end]:
                    first = word * 16 // sweeps.dtype.itemsize
                    words = matrix_words(mode, sweeps.dtype.itemsize)
                    matrix = flat[first : first + words * 16 // sweeps.dtype.itemsize]
                    matrix = matrix[: mode.C * (len(matrix) // mode.C)].reshape(mode.C, -1)
                    block = source[child].reshape(mode.L, mode.C, mode.R)
                    total += np.einsum("lcr,ck->lkr", block, matrix[:, : mode.K]).reshape(-1)
            if target < len(y):
                y[target] = total
            else:
                scratch[target - len(y)] = total
    return y


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("sizes", [(2,), (4, 2), (2, 1, 4)], ids=str)
def test_levels_compute_what_the_steps_do(rng, name, sizes):
    """Sizes whose columns fill their words: what the copy above reads is what the kernel does."""
    for trial in range(20):
        sweeps = random_sweeps(rng, sizes, name, (6, 3, 8)[trial % 3])
        matrices = [
            random_array(rng, (part.matrices, sizes[part.mode], sizes[part.mode]), name)
            for step in sweeps.steps
            for part in step.parts
        ]
        x = random_array(rng, (6, sweeps.block_size), name)
        shape = sweeps.vectors[1].blocks, sweeps.block_size
        expected = np.full(shape, np.nan, sweeps.dtype)
        ReferenceBackend().sweep_plan(sweeps, matrices).run(x, expected, 1, 1, 1, False)
        levels = sweep_levels(sweeps)
        assert len(levels.tables) == 3
        result = by_levels(levels, matrices, sweeps, x)
        tolerance = 500 * np.finfo(sweeps.dtype).eps * np.abs(expected).max()
        np.testing.assert_allclose(result, expected, rtol=0, atol=tolerance)


def test_vectors_share_memory_where_they_can(rng):
    """Vector 2 is read by the second launch, which makes 3; 4 may be made by the first, too."""
    levels = sweep_levels(random_sweeps(rng, (2, 2), "f8"))
    assert levels.scratch == 13
    chain = [
        SweepStep(k + 1, False, (random_part(rng, k if k > 1 else 0, 0, 6, 6),))
        for k in range(1, 9)
    ]
    chain.append(SweepStep(1, False, (random_part(rng, 9, 0, 6, 6),)))
    vectors = tuple(SweepVector(0, 6) for _ in range(10))
    levels = sweep_levels(SweepList((2,), (2,), vectors, tuple(chain), np.dtype("f8")))
    assert len(levels.tables) == 9
    assert levels.scratch == 12


def test_modes_of_equal_sizes_are_one(rng):
    levels = sweep_levels(random_sweeps(rng, (1, 1, 1), "f8"))
    assert levels.modes == (SegmentMode(1, 1, 1, 1),)
