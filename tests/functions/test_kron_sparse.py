"""kronecker_sparse_multiply in both layouts, for every pattern and dtype."""

import numpy as np
import pytest
from dense_oracle import poisoned, random_array
from hypothesis import given, settings
from hypothesis import strategies as st
from kron_sparse_oracle import assert_product, dense_matrix

import batchkron as bk

PATTERNS = [
    (1, 1, 1, 1),
    (1, 5, 7, 1),
    (3, 2, 2, 1),
    (1, 2, 3, 4),
    (2, 3, 5, 7),
    (4, 1, 3, 2),
    (5, 6, 1, 3),
    (1, 13, 11, 16),
    (2, 7, 4, 37),
    (11, 1, 1, 13),
    (1, 48, 17, 2),
]


def test_the_oracle_follows_the_definition(rng):
    values = rng.standard_normal((2, 3, 4, 5))
    expected = np.zeros((30, 40))
    for i, k, col, j in np.ndindex(2, 3, 4, 5):
        expected[i * 15 + k * 5 + j, i * 20 + col * 5 + j] = values[i, k, col, j]
    np.testing.assert_array_equal(dense_matrix(values), expected)
    support = np.kron(np.kron(np.eye(2), np.ones((3, 4))), np.eye(5))
    np.testing.assert_array_equal(dense_matrix(values) != 0, support != 0)


@pytest.mark.parametrize("pattern", PATTERNS, ids=str)
def test_both_layouts(rng, backend, dtype, pattern):
    values = random_array(rng, pattern, dtype)
    rows, columns = dense_matrix(values).shape
    for leading in ((), (1,), (3,), (2, 5), (19,)):
        x = random_array(rng, (*leading, columns), dtype)
        out = poisoned((*leading, rows), dtype)
        assert bk.kronecker_sparse_multiply(values, x, out=out) is out
        assert_product(out, values, x)
        last = np.ascontiguousarray(np.moveaxis(x, -1, 0))
        turned = poisoned((rows, *leading), dtype)
        assert bk.kronecker_sparse_multiply(values, last, layout="batch-last", out=turned) is turned
        assert_product(np.moveaxis(turned, 0, -1), values, x)


@pytest.mark.parametrize("pattern", PATTERNS[3:6], ids=str)
def test_einsum_says_the_same(rng, pattern):
    a, b, c, d = pattern
    values, x = rng.standard_normal(pattern), rng.standard_normal((6, a, c, d))
    first = bk.kronecker_sparse_multiply(values, x.reshape(6, -1))
    expected = np.einsum("nacd,abcd->nabd", x, values)
    np.testing.assert_allclose(first.reshape(6, a, b, d), expected, rtol=1e-12, atol=1e-12)
    turned = np.ascontiguousarray(x.transpose(1, 2, 3, 0))
    last = bk.kronecker_sparse_multiply(values, turned.reshape(-1, 6), layout="batch-last")
    expected = np.einsum("acdn,abcd->abdn", turned, values)
    np.testing.assert_allclose(last.reshape(a, b, d, 6), expected, rtol=1e-12, atol=1e-12)


def test_empty(backend, dtype):
    for pattern in [(0, 2, 3, 4), (2, 0, 3, 4), (2, 3, 0, 4), (2, 3, 4, 0), (0, 0, 0, 0)]:
        values = np.ones(pattern, dtype)
        rows, columns = dense_matrix(values).shape
        out = poisoned((5, rows), dtype)
        bk.kronecker_sparse_multiply(values, np.ones((5, columns), dtype), out=out)
        np.testing.assert_array_equal(out, np.zeros((5, rows)))
        out = poisoned((rows, 5), dtype)
        x = np.ones((columns, 5), dtype)
        bk.kronecker_sparse_multiply(values, x, layout="batch-last", out=out)
        np.testing.assert_array_equal(out, np.zeros((rows, 5)))
    values = np.ones((1, 2, 3, 4), dtype)
    assert bk.kronecker_sparse_multiply(values, np.ones((0, 12), dtype)).shape == (0, 8)
    none = bk.kronecker_sparse_multiply(values, np.ones((12, 2, 0), dtype), layout="batch-last")
    assert none.shape == (8, 2, 0)


def test_strides_and_byte_order(rng, backend):
    values, x = rng.standard_normal((2, 3, 4, 5)), rng.standard_normal((7, 40))
    expected = bk.kronecker_sparse_multiply(values, x)
    wide = rng.standard_normal((2, 3, 8, 5))
    wide[:, :, ::2] = values
    turned = np.asfortranarray(values)[::-1][::-1]
    for same in (wide[:, :, ::2], turned, values.astype(">f8")):
        np.testing.assert_array_equal(bk.kronecker_sparse_multiply(same, x), expected)
    for same in (np.asfortranarray(x), x[::-1][::-1], x.astype(">f8"), x.tolist()):
        np.testing.assert_array_equal(bk.kronecker_sparse_multiply(values, same), expected)
    out = poisoned((7, 60), "float64")
    assert bk.kronecker_sparse_multiply(values, x, out=out[:, ::2]).base is out
    np.testing.assert_array_equal(out[:, ::2], expected)
    assert np.isnan(out[:, 1::2]).all()


