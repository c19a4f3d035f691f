"""Factors of extreme scales that cancel: sums and products are as those of factors of size 1."""

import numpy as np
import pytest
import scipy.linalg
from dense_oracle import random_array
from hermitian_sums import dense, hermitian, mass

import batchkron as bk
from batchkron.operators.scaling import multiplied, norm, outer_product, times_power_of_two

SCALES = {
    "float32": (-100, -60, 60, 100),  # exponents of two: 1e±30, 1e±18
    "float64": (-996, -665, -532, 532, 665, 996),  # 1e±300, 1e±200, 1e±160
}


@pytest.fixture(params=["float32", "float64", "complex64", "complex128"])
def kind(request):
    return np.dtype(request.param)


def scales(kind):
    return SCALES["float32" if np.finfo(kind).bits == 32 else "float64"]


def wide(matrix):
    return matrix.astype(np.result_type(matrix, np.float64))


def sums(K, M, up, down):
    """Sums of scaled factors, with their terms of the factors themselves."""
    product, size = bk.KroneckerProduct, K[0].shape[0] * K[1].shape[0]
    identity, one = bk.Identity(size, K[0].dtype), [np.eye(len(k)) for k in K]
    first, second = [K[0], M[1]], [M[0], K[1]]
    scaled = [product(up(first[0]), down(first[1])), product(down(second[0]), up(second[1]))]
    turned = product(down(first[0]), up(first[1]))
    return {
        "shifted": (product(up(K[0]), down(K[1])) + 30.0 * identity, [(1, K), (30.0, one)]),
        "pair": (scaled[0] + scaled[1], [(1, first), (1, second)]),
        "pair turned": (turned + scaled[1], [(1, first), (1, second)]),
        "with masses": (
            scaled[0] + scaled[1] + 20.0 * product(up(M[0]), down(M[1])),
            [(1, first), (1, second), (20.0, M)],
        ),
    }


def test_sums_of_scaled_factors(rng, kind):
    K, M = [hermitian(rng, n, kind) for n in (3, 4)], [mass(rng, n, kind) for n in (3, 4)]
    b, eps = random_array(rng, (12, 2), kind), np.finfo(kind).eps
    for exponent in scales(kind):
        cases = sums(
            K,
            M,
            lambda factor, e=exponent: times_power_of_two(factor, e),
            lambda factor, e=exponent: times_power_of_two(factor, -e),
        )
        for name, (op, terms) in cases.items():
            A = dense([(c, [wide(f) for f in factors]) for c, factors in terms])
            bound = 2000 * eps * np.linalg.cond(A)
            exact = np.linalg.solve(A, b)
            assert np.linalg.norm(op.solve(b) - exact) <= bound * np.linalg.norm(exact), name
            (sign, logarithm), (found, size) = np.linalg.slogdet(A), op.slogdet()
            assert abs(found - sign) <= bound, name
            assert abs(size - logarithm) <= bound, name
        op, terms = cases["shifted"]
        A = dense(terms)
        values, V = bk.eigh(op)
        V = V.to_dense()
        assert np.linalg.norm(V * values @ V.conj().T - A) <= 500 * eps * np.linalg.norm(A)
        moved = scipy.linalg.expm(-0.05 * A) @ b
        assert np.linalg.norm(op.expm_apply(b, -0.05) - moved) <= 2000 * eps * np.linalg.norm(moved)


def test_scales_of_powers_of_two_keep_every_bit(rng, dtype):
    K, one = [hermitian(rng, n, dtype) for n in (3, 4)], bk.Identity(12, dtype)
    M = [mass(rng, n, dtype) for n in (3, 4)]
    b = random_array(rng, (12,), dtype)
    for exponent in (20, -20, 40):
        scaled = [times_power_of_two(K[0], exponent), times_power_of_two(K[1], -exponent)]
        pairs = [
            (bk.KroneckerProduct(scaled) + one, bk.KroneckerProduct(K) + one),
            (bk.KroneckerProduct(scaled) + bk.KroneckerProduct(M),
             bk.KroneckerProduct(K) + bk.KroneckerProduct(M)),
        ]  # fmt: skip
        for found, expected in pairs:
            np.testing.assert_array_equal(found.solve(b), expected.solve(b))


