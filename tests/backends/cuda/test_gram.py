"""Gram matrices of one mode: the kernels lane by lane on the CPU, and how work is cut."""

import sys

import numpy as np
import pytest
from emulator.host_compiler import compiled, mistake, run_kernel
from emulator.kron_matmul import placed

from batchkron.backends.cuda.gram.registers import registers_kernel
from batchkron.backends.cuda.gram.tiles import THREADS, tiles_kernel
from batchkron.backends.cuda.gram.total import total_kernel
from batchkron.backends.cuda.runtime.hardware import DeviceLimits

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="coroutines of Linux")

DTYPES = [np.dtype(name) for name in ("f4", "f8", "c8", "c16")]
# outer, rows, columns, inner, and thread blocks of a tile
CASES = [
    (1, 1, 1, 1, 1),
    (5, 2, 3, 1, 1),
    (3, 4, 4, 100, 2),
    (40, 8, 8, 8, 2),
    (7, 5, 9, 17, 3),
    (300, 3, 2, 3, 1),
    (2, 24, 20, 150, 2),
    (2, 70, 9, 11, 1),
    (1, 64, 66, 9, 2),
    (9, 33, 65, 1, 2),
    (16, 66, 66, 9, 1),
    (1, 52, 52, 52, 1),  # of float32: groups of 8 along r are more pairs than a chunk may have
]
SMALL_CASES = [  # the same for modes whose sums a thread has
    (1, 1, 1, 1, 1),
    (5, 2, 3, 1, 2),
    (2100, 3, 3, 1, 2),
    (700, 4, 8, 1, 3),
    (40, 8, 8, 33, 2),
    (7, 5, 7, 170, 3),
    (300, 3, 2, 3, 1),
    (1, 6, 1, 1500, 2),
    (9, 8, 8, 64, 70),
]


CHIP = DeviceLimits(227 << 10, 132)


class Problem:
    """Tensors of integers, whose sums have no rounding errors."""

    small = False

    def __init__(self, rng, case, dtype):
        *self.shape, self.blocks = case
        outer, rows, columns, inner = self.shape
        self.dtype = dtype
        self.x, _ = placed(self.integers(rng, (outer, rows, inner)), 1 - self.small)
        self.y, _ = placed(self.integers(rng, (outer, columns, inner)), 3)
        self.total = total_kernel(dtype, (rows * columns,), self.blocks)
        self.expected = np.einsum("lpr,lqr->pq", self.x.conj(), self.y)

    def integers(self, rng, shape):
        values = rng.integers(-3, 4, shape)
        if self.dtype.kind == "c":
            values = values + 1j * rng.integers(-3, 4, shape)
        return values.astype(self.dtype)

    def kernel(self):
        """The kernel whose thread blocks write so many parts of the sums."""
        make = registers_kernel if self.small else tiles_kernel
        return make((*self.shape, self.dtype), CHIP, self.blocks)

    @property
    def programs(self):
        return [self.kernel().program, self.total.program]

    def run(self, multiply, total, rng, **changed):
        _, rows, columns, _ = self.shape
        parts, around = placed(np.full((self.blocks, rows, columns), np.nan, self.dtype), 1)
        outside = np.isnan(around).sum() - parts.size
        kernel = self.kernel()
        arguments, how = kernel.arguments.copy(), kernel.launch
        for name, array in (("x", self.x), ("y", self.y), ("sums", parts)):
            arguments[name] = array.ctypes.data
        for name, value in changed.items():
            arguments[name] = value
        sizes = how.blocks, how.threads, how.shared_bytes
        run_kernel(multiply, arguments, *sizes, [self.x, self.y, parts], rng)
        assert not np.isnan(parts).any()
        assert np.isnan(around).sum() == outside, "neighbours were written"
        if self.blocks == 1:
            return parts[0]
        sums, around = placed(np.full((rows, columns), np.nan, self.dtype), 1)
        outside = np.isnan(around).sum() - sums.size
        arguments = self.total.arguments.copy()
        arguments["parts"], arguments["sums"] = parts.ctypes.data, sums.ctypes.data
        how = self.total.launch
        sizes = how.blocks, how.threads, how.shared_bytes
        run_kernel(total, arguments, *sizes, [parts, sums], rng)
        assert np.isnan(around).sum() == outside, "neighbours were written"
        return sums


class SmallProblem(Problem):
    """The same by the kernel of small modes; x lies at a multiple of 16 bytes, y does not."""

    small = True


def check(problem, launches, rng):
    np.testing.assert_array_equal(problem.run(*launches, rng), problem.expected)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_sums_of_integers_are_exact(tmp_path, rng, dtype):
    cases = CASES if dtype == np.float32 else CASES[1::4]
    problems = [Problem(rng, case, dtype) for case in cases]
    launches = iter(compiled([one for each in problems for one in each.programs], tmp_path))
    for problem in problems:
        check(problem, (next(launches), next(launches)), rng)


