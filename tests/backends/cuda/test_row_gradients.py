"""All gradients of a product by one kernel: lane by lane on the CPU, and how work is cut."""

import sys

import numpy as np
import pytest
from emulator.host_compiler import compiled, mistake, run_kernel
from emulator.kron_matmul import placed
from gradient_oracle import factor_gradient, vector_gradient

from batchkron.backends.cuda.gram.rows import rows_kernel
from batchkron.backends.cuda.gram.total import total_kernel
from batchkron.backends.cuda.runtime.hardware import DeviceLimits
from batchkron.spec.kron import KronSpec

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="coroutines of Linux")

DTYPES = [np.dtype(name) for name in ("f4", "f8")]
CHIP = DeviceLimits(227 << 10, 132)
# rows of x, factors, which gradients are wanted, that of x, turned; thread blocks, rows of a chunk
CASES = [
    (1, [(1, 1)], (1,), True, False, 1, 1),
    (5, [(3, 4)], (1,), False, True, 2, 2),
    (7, [(2, 3), (4, 1), (1, 6), (5, 2)], (1, 1, 1, 1), True, True, 3, 2),
    (9, [(2, 2)] * 6, (1,) * 6, True, False, 2, 3),
    (4, [(8, 8)] * 2, (0, 1), True, False, 2, 2),
    (11, [(3, 3)] * 3, (1, 0, 0), False, False, 1, 4),
    (6, [(4, 3), (3, 5), (2, 2)], (0, 1, 0), False, True, 2, 3),
    (6, [(4, 3), (3, 5), (2, 2)], (0, 1, 0), True, False, 2, 1),
    (3, [(16, 9), (5, 13)], (1, 1), True, True, 2, 1),
    (2, [(7, 16), (16, 6)], (1, 1), False, False, 1, 2),
    (5, [(2, 3), (3, 2), (4, 3), (3, 4)], (1, 1, 0, 1), True, False, 2, 2),
    (5, [(3, 3), (3, 3), (9, 2), (3, 2), (2, 3)], (0, 0, 1, 0, 1), True, True, 2, 2),
    (4, [(2, 2)] * 8, (0, 1, 0, 0, 1, 1, 0, 0), False, False, 1, 3),
]


