"""Products of two Kronecker products that become one."""

import gc
import pickle

import numpy as np
from dense_oracle import random_array

import batchkron as bk


def test_products_merge(rng, backend, dtype):
    A = bk.KroneckerProduct([random_array(rng, (3, 4), dtype), random_array(rng, (4, 2), dtype)])
    B = bk.KroneckerProduct([random_array(rng, (4, 3), dtype), random_array(rng, (2, 3), dtype)])
    merged = A @ B
    assert isinstance(merged, bk.KroneckerProduct)
    assert [f.shape for f in merged.factors] == [(3, 3), (4, 3)]
    eps = np.finfo(dtype).eps
    expected = A.to_dense() @ B.to_dense()
    np.testing.assert_allclose(merged.to_dense(), expected, atol=200 * eps)
    np.testing.assert_allclose((A @ B @ B.T).to_dense(), expected @ B.to_dense().T, atol=5000 * eps)
    x = random_array(rng, 9, dtype)
    np.testing.assert_allclose(A.dot(B) @ x, expected @ x, atol=1000 * eps)
    assert isinstance(A.H @ A, bk.KroneckerProduct)


def test_merged_products_follow_updates(rng):
    A, B = (bk.KroneckerProduct([rng.random((3, 3)), rng.random((2, 2))]) for _ in range(2))
    merged, chain, turned = A @ B, A @ B @ A, (A @ B).T
    kept = pickle.loads(pickle.dumps(merged))
    before = merged.to_dense()
    A.update([rng.random((3, 3)), rng.random((2, 2))])
    B.update([rng.random((3, 3)), rng.random((2, 2))])
    expected = A.to_dense() @ B.to_dense()
    np.testing.assert_allclose(merged.to_dense(), expected, rtol=1e-13)
    np.testing.assert_allclose(turned.to_dense(), expected.T, rtol=1e-13)
    np.testing.assert_allclose(chain.to_dense(), expected @ A.to_dense(), rtol=1e-13)
    np.testing.assert_array_equal(kept.to_dense(), before)
    del merged, chain, turned
    gc.collect()
    assert len(A._merged) == 0


def test_products_that_do_not_merge(rng):
    thin = bk.KroneckerProduct([rng.random((5, 1)), rng.random((5, 1))])
    wide = thin.T
    stacked = bk.KroneckerProduct([rng.random((2, 3, 3))])
    one = bk.KroneckerProduct([rng.random((3, 3))])
    single = bk.KroneckerProduct([rng.random((3, 3)).astype("float32")] * 2)
    pairs = [(thin, wide), (stacked, stacked), (one, one), (single, single.astype("float64"))]
    for left, right in pairs:
        assert not isinstance(left @ right, bk.KroneckerProduct)
    other = bk.KroneckerProduct([rng.random((25, 25))]) @ thin
    np.testing.assert_allclose((thin @ wide).to_dense(), thin.to_dense() @ wide.to_dense())
    assert other.shape == (25, 1)
