"""Kernels of Kronecker-sparse matrices at the ends of panels, strips, pieces, tiles and vectors."""

import os
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
from dense_oracle import poisoned, random_array
from kron_sparse_oracle import assert_product

import batchkron as bk

# d that pieces of every size divide, and those that only elements do
PIECES = [1, 2, 3, 4, 6, 7, 8, 12, 16, 20, 24, 32, 37, 48]
# rows around the sizes of panels, 2, 4 and 6, and terms; of strips in the last ones
ENDS = [(1, 1), (2, 3), (3, 2), (4, 1), (5, 7), (6, 2), (7, 5), (8, 3), (10, 4), (11, 6), (13, 9)]
STRIPS = [(8, 5), (9, 1), (16, 3), (17, 2), (31, 7), (33, 4), (64, 2), (65, 3), (97, 5), (130, 2)]
# vectors around the lanes, from 2 of complex128 to 16 of float32, and tiles of up to 4 of them
BATCHES = [1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 33, 47, 65, 130]
# patterns whose terms go in several blocks, whatever the dtype and the instruction set
BLOCKS = [(1, 5, 700, 16), (1, 3, 300, 32), (1, 7, 2500, 1), (1, 20, 1100, 1), (2, 4, 90, 37)]


def check_first(rng, pattern, count, dtype):
    values = random_array(rng, pattern, dtype)
    op = bk.KroneckerSparse(values)
    x, y = (random_array(rng, (count, n), dtype) for n in op.shape[::-1])
    out = op.apply(x, poisoned(y.shape, dtype))
    assert_product(out, values, x)
    assert_product(op.accumulate(x, y.copy(), alpha=-0.5), values, x, y, -0.5)


def check_last(rng, pattern, count, dtype):
    values = random_array(rng, pattern, dtype)
    op = bk.KroneckerSparse(values, layout="batch-last")
    x, y = (random_array(rng, (n, count), dtype) for n in op.shape[::-1])
    out = op.apply(x, poisoned(y.shape, dtype))
    assert_product(out.T, values, x.T)
    assert_product(op.accumulate(x, y.copy(), alpha=-0.5).T, values, x.T, y.T, -0.5)


@pytest.mark.parametrize("d", PIECES)
def test_pieces(rng, dtype, d):
    for at, count in enumerate(BATCHES):
        b, c = ENDS[(at + d) % len(ENDS)]
        check_first(rng, (1 + at % 3, b, c, d), count, dtype)
        check_last(rng, (1 + at % 2, b, c, d), count, dtype)


@pytest.mark.parametrize("size", [*ENDS, *STRIPS], ids=str)
def test_panels_and_strips(rng, dtype, size):
    for count in (1, 3, 6, 8, 11, 40):
        check_first(rng, (2, *size, 1), count, dtype)
        check_first(rng, (1, *size, 16), count, dtype)
        check_last(rng, (1, *size, 2), count, dtype)


@pytest.mark.parametrize("pattern", BLOCKS, ids=str)
def test_blocks_of_terms(rng, dtype, pattern):
    for count in (1, 19):
        check_first(rng, pattern, count, dtype)
        check_last(rng, pattern, count, dtype)


@pytest.mark.parametrize("d", [65, 131, 254, 1001])
def test_more_pieces_than_a_tile_has(rng, dtype, d):
    for b, c in ((3, 2), (1, 5), (7, 20)):
        for count in (1, 5, 18):
            check_first(rng, (1, b, c, d), count, dtype)
            check_first(rng, (2, b, c, d), count, dtype)


@pytest.mark.parametrize("pattern", [(37, 2, 2, 1), (50, 1, 3, 1), (9, 3, 1, 2), (19, 2, 2, 6)])
def test_small_blocks_go_together(rng, dtype, pattern):
    for count in (1, 7, 16, 33):
        check_first(rng, pattern, count, dtype)


def test_many_vectors(rng, dtype):
    """Several tiles of vectors for each block of the matrix."""
    for pattern in ((2, 9, 13, 1), (1, 9, 13, 6), (1, 9, 13, 16)):
        check_first(rng, pattern, 1501, dtype)
        check_last(rng, pattern, 1501, dtype)
    check_last(rng, (1, 7, 2, 1), 40_003, dtype)


