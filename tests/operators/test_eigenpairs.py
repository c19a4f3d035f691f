"""Eigenvalues and eigenvectors of sums by factors, against dense matrices."""

import numpy as np
import pytest
import scipy.linalg
from dense_oracle import random_array
from hermitian_sums import dense, hermitian, mass

import batchkron as bk

SIZES = [(5,), (1, 3), (3, 4), (2, 3, 4)]


def check(A, B, values, vectors, dtype):
    """Vᴴ A V = diag(values) and Vᴴ B V = I, but for rounding; and the eigenvalues are SciPy's."""
    size, eps = len(A), np.finfo(dtype).eps
    assert values.dtype == np.dtype(dtype).type(0).real.dtype
    assert vectors.dtype == dtype
    V = vectors.to_dense().astype(np.result_type(dtype, np.float64))
    condition = np.linalg.cond(B)
    scale = np.linalg.norm(V, 2) ** 2
    bound = 200 * size * eps * condition * scale
    assert np.abs(V.conj().T @ A @ V - np.diag(values)).max() <= bound * np.linalg.norm(A, 2)
    assert np.abs(V.conj().T @ B @ V - np.eye(size)).max() <= bound * np.linalg.norm(B, 2)
    expected = scipy.linalg.eigh(A, B, eigvals_only=True)
    assert np.abs(np.sort(values) - expected).max() <= bound * np.linalg.norm(A, 2)


@pytest.mark.parametrize("sizes", SIZES)
def test_sums_that_commute(rng, dtype, sizes):
    K = [hermitian(rng, n, dtype) for n in sizes]
    one = [np.eye(n) for n in sizes]
    squares = [(k @ k).astype(dtype) for k in K]
    squares = [((k + k.conj().T) / 2).astype(dtype) for k in squares]
    product, size = bk.KroneckerProduct(K), int(np.prod(sizes))
    identity = bk.Identity(size, dtype)
    along = [[K[k] if k == j else one[k] for k in range(len(sizes))] for j in range(len(sizes))]
    for operator, terms in (
        (product, [(1, K)]),
        (-2.5 * product, [(-2.5, K)]),
        (product + 3.0 * identity, [(1, K), (3.0, one)]),
        (bk.KroneckerSum(K), [(1, factors) for factors in along]),
        (2.0 * bk.KroneckerSum(K) - identity, [*((2.0, f) for f in along), (-1.0, one)]),
        (product + bk.KroneckerProduct(squares) + identity, [(1, K), (1, squares), (1, one)]),
    ):
        A = dense(terms)
        check(A, np.eye(size), *bk.eigh(operator), dtype)


@pytest.mark.parametrize("sizes", SIZES)
def test_pencils(rng, dtype, sizes):
    K = [hermitian(rng, n, dtype) for n in sizes]
    M = [mass(rng, n, dtype) for n in sizes]
    mixed = [[K[k] if k == j else M[k] for k in range(len(sizes))] for j in range(len(sizes))]
    B = bk.KroneckerProduct(M)
    total = bk.KroneckerProduct(mixed[0])
    for factors in mixed[1:]:
        total = total + bk.KroneckerProduct(factors)
    for operator, terms in (
        (total, [(1, factors) for factors in mixed]),
        (total + 2.0 * B, [*((1, factors) for factors in mixed), (2.0, M)]),
        (bk.KroneckerProduct(K), [(1, K)]),
    ):
        check(dense(terms), dense([(1, M)]), *bk.eigh(operator, B), dtype)


@pytest.mark.parametrize("kinds", [("float64", "complex128"), ("float32", "complex64")])
def test_a_real_operator_and_complex_masses(rng, kinds):
    real, wide = kinds
    K, M = [hermitian(rng, n, real) for n in (3, 4)], [mass(rng, n, wide) for n in (3, 4)]
    found = bk.eigh(bk.KroneckerProduct(K), bk.KroneckerProduct(M))
    check(dense([(1, K)]), dense([(1, M)]), *found, wide)


def test_solves_and_determinants_are_those_of_the_sum(rng):
    K = [mass(rng, n, np.float64) for n in (4, 5)]
    A = bk.KroneckerProduct(K) + 0.25 * bk.Identity(20)
    values, V = bk.eigh(A)
    b = random_array(rng, (20,), np.float64)
    assert np.allclose(V @ ((V.H @ b) / values), A.solve(b), rtol=1e-11)
    assert np.isclose(np.log(values).sum(), A.logdet(), rtol=1e-13)


def test_many_systems_of_a_sum(rng):
    factors = [mass(rng, n, np.float64) for n in (2, 3)]
    both = [np.stack([factor, 2 * factor]) for factor in factors]
    values, vectors = bk.eigh(bk.KroneckerSum(both))
    assert values.shape == (2, 6)
    assert vectors.batch_shape == (2,)


