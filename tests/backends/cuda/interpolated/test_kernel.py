"""How interpolation is cut for a device, and that its kernels compile and spill little."""

import numpy as np
import pytest
from kernel_resources import compile_kernel
from nvrtc import DEVICES

from batchkron.backends.cuda.interpolated import kernel
from batchkron.backends.cuda.interpolated.kernel import (
    ScatterCut,
    device_windows,
    gather_program,
    scatter_cut,
    scatter_owners,
    scatter_program,
)
from batchkron.spec.interpolated import RegularGrid, windows_of

DEVICE = DEVICES["90"]


def windows(rng, sizes, count):
    points = rng.random((count, len(sizes)))
    return windows_of(points, RegularGrid(0.0, 1.0, sizes), np.dtype("f8"))


@pytest.mark.parametrize("sizes", [(4,), (9,), (5, 7), (4, 6, 5)])
@pytest.mark.parametrize("count", [0, 1, 200])
def test_bins_have_the_points_of_one_corner(rng, sizes, count):
    given = windows(rng, sizes, count)
    stored = device_windows(given)
    bins = [n - 3 for n in sizes]
    assert len(stored.starts) == np.prod(bins) + 1
    for number, (begin, end) in enumerate(zip(stored.starts, stored.starts[1:], strict=False)):
        corner = np.unravel_index(number, bins)
        inside = (given.corners == corner).all(axis=1)
        np.testing.assert_array_equal(np.flatnonzero(inside), np.arange(begin, end))
    expected = np.ravel_multi_index(tuple(given.corners.T), sizes)
    np.testing.assert_array_equal(stored.corners, expected)
    assert stored.fullest == (np.diff(stored.starts).max() if count else 0)


def test_too_many_points_are_refused(rng, monkeypatch):
    monkeypatch.setattr(kernel, "_MAX_POINTS", 200)
    with pytest.raises(ValueError, match="points has 200 rows; expected fewer than 200"):
        device_windows(windows(rng, (4, 5), 200))


def test_lanes_share_points_where_there_are_few_cells():
    for sizes in [(4,), (10, 10), (50, 50, 50), (200, 300), (8,) * 6]:
        for vectors in (1, 2, 4, 8, 16):
            for fullest in (0, 1, 5, 1000):
                cut = scatter_cut(sizes, fullest, vectors, DEVICE)
                assert vectors % cut.held == 0
                assert 1 <= cut.share <= max(1, min(32, fullest))
                threads = scatter_owners(sizes, vectors, cut) * cut.share
                assert cut.share == 1 or threads < 2 * 1024 * DEVICE.multiprocessors
                assert cut.cells == 1 or threads >= 1024 * DEVICE.multiprocessors
    assert scatter_cut((100,), 1000, 1, DEVICE) == ScatterCut(1, 1, 32)
    assert scatter_cut((64,) * 3, 5, 1, DEVICE) == ScatterCut(1, 1, 1)
    assert scatter_cut((100,) * 3, 5, 1, DEVICE) == ScatterCut(1, 4, 1)
    assert scatter_cut((64,) * 3, 5, 16, DEVICE) == ScatterCut(4, 4, 1)


@pytest.mark.parametrize("capability", DEVICES)
@pytest.mark.parametrize(
    ("dtype", "modes", "vectors"),
    [
        ("f4", 2, 16),
        ("f8", 3, 1),
        *(
            pytest.param(dtype, modes, vectors, marks=pytest.mark.slow)
            for dtype in ("f4", "f8")
            for modes in (1, 6)
            for vectors in (1, 16)
        ),
    ],
)
def test_kernels_compile(capability, dtype, modes, vectors):
    kind, held = np.dtype(dtype), min(vectors, 4)
    programs = [gather_program(kind, modes, vectors)]
    cuts = [ScatterCut(held, 4, 1), ScatterCut(held, 1, 32)]
    programs += [scatter_program(kind, modes, vectors, cut) for cut in cuts]
    for program in programs:
        made = compile_kernel(program, capability)
        assert "interpolate_" in made.name
        assert made.registers <= 128  # four thread blocks of a multiprocessor
        assert made.stack <= 16
