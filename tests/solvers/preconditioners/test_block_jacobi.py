"""Block Jacobi of operators of all kinds: exact where blocks are products, else approximate."""

import numpy as np
import pytest
from raw_lists import as_raw

import batchkron as bk
from batchkron.problems import gallery
from batchkron.solvers import gmres, preconditioners
from batchkron.solvers.preconditioners import block_jacobi


def as_matrix(M):
    """The preconditioner's matrix. Outputs begin as NaN, to show elements that are not written."""
    size = M.shape[0]
    columns = []
    for unit in np.eye(size, dtype=M.dtype):
        columns.append(M.matvec(unit, out=np.full(size, np.nan, M.dtype)))
    return np.stack(columns, axis=1)


def definite(rng, *shape):
    return rng.standard_normal(shape) + 4 * np.eye(shape[-1])


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])
def test_products_on_the_diagonal_of_a_list_are_inverted(rng, dtype):
    pools = [definite(rng, 3, 2, 2).astype(dtype), definite(rng, 3, 3, 3).astype(dtype)]
    ids, blocks = [[0, 1], [1, 2], [2, 0], [0, 0]], [0, 1, 2, 1]
    A = bk.BatchedKron(pools, ids, blocks, [0, 1, 2, 0], weights=[2.0, -1.0, 0.5, 3.0])
    dense = A.to_dense().astype(np.complex128)
    expected = np.zeros_like(dense)
    for b in range(3):
        own = slice(6 * b, 6 * b + 6)
        expected[own, own] = np.linalg.inv(dense[own, own])
    M = block_jacobi(A, dtype=dtype)
    assert M.dtype == dtype
    bound = 2000 * np.finfo(dtype).eps * np.abs(expected).max()
    np.testing.assert_allclose(as_matrix(M), expected, rtol=0, atol=bound)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("scale", [None, 0.1])
def test_blocks_that_are_not_finite_are_refused(rng, value, scale):
    pools = [definite(rng, 2, 2, 2), definite(rng, 2, 3, 3)]
    pools[1][1, 2, 0] = value
    lists = [[1, 1], [0, 0], [0, 0], [1, 0]], [2, 0, 0, 1], [2, 0, 0, 1]
    with pytest.raises(ValueError, match="diagonal block 2 of the operator has elements"):
        block_jacobi(bk.BatchedKron(pools, *lists), scale)
    pools[1][1, 2, 0] = 1.0
    op = bk.BatchedKron(pools, *lists) + bk.Diagonal(np.where(np.arange(18) == 7, value, 1.0))
    with pytest.raises(ValueError, match="diagonal block 1 of the operator has elements"):
        block_jacobi(op, scale)


def test_a_block_that_is_missing_or_singular_gets_the_identity(rng):
    pool = np.stack([definite(rng, 2, 2), np.zeros((2, 2)) + 1.0])
    A = bk.BatchedKron([pool], [[0], [1]], [0, 2], [0, 2], num_inputs=3, num_outputs=3)
    expected = np.eye(6)
    expected[:2, :2] = np.linalg.inv(pool[0])
    np.testing.assert_allclose(as_matrix(block_jacobi(A)), expected, atol=1e-14)


@pytest.mark.parametrize("scale", [None, 0.3, 0.2j])
def test_kronecker_sparse_matrices_are_inverted(rng, scale):
    values = rng.standard_normal((3, 4, 4, 5))
    K = bk.KroneckerSparse(values) * 0.1 - 4 * bk.Identity(60)
    B = K.to_dense() if scale is None else np.eye(60) - scale * K.to_dense()
    M = block_jacobi(K, scale)
    assert isinstance(M, bk.KroneckerSparse)
    np.testing.assert_allclose(as_matrix(M) @ B, np.eye(60), atol=1e-12)


def test_products_and_sums_are_one_block(rng):
    factors = list(definite(rng, 2, 3, 3))
    M = block_jacobi(bk.KroneckerProduct(factors))
    expected = np.linalg.inv(np.kron(*factors))
    np.testing.assert_allclose(as_matrix(M), expected, atol=1e-12 * np.abs(expected).max())
    total = bk.KroneckerSum(factors)
    assert np.isfinite(as_matrix(block_jacobi(total, 0.1))).all()


@pytest.mark.parametrize("scale", [None, 0.3])
def test_sums_of_a_list_and_a_diagonal_are_inverted(rng, scale):
    """Exactly where blocks are products: those of one mode, and D_1 ⊗ D_2 alone."""
    ids, places = rng.integers(0, 4, 20)[:, None], rng.integers(0, 5, (2, 20))
    op = bk.BatchedKron([rng.standard_normal((4, 3, 3))], ids, *places, num_inputs=5, num_outputs=5)
    A = op + bk.Diagonal(rng.uniform(9, 20, 15))
    B = A.to_dense() if scale is None else np.eye(15) - scale * A.to_dense()
    expected = np.zeros((15, 15))
    for b in range(5):
        own = slice(3 * b, 3 * b + 3)
        expected[own, own] = np.linalg.inv(B[own, own])
    M = as_matrix(block_jacobi(A, scale))
    np.testing.assert_allclose(M, expected, rtol=0, atol=1e-12 * np.abs(expected).max())
    off = bk.BatchedKron([np.ones((1, 2, 2)), np.ones((1, 3, 3))], [[0, 0]], [0], [1], num_inputs=2)
    alone = bk.Diagonal(np.kron(rng.uniform(1, 2, 4), rng.uniform(1, 2, 3)))
    M = as_matrix(block_jacobi(off + alone))
    np.testing.assert_allclose(M, np.diag(1 / alone.diagonal()), rtol=1e-12, atol=1e-14)


def test_a_diagonal_beside_a_list_takes_fewer_iterations(rng):
    """As of a reaction u' = A u - c u whose coefficient varies from cell to cell."""
    op = gallery.make("diffusion-2d", level=4).with_form("batch").operator
    cells = 10 ** rng.uniform(2, 6, op.num_outputs)
    A = as_raw(op) - bk.Diagonal(np.repeat(cells, op.shape[0] // len(cells)))
    b = rng.standard_normal(len(A.diagonal()))
    B = bk.Identity(len(b)) - 0.01 * A
    plain, better = (
        gmres(B, b, M=M, rtol=1e-6, restart=200) for M in (None, block_jacobi(A, 0.01))
    )
    assert better.converged
    assert 3 * better.iterations < plain.iterations


@pytest.mark.parametrize("name", ["diffusion-2d", "runaway"])
def test_a_list_has_the_blocks_of_its_terms(rng, name):
    listed = gallery.make(name, level=3, degree=1).with_form("batch").operator
    ours = as_matrix(block_jacobi(listed, 0.01))
    raw = as_matrix(block_jacobi(as_raw(listed), 0.01))
    np.testing.assert_allclose(raw, ours, rtol=0, atol=1e-10 * np.abs(ours).max())


def test_a_list_that_is_no_sum_of_terms_takes_fewer_iterations(rng):
    op = as_raw(gallery.make("diffusion-2d", level=4).with_form("batch").operator)
    op.update(weights=1.0 + 0.01 * rng.random(op.num_products))
    b = rng.standard_normal(op.shape[0])
    B = bk.Identity(len(b)) - 0.01 * op
    plain = gmres(B, b, rtol=1e-6, restart=200).iterations
    M = preconditioners.make("block-jacobi", op, 0.01)
    result = gmres(B, b, M=M, rtol=1e-6, restart=200)
    assert result.converged
    assert 3 * result.iterations < 2 * plain
