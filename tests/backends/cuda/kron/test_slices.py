"""Tiles larger than shared memory: which products have them, and what these take."""

from math import prod

import numpy as np
import pytest
from nvrtc import DEVICES

from batchkron.backends.cuda.kron.choose import rule_groups
from batchkron.backends.cuda.kron.fibres.choose import FibreGroup
from batchkron.backends.cuda.kron.registers.tile import RegisterGroup
from batchkron.backends.cuda.kron.slices import (
    SliceGroup,
    SliceKnobs,
    kron_slices_program,
    slice_group,
    slice_knobs,
)
from batchkron.backends.cuda.runtime.hardware import DeviceLimits
from batchkron.backends.cuda.steps import GroupShape

LIMITS = DEVICES["90"]


def part_of(sizes, dtype, L=1000, R=1, first=0):
    return GroupShape(first, tuple(sizes), tuple(sizes), L, R, np.dtype(dtype))


@pytest.mark.parametrize(
    ("sizes", "dtype", "R", "lead", "columns"),
    [
        ((8,) * 5, "f8", 1, (8,), 1),
        ((4,) * 7, "f8", 1, (4,), 1),
        ((2,) * 14, "f8", 1, (2, 2), 1),
        ((2, 3, 2, 4, 4, 2, 8, 8), "f8", 1, (2, 3), 1),
        ((8, 8, 8), "f8", 64, (8,), 64),
        ((16, 16, 16), "f8", 8, (16,), 8),
        ((8,) * 5, "f4", 1, (8,), 1),
        ((4,) * 8, "f4", 1, (4, 4), 1),
        ((8,) * 4, "f4", 1, (), 1),
        ((16,) * 3, "f4", 1, (), 1),
    ],
    ids=str,
)
def test_modes_of_tiles(sizes, dtype, R, lead, columns):
    tile = slice_group(part_of(sizes, dtype, R=R, first=3), LIMITS).tile
    assert (tile.lead, tile.columns) == (lead, columns)
    assert tile.modes == tuple(range(3, 3 + len(sizes)))
    assert sum((tile.lead, *tile.outer, *tile.inner), ()) == tuple(sizes), "neighbours"
    assert tile.elements == prod(sizes) * columns


@pytest.mark.parametrize(
    ("sizes", "dtype", "R"),
    [
        ((8,) * 4, "f8", 1),
        ((4,) * 6, "f4", 1),
        ((16,) * 4, "f8", 1),
        ((4,) * 7, "f4", 1),
        ((8,) * 5, "c16", 1),
        ((8,) * 5, "f8", 3),
        ((8, 8, 8), "f8", 96),
        ((8, 8, 8), "f4", 64),
        ((3, 8, 8, 8, 8), "f8", 1),
        ((8, 8, 8, 8, 9), "f8", 1),
        ((4, 32, 32, 4), "f8", 1),
        ((2,) * 20, "f8", 1),
    ],
    ids=str,
)
def test_what_has_none(sizes, dtype, R):
    part = part_of(sizes, dtype, R=R)
    assert slice_group(part, LIMITS) is None
    assert slice_knobs(part, LIMITS) == []


def test_rectangular_factors_have_none():
    part = GroupShape(0, (8,) * 5, (8, 8, 8, 8, 4), 1000, 1, np.dtype("f8"))
    assert slice_group(part, LIMITS) is None


@pytest.mark.parametrize("capability", DEVICES)
@pytest.mark.parametrize(
    ("sizes", "dtype", "R"),
    [
        ((8,) * 5, "f8", 1),
        ((6, 16, 16, 16), "f8", 1),
        ((4,) * 7, "f8", 1),
        ((4, 8, 8), "f8", 64),
        ((16, 16, 16), "f8", 8),
        ((8,) * 5, "f4", 1),
        ((16,) * 4, "f4", 1),
        ((8,) * 4, "f4", 1),
    ],
    ids=str,
)
def test_all_choices_fit(capability, sizes, dtype, R):
    part, limits = part_of(sizes, dtype, R=R), DEVICES[capability]
    found = slice_knobs(part, limits)
    assert len(set(found)) == len(found)
    for knobs in found:
        group = slice_group(part, limits, knobs)
        assert group.knobs == knobs
        assert group.tile.blocks * (group.tile.shared_bytes + 1024) <= limits.shared_bytes + 1024
        slices = prod(group.tile.lead)
        assert 2 <= knobs.slots <= 6
        assert 0 < knobs.held <= slices
        slice_bytes = group.tile.elements // slices * part.itemsize
        kept = (knobs.slots + slices - knobs.held) * slice_bytes
        assert kept <= group.tile.shared_bytes < kept + 40_000
    assert slice_group(part, limits, SliceKnobs(1, 1)) is None


def test_devices_without_fast_matrix_units_have_none():
    limits = DeviceLimits(LIMITS.shared_bytes, LIMITS.multiprocessors, double_units=False)
    assert slice_group(part_of((8,) * 5, "f8"), limits) is None


def kinds(sizes, rows, dtype, columns=1, precision=None, limits=LIMITS):
    groups = rule_groups(sizes, sizes, rows, columns, np.dtype(dtype), False, limits, precision)
    assert sorted(mode for group in groups for mode in group.tile.modes) == list(range(len(sizes)))
    return [type(group) for group in groups]


def test_the_rule_takes_slices_where_they_save_a_pass():
    assert kinds((8,) * 5, 1024, "f8") == [SliceGroup]
    assert kinds((8,) * 8, 16, "f8") == [SliceGroup, SliceGroup]
    assert kinds((16,) * 6, 16, "f8") == [FibreGroup, SliceGroup]
    assert kinds((16,) * 6, 16, "f4") == [SliceGroup, FibreGroup]
    assert kinds((8,) * 8, 16, "f4") == [SliceGroup, RegisterGroup]
    assert kinds((4,) * 7, 1024, "f8") == [SliceGroup]
    assert kinds((4,) * 8, 1024, "f4") == [SliceGroup]
    assert kinds((8,) * 6, 1024, "f4") == [SliceGroup, RegisterGroup]
    assert kinds((2,) * 14, 1024, "f8") == [SliceGroup], "more modes than other kernels take"


def test_the_rule_leaves_others():
    assert kinds((8,) * 5, 1, "f8") == [FibreGroup] * 2, "one multiprocessor would work"
    assert kinds((4,) * 7, 20, "f8") == [RegisterGroup]
    assert kinds((8,) * 4, 500, "f4") == [RegisterGroup], "few slices for each multiprocessor"
    assert kinds((4,) * 8, 140, "f4") == [RegisterGroup] * 2, "a second round of eight tiles"
    assert SliceGroup not in kinds((16,) * 4, 1024, "f4", precision="tf32x3")
    assert kinds((16,) * 5, 1024, "f8") == [FibreGroup] * 2


def test_results_are_as_large_as_vectors():
    part = part_of((8, 8, 8), "f8", L=7, R=192)
    group = slice_group(part, LIMITS)
    assert group.tiles() == 7 * 3
    assert group.elements == 7 * 512 * 192
    assert "InnerLines" in kron_slices_program(part.dtype, group.tile).expression