def pairs(rng):
    K = [hermitian(rng, n, np.float64) for n in (2, 3)]
    M = [mass(rng, n, np.float64) for n in (2, 3)]
    product, masses = bk.KroneckerProduct(K), bk.KroneckerProduct(M)
    return {
        "no operator": ((np.eye(6),), TypeError, "A is a ndarray"),
        "no product": ((product, bk.Identity(6)), TypeError, "B is a Identity"),
        "do not commute": ((product + masses,), ValueError, "pass B as well"),
        "not Hermitian": (
            (bk.KroneckerProduct([rng.random((2, 2)), M[1]]) + bk.Identity(6),),
            ValueError,
            "mode 0 are not all Hermitian",
        ),
        "not Hermitian, with B": (
            (bk.KroneckerProduct([M[0], rng.random((3, 3))]), masses),
            ValueError,
            "mode 1 are not all Hermitian",
        ),
        "complex": ((product.astype(complex) + 1j * bk.Identity(6),), ValueError, "is complex"),
        "indefinite": ((product, bk.KroneckerProduct([M[0], -M[1]])), ValueError, "definite"),
        "B not Hermitian": (
            (product, bk.KroneckerProduct([rng.random((2, 2)), M[1]])),
            ValueError,
            r"B.factors\[0\] is not Hermitian",
        ),
        "other sizes": ((product, bk.KroneckerProduct(M[::-1])), ValueError, "as A has"),
        "no terms": (
            (bk.Diagonal(np.arange(6.0)) + product,),
            TypeError,
            "eigh is not found by the operator's structure: the sum has a Diagonal",
        ),
        "several in B": (
            (product, bk.KroneckerProduct([K[0], M[1]]) + masses),
            TypeError,
            "B is a SumOperator",
        ),
    }


@pytest.mark.parametrize("case", list(pairs(np.random.default_rng(0))))
def test_refused(rng, case):
    given, error, text = pairs(rng)[case]
    with pytest.raises(error, match=text):
        bk.eigh(*given)


def hermitian_kinds(rng):
    half, other = rng.standard_normal((2, 4, 4))
    h, k = half @ half.T, (other + other.T)[:3, :3]
    P, added = bk.KroneckerProduct(h, k), bk.KroneckerSum(h, k)
    return [P, added, -2.0 * added, P + 0.5 * bk.Identity(12), bk.Diagonal(rng.standard_normal(12))]


@pytest.mark.parametrize("kind", range(5))
def test_sorted_eigenpairs(rng, kind):
    A = hermitian_kinds(rng)[kind]
    matrix = A.to_dense()
    expected = np.linalg.eigvalsh(matrix)
    scale = np.abs(expected).max()
    by_method = A.eigh if kind != 3 else lambda **named: bk.eigh(A, **named)
    values, vectors = by_method(sort=True)
    np.testing.assert_allclose(values, expected, rtol=0, atol=1e-12 * scale)
    V = vectors.to_dense()
    np.testing.assert_allclose(V.T @ V, np.eye(12), atol=1e-12)
    np.testing.assert_allclose(matrix @ V, V * values, atol=1e-11 * scale)
    np.testing.assert_allclose(vectors.T.to_dense(), V.T, atol=1e-14)
    for k, chosen in [(1, slice(0, 1)), (4, slice(0, 4)), (-3, slice(9, 12)), (12, slice(0, 12))]:
        some, columns = by_method(k=k)
        np.testing.assert_allclose(some, expected[chosen], rtol=0, atol=1e-12 * scale)
        assert columns.shape == (12, abs(k))
        np.testing.assert_allclose(matrix @ columns, columns * some, atol=1e-11 * scale)
        np.testing.assert_allclose(columns.T @ columns, np.eye(abs(k)), atol=1e-12)
    if kind != 3:
        np.testing.assert_allclose(A.eigvalsh(), expected, rtol=0, atol=1e-12 * scale)
    if kind != 4:
        np.testing.assert_allclose(bk.eigvalsh(A), expected, rtol=0, atol=1e-12 * scale)


def test_eigenvalues_of_pencils_and_of_many_systems(rng):
    half = rng.standard_normal((3, 3))
    M = half @ half.T + np.eye(3)
    K = rng.standard_normal((3, 3))
    K = K + K.T
    A = bk.KroneckerProduct(K, M) + bk.KroneckerProduct(M, K)
    B = bk.KroneckerProduct(M, M)
    expected = scipy.linalg.eigvalsh(A.to_dense(), B.to_dense())
    np.testing.assert_allclose(bk.eigvalsh(A, B), expected, atol=1e-11)
    values, vectors = bk.eigh(A, B, k=2)
    np.testing.assert_allclose(values, expected[:2], atol=1e-11)
    np.testing.assert_allclose(A.to_dense() @ vectors, B.to_dense() @ vectors * values, atol=1e-11)
    many = bk.KroneckerSum([np.stack([K, 2 * K]), M])
    each = [np.linalg.eigvalsh(np.kron(c * K, np.eye(3)) + np.kron(np.eye(3), M)) for c in (1, 2)]
    np.testing.assert_allclose(many.eigvalsh(), each, atol=1e-11)
    for chosen in ({"sort": True}, {"k": 2}):
        with pytest.raises(ValueError, match=r"batch_shape \(2,\).*eigvalsh\(\) sorts"):
            many.eigh(**chosen)


def test_wrong_numbers_of_eigenpairs():
    A = bk.KroneckerSum(np.eye(2), np.eye(3))
    for k in (0, 7, -7):
        with pytest.raises(ValueError, match=f"k is {k}; expected 1 to 6"):
            A.eigh(k=k)
    for k in (True, 2.0, "all"):
        with pytest.raises(TypeError, match="expected a number of eigenvalues"):
            A.eigh(k=k)
    with pytest.raises(TypeError, match="sort is 'ascending'"):
        A.eigh(sort="ascending")
