"""Windows in pieces are the same interpolation, and how many modes are cut."""

import numpy as np
import pytest
from nvrtc import DEVICES

from batchkron.backends.cuda.interpolated.kernel import gather_lanes
from batchkron.backends.cuda.interpolated.pieces import gather_cut, in_pieces, scatter_cut_modes
from batchkron.backends.reference import InterpolationPlan
from batchkron.spec.interpolated import RegularGrid, windows_of

DEVICE = DEVICES["90"]
SIZES = [(7,), (5, 8), (4, 6, 5), (5, 4, 4, 6), (4, 5, 4, 4, 4)]


@pytest.fixture
def windows(rng):
    def make(sizes, count, dtype="f8"):
        points = rng.random((count, len(sizes)))
        return windows_of(points, RegularGrid(0.0, 1.0, sizes), np.dtype(dtype))

    return make


def cases():
    return [(sizes, cut) for sizes in SIZES for cut in range(len(sizes))]


@pytest.mark.parametrize("count", [0, 1, 29])
@pytest.mark.parametrize(("sizes", "cut"), cases())
def test_pieces_gather_and_scatter_the_same(rng, windows, sizes, cut, count):
    given = windows(sizes, count)
    whole, cells = InterpolationPlan(given), given.cells
    grid, points = rng.standard_normal((cells, 2)), rng.standard_normal((count, 2))
    expected = np.full((count, 2), np.nan)
    whole.gather(grid, 2, 0, expected, 2, [0, 1], 1.0, False)

    apart = in_pieces(given, cut, shared=False)
    assert len(apart.places) == count * 4**cut
    numbers = np.ravel_multi_index(tuple(apart.corners.T), apart.sizes)
    assert (np.diff(numbers) >= 0).all()
    found = np.full((4**cut, count, 2), np.nan)
    InterpolationPlan(apart).gather(grid, 2, 0, found, 2, [0, 1], 1.0, False)
    np.testing.assert_allclose(found.sum(axis=0), expected, rtol=0, atol=1e-13)

    back, expected = np.full((cells, 2), np.nan), np.full((cells, 2), np.nan)
    whole.scatter(points, 2, [0, 1], expected, 2, 0)
    InterpolationPlan(in_pieces(given, cut, shared=True)).scatter(points, 2, [0, 1], back, 2, 0)
    np.testing.assert_allclose(back, expected, rtol=0, atol=1e-13)


def test_pieces_keep_the_dtype(windows):
    given = in_pieces(windows((5, 6, 4), 11, "f4"), 2, shared=True)
    assert given.weights.dtype == np.float32
    assert given.sizes == (120,)


def test_few_points_in_many_modes_are_cut():
    for modes, count in ((7, 251), (5, 962), (5, 20_000), (8, 25_600), (3, 500_000), (1, 10)):
        cut = gather_cut(modes, count, DEVICE)
        threads = [count * 4**c * gather_lanes(modes - c, 1) for c in range(modes)]
        enough = 1024 * DEVICE.multiprocessors
        assert threads[cut] >= enough or cut == modes - 1
        assert cut == 0 or threads[cut - 1] < enough
    assert [scatter_cut_modes((n,) * 3, 500_000) for n in (8, 32, 64)] == [0, 0, 0]
    assert scatter_cut_modes((128, 128), 500_000) == 0
    assert scatter_cut_modes((8,) * 7, 251) == 5
    assert scatter_cut_modes((8,) * 8, 25_600) == 4  # more pieces would need too much memory