@pytest.mark.parametrize("dtype", DTYPES[:2], ids=str)
def test_sums_of_small_modes_are_exact(tmp_path, rng, dtype):
    problems = [SmallProblem(rng, case, dtype) for case in SMALL_CASES]
    launches = iter(compiled([one for each in problems for one in each.programs], tmp_path))
    for problem in problems:
        check(problem, (next(launches), next(launches)), rng)


def test_distances_of_more_than_31_bits(tmp_path, rng):
    """As `near` 0 says; here they are short."""
    problem = Problem(rng, (40, 12, 5, 7, 2), np.dtype("f4"))
    assert problem.kernel().arguments["near"] == 1
    far = (3, 12, 5, 1 << 29, problem.dtype)
    assert tiles_kernel(far, CHIP).arguments["near"] == 0
    sums = problem.run(*compiled(problem.programs, tmp_path), rng, near=0)
    np.testing.assert_array_equal(sums, problem.expected)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("p < rows && l < l_count", "p < rows"),
        ("l += a.l_next", "l += 1"),
        ("k += teams", "k += teams + 1"),
        ("mine < left - kept", "mine < kept"),
        ("conjugate(x.values[i])", "x.values[i]"),
    ],
)
def test_a_mistake_is_seen(tmp_path, rng, right, wrong):
    problem = Problem(rng, (40, 12, 5, 7, 2), np.dtype("c8"))
    change = mistake("cuda/gram/tiles.cuh", right, wrong)
    with pytest.raises(AssertionError):
        check(problem, compiled(problem.programs, tmp_path, change=change), rng)


@pytest.mark.parametrize(
    ("header", "right", "wrong"),
    [
        ("registers", "k < count; ++k) values[k] = from[n", "k < count; ++k) values[k] = from[!n"),
        ("registers", "r -= a.inner, ++l", "r -= a.inner"),
        ("registers", "number + half : number", "number : number"),
        ("registers", "w < warps", "w < 1"),
        ("total", "b += shares", "b += 1"),
        ("total", "share < left", "share < 1"),
    ],
)
def test_a_mistake_with_small_modes_is_seen(tmp_path, rng, header, right, wrong):
    problem = SmallProblem(rng, (400, 5, 8, 33, 20), np.dtype("f4"))
    change = mistake(f"cuda/gram/{header}.cuh", right, wrong)
    with pytest.raises(AssertionError):
        check(problem, compiled(problem.programs, tmp_path, change=change), rng)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_work_is_cut_for_every_shape(rng, dtype):
    itemsize = dtype.itemsize
    for _ in range(300):
        outer, rows, columns, inner = (int(2 ** rng.uniform(0, top)) for top in (20, 9, 9, 20))
        kernel = tiles_kernel((outer, rows, columns, inner, dtype), CHIP)
        row_tile, column_tile, own, _, width, capacity = kernel.tile
        outer_step, inner_step, blocks = (
            int(kernel.arguments[name][0]) for name in ("outer_step", "inner_step", "blocks")
        )
        pair = itemsize * (row_tile + column_tile + 8)
        assert capacity * pair <= 24 << 10
        assert own == 8 if itemsize == 4 and min(rows, columns) >= 32 else own == 4
        assert 1 <= outer_step * inner_step <= capacity
        assert inner_step <= inner
        assert inner_step == inner or inner_step % width == 0
        padded = -(-inner_step // width) * width
        assert outer_step * padded <= capacity  # so many elements are copied
        assert row_tile % own == column_tile % own == 0
        assert row_tile * column_tile <= own**2 * THREADS
        assert row_tile - rows < own
        chunks = -(-outer // outer_step) * -(-inner // inner_step)
        assert 1 <= blocks <= chunks
        # what blocks write, and gram_total reads, is little beside x and y
        if blocks > 1:
            parts, read = 2 * blocks * rows * columns, outer * inner * (rows + columns)
            assert parts <= read


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_small_modes_have_registers(rng, dtype):
    for _ in range(300):
        outer, inner = (int(2 ** rng.uniform(0, 20)) for _ in range(2))
        rows, columns = (int(2 ** rng.uniform(0, 6.1)) for _ in range(2))
        small = registers_kernel((outer, rows, columns, inner, dtype), CHIP)
        held = dtype.itemsize // 4 * (rows * columns + 2 * (rows + columns))
        fits = rows * columns <= 64 and held <= 225  # of the 255 registers of a thread
        assert (small is not None) == (dtype.kind == "f" and fits)
        if small is not None:
            how = small.launch
            assert held * how.threads * how.resident < 65536
            assert how.threads * how.resident >= 256
            assert 1 <= how.blocks <= how.resident * CHIP.multiprocessors
            assert (how.blocks - 1) * how.threads < outer * inner
            step = small.arguments[0]
            assert step["l_step"] * inner + step["r_step"] == how.blocks * how.threads
            assert step["r_step"] < inner