@pytest.mark.parametrize("inner", [2, 3, 5, 8, 9, 17])
def test_vectors_before_and_behind(rng, dtype, inner):
    """x (outer, N, inner), as operators on complex vectors and compositions have it."""
    for pattern in ((2, 3, 5, 4), (3, 9, 4, 1), (1, 5, 6, 16)):
        values = random_array(rng, pattern, dtype)
        product = bk.backends.backend().kron_sparse_product(values)
        a, b, c, d = pattern
        for outer in (1, 2, 70):
            x = random_array(rng, (outer, a * c * d, inner), dtype)
            y = random_array(rng, (outer, a * b * d, inner), dtype)
            out = poisoned(y.shape, dtype)
            product.run(x, out, outer, inner, 1.0, False)
            assert_product(out.swapaxes(1, 2), values, x.swapaxes(1, 2))
            added = y.copy()
            product.run(x, added, outer, inner, 2.0, True)
            y = y.swapaxes(1, 2)
            assert_product(added.swapaxes(1, 2), values, x.swapaxes(1, 2), y, 2.0)


def test_nothing_outside_is_written_and_no_alignment_needed(rng, dtype):
    """Arrays at every offset from a vector, results with the same bits."""
    for pattern, layout in (
        ((1, 7, 5, 16), "batch-first"),
        ((1, 7, 5, 6), "batch-first"),
        ((2, 19, 5, 1), "batch-first"),
        ((1, 7, 5, 3), "batch-last"),
    ):
        op = bk.KroneckerSparse(random_array(rng, pattern, dtype), layout=layout)
        shapes = [(11, n) if layout == "batch-first" else (n, 11) for n in op.shape]
        x = random_array(rng, shapes[1], dtype)
        expected = op.apply(x, poisoned(shapes[0], dtype))
        for offset in (1, 2, 3, 5, 11):
            memory, room = poisoned(x.size + 40, dtype), poisoned(expected.size + 40, dtype)
            moved = memory[offset : offset + x.size].reshape(x.shape)
            moved[...] = x
            place = slice(17 - offset, 17 - offset + expected.size)
            op.apply(moved, room[place].reshape(expected.shape))
            np.testing.assert_array_equal(room[place].reshape(expected.shape), expected)
            room[place] = np.nan
            assert np.isnan(room).all(), "a neighbour was written"


