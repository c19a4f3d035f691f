"""Chains of Kronecker-sparse matrices."""

import copy
import pickle
from functools import reduce

import numpy as np
import pytest
from dense_oracle import dense_kron, poisoned, random_array
from kron_sparse_oracle import dense_matrix

import batchkron as bk

PATTERNS = [(1, 4, 6, 3), (2, 9, 3, 1), (3, 2, 5, 1)]


def chain_of(rng, dtype="float64", **options):
    values = [random_array(rng, pattern, dtype) for pattern in PATTERNS]
    dense = reduce(np.matmul, map(dense_matrix, values))
    return bk.KroneckerSparseChain(values, **options), values, dense


def assert_near(y, expected, factors, dtype):
    """Within c · eps of the largest entry, where c counts the terms of all sums."""
    terms = sum(v.shape[2] + 2 for v in factors)
    bound = 16 * terms * np.finfo(dtype).eps * np.abs(expected).max()
    np.testing.assert_allclose(y, expected, rtol=0, atol=bound)


@pytest.mark.parametrize("layout", ["batch-first", "batch-last"])
def test_products(rng, backend, dtype, layout):
    chain, values, dense = chain_of(rng, dtype, layout=layout)
    assert (chain.shape, chain.patterns, chain.dtype) == ((12, 15), PATTERNS, dtype)
    X = random_array(rng, (15, 7), dtype)
    expected = dense @ X
    assert_near(chain @ X, expected, values, dtype)
    assert_near(chain @ X[:, 0], expected[:, 0], values, dtype)
    turned = (lambda v: v.T.copy()) if layout == "batch-first" else (lambda v: v)
    out = poisoned(turned(expected).shape, dtype)
    assert chain.apply(turned(X), out) is out
    assert_near(out, turned(expected), values, dtype)
    assert chain.accumulate(turned(X), out, alpha=-3) is out
    assert_near(out, -2 * turned(expected), values, dtype)
    w = random_array(rng, 12, dtype)
    assert_near(chain.T @ w, dense.T @ w, values, dtype)
    assert_near(chain.H @ w, dense.conj().T @ w, values, dtype)
    assert chain.T.layout == chain.H.layout == layout
    assert [type(c) for c in (chain.T, chain.H)] == [bk.KroneckerSparseChain] * 2
    assert_near(chain.to_dense(), dense, values, dtype)
    assert_near(chain.diagonal(), dense.diagonal(), values, dtype)


def test_many_vectors_go_in_parts(rng, backend, dtype, threads):
    """More vectors than go through the factors together, whatever the number of threads."""
    values = [random_array(rng, p, dtype) for p in [(1, 40, 30, 10), (10, 30, 40, 1)]]
    chain, dense = bk.KroneckerSparseChain(values), np.matmul(*map(dense_matrix, values))
    x, y = random_array(rng, (601, 400), dtype), random_array(rng, (601, 400), dtype)
    results = []
    for count in (1, 3):
        threads(count)
        assert chain._part(1) < 601
        results += [chain.apply(x, poisoned(y.shape, dtype))]
        results += [chain.accumulate(x, y.copy(), alpha=2)]
    assert_near(results[0], x @ dense.T, values, dtype)
    np.testing.assert_array_equal(results[2], results[0])
    np.testing.assert_array_equal(results[3], results[1])
    real = bk.KroneckerSparseChain([v.real for v in values])
    mixed = real.apply(x.astype(np.result_type(dtype, "complex64")))  # vectors behind, too
    real_dense = np.matmul(*[dense_matrix(v.real) for v in values])
    assert_near(mixed, x @ real_dense.T, values, dtype)