def test_sums_that_are_out_of_range_have_solutions_and_determinants(rng):
    K, M = [mass(rng, n, "float64") for n in (3, 4)], [mass(rng, n, "float64") for n in (3, 4)]
    A, b = dense([(1, K), (1, M)]), rng.standard_normal(12)
    for exponent in (600, -600):  # entries of A are 2^(±1200)
        products = [
            bk.KroneckerProduct([times_power_of_two(f, exponent) for f in factors])
            for factors in (K, M)
        ]
        op = products[0] + products[1]
        right = times_power_of_two(b, exponent)
        found = times_power_of_two(op.solve(right), exponent)
        np.testing.assert_allclose(found, np.linalg.solve(A, b), rtol=1e-11)
        logarithm = np.linalg.slogdet(A)[1] + 12 * 2 * exponent * np.log(2)
        np.testing.assert_allclose(op.logdet(), logarithm, rtol=1e-13)


def test_factors_that_do_not_commute_are_refused_at_every_scale(rng):
    first, second = (hermitian(rng, 3, "float64") for _ in range(2))
    for exponent in (532, -532, 996, -996, -1030):
        small = times_power_of_two(first, exponent), times_power_of_two(second, exponent)
        beside = np.diag([1.0, 2.0]), np.diag([3.0, 1.0])
        op = bk.KroneckerProduct(small[0], beside[0]) + bk.KroneckerProduct(small[1], beside[1])
        with pytest.raises(ValueError, match="neither commute nor"):
            (op + times_power_of_two(1.0, exponent) * bk.Identity(6)).solve(np.ones(6))
        rough = small[0] + times_power_of_two(np.triu(np.ones((3, 3)), 1), exponent)
        with pytest.raises(ValueError, match="not Hermitian"):
            bk.KroneckerProduct([rough]).eigh()


def test_pencils_of_scaled_factors(rng, kind):
    K, M = [hermitian(rng, n, kind) for n in (3, 4)], [mass(rng, n, kind) for n in (3, 4)]
    exact = scipy.linalg.eigh(dense([(1, K)]), dense([(1, M)]), eigvals_only=True)
    for e in scales(kind):
        A = bk.KroneckerProduct(times_power_of_two(K[0], e), times_power_of_two(K[1], -e))
        B = bk.KroneckerProduct(times_power_of_two(M[0], -e), times_power_of_two(M[1], e))
        values, V = bk.eigh(A, B)
        bound = 500 * np.finfo(kind).eps * np.abs(exact).max()
        assert np.abs(np.sort(values) - exact).max() <= bound
        back = V.H @ (B @ (V @ np.ones(12, kind)))
        np.testing.assert_allclose(back, np.ones(12), atol=500 * np.finfo(kind).eps)


def test_products_of_four_scaled_factors(rng, kind):
    """Products of the first two factors, or of their inverses, are out of range."""
    factors = [mass(rng, n, kind) for n in (2, 3, 2, 2)]
    A, b = dense([(1, [wide(f) for f in factors])]), random_array(rng, (24,), kind)
    tolerance = 500 * np.finfo(kind).eps
    for e in scales(kind):
        shares = (e, e, -e, -e)
        pairs = zip(factors, shares, strict=True)
        op = bk.KroneckerProduct([times_power_of_two(f, share) for f, share in pairs])
        condition = np.linalg.cond(A)

        def close(found, expected, bound=tolerance):
            assert np.linalg.norm(found - expected) <= bound * np.linalg.norm(expected)

        close(op.solve(b), np.linalg.solve(A, b), tolerance * condition)
        close(op.inverse().to_dense(), np.linalg.inv(A), tolerance * condition)
        close(op.to_dense(), A)
        close(op.diagonal(), A.diagonal())
        close(op.trace(), np.trace(A))
        exact = np.linalg.eigvalsh(A)
        close(np.sort(op.eigh()[0]), exact)
        close(np.sort(op.eig()[0].real), exact)
        close(np.sort(op.svd()[1]), exact)
        close(op.slogdet()[1], np.linalg.slogdet(A)[1])
        t = 1 / np.linalg.norm(A)
        close(op.expm_apply(b, t), scipy.linalg.expm(t * A) @ b)