@pytest.mark.parametrize("layout", ["batch-first", "batch-last"])
@pytest.mark.parametrize("pattern", [(2, 20, 5, 1), (1, 5, 7, 2), (3, 7, 4, 16), (2, 3, 4, 37)])
def test_infinities_stay_where_they_belong(rng, dtype, pattern, layout):
    """Padding and vectors that fill lanes do not leak, and NaN comes from its own sums only."""
    values = random_array(rng, pattern, dtype)
    op = bk.KroneckerSparse(values)
    x = random_array(rng, (21, op.shape[1]), dtype)
    x[3, 5] = np.inf
    values = op.values.copy()
    values[0, 1, 2, 0] = np.nan
    changed = bk.KroneckerSparse(values, layout=layout)
    product = changed.apply(x if layout == "batch-first" else x.T.copy())
    product = product if layout == "batch-first" else product.T
    a, b, c, d = pattern
    touched = np.zeros((21, a, b, d), bool)
    touched[:, 0, 1, 0] = True
    touched[3, 5 // (c * d), :, 5 % d] = True
    np.testing.assert_array_equal(np.isfinite(product), ~touched.reshape(21, -1))


@pytest.mark.parametrize(
    "pattern", [(1, 200, 150, 1), (3, 40, 50, 3), (1, 40, 50, 16), (1, 30, 30, 32), (700, 2, 2, 1)]
)
def test_same_bits_for_any_number_of_threads(rng, dtype, threads, pattern):
    op = bk.KroneckerSparse(random_array(rng, pattern, dtype))
    last = bk.KroneckerSparse(op.values, layout="batch-last")
    for count in (1, 3, 120):
        x = random_array(rng, (count, op.shape[1]), dtype)
        turned, results = x.T.copy(), []
        for number in (1, 2, 3, 7):
            threads(number)
            for _ in range(3):  # a plan takes all threads in its first calls
                results.append((op.apply(x), last.apply(turned)))
        for result in results[1:]:
            np.testing.assert_array_equal(result[0], results[0][0])
            np.testing.assert_array_equal(result[1], results[0][1])


def test_rows_do_not_depend_on_their_neighbours(rng, dtype):
    """A vector has the same bits alone and among others, wherever it is."""
    for pattern in ((2, 20, 30, 1), (1, 7, 9, 6), (1, 7, 9, 16)):
        op = bk.KroneckerSparse(random_array(rng, pattern, dtype))
        x = random_array(rng, (37, op.shape[1]), dtype)
        y = op.apply(x)
        for n in (0, 5, 36):
            np.testing.assert_array_equal(op.apply(x[n : n + 1].copy())[0], y[n])
        part = op.apply(x[7:24].copy())
        np.testing.assert_array_equal(part, y[7:24])


def test_both_packings_are_updated(rng, dtype):
    """One operator has the values packed for rows and for columns."""
    for pattern in ((2, 20, 3, 1), (1, 5, 4, 8)):
        op = bk.KroneckerSparse(random_array(rng, pattern, dtype))
        x = random_array(rng, (6, op.shape[1]), dtype)
        for _ in range(2):
            assert_product(op.apply(x), op.values, x)
            assert_product((op @ x.T.copy()).T, op.values, x)
            op.update(random_array(rng, pattern, dtype))


def test_functions_and_operators_have_the_same_bits(rng, dtype):
    for pattern in ((2, 20, 3, 1), (1, 5, 4, 8), (2, 3, 4, 3)):
        values = random_array(rng, pattern, dtype)
        op = bk.KroneckerSparse(values)
        x = random_array(rng, (9, op.shape[1]), dtype)
        np.testing.assert_array_equal(bk.kronecker_sparse_multiply(values, x), op.apply(x))
        turned = x.T.copy()
        last = bk.kronecker_sparse_multiply(values, turned, layout="batch-last")
        np.testing.assert_array_equal(last, op @ turned)


def test_applying_allocates_nothing(rng):
    for layout, d in (
        ("batch-first", 1),
        ("batch-first", 6),
        ("batch-first", 16),
        ("batch-last", 3),
    ):
        op = bk.KroneckerSparse(rng.standard_normal((1, 20, 30, d)), layout=layout)
        x, out = (rng.standard_normal((50, n)) for n in op.shape[::-1])
        if layout == "batch-last":
            x, out = x.T.copy(), out.T.copy()
        op.apply(x, out)
        tracemalloc.start()
        op.apply(x, out)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 500


PROGRAM = """
import sys, zlib
import numpy as np, batchkron as bk
rng = np.random.default_rng(5)
PATTERNS = [(1, 7, 5, 1), (2, 70, 9, 1), (1, 9, 300, 2), (2, 7, 5, 12), (1, 7, 70, 16)]
worst = 0.0
for kind in "fdFD":
    for pattern in PATTERNS:
        a, b, c, d = pattern
        values = rng.standard_normal(pattern).astype(kind)
        values += (1j * values[::-1, ::-1] if kind in "FD" else 0)
        for count in (1, 5, 18, 67):
            x = rng.standard_normal((count, a * c * d)).astype(kind)
            expected = np.einsum("nacd,abcd->nabd", x.reshape(count, a, c, d).astype("D"), values)
            for layout, given in (("batch-first", x), ("batch-last", x.T.copy())):
                y = bk.kronecker_sparse_multiply(values, given, layout=layout)
                y = (y if layout == "batch-first" else y.T).reshape(expected.shape)
                scale = np.finfo(kind).eps * (c + 4) * np.abs(expected).max()
                worst = max(worst, np.abs(y - expected).max() / scale)
print(bk.instruction_set(), worst)
assert worst < 2, worst
"""


@pytest.mark.parametrize("name", ["baseline", "avx2", "avx512"])
def test_instruction_sets(name):
    """Errors relative to the largest entry stay below the bound of a sum of c terms."""
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "BATCHKRON_ISA": name},
        capture_output=True,
        text=True,
        check=False,
    )
    if "not supported by this processor" in run.stderr:
        pytest.skip(f"the processor has no {name}")
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith(name)
