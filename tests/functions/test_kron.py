"""The explicit Kronecker product."""

import numpy as np
import pytest
from dense_oracle import dense_kron, poisoned, random_array

import batchkron as bk

SHAPES = [
    [(1, 1)],
    [(2, 3)],
    [(2, 3), (4, 1)],
    [(3, 3), (20, 20)],
    [(1, 5), (5, 1), (2, 2)],
    [(2, 2)] * 6,
    [(0, 2), (3, 3)],
    [(300, 7), (5, 11)],
]


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_kron_equals_scipy(rng, backend, dtype, shapes):
    factors = [random_array(rng, shape, dtype) for shape in shapes]
    expected = dense_kron(*factors)
    out = poisoned(expected.shape, dtype)
    assert bk.kron(*factors, out=out) is out
    np.testing.assert_allclose(out, expected, rtol=4 * len(shapes) * np.finfo(dtype).eps)
    np.testing.assert_array_equal(bk.kron(factors), out)


def test_kron_takes_strided_inputs_and_outputs(rng, backend):
    a, b = rng.standard_normal((6, 4)).T[::2], rng.standard_normal((3, 4))[:, ::-1]
    expected = dense_kron(a, b)
    np.testing.assert_allclose(bk.kron(a, b), expected, rtol=1e-15)
    wide = np.zeros((2 * expected.shape[0], expected.shape[1]), order="F")
    bk.kron(a, b, out=wide[::2])
    np.testing.assert_allclose(wide[::2], expected, rtol=1e-15)
    assert not wide[1::2].any()


def test_kron_errors():
    with pytest.raises(ValueError, match="factors is empty"):
        bk.kron()
    with pytest.raises(ValueError, match=r"factors\[1\] has shape \(2,\)"):
        bk.kron(np.eye(2), np.ones(2))
    with pytest.raises(ValueError, match=r"out has shape \(2, 2\); expected .*\(4, 4\)"):
        bk.kron(np.eye(2), np.eye(2), out=np.eye(2))
    a = np.eye(4)
    with pytest.raises(ValueError, match="overlaps"):
        bk.kron(a[:2, :2], np.eye(2), out=a)


@pytest.mark.parametrize("offset", [0, 1, 3])
@pytest.mark.parametrize("width", [32, 48, 2000, 2001])
def test_kron_past_the_caches(rng, dtype, width, offset):
    columns = max(2, (40 << 20) // (6 * 21 * width * np.dtype(dtype).itemsize))
    a, b = random_array(rng, (6, columns), dtype), random_array(rng, (21, width), dtype)
    memory = poisoned((6 * 21 * columns * width + 2 * offset,), dtype)
    out = memory[offset : len(memory) - offset].reshape(6 * 21, columns * width)
    bk.kron(a, b, out=out)
    expected = (a[:, None, :, None] * b[None, :, None, :]).reshape(out.shape)
    np.testing.assert_allclose(out, expected, rtol=4 * np.finfo(dtype).eps)
    outside = np.concatenate([memory[:offset], memory[len(memory) - offset :]])
    assert np.isnan(outside).all()