def test_a_chain_of_one(rng, backend):
    values = rng.standard_normal((2, 3, 4, 2))
    chain = bk.KroneckerSparseChain([values])
    x = rng.standard_normal((5, 16))
    np.testing.assert_array_equal(chain.apply(x), bk.KroneckerSparse(values).apply(x))
    expected = chain.matmat(chain.T.to_dense())
    np.testing.assert_allclose((chain @ chain.T).to_dense(), expected, rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("sizes", [[(2, 3), (4, 5)], [(3, 2), (1, 4), (5, 5)], [(3, 3)] * 4])
def test_a_kronecker_product_is_a_chain(rng, backend, dtype, sizes):
    factors = [random_array(rng, size, dtype) for size in sizes]
    product = bk.KroneckerProduct(factors)
    chain = bk.KroneckerSparseChain.from_kronecker_product(product)
    assert chain.shape == product.shape
    expected = dense_kron(*factors)
    assert_near(chain.to_dense(), expected, [f[None] for f in factors], dtype)
    assert_near(chain.T.to_dense(), expected.T, [f[None] for f in factors], dtype)
    for k, pattern in enumerate(chain.patterns):
        before, behind = sizes[:k], sizes[k + 1 :]
        a, d = (
            np.prod([q for _, q in before], dtype=int),
            np.prod([p for p, _ in behind], dtype=int),
        )
        assert pattern == (a, *sizes[k], d)


def test_factors_are_shared_and_updated(rng):
    factors = [bk.KroneckerSparse(rng.standard_normal(p)) for p in PATTERNS]
    chain = bk.KroneckerSparseChain(factors)
    turned, wide = chain.T, chain.astype("complex128")
    assert chain.factors[1] is factors[1]
    factors[1].update(rng.standard_normal(PATTERNS[1]))
    expected = reduce(np.matmul, [f.to_dense() for f in factors])
    np.testing.assert_allclose(chain.to_dense(), expected, atol=1e-12)
    np.testing.assert_allclose(turned.to_dense(), expected.T, atol=1e-12)
    values = [rng.standard_normal(p) for p in PATTERNS]
    chain.update(values)
    expected = reduce(np.matmul, map(dense_matrix, values))
    for relative, matrix in ((chain, expected), (turned, expected.T), (wide, expected)):
        np.testing.assert_allclose(relative.to_dense(), matrix, atol=1e-12)
    before = chain.to_dense()
    for bad, error in (
        (values[:2], "values has 2 entries; expected 3"),
        ([*values[:2], values[0]], r"values\[2\] has shape"),
    ):
        with pytest.raises(ValueError, match=error):
            chain.update(bad)
    np.testing.assert_array_equal(chain.to_dense(), before)


def test_copies_and_pickles(rng):
    chain, values, dense = chain_of(rng, layout="batch-last")
    others = copy.deepcopy(chain), pickle.loads(pickle.dumps(chain))
    chain.update([0 * v for v in values])
    for other in others:
        assert (other.layout, other.patterns) == ("batch-last", PATTERNS)
        np.testing.assert_allclose(other.to_dense(), dense, atol=1e-12)


@pytest.mark.parametrize("layout", ["batch-first", "batch-last"])
def test_products_of_matrices_are_chains(rng, backend, dtype, layout):
    chain, values, dense = chain_of(rng, dtype, layout=layout)
    K = [bk.KroneckerSparse(v, layout=layout) for v in values]
    X = random_array(rng, (15, 4), dtype)
    for found in (K[0] @ K[1] @ K[2], K[0] @ (K[1] @ K[2]), K[0].dot(K[1].dot(K[2]))):
        assert isinstance(found, bk.KroneckerSparseChain)
        assert (found.layout, found.patterns, found.dtype) == (layout, PATTERNS, dtype)
        assert all(one is other for one, other in zip(found.factors, K, strict=True))
        np.testing.assert_array_equal(found @ X, chain @ X)
        x = X.T.copy() if layout == "batch-first" else X
        np.testing.assert_array_equal(found.apply(x), chain.apply(x))
    assert isinstance(chain.H @ chain, bk.KroneckerSparseChain)
    squares = (*(v.conj().swapaxes(1, 2) for v in values), *values)
    assert_near((chain.H @ chain) @ X, dense.conj().T @ (dense @ X), squares, dtype)
    K[1].update(-values[1])
    assert_near(found @ X, -dense @ X, values, dtype)


def test_products_that_are_no_chains(rng):
    chain, _, dense = chain_of(rng)
    first = bk.KroneckerSparse(rng.standard_normal((1, 12, 12, 1)))
    last = bk.KroneckerSparse(first.values, layout="batch-last")
    for left in (last, 2 * first, bk.Identity(12)):
        assert not isinstance(left @ chain, bk.KroneckerSparseChain)
        np.testing.assert_allclose((left @ chain).to_dense(), left.to_dense() @ dense, atol=1e-11)
    with pytest.raises(ValueError, match=r"operators of shapes \(12, 15\) and \(12, 12\) do not"):
        chain @ first


def test_mixed_dtypes(rng):
    real, other = rng.standard_normal(PATTERNS[0]), random_array(rng, PATTERNS[1], "complex64")
    factor = bk.KroneckerSparse(real)
    chain = bk.KroneckerSparseChain([factor, other])
    assert chain.dtype == np.complex128
    factor.update(2 * real)
    expected = dense_matrix(2 * real) @ dense_matrix(other)
    np.testing.assert_allclose(chain.to_dense(), expected, atol=1e-12)


def test_errors(rng):
    with pytest.raises(ValueError, match="factors is empty; a chain needs at least one factor"):
        bk.KroneckerSparseChain([])
    with pytest.raises(ValueError, match=r"factors\[0\] has pattern .* 4 columns, but 6 rows"):
        bk.KroneckerSparseChain([np.ones((1, 2, 2, 2)), np.ones((1, 3, 2, 2))])
    with pytest.raises(ValueError, match=r"factors\[1\] has shape \(4, 4\); expected 4 dim"):
        bk.KroneckerSparseChain([np.ones((1, 2, 2, 2)), np.ones((4, 4))])
    with pytest.raises(TypeError, match=r"factors\[0\] is a Identity; expected a KroneckerSparse"):
        bk.KroneckerSparseChain([bk.Identity(4)])
    with pytest.raises(ValueError, match="layout is 'x'"):
        bk.KroneckerSparseChain([np.ones((1, 2, 2, 2))], layout="x")
    with pytest.raises(TypeError, match="product is a Identity; expected a KroneckerProduct"):
        bk.KroneckerSparseChain.from_kronecker_product(bk.Identity(4))
    many = bk.KroneckerProduct([np.ones((3, 2, 2)), np.eye(2)])
    with pytest.raises(ValueError, match="from_kronecker_product is not defined"):
        bk.KroneckerSparseChain.from_kronecker_product(many)


def test_describe(rng):
    text = chain_of(rng)[0].describe()
    assert "3 factors, batch-first" in text
    assert "(2, 9, 3, 1): 54 entries" in text
    assert "156 stored entries instead of 180" in text
