"""Which kernel sums over edges; no device is needed."""

from dataclasses import replace

import numpy as np
import pytest
from edge_tables import block_modes
from nvrtc import DEVICES

from batchkron.backends.cuda.kernel_family import without
from batchkron.backends.cuda.segmented.choose import fastest_kernel
from batchkron.backends.cuda.segmented.edges import EdgeList, edge_table
from batchkron.backends.cuda.segmented.families import FAMILIES
from batchkron.backends.cuda.segmented.kernel import SumsShape

DEVICE = DEVICES["90"]
BLOCKS = [(3,) * 6, (5,) * 4, (7,) * 4, (3,) * 8, (2,) * 9, (8,) * 3, (3, 5)]


def shape_of(sizes, dtype="f8", nodes=500):
    return SumsShape(tuple(block_modes(sizes)), np.dtype(dtype), nodes, 10_000, False, 1, 1)


@pytest.mark.parametrize("sizes", BLOCKS, ids=str)
@pytest.mark.parametrize("nodes", [20, 100_000])
def test_a_family_takes_the_variant_of_the_least_estimate(sizes, nodes, dtype):
    shape, found = shape_of(sizes, dtype, nodes), []
    for family in FAMILIES:
        kernel = family.fastest(shape, DEVICE)
        if kernel is None:
            continue
        found.append(family)
        assert family.accepts(shape, DEVICE)
        assert family.kernel(shape, kernel.variant, DEVICE) == kernel
        variants = list(family.variants(shape, DEVICE))
        least = min(family.estimate(shape, variant, DEVICE) for variant in variants)
        assert family.estimate(shape, kernel.variant, DEVICE) == least
    assert fastest_kernel(shape, DEVICE).family is found[0]


def test_children_are_staged_where_that_was_faster():
    shape = shape_of((3,) * 6)
    assert fastest_kernel(shape, DEVICE).family.name == "staged"
    with without("segmented.staged"):
        assert fastest_kernel(shape, DEVICE).family.name == "general"
    others = [
        replace(shape, inner=2),
        replace(shape, children=2**28 + 1),
        shape_of((2,) * 9),
        shape_of((3, 5)),
    ]
    assert {fastest_kernel(other, DEVICE).family.name for other in others} == {"general"}
    with without("segmented.staged", "segmented.general"), pytest.raises(LookupError):
        fastest_kernel(shape, DEVICE)


def test_kernels_of_all_numbers_of_vectors_take_one_table():
    shape, starts = shape_of((3,) * 6, "f4"), np.arange(0, 1004, 2)
    none = np.zeros(1002, np.int64)
    lists = [EdgeList(mode, 0, starts, none, none) for mode in range(6)]
    table = edge_table([(0, 501)], lists, 6)
    one, many = (fastest_kernel(replace(shape, outer=n), DEVICE) for n in (1, 1000))
    assert one.tile != many.tile
    assert all(np.array_equal(a, many.arrays(table)[key]) for key, a in one.arrays(table).items())
    how, counts = many.launch(table, DEVICE)
    assert counts == many.tile.nodes_by_team_count(table, 1000, DEVICE)[0]
    assert (how.threads, how.shared_bytes) == (many.tile.block, many.tile.shared_bytes)