def test_rectangular_diagonals_of_scaled_factors(rng):
    factors = [rng.standard_normal(shape) for shape in ((2, 3), (3, 2), (2, 2), (2, 2))]
    pairs = zip(factors, (665, 665, -665, -665), strict=True)
    op = bk.KroneckerProduct([times_power_of_two(f, e) for f, e in pairs])
    np.testing.assert_allclose(op.diagonal(), dense([(1, factors)]).diagonal(), rtol=1e-14)


def test_merged_products_of_scaled_factors(rng, kind):
    factors = [random_array(rng, (n, n), kind) for n in (3, 4)]
    square = dense([(1, [wide(f) @ wide(f) for f in factors])])
    x = random_array(rng, (12,), kind)
    for e in scales(kind):
        P = bk.KroneckerProduct(
            times_power_of_two(factors[0], e), times_power_of_two(factors[1], -e)
        )
        merged = P @ P
        assert isinstance(merged, bk.KroneckerProduct)
        bound = 500 * np.finfo(kind).eps
        assert np.linalg.norm(merged.to_dense() - square) <= bound * np.linalg.norm(square)
        assert np.linalg.norm(merged @ x - square @ x) <= bound * np.linalg.norm(square)
    P.update(factors)  # the factors of the product follow, with their own sizes
    np.testing.assert_array_equal(merged.factors[0], factors[0] @ factors[0])


def test_products_that_no_factors_hold_stay_apart(rng):
    small = [times_power_of_two(rng.random((n, n)), -665) for n in (2, 3)]
    P = bk.KroneckerProduct(small)
    apart, x = P @ P, np.full(6, 1e300)
    assert not isinstance(apart, bk.KroneckerProduct)
    np.testing.assert_array_equal(apart @ x, P @ (P @ x))
    plain = bk.KroneckerProduct([rng.random((n, n)) for n in (2, 3)])
    merged = plain @ plain
    plain.update(small)
    assert np.isnan(merged @ x).all()


def test_norms_and_products_of_entries(rng):
    matrix = random_array(rng, (3, 4), np.dtype("complex128"))
    for e in (-1030, -700, 0, 700):
        expected = times_power_of_two(np.linalg.norm(matrix), e)
        np.testing.assert_allclose(norm(times_power_of_two(matrix, e)), expected, rtol=1e-9)
    values = [np.array([1e200, 2e200]), np.array([1e200]), np.array([3e-200, 0.0, 1e-200])]
    found = outer_product([*values, np.array([1e-200])])
    np.testing.assert_allclose(found, [3, 0, 1, 6, 0, 2], rtol=1e-14)
    zero = multiplied([np.zeros((2, 2)), 1e200 * np.eye(2)], [np.eye(2), 1e200 * np.eye(2)])
    assert zero is not None
    np.testing.assert_array_equal(zero[0], 0)


def test_products_with_vectors_of_factors_whose_scales_cancel(rng, kind):
    large = 1e25 if np.finfo(kind).bits == 32 else 1e200
    factors = [random_array(rng, (3, 3), kind) for _ in range(4)]
    dense = wide(bk.KroneckerProduct(factors).to_dense())
    x = random_array(rng, (81,), kind)
    bound = 20 * np.finfo(kind).eps * (abs(dense) @ abs(x))
    op = bk.KroneckerProduct(
        [f * s for f, s in zip(factors, [large] * 2 + [1 / large] * 2, strict=True)]
    )
    assert (np.abs(op @ x - dense @ x) <= bound).all()
    bound_of_transpose = 20 * np.finfo(kind).eps * (abs(dense.T) @ abs(x))
    assert (np.abs(op.T @ x - dense.T @ x) <= bound_of_transpose).all()
    op.update([f * s for f, s in zip(factors, [1 / large] * 2 + [large] * 2, strict=True)])
    assert (np.abs(op @ x - dense @ x) <= bound).all()
