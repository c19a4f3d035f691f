"""Pseudo-inverses, least squares and Cholesky factors of Kronecker products, against dense ones."""

import array_api_strict as strict
import numpy as np
import pytest
from dense_oracle import random_array

import batchkron as bk


def of_rank(rng, shape, rank, dtype):
    left, right = (random_array(rng, (n, rank), np.result_type(dtype, "f8")) for n in shape)
    return (left @ right.T).astype(dtype)


def dense(A):
    return A.to_dense().astype(np.result_type(A.dtype, "f8"))


def cutoff(A, single):
    return None if not single else max(A.shape) * float(np.finfo(np.float32).eps)


CASES = {
    "tall": ([(5, 3), (4, 2)], [3, 2]),
    "wide": ([(3, 5), (2, 2), (1, 4)], [3, 2, 1]),
    "mixed": ([(6, 3), (2, 4)], [3, 2]),
    "rank-deficient": ([(5, 4), (4, 4)], [2, 4]),
    "both": ([(5, 4), (4, 5)], [2, 1]),
    "zero": ([(3, 2), (2, 3)], [0, 2]),
    "one": ([(4, 3)], [2]),
}


@pytest.mark.parametrize("case", CASES)
def test_pseudo_inverses_and_solutions(rng, dtype, case):
    shapes, ranks = CASES[case]
    A = bk.KroneckerProduct([of_rank(rng, s, r, dtype) for s, r in zip(shapes, ranks, strict=True)])
    single = np.finfo(dtype).eps > 1e-10
    expected = np.linalg.pinv(dense(A), rtol=cutoff(A, single))
    atol = (2e-3 if single else 1e-11) * max(abs(expected).max(), 1.0)
    found = A.pinv()
    assert isinstance(found, bk.KroneckerProduct)
    assert found.dtype == A.dtype
    np.testing.assert_allclose(found.to_dense(), expected, atol=atol)
    for b in (random_array(rng, (A.shape[0],), dtype), random_array(rng, (A.shape[0], 3), dtype)):
        x, residuals, rank, s = A.lstsq(b)
        wide = b.astype(np.result_type(dtype, "f8"))
        np.testing.assert_allclose(x, expected @ wide, atol=10 * atol)
        reference = np.linalg.lstsq(dense(A), wide, rcond=cutoff(A, single))
        assert rank == reference[2] == np.prod(ranks)
        np.testing.assert_allclose(residuals, reference[1], rtol=1e-3 if single else 1e-10)
        kept = reference[3][: len(s)]
        np.testing.assert_allclose(s, kept, atol=(1e-4 if single else 1e-12) * max(kept.max(), 1.0))


def test_the_cutoff_is_on_products_of_singular_values(rng):
    values = np.array([1, 1e-9, 1e-3]), np.array([1, 1e-4, 1e-9])
    bases = [np.linalg.qr(rng.standard_normal((3, 3)))[0] for _ in values]
    A = bk.KroneckerProduct([(q * v) @ q.T for q, v in zip(bases, values, strict=True)])
    products, vectors = np.kron(*values), np.kron(*bases)
    b = rng.standard_normal(9)
    for rcond, rank in ((None, 8), (1e-11, 6), (1e-5, 3), (0.5, 1)):
        kept = products > (rcond or 9 * np.finfo(float).eps)
        expected = (vectors[:, kept] / products[kept]) @ (vectors[:, kept].T @ b)
        atol = 1e-3 * abs(expected).max()  # values of 1e-9 have 7 digits in a factor of size 1
        np.testing.assert_allclose(A.pinv(rcond) @ b, expected, atol=atol)
        found = A.lstsq(b, rcond)
        np.testing.assert_allclose(found.x, expected, atol=atol)
        assert found.rank == kept.sum() == rank
    # 1 · 1e-9 stays, 1e-9 · 1e-9 does not: no product of two pseudo-inverses
    assert not isinstance(A.pinv(), bk.KroneckerProduct)
    assert isinstance(A.pinv(0.5), bk.KroneckerProduct)


