"""Kernels of interpolation lane by lane on the CPU, against the reference backend."""

import sys

import numpy as np
import pytest
from emulator.host_compiler import COPIES, Launch, compiled, mistake
from emulator.kron_matmul import placed

from batchkron.backends.cuda.interpolated.kernel import (
    THREADS,
    bin_starts,
    interpolation_program,
    sized_arguments,
    window_arrays,
)
from batchkron.backends.cuda.interpolated.pieces import fold_arguments
from batchkron.backends.cuda.interpolated.segments import segments_of
from batchkron.backends.reference import InterpolationPlan
from batchkron.spec.interpolated import Windows

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="coroutines of Linux")

# sizes of the grid, points, vectors, how the transpose is cut
CASES = [
    ((7,), 40, 1, (1, 1, 8)),
    ((4,), 5, 16, (4, 4, 1)),
    ((9,), 33, 4, (4, 4, 2)),
    ((5, 7), 50, 1, (1, 4, 1)),
    ((6, 5), 21, 2, (2, 1, 4)),
    ((4, 9), 13, 8, (4, 4, 1)),
    ((5, 4, 6), 30, 1, (1, 4, 1)),
    ((4, 5, 5), 11, 4, (4, 1, 32)),
    ((5, 4, 7), 9, 16, (4, 4, 1)),
    ((5, 4, 4), 40, 8, (4, 4, 1)),
    ((4, 6), 30, 16, (4, 4, 1)),
    ((4, 5, 4, 6), 12, 1, (1, 4, 1)),
    ((4, 4, 5, 4, 4), 7, 2, (2, 1, 2)),
    ((4, 4, 4, 5, 4, 4), 5, 1, (1, 4, 1)),
]
# the same by segments: sizes, points, vectors, points of a segment, how both kernels are cut
SEGMENTED = [
    ((7,), 40, 1, 3, (0, 4), (32, 32)),
    ((9,), 33, 4, 100, (0, 2), (1, 1)),
    ((4,), 5, 16, 2, (0, 4), (2, 2)),
    ((5, 17), 150, 1, 4, (0, 4), (8, 4)),
    ((8, 7), 50, 1, 5, (1, 2), (2, 1)),
    ((9, 30), 21, 2, 1, (0, 4), (4, 1)),
    ((6, 19), 60, 16, 7, (1, 4), (1, 1)),
    ((5, 4, 6), 30, 1, 4, (0, 4), (16, 2)),
    ((6, 5, 9), 90, 1, 6, (1, 2), (16, 1)),
    ((4, 5, 5), 11, 4, 3, (1, 4), (4, 2)),
    ((5, 4, 7), 9, 16, 4, (1, 2), (1, 1)),
    ((4, 5, 4, 6), 12, 1, 2, (1, 4), (32, 1)),
    ((4, 4, 5, 4, 4), 7, 2, 4, (1, 2), (2, 1)),
    ((4, 4, 4, 5, 4, 4), 5, 1, 4, (1, 4), (8, 1)),
]
DTYPES = [np.dtype("f4"), np.dtype("f8")]


def windows(rng, sizes, count, dtype):
    """Windows of random points, with integers as weights: sums have no rounding errors."""
    corners = np.stack([rng.integers(0, n - 3, count) for n in sizes], axis=1)
    corners = corners[np.lexsort(corners.T[::-1])]
    weights = rng.choice([-2, -1, 1, 2], (count, len(sizes), 4)).astype(dtype)
    return Windows(sizes, corners.astype(np.int64), weights, rng.permutation(count))


def segmented_programs(case, dtype):
    sizes, _, vectors, _, by, of = case
    yield interpolation_program("segments", dtype, len(sizes), vectors, *by)
    yield interpolation_program("cells", dtype, len(sizes), vectors, *of)


def programs(case, dtype):
    sizes, _, vectors, cut = case
    modes = len(sizes)
    yield interpolation_program("gather", dtype, modes, vectors)
    yield interpolation_program("scatter", dtype, modes, vectors, *cut)