def test_dtypes_mix(rng, backend):
    values, x = rng.standard_normal((2, 3, 4, 2)), random_array(rng, (5, 16), "complex64")
    product = bk.kronecker_sparse_multiply(values, x)
    assert product.dtype == np.complex128
    assert_product(product, values, x)
    ints = bk.kronecker_sparse_multiply(np.ones((1, 1, 2, 1), int), [[True, True]])
    assert ints.dtype == np.float64
    np.testing.assert_array_equal(ints, [[2.0]])


def test_half_precision_is_summed_in_single(rng, backend):
    """A sum of 4096 ones stops at 2048 in float16."""
    values, x = np.ones((1, 1, 4096, 1), np.float16), np.ones((3, 4096), np.float16)
    product = bk.kronecker_sparse_multiply(values, x)
    assert product.dtype == np.float32
    np.testing.assert_array_equal(product, np.full((3, 1), 4096))


def test_inputs_are_not_modified(rng):
    values, x = rng.standard_normal((2, 3, 4, 2)), rng.standard_normal((5, 16))
    kept = values.copy(), x.copy()
    bk.kronecker_sparse_multiply(values, x)
    np.testing.assert_array_equal(values, kept[0])
    np.testing.assert_array_equal(x, kept[1])


GOOD = {"values": np.ones((1, 2, 3, 2)), "x": np.ones((4, 6))}
ERRORS = [
    ({"values": np.ones((2, 3, 2))}, ValueError, r"values has shape \(2, 3, 2\); expected 4 dim"),
    ({"values": np.ones((1, 2, 3, 2), object)}, TypeError, "expected arrays of float32"),
    ({"values": np.ma.ones((1, 2, 3, 2))}, TypeError, "values is a masked array"),
    ({"x": np.ones((6, 4))}, ValueError, r"x has shape \(6, 4\); expected \(..., 6\) for layout"),
    ({"x": 1.0}, ValueError, r"x has shape \(\); expected \(..., 6\)"),
    ({"layout": "batch-last"}, ValueError, r"x has shape \(4, 6\); expected \(6, ...\)"),
    ({"layout": "first"}, ValueError, "layout is 'first'; expected 'batch-first' or 'batch-last'"),
    ({"out": np.ones((4, 6))}, ValueError, r"out has shape \(4, 6\); expected .*\(4, 4\)"),
    ({"out": np.ones((4, 4), "f4")}, TypeError, "out has dtype float32"),
]


@pytest.mark.parametrize(("change", "error", "message"), ERRORS)
def test_errors(change, error, message):
    with pytest.raises(error, match=message):
        bk.kronecker_sparse_multiply(**{**GOOD, **change})


def test_outputs_that_are_refused(rng):
    values, memory = rng.standard_normal((1, 6, 6, 1)), rng.standard_normal(60)
    x, out = memory[:24].reshape(4, 6), memory[20:44].reshape(4, 6)
    with pytest.raises(ValueError, match="out overlaps an input in memory"):
        bk.kronecker_sparse_multiply(values, x, out=out)
    square = values.reshape(6, 6)
    with pytest.raises(ValueError, match="out overlaps an input in memory"):
        bk.kronecker_sparse_multiply(values, np.ones((6, 6)), out=square)
    out = np.ones((4, 6))
    out.flags.writeable = False
    with pytest.raises(ValueError, match="out is read-only"):
        bk.kronecker_sparse_multiply(values, x, out=out)
    itself = np.lib.stride_tricks.as_strided(memory[50:], (4, 6), (0, 8))
    with pytest.raises(ValueError, match="out overlaps itself"):
        bk.kronecker_sparse_multiply(values, x, out=itself)


small = st.integers(0, 5)


@settings(max_examples=40, deadline=None)
@given(
    st.tuples(small, small, small, st.integers(0, 9)),
    st.integers(0, 2**32),
    st.sampled_from("fdFD"),
)
def test_linear_and_transposed(pattern, seed, kind):
    """K (s x + z) = s K x + K z, and <w, K x> = <Kᵀ w, x>."""
    rng = np.random.default_rng(seed)
    values = random_array(rng, pattern, np.dtype(kind))
    a, b, c, d = pattern
    x, z = random_array(rng, (2, 3, a * c * d), kind)
    w = random_array(rng, (3, a * b * d), kind)
    multiply = bk.kronecker_sparse_multiply
    eps = np.finfo(values.dtype).eps
    magnitude = multiply(np.abs(values), 2 * np.abs(x) + np.abs(z))
    left, right = multiply(values, 2 * x + z), 2 * multiply(values, x) + multiply(values, z)
    assert (np.abs(left - right) <= 8 * eps * (c + 4) * magnitude).all()
    product, turned = multiply(values, x), multiply(values.swapaxes(1, 2), w)
    one, other = (w * product).sum(-1), (turned * x).sum(-1)
    size = (np.abs(w) * multiply(np.abs(values), np.abs(x))).sum(-1)
    assert (np.abs(one - other) <= 8 * eps * (a * (b + c) * d + 4) * size).all()
