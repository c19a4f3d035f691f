"""Gram matrices of one mode: the kernels lane by lane on the CPU, and how work is cut."""

import sys
from dataclasses import replace

import numpy as np
import pytest
from emulator.host_compiler import COPIES, Launch, compiled, mistake
from emulator.kron_matmul import placed

from batchkron.backends.cuda.gram.kernel import (
    SHARES,
    THREADS,
    gram_cut,
    gram_program,
    sized_arguments,
    total_arguments,
    total_program,
)
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


CHIP = DeviceLimits(227 << 10, 132)


class Problem:
    """Tensors of integers, whose sums have no rounding errors."""

    def __init__(self, rng, case, dtype):
        *self.shape, self.blocks = case
        outer, rows, columns, inner = self.shape
        self.dtype = dtype
        self.cut = replace(gram_cut(*self.shape, dtype.itemsize, CHIP), blocks=self.blocks)
        self.x, _ = placed(self.integers(rng, (outer, rows, inner)), 1)
        self.y, _ = placed(self.integers(rng, (outer, columns, inner)), 3)
        self.expected = np.einsum("lpr,lqr->pq", self.x.conj(), self.y)

    def integers(self, rng, shape):
        values = rng.integers(-3, 4, shape)
        if self.dtype.kind == "c":
            values = values + 1j * rng.integers(-3, 4, shape)
        return values.astype(self.dtype)

    @property
    def programs(self):
        return [gram_program(self.dtype, *self.shape[1:3], self.cut), total_program(self.dtype)]

    def run(self, multiply, total, rng, near=None):
        _, rows, columns, _ = self.shape
        cut = self.cut
        parts, around = placed(np.full((self.blocks, rows, columns), np.nan, self.dtype), 1)
        outside = np.isnan(around).sum() - parts.size
        arguments = sized_arguments(*self.shape, cut)
        for name, array in (("x", self.x), ("y", self.y), ("sums", parts)):
            arguments[name] = array.ctypes.data
        if near is not None:
            arguments["near"] = near
        tiles = -(-rows // cut.row_tile) * -(-columns // cut.column_tile)
        arrays = [self.x, self.y, parts]
        self.launch(multiply, arguments, self.blocks * tiles, cut.shared_bytes, arrays, rng)
        assert not np.isnan(parts).any()
        assert np.isnan(around).sum() == outside, "neighbours were written"
        if self.blocks == 1:
            return parts[0]
        sums, around = placed(np.full((rows, columns), np.nan, self.dtype), 1)
        outside = np.isnan(around).sum() - sums.size
        arguments = np.zeros(1, total_arguments())
        arguments["parts"], arguments["sums"] = parts.ctypes.data, sums.ctypes.data
        arguments["count"], arguments["blocks"] = sums.size, self.blocks
        blocks, shared_bytes = -(-sums.size // (THREADS // SHARES)), THREADS * sums.itemsize
        self.launch(total, arguments, blocks, shared_bytes, [parts, sums], rng)
        assert np.isnan(around).sum() == outside, "neighbours were written"
        return sums

    def launch(self, launch, arguments, blocks, shared_bytes, arrays, rng):
        how = Launch(
            blocks=blocks,
            threads=THREADS,
            shared_bytes=shared_bytes,
            when=COPIES["late"],
            seed=int(rng.integers(1 << 30)),
        )
        failure = launch(arguments.tobytes(), how, arrays)
        assert not failure, failure


def check(problem, launches, rng):
    np.testing.assert_array_equal(problem.run(*launches, rng), problem.expected)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_sums_of_integers_are_exact(tmp_path, rng, dtype):
    cases = CASES if dtype == np.float32 else CASES[1::4]
    problems = [Problem(rng, case, dtype) for case in cases]
    launches = iter(compiled([one for each in problems for one in each.programs], tmp_path))
    for problem in problems:
        check(problem, (next(launches), next(launches)), rng)


def test_distances_of_more_than_31_bits(tmp_path, rng):
    """As `near` 0 says; here they are short."""
    problem = Problem(rng, (40, 12, 5, 7, 2), np.dtype("f4"))
    assert sized_arguments(*problem.shape, problem.cut)["near"] == 1
    assert sized_arguments(3, 12, 5, 1 << 29, problem.cut)["near"] == 0
    sums = problem.run(*compiled(problem.programs, tmp_path), rng, near=0)
    np.testing.assert_array_equal(sums, problem.expected)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("p < rows && l < l_count", "p < rows"),
        ("number += a.blocks", "number += 1"),
        ("k += teams", "k += teams + 1"),
        ("mine < left - kept", "mine < kept"),
        ("conjugate(x.values[i])", "x.values[i]"),
    ],
)
def test_a_mistake_is_seen(tmp_path, rng, right, wrong):
    problem = Problem(rng, (40, 12, 5, 7, 2), np.dtype("c8"))
    launches = compiled(problem.programs, tmp_path, change=mistake("cuda/gram.cuh", right, wrong))
    with pytest.raises(AssertionError):
        check(problem, launches, rng)


@pytest.mark.parametrize("itemsize", [4, 8, 16])
def test_work_is_cut_for_every_shape(rng, itemsize):
    for _ in range(300):
        outer, rows, columns, inner = (int(2 ** rng.uniform(0, top)) for top in (20, 9, 9, 20))
        cut = gram_cut(outer, rows, columns, inner, itemsize, CHIP)
        pair = itemsize * (cut.row_tile + cut.column_tile + 8)
        assert cut.capacity * pair <= 24 << 10
        assert 1 <= cut.outer_step * cut.inner_step <= cut.capacity
        assert cut.inner_step <= inner
        assert cut.inner_step == inner or cut.inner_step % cut.width == 0
        padded = -(-cut.inner_step // cut.width) * cut.width
        assert cut.outer_step * padded <= cut.capacity  # so many elements are copied
        assert cut.row_tile % 4 == cut.column_tile % 4 == 0
        assert cut.row_tile * cut.column_tile <= 16 * THREADS
        assert cut.row_tile - rows < 4
        chunks = -(-outer // cut.outer_step) * -(-inner // cut.inner_step)
        assert 1 <= cut.blocks <= chunks
        # what blocks write, and gram_total reads, is little beside x and y
        if cut.blocks > 1:
            parts, read = 2 * cut.blocks * rows * columns, outer * inner * (rows + columns)
            assert parts <= read
