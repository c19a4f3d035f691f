"""Kernels of interpolation lane by lane on the CPU, against the reference backend."""

import sys

import numpy as np
import pytest
from emulator.host_compiler import COPIES, Launch, compiled, mistake
from emulator.kron_matmul import placed

from batchkron.backends.cuda.interpolated.kernel import (
    THREADS,
    ScatterCut,
    device_windows,
    gather_program,
    scatter_program,
    sized_arguments,
)
from batchkron.backends.reference import InterpolationPlan
from batchkron.spec.interpolated import Windows

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="coroutines of Linux")

# sizes of the grid, points, vectors, how the transpose is cut
CASES = [
    ((7,), 40, 1, ScatterCut(1, 1, 8)),
    ((4,), 5, 16, ScatterCut(4, 4, 1)),
    ((9,), 33, 4, ScatterCut(4, 4, 2)),
    ((5, 7), 50, 1, ScatterCut(1, 4, 1)),
    ((6, 5), 21, 2, ScatterCut(2, 1, 4)),
    ((4, 9), 13, 8, ScatterCut(4, 4, 1)),
    ((5, 4, 6), 30, 1, ScatterCut(1, 4, 1)),
    ((4, 5, 5), 11, 4, ScatterCut(4, 1, 32)),
    ((5, 4, 7), 9, 16, ScatterCut(4, 4, 1)),
    ((4, 5, 4, 6), 12, 1, ScatterCut(1, 4, 1)),
    ((4, 4, 5, 4, 4), 7, 2, ScatterCut(2, 1, 2)),
    ((4, 4, 4, 5, 4, 4), 5, 1, ScatterCut(1, 4, 1)),
]
DTYPES = [np.dtype("f4"), np.dtype("f8")]


def windows(rng, sizes, count, dtype):
    """Windows of random points, with integers as weights: sums have no rounding errors."""
    corners = np.stack([rng.integers(0, n - 3, count) for n in sizes], axis=1)
    corners = corners[np.lexsort(corners.T[::-1])]
    weights = rng.choice([-2, -1, 1, 2], (count, len(sizes), 4)).astype(dtype)
    return Windows(sizes, corners.astype(np.int64), weights, rng.permutation(count))


def programs(case, dtype):
    sizes, _, vectors, cut = case
    modes = len(sizes)
    yield gather_program(dtype, modes, vectors)
    yield scatter_program(dtype, modes, vectors, cut)


class Problem:
    """Vectors of a case; those of points one behind another (``inner`` 1) or side by side."""

    def __init__(self, rng, case, dtype, inner, column):
        self.sizes, self.count, self.vectors, _ = case
        self.windows = windows(rng, self.sizes, self.count, dtype)
        stored = device_windows(self.windows)
        self.held = [placed(array, 0)[0] if array.dtype.kind == "f" else array.copy()
                     for array in stored.arrays]  # fmt: skip
        self.cell_step, self.column = self.vectors + column, column
        self.point_step = 1 if inner == 1 else self.vectors + 1
        step = self.count if inner == 1 else 1
        self.starts = [r * step for r in range(self.vectors)]
        self.points = rng.integers(-3, 4, (self.count + 1) * (self.vectors + 1)).astype(dtype)
        self.grid = rng.integers(-3, 4, (np.prod(self.sizes), self.cell_step)).astype(dtype)
        self.dtype = dtype

    def run(self, launch, points, grid, when, rng, alpha=1, accumulate=False):
        arguments = sized_arguments(
            self.dtype, self.sizes, self.cell_step, self.point_step, self.count
        )
        for name, array in zip(("weights", "corners", "places", "starts"), self.held, strict=True):
            arguments[name] = array.ctypes.data
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

    def check_scatter(self, launch, when, rng):
        expected = np.full_like(self.grid, np.nan)
        y, whole = placed(expected, 1)
        around = np.isnan(whole).sum() - np.isnan(y).sum()
        InterpolationPlan(self.windows).scatter(
            self.points, self.point_step, self.starts, expected, self.cell_step, self.column
        )
        points, _ = placed(self.points, 1)
        self.run(launch, points, y, when, rng)
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
            problem.check_scatter(scatter, "late", rng)


MISTAKES = [
    ("gather", "begin + n * shares", "begin + n"),
    ("scatter", "corner <= a.sizes[k] - kWindow", "corner < a.sizes[k] - kWindow"),
    ("gather", "distance = vectors", "distance = 2 * vectors"),
    ("scatter", "first + c < a.sizes[last]", "first + c <= a.sizes[last]"),
    ("scatter", "p += share", "p += 1"),
]


@pytest.mark.parametrize(
    ("header", "right", "wrong"),
    [*MISTAKES[:2], *(pytest.param(*one, marks=pytest.mark.slow) for one in MISTAKES[2:])],
)
def test_a_mistake_is_seen(tmp_path, rng, header, right, wrong):
    case = ((5, 7), 31, 4, ScatterCut(4, 1 if "share" in right else 4, 2))
    found = list(programs(case, DTYPES[1]))
    change = mistake(f"cuda/interpolated/{header}.cuh", right, wrong)
    launches = compiled(found, tmp_path, change=change)
    problem = Problem(rng, case, DTYPES[1], 1, 0)
    check = problem.check_gather if header == "gather" else problem.check_scatter
    with pytest.raises(AssertionError):
        check(launches[header == "scatter"], "late", rng)


def test_no_points(tmp_path, rng):
    case = ((5, 6), 0, 1, ScatterCut(1, 4, 1))
    gather, scatter = compiled(list(programs(case, DTYPES[0])), tmp_path)
    problem = Problem(rng, case, DTYPES[0], 1, 0)
    problem.check_scatter(scatter, "late", rng)
    problem.check_gather(gather, "late", rng)
