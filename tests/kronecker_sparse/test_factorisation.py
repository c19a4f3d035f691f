"""factorise: exact for products of chainable factors, near the best elsewhere."""

from functools import reduce

import numpy as np
import pytest
from dense_oracle import random_array
from hypothesis import given, settings
from hypothesis import strategies as st
from kron_sparse_oracle import dense_matrix

import batchkron as bk
from batchkron import kronecker_sparse as ks

CHAINS = [
    ks.dense(5, 7),
    [(3, 2, 4, 5)],
    ks.low_rank(9, 11, 3),
    ks.square_dyadic(32),
    ks.block_butterfly(24, 3),
    ks.monarch(16, 24, 2),
    [(1, 6, 4, 4), (2, 8, 3, 1)],
    [(1, 48, 16, 2), (2, 16, 48, 1)],
    [(2, 3, 4, 6), (4, 6, 6, 2), (12, 4, 5, 1)],
    [(2, 3, 2, 6), (4, 3, 2, 2), (8, 2, 3, 1)],
    [(1, 2, 3, 4), (3, 4, 5, 1)],
]


@pytest.mark.parametrize("chain", CHAINS, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_products_are_found(rng, chain, dtype):
    values = [random_array(rng, pattern, dtype) for pattern in chain]
    W = reduce(np.matmul, map(dense_matrix, values))
    found = ks.factorise(W.astype(dtype), chain)
    assert (found.patterns, found.dtype) == (chain, dtype)
    error = np.linalg.norm(found.to_dense() - W)
    assert error <= 50 * len(chain) * np.finfo(dtype).eps * np.linalg.norm(W)
    if len(chain) > 1:  # orthonormal columns within blocks of the first factor
        factor = found.factors[0].values.astype("complex128")
        a, b, c, d = factor.shape
        rank = a * c // chain[1][0]
        blocks = factor.reshape(a, b, c // rank, rank, d)
        gram = np.einsum("aktrd,aktsd->atdrs", blocks.conj(), blocks)
        if b >= rank:
            one = np.broadcast_to(np.eye(rank), gram.shape)
            np.testing.assert_allclose(gram, one, atol=100 * np.finfo(dtype).eps)


@pytest.mark.parametrize("chain", CHAINS, ids=str)
def test_noise_is_not_made_larger(rng, chain):
    """The error is at most √(L - 1) that of any chain, for one that is known."""
    values = [rng.standard_normal(pattern) for pattern in chain]
    W = reduce(np.matmul, map(dense_matrix, values))
    noise = rng.standard_normal(W.shape)
    for size in (1e-3, 0.3):
        known = size * np.linalg.norm(W) / np.linalg.norm(noise) * noise
        found = ks.factorise(W + known, chain)
        error = np.linalg.norm(found.to_dense() - W - known)
        assert error <= np.sqrt(max(1, len(chain) - 1)) * np.linalg.norm(known) * (1 + 1e-10)


def test_two_factors_are_the_best(rng):
    """Block by block the singular values that do not fit, and what is outside of the support."""
    W = rng.standard_normal((24, 24))
    chain = [(2, 3, 4, 4), (4, 4, 3, 2)]
    found = ks.factorise(W, chain)
    support = np.kron(np.kron(np.eye(2), np.ones((6, 6))), np.eye(2)) > 0
    left_out = np.sum(W[~support] ** 2)
    first = dense_matrix(np.ones(chain[0]))
    second = dense_matrix(np.ones(chain[1]))
    blocks = {(tuple(first[:, m]), tuple(second[m])) for m in range(first.shape[1])}
    assert len(blocks) * 2 == first.shape[1]  # rank 2
    for rows, columns in blocks:
        block = W[np.ix_(np.flatnonzero(rows), np.flatnonzero(columns))]
        left_out += np.sum(np.linalg.svd(block, compute_uv=False)[2:] ** 2)
    np.testing.assert_allclose(np.linalg.norm(found.to_dense() - W) ** 2, left_out, rtol=1e-10)


def test_ranks_that_fall_short(rng):
    """Factors with zero blocks, and blocks of a smaller rank than they may have."""
    chain = ks.square_dyadic(16)
    values = [rng.standard_normal(pattern) for pattern in chain]
    values[0][:, 1] = 0
    values[2][3] = 0
    W = reduce(np.matmul, map(dense_matrix, values))
    found = ks.factorise(W, chain)
    np.testing.assert_allclose(found.to_dense(), W, atol=1e-12 * np.linalg.norm(W))
    zero = ks.factorise(np.zeros((16, 16)), chain)
    np.testing.assert_array_equal(zero.to_dense(), np.zeros((16, 16)))


def test_transforms_are_found():
    W = np.fft.fft(np.eye(32))[:, ks.bit_reversal(32)]
    found = ks.factorise(W, ks.square_dyadic(32), layout="batch-last")
    np.testing.assert_allclose(found.to_dense(), W, atol=1e-12)
    assert found.layout == "batch-last"


@st.composite
def chainable(draw):
    """Chains whose neighbours fulfil the condition, built from their ranks and ratios."""
    count = draw(st.integers(2, 4))
    few = st.integers(1, 3)
    ratios = [draw(few) for _ in range(count - 1)]
    ranks, narrows = [draw(few) for _ in range(count - 1)], [draw(few) for _ in range(count - 1)]
    a, d = draw(few), draw(few) * int(np.prod(narrows))
    b, chain = draw(few), []
    for ratio, rank, narrow in zip(ratios, ranks, narrows, strict=True):
        chain.append((a, b, ratio * rank, d))
        a, b, d = a * ratio, rank * narrow, d // narrow
    return [*chain, (a, b, draw(few), d)]


@settings(max_examples=30, deadline=None)
@given(chainable(), st.integers(0, 2**32))
def test_all_chainable_products_are_found(chain, seed):
    rng = np.random.default_rng(seed)
    W = reduce(np.matmul, [dense_matrix(rng.standard_normal(p)) for p in chain])
    found = ks.factorise(W, chain)
    assert np.linalg.norm(found.to_dense() - W) <= 1e-12 * np.linalg.norm(W)


@pytest.mark.parametrize(
    ("chain", "shape", "message"),
    [
        (ks.kaleidoscope(8), (8, 8), r"patterns\[3\], .* 4 does not divide 2, the first numbers"),
        (ks.monarch(12, 12, 4), (12, 12), r"patterns\[0\], .* cannot be .* 4 does not divide 1·3"),
        ([(1, 2, 4, 1), (1, 2, 4, 2)], (2, 8), "2 does not divide 1, the last numbers"),
        (ks.dense(3, 4), (4, 3), r"W has shape \(4, 3\); expected \(3, 4\), the shape of"),
        ([], (2, 2), "chain is empty"),
    ],
)
def test_refused(chain, shape, message):
    with pytest.raises(ValueError, match=message):
        ks.factorise(np.ones(shape), chain)
    with pytest.raises(TypeError, match="expected arrays of float32"):
        ks.factorise(np.ones((2, 2), object), ks.dense(2, 2))


def test_a_factorised_matrix_is_an_operator(rng):
    W = rng.standard_normal((12, 12))
    chain = ks.factorise(W, [(1, 12, 12, 1)])
    assert isinstance(chain, bk.KroneckerSparseChain)
    np.testing.assert_array_equal(chain.to_dense(), W)