class Problem:
    """Vectors of a case; those of points one behind another (``inner`` 1) or side by side."""

    def __init__(self, rng, case, dtype, inner, column):
        self.sizes, self.count, self.vectors, *_ = case
        self.windows = windows(rng, self.sizes, self.count, dtype)
        arrays = *window_arrays(self.windows).values(), bin_starts(self.windows)
        self.held = [placed(array, 0)[0] if array.dtype.kind == "f" else array.copy()
                     for array in arrays]  # fmt: skip
        self.cell_step, self.column = self.vectors + column, column
        self.point_step = 1 if inner == 1 else self.vectors + 1
        step = self.count if inner == 1 else 1
        self.starts = [r * step for r in range(self.vectors)]
        self.points = rng.integers(-3, 4, (self.count + 1) * (self.vectors + 1)).astype(dtype)
        self.grid = rng.integers(-3, 4, (np.prod(self.sizes), self.cell_step)).astype(dtype)
        self.dtype = dtype

        self.segment_count = 0
        self.partial, self.more = np.zeros(1, dtype), {}

    def run(self, launch, points, grid, when, rng, alpha=1, accumulate=False):
        arguments = sized_arguments(
            self.dtype, self.sizes, self.cell_step, self.point_step, self.count
        )
        for name, array in zip(("weights", "corners", "places", "starts"), self.held, strict=True):
            arguments[name] = array.ctypes.data
        for name, array in self.more.items():
            arguments[name] = array.ctypes.data
        arguments["segment_count"] = self.segment_count
        arguments["partial"] = self.partial.ctypes.data
        arguments["points"] = points.ctypes.data
        arguments["grid"] = grid.ctypes.data + self.column * grid.itemsize
        arguments["vectors"][0, : self.vectors] = self.starts
        arguments["alpha"], arguments["accumulate"] = alpha, accumulate
        how = Launch(
            blocks=int(rng.integers(1, 4)),
            threads=THREADS,
            shared_bytes=0,
            when=COPIES[when],
            seed=int(rng.integers(1 << 30)),
        )
        failure = launch(arguments.tobytes(), how, [points, grid, *self.held])
        assert not failure, failure

    def check_gather(self, launch, when, rng, alpha=1, accumulate=False):
        reference = InterpolationPlan(self.windows)
        expected = self.points.copy() if accumulate else np.full_like(self.points, np.nan)
        y, whole = placed(expected, 1)
        around = np.isnan(whole).sum() - np.isnan(y).sum()
        reference.gather(
            self.grid, self.cell_step, self.column, expected, self.point_step, self.starts,
            alpha, accumulate,
        )  # fmt: skip
        grid, _ = placed(self.grid, 1)
        self.run(launch, y, grid, when, rng, alpha, accumulate)
        np.testing.assert_array_equal(y, expected)
        assert np.isnan(whole).sum() - np.isnan(y).sum() == around, "neighbours were written"

    def cut_in_segments(self, points, spare=2):
        """Store segments of some points, empty ones behind them, and memory with NaN."""
        given = segments_of(self.windows, points, self.count + spare)
        names = "entries", "segments", "covers"
        self.more = dict(zip(names, given, strict=True))
        self.segment_count = self.count + spare
        spans = given[1][:, 1].sum()
        leads = 4 ** (len(self.sizes) - 1)
        self.partial = np.full(spans * leads * self.vectors, np.nan, self.dtype)
        return spans

    def check_scatter(self, launches, when, rng):
        expected = np.full_like(self.grid, np.nan)
        y, whole = placed(expected, 1)
        around = np.isnan(whole).sum() - np.isnan(y).sum()
        InterpolationPlan(self.windows).scatter(
            self.points, self.point_step, self.starts, expected, self.cell_step, self.column
        )
        points, _ = placed(self.points, 1)
        for one in launches:
            self.run(one, points, y, when, rng)
        np.testing.assert_array_equal(y, expected)
        assert np.isnan(whole).sum() - np.isnan(y).sum() == around, "neighbours were written"


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_kernels_give_the_bits_of_the_reference(tmp_path, rng, dtype):
    cases = CASES[:: 1 if dtype == np.float32 else 3]
    found = [program for case in cases for program in programs(case, dtype)]
    launches = iter(compiled(found, tmp_path))
    for case in cases:
        gather, scatter = next(launches), next(launches)
        for inner, column in ((1, 0), (2, 3)):
            problem = Problem(rng, case, dtype, inner, column)
            problem.check_gather(gather, "late", rng)
            problem.check_gather(gather, "at random", rng, alpha=-2, accumulate=True)
            problem.check_scatter([scatter], "late", rng)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_segments_give_the_bits_of_the_reference(tmp_path, rng, dtype):
    cases = SEGMENTED[:: 1 if dtype == np.float32 else 3]
    found = [program for case in cases for program in segmented_programs(case, dtype)]
    launches = compiled(found, tmp_path)
    for number, case in enumerate(cases):
        for inner, column in ((1, 0), (2, 3)):
            problem = Problem(rng, case, dtype, inner, column)
            problem.cut_in_segments(case[3])
            problem.check_scatter(launches[2 * number : 2 * number + 2], "late", rng)
            assert not np.isnan(problem.partial).any()  # each sum is written


