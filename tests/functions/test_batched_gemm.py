"""Batches of small matrix multiplies."""

import numpy as np
import pytest
from dense_oracle import random_array

import batchkron as bk


def expected_gemm(a, b, c, alpha, beta, transpose_b, ids):
    result = beta * c
    for i, j, k in zip(*ids, strict=True):
        result[k] = result[k] + alpha * (a[i] @ (b[j].T if transpose_b else b[j]))
    return result


@pytest.mark.parametrize("transpose_b", [False, True])
@pytest.mark.parametrize(
    "shape", [(1, 1, 1), (3, 4, 5), (8, 8, 8), (17, 2, 33), (2, 0, 3), (0, 2, 2)]
)
@pytest.mark.parametrize(("alpha", "beta"), [(1, 0), (-2, 0.5)])
def test_equals_numpy(rng, backend, dtype, shape, transpose_b, alpha, beta):
    m, k, n = shape
    a, b = random_array(rng, (5, m, k), dtype), random_array(rng, (4, k, n), dtype)
    c = random_array(rng, (3, m, n), dtype)
    ids = rng.integers(0, 5, 20), rng.integers(0, 4, 20), rng.integers(0, 3, 20)
    b = np.ascontiguousarray(b.transpose(0, 2, 1)) if transpose_b else b
    before = c.copy()
    result = bk.batched_gemm(
        a, b, c, alpha=alpha, beta=beta, transpose_b=transpose_b,
        a_ids=ids[0], b_ids=ids[1], c_ids=ids[2],
    )  # fmt: skip
    wide = [array.astype("complex128") for array in (a, b, c)]
    expected = expected_gemm(*wide, alpha, beta, transpose_b, ids)
    np.testing.assert_allclose(result, expected, rtol=0, atol=400 * np.finfo(dtype).eps * (k + 1))
    np.testing.assert_array_equal(c, before)


def test_outputs_without_products(rng, backend):
    a, b = rng.standard_normal((2, 3, 3)), rng.standard_normal((2, 3, 3))
    c = rng.standard_normal((4, 3, 3))
    result = bk.batched_gemm(a, b, c, beta=2, c_ids=[3, 1])
    np.testing.assert_array_equal(result[[0, 2]], 2 * c[[0, 2]])
    np.testing.assert_array_equal(bk.batched_gemm(a, b, c_ids=[3, 1])[[0, 2]], 0)
    assert bk.batched_gemm(a[:0], b[:0]).shape == (0, 3, 3)


def test_c_of_a_narrower_dtype_is_widened_before_it_is_scaled(backend):
    zero = np.zeros((1, 1, 1))
    c = np.full((1, 1, 1), 1 / 3, np.float32)
    np.testing.assert_array_equal(bk.batched_gemm(zero, zero, c, beta=0.1), 0.1 * c.astype(float))
    c = np.full((1, 1, 1), 6e4, np.float16)
    np.testing.assert_array_equal(bk.batched_gemm(zero, zero, c, beta=2), 120_000)


ERRORS = [
    ({"a": np.ones((2, 2))}, ValueError, r"a has shape \(2, 2\); expected \(count, rows"),
    ({"b": np.ones((2, 4, 2))}, ValueError, r"b has shape \(2, 4, 2\); expected 3 rows"),
    ({"b": np.ones((2, 4, 2)), "transpose_b": True}, ValueError, "expected 3 columns"),
    ({"c": np.ones((2, 2, 2))}, ValueError, r"c has shape \(2, 2, 2\); expected \(count, 2, 4\)"),
    ({"beta": 1}, ValueError, "beta is 1, but c is missing"),
    ({"a_ids": [0]}, ValueError, "numbers of products differ"),
    ({"a_ids": [0, 2]}, IndexError, r"a_ids\[1\] is 2; expected 0 to 1"),
    ({"c_ids": [0, -1]}, IndexError, r"c_ids\[1\] is -1"),
    ({"c_ids": [0.5, 1]}, TypeError, "c_ids has dtype float64; expected integers"),
]


@pytest.mark.parametrize(("change", "error", "message"), ERRORS)
def test_errors(change, error, message):
    call = {"a": np.ones((2, 2, 3)), "b": np.ones((2, 3, 4)), **change}
    with pytest.raises(error, match=message):
        bk.batched_gemm(call.pop("a"), call.pop("b"), **call)