def test_scales_that_cancel(rng):
    factors = [1e200 * rng.standard_normal((4, 3)), 1e-200 * rng.standard_normal((3, 2))]
    A = bk.KroneckerProduct(factors)
    plain = bk.KroneckerProduct(factors[0] / 1e200, factors[1] / 1e-200)
    b = rng.standard_normal(12)
    expected = plain.lstsq(b)
    for found, wanted in zip(A.lstsq(b), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-10)
    np.testing.assert_allclose(A.pinv() @ b, expected.x, rtol=1e-9)


def test_other_structures_and_arrays(rng):
    P = bk.KroneckerProduct(rng.standard_normal((4, 2)), rng.standard_normal((3, 2)))
    b = rng.standard_normal(12)
    for scalar in (2, -2.0, 3j):
        expected = np.linalg.lstsq(scalar * P.to_dense(), b + 0 * scalar)
        found = (scalar * P).lstsq(b)
        np.testing.assert_allclose(found.x, expected[0], rtol=1e-10)
        np.testing.assert_allclose(found.s, expected[3], rtol=1e-10)
        np.testing.assert_allclose((scalar * P).pinv() @ b, expected[0], rtol=1e-10)
    found = P.lstsq(strict.asarray(b))
    assert isinstance(found.x, type(strict.asarray(b)))
    np.testing.assert_allclose(np.asarray(found.x), P.lstsq(b).x)
    with pytest.raises(TypeError, match="lsqr"):
        (bk.Diagonal(b) @ P).lstsq(b)


@pytest.mark.parametrize("signs", [(1, 1, 1), (-1, 1, -1)], ids=str)
def test_cholesky_factors(rng, dtype, signs):
    factors = []
    for n, sign in zip((3, 1, 4), signs, strict=True):
        G = random_array(rng, (n, n), dtype)
        factors.append(sign * (G @ G.conj().T + np.eye(n, dtype=dtype)))
    A = bk.KroneckerProduct(factors)
    L = A.cholesky()
    assert L.dtype == A.dtype
    matrix = L.to_dense()
    np.testing.assert_array_equal(np.triu(matrix, 1), 0)
    eps = np.finfo(dtype).eps
    expected = np.linalg.cholesky(dense(A))
    np.testing.assert_allclose(matrix, expected, atol=500 * eps * abs(expected).max())


def test_cholesky_of_what_is_not_positive_definite():
    indefinite, positive = np.diag([1.0, -1.0]), np.diag([1.0, 2.0])
    for factors, error, text in (
        ([positive, indefinite], np.linalg.LinAlgError, r"factors\[1\].* not definite"),
        ([positive, -positive], np.linalg.LinAlgError, "negative definite"),
        ([positive, np.diag([1.0, 0.0])], np.linalg.LinAlgError, "not definite"),
        ([positive, np.array([[1.0, 1.0], [0.0, 1.0]])], ValueError, "not Hermitian"),
        ([np.ones((2, 3))], ValueError, "square"),
    ):
        with pytest.raises(error, match=text):
            bk.KroneckerProduct(factors).cholesky()


@pytest.mark.parametrize("rcond", [-1.0, 1.0, np.nan])
def test_bad_arguments(rcond):
    A = bk.KroneckerProduct(np.ones((3, 2)), np.ones((2, 2)))
    with pytest.raises(ValueError, match="rcond"):
        A.pinv(rcond)
    with pytest.raises(ValueError, match="b has shape"):
        A.lstsq(np.ones(4))
    with pytest.raises(ValueError, match="batch_shape"):
        bk.KroneckerProduct([np.ones((2, 3, 3))]).pinv()


@pytest.mark.parametrize(("scale", "rank"), [(1e-200, 0), (1e-100, 4)])
def test_products_of_values_that_underflow_are_0(rng, scale, rank):
    A = bk.KroneckerProduct(scale * rng.standard_normal((3, 2)), scale * np.eye(2))
    found = A.lstsq(np.ones(6))
    assert found.rank == rank
    assert np.isfinite(found.x).all()
    assert found.x.any() == (rank > 0)


@pytest.mark.parametrize(("scale", "dtype"), [(1e170, "float64"), (1e25, "float32")])
def test_products_of_values_beyond_the_range_are_refused(scale, dtype):
    factor = (scale * np.array([[1.0, 2.0], [3.0, 5.0]])).astype(dtype)
    with pytest.raises(np.linalg.LinAlgError, match=f"beyond the range of {dtype}"):
        bk.KroneckerProduct(factor, factor).lstsq(np.ones(4, dtype))
