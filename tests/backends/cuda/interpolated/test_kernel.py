"""How interpolation is cut for a device, and that its kernels compile and spill little."""

from itertools import pairwise

import numpy as np
import pytest
from kernel_resources import compile_kernel
from nvrtc import DEVICES

from batchkron.backends.cuda.interpolated import kernel, segments
from batchkron.backends.cuda.interpolated.kernel import (
    bin_starts,
    interpolation_program,
    scatter_cut,
    scatter_owners,
    window_arrays,
)
from batchkron.backends.cuda.interpolated.segments import (
    cell_cut,
    deepest_of,
    segment_bounds,
    segment_cut,
    segment_lanes,
    segments_of,
    vectors_at_once,
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
    starts = bin_starts(given)
    bins = [n - 3 for n in sizes]
    assert len(starts) == np.prod(bins) + 1
    for number, (begin, end) in enumerate(pairwise(starts)):
        corner = np.unravel_index(number, bins)
        inside = (given.corners == corner).all(axis=1)
        np.testing.assert_array_equal(np.flatnonzero(inside), np.arange(begin, end))
    expected = np.ravel_multi_index(tuple(given.corners.T), sizes)
    np.testing.assert_array_equal(window_arrays(given)["corners"], expected)


def test_too_many_points_are_refused(rng, monkeypatch):
    monkeypatch.setattr(kernel, "_MAX_POINTS", 200)
    with pytest.raises(ValueError, match="points has 200 rows; expected fewer than 200"):
        window_arrays(windows(rng, (4, 5), 200))


def test_lanes_share_points_where_there_are_few_cells():
    for sizes in [(4,), (10, 10), (50, 50, 50), (200, 300), (8,) * 6]:
        for vectors in (1, 2, 4, 8, 16):
            for fullest in (0, 1, 5, 1000):
                cut = scatter_cut(sizes, fullest, vectors, DEVICE)
                held, cells, share = cut
                assert vectors % held == 0
                assert 1 <= share <= max(1, min(32, fullest))
                threads = scatter_owners(sizes, vectors, held, cells) * share
                assert share == 1 or threads < 2 * 1024 * DEVICE.multiprocessors
                assert cells == 1 or threads >= 1024 * DEVICE.multiprocessors
    assert scatter_cut((100,), 1000, 1, DEVICE) == (1, 1, 32)
    assert scatter_cut((64,) * 3, 5, 1, DEVICE) == (1, 1, 1)
    assert scatter_cut((100,) * 3, 5, 1, DEVICE) == (1, 4, 1)
    assert scatter_cut((64,) * 3, 5, 16, DEVICE) == (4, 4, 1)


@pytest.mark.parametrize("points", [1, 7, 1000])
@pytest.mark.parametrize("sizes", [(4,), (30,), (5, 40), (4, 6, 25), (8, 5, 4)])
@pytest.mark.parametrize("count", [0, 1, 200])
def test_segments_have_all_points_and_cover_their_windows(rng, sizes, count, points, monkeypatch):
    monkeypatch.setattr(segments, "MIN_POINTS", points)
    monkeypatch.setattr(segments, "_MAX_POINTS", points)
    given = windows(rng, sizes, count)
    least, most, spans = segment_bounds(sizes, count, DEVICE)
    assert least == points
    entries, found, meeting = segments_of(given, points, most)
    assert found.shape == (most + 1, 4)
    base, span, first, begin = found.T
    assert (begin[-1], span[-1]) == (count, 0)
    assert span.sum() <= spans
    rows = [n - 3 for n in sizes[:-1]]
    covers = meeting.reshape(*rows, sizes[-1], 2)
    np.testing.assert_array_equal(entries.T, [given.places, given.corners[:, -1]])
    for s in np.flatnonzero(span):
        inside = given.corners[begin[s] : begin[s + 1]]
        assert len(inside) > 0
        assert (inside[:, :-1] == inside[0, :-1]).all()
        assert base[s] == span[:s].sum()
        assert first[s] == inside[0, -1]
        behind = inside[-1, -1] + 4
        assert 0 <= span[s] - (behind - first[s]) < 4
        assert span[s] % 4 == 0
        row = covers[tuple(inside[0, :-1])]
        met = (row[:, 0] <= s) & (s < row[:, 1])
        np.testing.assert_array_equal(np.flatnonzero(met), np.arange(first[s], behind))
    lengths = covers[..., 1] - covers[..., 0]
    assert lengths.sum() == sum(
        given.corners[begin[s + 1] - 1, -1] + 4 - first[s] for s in np.flatnonzero(span)
    )
    assert deepest_of(meeting) == lengths.max()


def test_points_in_few_cells_are_cut_in_longer_segments(rng):
    given = windows(rng, (20, 20), 5000)
    given.corners[...] = (5, 6)
    _, found, covers = segments_of(given, 4, 5000)
    assert (found[:, 1] > 0).sum() == deepest_of(covers) == -(-5000 // 25)
    assert np.diff(found[:201, 3]).min() == 25
    assert cell_cut((20, 20), 1, 200, DEVICE) == (32, 32)
    assert cell_cut((200,) * 3, 16, 10_000, DEVICE) == (32, 32)


def test_how_segments_are_cut():
    for sizes in [(4,), (10, 10), (128, 128), (32,) * 3, (16,) * 4, (8,) * 6]:
        modes = len(sizes)
        for vectors in (1, 2, 4, 8, 16):
            for itemsize in (4, 8):
                inner, _ = segment_cut(modes, vectors, itemsize)
                assert 0 <= inner < modes
                lanes = segment_lanes(modes, vectors, inner)
                assert lanes == vectors * 4 ** (modes - 1) // 4**inner
            for deepest in (0, 1, 5, 100, 1000):
                share, turns = cell_cut(sizes, vectors, deepest, DEVICE)
                assert share % turns == 0
                assert share // turns <= 4 ** (modes - 1)
    assert segment_bounds((128, 128), 500_000, DEVICE)[0] == 32
    assert segment_bounds((32,) * 3, 500_000, DEVICE)[0] == 59
    assert segment_bounds((16,) * 4, 262_144, DEVICE)[0] == 124
    assert segment_bounds((128, 128), 1 << 26, DEVICE)[0] == 256


def test_where_memory_is_short_fewer_vectors_are_taken():
    spans = segment_bounds((32,) * 3, 500_000, DEVICE)[2]
    assert vectors_at_once((32,) * 3, spans, 16, 8) == 16
    spans = segment_bounds((8,) * 6, 16_384, DEVICE)[2]
    assert vectors_at_once((8,) * 6, spans, 16, 4) == 2
    assert vectors_at_once((8,) * 6, spans, 16, 8) == 1
    spans = segment_bounds((16,) * 6, 1_000_000, DEVICE)[2]
    assert vectors_at_once((16,) * 6, spans, 1, 4) == 0  # owners of cells need no memory
    assert vectors_at_once((1 << 28,), 8, 1, 4) == 0
    assert vectors_at_once((9,), segment_bounds((9,), 0, DEVICE)[2], 4, 8) == 4


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
    programs = [interpolation_program("gather", kind, modes, vectors)]
    cuts = [(held, 4, 1), (held, 1, 32)]
    programs += [interpolation_program("scatter", kind, modes, vectors, *cut) for cut in cuts]
    by = segment_cut(modes, vectors, kind.itemsize)
    programs.append(interpolation_program("segments", kind, modes, vectors, *by))
    programs += [
        interpolation_program("cells", kind, modes, vectors, *cut) for cut in ((1, 1), (32, 32))
    ]
    programs.append(interpolation_program("fold", kind, vectors))
    for program in programs:
        made = compile_kernel(program, capability)
        assert "interpolate_" in made.name
        assert made.registers <= 128  # four thread blocks of a multiprocessor
        assert made.stack <= 16
