"""Fibres multiplied in place: each pass over a tile is carried out here as the kernel would."""

import math
import time

import numpy as np
import pytest
from dense_oracle import dense_kron
from nvrtc import DEVICES
from plans import check_launch, check_runs, plan_of, product

from batchkron.backends.cuda.kron.fibres.passes import word_of

SHAPES = [
    ([(16, 16)] * 4, 300, 1),
    ([(32, 32)] * 2, 40, 1),
    ([(8, 8), (12, 4), (8, 8)], 9, 3),
    ([(32, 32)] * 3, 5, 1),
    ([(64, 64)] * 2, 1024, 1),
    ([(128, 128)] * 2, 7, 1),
    ([(17, 23)], 3, 1),
    ([(17, 23)], 3, 5),
    ([(20, 24), (2, 3), (28, 20)], 100, 1),
    ([(3, 3), (40, 33), (5, 5)], 4, 37),
    ([(50, 52), (20, 65)], 1, 1),
    ([(1, 100), (100, 1)], 9, 2),
    ([(2, 3), (3, 2), (2, 2), (5, 4), (2, 3), (16, 17)], 21, 1),
]


def places(axes):
    """The place of every entry of a tile's axes, the first one fastest."""
    grids = np.indices([size for size, _ in reversed(axes)]).reshape(len(axes), -1)
    strides = [stride for _, stride in reversed(axes)]
    return (grids * np.reshape(strides, (-1, 1))).sum(axis=0)


def carried_out(tile, factors, x):
    """The passes on one tile x, its entries in the order of memory."""
    buffer = np.full(tile.buffer, np.nan)
    first = places(tile.inputs)
    assert len(np.unique(first)) == first.size
    assert first.max() < tile.buffer
    buffer[first] = x
    for one, factor in zip(tile.passes, factors, strict=True):
        fibres = places(one.fibres)
        reads = fibres[:, None] + one.stride * np.arange(one.C)
        writes = fibres[:, None] + one.stride * np.arange(one.K)
        assert len(np.unique(reads)) == reads.size, "fibres do not overlap"
        assert len(np.unique(writes)) == writes.size
        assert writes.max() < tile.buffer
        buffer[writes] = buffer[reads] @ factor.T
        stale = np.setdiff1d(reads, writes)
        buffer[stale] = np.nan
    return buffer[places(tile.outputs)]


def fibre_plan(shapes, outer, inner, dtype, limits):
    """The kernels where there is no other family."""
    return plan_of(shapes, outer, inner, dtype, limits, families=("fibres",))


def check_direct_target(tile, columns):
    """The last pass writes to the array, not to the tile, in the order of the tile's entries."""
    last = tile.passes[-1]
    of_tile = places(last.fibres)[:, None] + last.stride * np.arange(last.K)
    rows = places(tile.rows)[:, None] + tile.step * np.arange(last.K)
    column = np.arange(columns)[:, None]
    of_array = (rows[:, None] * columns + column).reshape(-1, last.K)
    assert np.array_equal(places(tile.outputs)[of_array], of_tile)


@pytest.mark.parametrize("capability", DEVICES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("shapes", "outer", "inner"), SHAPES, ids=str)
def test_passes_apply_the_product(shapes, outer, inner, dtype, capability):
    limits, rng = DEVICES[capability], np.random.default_rng(len(shapes))
    kernels = fibre_plan(shapes, outer, inner, dtype, limits)
    check_runs(kernels, product(shapes, outer, inner, dtype))
    for kernel in kernels:
        tile, run, variant = kernel.tile, kernel.work, kernel.variant
        check_launch(kernel, limits)
        assert variant.slices == 1 or variant.columns == run.R
        if tile.step:
            check_direct_target(tile, variant.columns)
        factors = [rng.standard_normal(shapes[mode]) for mode in kernel.modes]
        x = rng.standard_normal((variant.slices, math.prod(run.inputs), variant.columns))
        in_order = [factor for _, factor in sorted(zip(kernel.modes, factors, strict=True))]
        expected = dense_kron(*in_order) @ x
        np.testing.assert_allclose(
            carried_out(tile, factors, x.ravel()), expected.ravel(), atol=1e-10
        )
        word = word_of(run, variant.columns)
        for one in tile.passes:
            along = one.share.along
            if one.share.across > 1 or along:
                together = one.stride if along else one.fibres[0][1]
                assert together == 1
                rest = [stride for _, stride in one.fibres] if along else [one.stride]
                rest += [stride for _, stride in one.fibres[1:]]
                assert all(stride % word == 0 for stride in rest), "words are aligned"


@pytest.mark.parametrize("inner", [1, 128])
def test_reads_of_a_shared_factors_fibres_have_no_conflicts(inner):
    """Results go to the array: in shared memory only what is read counts."""
    (kernel,) = fibre_plan([(128, 128)], 4096, inner, "f8", DEVICES["90"])
    (one,) = kernel.tile.passes
    assert one.share.split > 0
    assert kernel.tile.step > 0
    lane = np.arange(16)  # read together: words of eight bytes
    place = places(one.fibres)[lane // 4] + one.stride * (lane % 4)
    assert len(np.unique(place % 16)) == 16


def test_small_complex_and_many_factors_have_other_kernels():
    limits = next(iter(DEVICES.values()))
    for sizes, dtype in [
        ((7,) * 3, "f8"),
        ((7, 7), "f4"),
        ((32, 32), "c16"),
        ((2,) * 9 + (16,), "f4"),
    ]:
        assert fibre_plan([(n, n) for n in sizes], 4, 1, dtype, limits) == ()
    assert fibre_plan([(2000, 2000)] * 2, 4, 1, "f8", limits) == ()


def test_a_warp_that_looks_for_many_places_has_others_beside_it():
    """Odd sizes: addresses take longer than multiply-adds, so that many warps share the fibres."""
    for sizes in (5, 5, 2, 25), (25, 2, 5, 5):
        (kernel,) = fibre_plan([(n, n) for n in sizes], 1, 1, "f8", DEVICES["90"])
        assert kernel.launch.threads >= 384


def test_tiles_of_many_small_modes_are_found_quickly():
    """A tile of four modes has hundreds of layouts, and the best one is looked for many times."""
    shapes = [(3, 2), (2, 3), (3, 2), (2, 3), (3, 2), (17, 16)]
    begin = time.process_time()
    assert fibre_plan(shapes, 99, 1, "f4", DEVICES["90"])
    assert time.process_time() - begin < 4
