"""Tiles larger than shared memory: which products have them, and whether they fit a device."""

from math import prod

import numpy as np
import pytest
from nvrtc import DEVICES
from plans import check_launch, check_runs, plan_of, product, seconds_of, square_run

from batchkron.backends.cuda.kron.families import FAMILY_OF
from batchkron.backends.cuda.runtime.hardware import DeviceLimits
from batchkron.backends.cuda.steps import ModeRun

LIMITS = DEVICES["90"]
SLICES = FAMILY_OF["slices"]
OTHERS = [name for name in FAMILY_OF if name != "slices"]


def run_of(sizes, dtype, R=1, first=0):
    return square_run(sizes, 1000, R, dtype, first)


def has_none(run, limits=LIMITS):
    found = list(SLICES.variants(run, limits)), SLICES.fastest(run, limits)
    return not SLICES.accepts(run, limits) and found == ([], None)


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
    kernel = SLICES.fastest(run_of(sizes, dtype, R=R, first=3), LIMITS)
    tile = kernel.tile
    assert (tile.lead, tile.columns) == (lead, columns)
    assert kernel.modes == tuple(range(3, 3 + len(sizes)))
    assert sum((tile.lead, *tile.outer, *tile.inner), ()) == tuple(sizes), "neighbours"
    assert tile.slices * tile.slice_elements == prod(sizes) * columns


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
    assert has_none(run_of(sizes, dtype, R=R))


def test_rectangular_factors_have_none():
    assert has_none(ModeRun(0, (8,) * 5, (8, 8, 8, 8, 4), 1000, 1, np.dtype("f8")))


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
    run, limits = run_of(sizes, dtype, R=R), DEVICES[capability]
    found = SLICES.variants(run, limits)
    assert len(set(found)) == len(found)
    for variant in found:
        kernel = SLICES.kernel(run, variant, limits)
        assert kernel.variant == variant
        check_launch(kernel, limits)
        slices = kernel.tile.slices
        slots, held = variant
        assert 2 <= slots <= 6
        assert 0 < held <= slices
        slice_bytes = kernel.tile.slice_elements * run.itemsize
        kept = (slots + slices - held) * slice_bytes
        assert kept <= kernel.launch.shared_bytes < kept + 40_000
    assert SLICES.kernel(run, (1, 1), limits) is None


def test_devices_without_fast_matrix_units_have_none():
    limits = DeviceLimits(LIMITS.shared_bytes, LIMITS.multiprocessors, double_units=False)
    assert has_none(run_of((8,) * 5, "f8"), limits)


def with_and_without(sizes, rows, dtype, precision=None, columns=1):
    """The plan, and the best one without slices."""
    given = [(n, n) for n in sizes], rows, columns, dtype
    plans = [
        plan_of(*given, LIMITS, precision, families=families) for families in (FAMILY_OF, OTHERS)
    ]
    for plan in plans:
        check_runs(plan, product(*given, precision))
    return plans


@pytest.mark.parametrize(
    ("sizes", "rows", "dtype"),
    [
        ((8,) * 5, 1024, "f8"),
        ((8,) * 8, 16, "f8"),
        ((16,) * 6, 16, "f8"),
        ((16,) * 6, 16, "f4"),
        ((8,) * 8, 16, "f4"),
        ((4,) * 7, 1024, "f8"),
        ((4,) * 8, 1024, "f4"),
        ((8,) * 6, 1024, "f4"),
        ((2,) * 14, 1024, "f8"),
    ],
    ids=str,
)
def test_slices_are_taken_where_they_save_time(sizes, rows, dtype):
    plan, without = with_and_without(sizes, rows, dtype)
    assert SLICES in [kernel.family for kernel in plan]
    assert SLICES not in [kernel.family for kernel in without]
    assert seconds_of(plan) < seconds_of(without)
    assert len(plan) <= len(without)


def test_more_modes_than_other_kernels_take_are_one_kernel():
    (kernel,) = with_and_without((2,) * 14, 1024, "f8")[0]
    assert kernel.family is SLICES


@pytest.mark.parametrize(
    ("sizes", "rows", "dtype", "precision"),
    [
        ((8,) * 5, 1, "f8", None),  # one multiprocessor would have all the work
        ((4,) * 7, 20, "f8", None),
        ((8,) * 4, 500, "f4", None),  # few slices for each multiprocessor
        ((16,) * 4, 1024, "f4", "tf32x3"),
    ],
    ids=str,
)
def test_others_are_left(sizes, rows, dtype, precision):
    plan, without = with_and_without(sizes, rows, dtype, precision)
    assert SLICES not in [kernel.family for kernel in plan]
    assert plan == without


def test_results_are_as_large_as_vectors():
    kernel = SLICES.fastest(square_run((8, 8, 8), 7, 192, "f8"), LIMITS)
    assert kernel.launch.blocks == 7 * 3
    assert kernel.work.results == 7 * 512 * 192
    assert "InnerLines" in kernel.program.expression
