"""Which kernel sums over edges; no device is needed."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from edge_tables import block_modes
from nvrtc import DEVICES

from batchkron.backends.cuda.choose import families, needed_kernel
from batchkron.backends.cuda.kernel_family import without
from batchkron.backends.cuda.segmented.edges import SumsShape, edge_list, edge_table

DEVICE, FAMILIES = DEVICES["90"], families("segmented")
chosen = partial(needed_kernel, "segmented")
BLOCKS = [(3,) * 6, (5,) * 4, (7,) * 4, (3,) * 8, (2,) * 9, (8,) * 3, (3, 5)]


def shape_of(sizes, dtype="f8", nodes=500):
    return SumsShape(tuple(block_modes(sizes)), np.dtype(dtype), nodes, 10_000, False, 1, 1)


@pytest.mark.parametrize("sizes", BLOCKS, ids=str)
@pytest.mark.parametrize("nodes", [20, 100_000])
def test_the_first_family_that_has_a_kernel_is_taken(sizes, nodes, dtype):
    shape = shape_of(sizes, dtype, nodes)
    kernels = [kernel for family in FAMILIES if (kernel := family.kernel(shape, DEVICE))]
    assert chosen(shape, DEVICE) == kernels[0]
    assert all(kernel.work is shape for kernel in kernels)
    with without(f"segmented.{kernels[0].family.name}"):
        if len(kernels) > 1:
            assert chosen(shape, DEVICE) == kernels[1]


def test_children_are_staged_where_that_was_faster():
    shape = shape_of((3,) * 6)
    assert chosen(shape, DEVICE).family.name == "staged"
    with without("segmented.staged"):
        assert chosen(shape, DEVICE).family.name == "general"
    others = [
        replace(shape, inner=2),
        replace(shape, children=2**28 + 1),
        shape_of((2,) * 9),
        shape_of((3, 5)),
    ]
    assert {chosen(other, DEVICE).family.name for other in others} == {"general"}
    with without("segmented.staged", "segmented.general"), pytest.raises(LookupError):
        chosen(shape, DEVICE)


def test_kernels_of_all_numbers_of_vectors_take_one_table():
    shape, starts = shape_of((3,) * 6, "f4"), np.arange(0, 1004, 2)
    none = np.zeros(1002, np.int64)
    lists = [edge_list(mode, 0, starts, none, none) for mode in range(6)]
    table = edge_table([(0, 501)], lists, 6)
    one, many = (chosen(replace(shape, outer=n), DEVICE) for n in (1, 1000))
    assert one.variant != many.variant
    arrays = many.variant.arrays(table)
    assert all(np.array_equal(a, arrays[key]) for key, a in one.variant.arrays(table).items())
    how = many.launch
    assert (how.threads, how.shared_bytes) == (many.variant.block, many.variant.shared_bytes)