def test_all_points_in_one_bin(tmp_path, rng):
    case = ((9, 20), 300, 1, 2, (0, 4), (32, 32))
    launches = compiled(list(segmented_programs(case, DTYPES[1])), tmp_path)
    problem = Problem(rng, case, DTYPES[1], 1, 0)
    problem.windows.corners[...] = (3, 7)
    assert problem.cut_in_segments(2) == 4 * (-(-300 // 7))  # sqrt(300 / 8) points, rounded up
    problem.check_scatter(launches, "late", rng)


MISTAKES = [
    ("gather", "begin + n * shares", "begin + n"),
    ("scatter", "corner <= a.sizes[k] - kWindow", "corner < a.sizes[k] - kWindow"),
    ("gather", "distance = vectors", "distance = 2 * vectors"),
    ("scatter", "first + c < a.sizes[last]", "first + c <= a.sizes[last]"),
    ("scatter", "p += share", "p += 1"),
    ("gather", "corner != window.corner", "window.corner < 0"),
]
SEGMENT_MISTAKES = [
    ("corner < corners", "corner < corners - 1"),
    ("ranges[j].begin += turns", "ranges[j].begin += 1"),
    ("if (!is_there) terms.factor = 0", ""),
    ("window.position < segment.span", "window.position < segment.span - 4"),
    ("is_there ? first + u", "is_there ? first"),
    ("behind[r][1] = behind[r][2]", "behind[r][1] = sum"),
]


@pytest.mark.parametrize(
    ("header", "right", "wrong"),
    [*MISTAKES[:2], *(pytest.param(*one, marks=pytest.mark.slow) for one in MISTAKES[2:])],
)
def test_a_mistake_is_seen(tmp_path, rng, header, right, wrong):
    vectors = 8 if "window" in right else 4
    case = ((5, 7), 31, vectors, (4, 1 if "share" in right else 4, 2))
    found = list(programs(case, DTYPES[1]))
    change = mistake(f"cuda/interpolated/{header}.cuh", right, wrong)
    launches = compiled(found, tmp_path, change=change)
    problem = Problem(rng, case, DTYPES[1], 1, 0)
    check = problem.check_gather if header == "gather" else problem.check_scatter
    given = launches[0] if header == "gather" else launches[1:]
    with pytest.raises(AssertionError):
        check(given, "late", rng)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        *SEGMENT_MISTAKES[:1],
        *(pytest.param(*one, marks=pytest.mark.slow) for one in SEGMENT_MISTAKES[1:]),
    ],
)
def test_a_mistake_with_segments_is_seen(tmp_path, rng, right, wrong):
    case = ((7, 25), 70, 1, 3, (0, 4), (4, 2))
    change = mistake("cuda/interpolated/segments.cuh", right, wrong)
    launches = compiled(list(segmented_programs(case, DTYPES[1])), tmp_path, change=change)
    problem = Problem(rng, case, DTYPES[1], 1, 0)
    problem.cut_in_segments(3)
    with pytest.raises(AssertionError):
        problem.check_scatter(launches, "late", rng)


def test_no_points(tmp_path, rng):
    case = ((5, 6), 0, 1, (1, 4, 1))
    by = (5, 6), 0, 1, 4, (0, 4), (1, 1)
    found = [*programs(case, DTYPES[0]), *segmented_programs(by, DTYPES[0])]
    gather, scatter, *segmented = compiled(found, tmp_path)
    problem = Problem(rng, case, DTYPES[0], 1, 0)
    problem.check_scatter([scatter], "late", rng)
    problem.check_gather(gather, "late", rng)
    problem.cut_in_segments(4)
    problem.check_scatter(segmented, "late", rng)


@pytest.mark.parametrize(("dtype", "vectors"), [("f4", 1), ("f8", 4), ("f8", 16)])
def test_pieces_are_added(tmp_path, rng, dtype, vectors):
    dtype, count, pieces, step = np.dtype(dtype), 37, 16, vectors + 2
    (launch,) = compiled([interpolation_program("fold", dtype, vectors)], tmp_path)
    partial, _ = placed(rng.integers(-9, 9, (pieces, count, vectors)).astype(dtype), 1)
    starts = rng.permutation(step)[:vectors]
    for accumulate in (False, True):
        points, _ = placed(np.full((count, step), np.nan, dtype), 1)
        expected = points.copy()
        if accumulate:
            points[:, starts] = expected[:, starts] = rng.integers(-9, 9, (count, vectors))
        before = expected[:, starts] if accumulate else 0
        expected[:, starts] = before - 3 * partial.sum(axis=0)
        arguments = np.zeros(1, fold_arguments(dtype))
        arguments["points"], arguments["partial"] = points.ctypes.data, partial.ctypes.data
        arguments["count"], arguments["pieces"], arguments["point_step"] = count, pieces, step
        arguments["vectors"][0, :vectors] = starts
        arguments["accumulate"], arguments["alpha"] = accumulate, -3
        how = Launch(blocks=2, threads=THREADS, shared_bytes=0, when=COPIES["late"], seed=1)
        failure = launch(arguments.tobytes(), how, [points, partial])
        assert not failure, failure
        np.testing.assert_array_equal(points, expected)