class Problem:
    """Rows and factors of integers, whose products have no rounding errors."""

    def __init__(self, rng, case, dtype):
        count, shapes, needed, with_x, turned, blocks, chunk = case
        rows, columns = zip(*shapes, strict=True)
        offsets = rng.integers(0, 2, 2)
        self.x, _ = placed(rng.integers(-2, 3, (count, *rows)).astype(dtype), offsets[0])
        self.gradient, _ = placed(rng.integers(-2, 3, (count, *columns)).astype(dtype), offsets[1])
        self.factors = [self.factor(rng, shape, dtype) for shape in shapes]
        strides = tuple(tuple(n // dtype.itemsize for n in A.strides) for A in self.factors)
        self.needed, self.with_x, self.turned = tuple(map(bool, needed)), with_x, turned
        spec = KronSpec(rows, columns, count, 1, dtype)
        work = spec, strides, self.needed, with_x, turned
        self.kernel = rows_kernel(work, CHIP, (blocks, chunk))
        self.counts = tuple(p * q for (p, q), one in zip(shapes, needed, strict=True) if one)
        self.total = total_kernel(dtype, self.counts, blocks)

    def factor(self, rng, shape, dtype):
        """A matrix with any strides: also from right to left, or the same row again and again."""
        A = np.array(rng.integers(-1, 2, shape), dtype, order=rng.choice(["C", "F"]))
        return {0: A[::-1, ::-1], 1: np.broadcast_to(A[:1], shape)}.get(int(rng.integers(5)), A)

    @property
    def programs(self):
        return [self.kernel.program, self.total.program]

    def expected(self):
        """The gradient of x, and those of the factors that are wanted."""
        found = []
        for k, needed in enumerate(self.needed):
            if needed:
                sums = factor_gradient(self.x, self.gradient, self.factors, k)
                found.append(sums.T if self.turned else sums)
        return vector_gradient(self.gradient, self.factors), found

    def run(self, multiply, total, rng):
        how, dtype = self.kernel.launch, self.x.dtype
        of_x, around = placed(np.full(self.x.shape, np.nan, dtype), 1)
        parts, around_parts = placed(np.full((how.blocks, sum(self.counts)), np.nan, dtype), 1)
        sums = [np.full(count, np.nan, dtype) for count in self.counts]
        outside = [np.isnan(whole).sum() for whole in (around, around_parts)]
        arguments = self.kernel.arguments.copy()
        for name, array in (("x", self.x), ("gradient", self.gradient), ("parts", parts)):
            arguments[name] = array.ctypes.data
        arguments["of_x"] = of_x.ctypes.data if self.with_x else 0
        arguments["factors"] = [A.ctypes.data for A in self.factors]
        given = [self.x, self.gradient, of_x, parts, *self.factors]
        run_kernel(multiply, arguments, how.blocks, how.threads, how.shared_bytes, given, rng)
        written = [of_x.size if self.with_x else 0, parts.size]
        for whole, before, count in zip((around, around_parts), outside, written, strict=True):
            assert np.isnan(whole).sum() == before - count, "neighbours were written"
        total_, arguments = self.total.launch, self.total.arguments.copy()
        arguments["parts"], arguments["sums"] = (
            parts.ctypes.data,
            [one.ctypes.data for one in sums],
        )
        sizes = total_.blocks, total_.threads, total_.shared_bytes
        run_kernel(total, arguments, *sizes, [parts, *sums], rng)
        return of_x, sums


def check(problem, launches, rng):
    of_x, sums = problem.run(*launches, rng)
    expected, gradients = problem.expected()
    if problem.with_x:
        np.testing.assert_array_equal(of_x, expected)
    for found, gradient in zip(sums, gradients, strict=True):
        np.testing.assert_array_equal(found.reshape(gradient.shape), gradient)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_gradients_of_integers_are_exact(tmp_path, rng, dtype):
    problems = [Problem(rng, case, dtype) for case in CASES]
    launches = iter(compiled([one for each in problems for one in each.programs], tmp_path))
    for problem in problems:
        check(problem, (next(launches), next(launches)), rng)


@pytest.mark.parametrize(
    ("header", "right", "wrong"),
    [
        ("rows", "? a_.rows - first_ :", "? a_.rows - first_ - 1 :"),
        ("rows", "chunk += gridDim.x", "chunk += gridDim.x + 1"),
        ("rows", "w < each; ++w) sum", "w < 1; ++w) sum"),
        ("rows", "turned ? q * P + p : i", "i"),
        ("rows", "i < count; i += threads)", "i < whole; i += threads)"),
        ("rows", "sum, values[i], matrix[o * stride", "sum, values[i], matrix[i * stride"),
        ("rows", "wait_for_copies<0>()", "wait_for_copies<1>()"),
        ("rows", "if constexpr (k > 0) __syncthreads();", ""),
        ("rows", "if constexpr (Sizes::wanted_of(k)) __syncthreads();", ""),
        ("rows", "go_forward();\n      __syncthreads();", "go_forward();"),
        ("rows", "share_sums();\n    __syncthreads();", "share_sums();"),
        ("total", "sums = a.sums[k]", "sums = a.sums[0]"),
    ],
)
def test_a_mistake_is_seen(tmp_path, rng, header, right, wrong):
    problem = Problem(rng, (39, [(6, 5), (9, 3)], (1, 1), True, True, 3, 12), np.dtype("f4"))
    change = mistake(f"cuda/gram/{header}.cuh", right, wrong)
    with pytest.raises(AssertionError):
        check(problem, compiled(problem.programs, tmp_path, change=change), rng)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_work_is_cut_for_every_product(rng, dtype):
    found = 0
    for _ in range(500):
        modes, top = int(rng.integers(1, 14)), rng.uniform(0, 4.2)
        rows, columns = (
            tuple(int(2 ** rng.uniform(0, top)) for _ in range(modes)) for _ in range(2)
        )
        count = int(2 ** rng.uniform(0, 20))
        strides = tuple((n, 1) for n in columns)
        spec = KronSpec(rows, columns, count, 1, dtype)
        needed = [True, *(bool(rng.integers(2)) for _ in rows[1:])]
        kernel = rows_kernel((spec, strides, tuple(needed), True, False), CHIP)
        if kernel is None:
            assert modes > 1 or max(rows + columns) > 8 or count * rows[0] > 1 << 20
            assert modes != 2 or max(rows + columns) > 8
            continue
        found += 1
        how, (blocks, chunk) = kernel.launch, kernel.variant
        assert how.resident * (how.shared_bytes + 1024) <= 228 << 10
        assert 1 <= how.blocks == blocks <= how.resident * CHIP.multiprocessors
        assert (blocks - 1) * chunk < count
    assert found > 100


@pytest.mark.parametrize(
    ("dtype", "inner", "shapes"),
    [
        ("c8", 1, [(2, 2)]),
        ("f4", 2, [(2, 2)]),
        ("f4", 1, [(17, 2)]),
        ("f4", 1, [(8, 8)] * 6),
        ("f8", 1, [(2, 2)] * 13),
    ],
)
def test_what_it_does_not_take(dtype, inner, shapes):
    rows, columns = zip(*shapes, strict=True)
    strides = tuple((n, 1) for n in columns)
    spec = KronSpec(rows, columns, 10, inner, np.dtype(dtype))
    assert rows_kernel((spec, strides, (True,) * len(shapes), True, False), CHIP) is None
