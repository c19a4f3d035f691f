"""Decompositions, shifted solves and φ-functions, factor by factor, against dense ones."""

import math

import numpy as np
import pytest
import scipy.linalg

import batchkron as bk
from batchkron.operators.kronecker_sum.phi_functions import PhiFunctions


def square(rng, n, kind):
    matrix = rng.standard_normal((n, n)) + n * np.eye(n)
    if kind == "complex":
        matrix = matrix + 1j * rng.standard_normal((n, n))
    if kind == "hermitian":
        matrix = matrix + matrix.T
    if kind == "jordan":
        matrix = 2.0 * np.eye(n) + np.diag(np.ones(n - 1), 1)
    return matrix


KINDS = ["real", "complex", "hermitian", "jordan"]


@pytest.mark.parametrize("kind", KINDS)
def test_inverse_of_a_product(rng, kind):
    op = bk.KroneckerProduct([square(rng, n, kind) for n in (3, 2, 4)])
    np.testing.assert_allclose(op.inverse().to_dense() @ op.to_dense(), np.eye(24), atol=1e-10)
    batch = bk.KroneckerProduct([np.stack([square(rng, 2, kind) for _ in range(3)])] * 2)
    x = rng.standard_normal((3, 4))
    np.testing.assert_allclose(batch.inverse().apply(batch.apply(x)), x, atol=1e-10)
    with pytest.raises(ValueError, match="expected a square matrix"):
        bk.KroneckerProduct([np.ones((2, 3))]).inverse()


@pytest.mark.parametrize("shapes", [[(3, 3), (2, 2)], [(3, 2), (2, 4)], [(1, 5), (4, 1), (2, 2)]])
def test_svd_of_a_product(rng, shapes):
    op = bk.KroneckerProduct([rng.standard_normal(shape) for shape in shapes])
    left, s, right = op.svd()
    np.testing.assert_allclose((left.to_dense() * s) @ right.to_dense(), op.to_dense(), atol=1e-12)
    np.testing.assert_allclose(left.to_dense().T @ left.to_dense(), np.eye(len(s)), atol=1e-12)
    dense = np.linalg.svd(op.to_dense(), compute_uv=False)[: len(s)]
    np.testing.assert_allclose(np.sort(s)[::-1], dense, atol=1e-12)


@pytest.mark.parametrize("make", [bk.KroneckerProduct, bk.KroneckerSum])
@pytest.mark.parametrize("kind", KINDS[:3])
def test_eigenpairs(rng, make, kind):
    op = make([square(rng, n, kind) for n in (3, 4)])
    values, vectors = op.eig()
    V = vectors.to_dense()
    np.testing.assert_allclose(op.to_dense() @ V, V * values, atol=1e-10 * abs(values).max())
    assert np.linalg.matrix_rank(V) == 12


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sizes", [(4,), (3, 4), (2, 3, 2)])
@pytest.mark.parametrize("columns", [(), (2,)])
def test_solves_with_many_shifts(rng, kind, sizes, columns):
    op = bk.KroneckerSum([square(rng, n, kind) for n in sizes])
    dense, size = op.to_dense(), op.shape[0]
    b = rng.standard_normal((size, *columns))
    shifts = [0.0, 1.5, -0.3]
    factorised = op.factorise()
    found = factorised.solve_shifted(b, shifts)
    assert found.shape == (3, *b.shape)
    assert (found.dtype.kind == "c") == (kind == "complex")
    for x, shift in zip(found, shifts, strict=True):
        np.testing.assert_allclose((dense + shift * np.eye(size)) @ x, b, atol=1e-9)
    imaginary = factorised.solve(b, 2.0j)
    np.testing.assert_allclose((dense + 2.0j * np.eye(size)) @ imaginary, b, atol=1e-9)
    assert factorised.solve_shifted(b, []).shape == (0, *b.shape)
    narrow = "complex64" if kind == "complex" else "float32"
    single = bk.KroneckerSum([factor.astype(narrow) for factor in op.factors])
    right = b.astype("float32")
    assert single.solve(right).dtype == narrow
    assert single.factorise().solve_shifted(right, shifts).dtype == narrow
    assert single.factorise().solve_shifted(right, []).dtype == narrow
    assert single.factorise().solve(right, 2.0j).dtype == "complex64"


@pytest.mark.parametrize("kind", KINDS[:3])
@pytest.mark.parametrize("sizes", [(0,), (0, 2), (2, 0), (3, 0, 2)])
def test_sums_without_unknowns_have_solutions(rng, kind, sizes):
    op = bk.KroneckerSum([square(rng, n, kind) for n in sizes])
    assert op.solve(np.zeros(0)).shape == (0,)
    assert op.solve(np.zeros((0, 2))).shape == (0, 2)


def test_singular_shifts_and_wrong_shapes_are_refused():
    factorised = bk.KroneckerSum([np.diag([1.0, 2.0]), np.diag([3.0, 5.0])]).factorise()
    with pytest.raises(np.linalg.LinAlgError, match=r"shift -4.0 is singular"):
        factorised.solve(np.ones(4), -4.0)
    with pytest.raises(ValueError, match="b has shape"):
        factorised.solve(np.ones(3))
    with pytest.raises(ValueError, match="shifts has shape"):
        factorised.solve_shifted(np.ones(4), [[1.0]])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
def test_phi_functions_of_a_sum(rng, kind, scale):
    factors = [-scale * square(rng, n, kind) for n in (3, 4)]
    op, t, size = bk.KroneckerSum(factors), 0.7, 12
    vectors = [rng.standard_normal(size) for _ in range(4)]
    augmented = np.zeros((size + 3, size + 3), op.dtype)
    augmented[:size, :size] = op.to_dense()
    for k in (1, 2, 3):
        augmented[:size, size + k - 1] = vectors[k]
    augmented[size + 1, size] = augmented[size + 2, size + 1] = 1.0
    start = np.concatenate([vectors[0], [1.0, 0.0, 0.0]])
    expected = (scipy.linalg.expm(t * augmented) @ start)[:size]
    np.testing.assert_allclose(op.phi_apply(vectors, t), expected, rtol=1e-9, atol=1e-11)


def test_phi_of_zero_and_of_a_singular_operator():
    zero = bk.KroneckerSum([np.zeros((2, 2)), np.diag([0.0, -1e6])])
    found = zero.phi_apply([None, None, np.ones(4)], 2.0)
    stiff = 4.0 * ((np.exp(-2e6) - 1) / -2e6 - 1) / -2e6
    np.testing.assert_allclose(found, [2.0, stiff, 2.0, stiff], rtol=1e-9)
    with pytest.raises(ValueError, match="at least one"):
        zero.phi_apply([None])
    with pytest.raises(ValueError, match="finite"):
        PhiFunctions(bk.KroneckerSum([np.eye(2)]), math.inf)
