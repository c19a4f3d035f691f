"""Sums of Kronecker products solved by factors, and their determinants."""

import numpy as np
import pytest
import scipy.linalg
from dense_oracle import random_array
from hermitian_sums import dense, hermitian, mass

import batchkron as bk

SIZES = [(5,), (3, 4), (2, 3, 4)]


def sums(rng, sizes, dtype):
    """Operators of each kind that is solved by factors, with their dense matrices."""
    K = [hermitian(rng, n, dtype) for n in sizes]
    M = [mass(rng, n, dtype) for n in sizes]
    one = [np.eye(n) for n in sizes]
    product, size = bk.KroneckerProduct(K), int(np.prod(sizes))
    identity = bk.Identity(size, dtype)
    mixed = [[K[k] if k == mode else M[k] for k in range(len(sizes))] for mode in range(len(sizes))]
    weighted = [bk.KroneckerProduct(factors) for factors in mixed]
    total = weighted[0]
    for term in weighted[1:]:
        total = total + 2.5 * term
    coefficients = [1.0] + [2.5] * (len(sizes) - 1)
    heavy = list(zip(coefficients, mixed, strict=True))
    yield product + 30.0 * identity, [(1, K), (30.0, one)]
    yield -2.0 * product - 0.3 * identity, [(-2.0, K), (-0.3, one)]
    if len(sizes) > 1:
        yield total, heavy
    yield total + 20.0 * bk.KroneckerProduct(M), [*heavy, (20.0, M)]
    yield (
        product + 30.0 * identity + bk.KroneckerProduct([k @ k for k in K]),
        [
            (1, K),
            (30.0, one),
            (1, [k @ k for k in K]),
        ],
    )
    if np.dtype(dtype).kind == "c":
        yield product + 3j * identity, [(1, K), (3j, one)]


@pytest.mark.parametrize("sizes", SIZES)
def test_sums_equal_dense(rng, dtype, sizes):
    eps = np.finfo(dtype).eps
    for op, terms in sums(rng, sizes, dtype):
        A = dense(terms).astype("complex128" if dtype.kind == "c" else "float64")
        assert op.dtype == dtype
        condition = np.linalg.cond(A)
        assert condition < 1e5  # so that the test says something in single precision
        for shape in ((), (3,)):
            b = random_array(rng, (len(A), *shape), dtype)
            x = op.solve(b)
            assert (x.dtype, x.shape) == (dtype, b.shape)
            exact = np.linalg.solve(A, b)
            bound = 100 * len(A) * eps * condition * np.linalg.norm(exact)
            assert np.linalg.norm(x - exact) <= bound
        sign, logarithm = np.linalg.slogdet(A)
        found_sign, found = op.slogdet()
        assert abs(found_sign - sign) <= 100 * len(A) * eps * condition
        assert abs(found - logarithm) <= 100 * len(A) * eps * condition
        if sign == 1 and dtype.kind == "f":
            assert op.logdet() == found
        elif dtype.kind == "f":
            assert np.isnan(op.logdet())
        else:
            assert abs(np.exp(op.logdet() - found) - found_sign) < 1e-5


def test_a_factorisation_is_kept(rng):
    K, M = hermitian(rng, 4, "float64"), mass(rng, 4, "float64")
    op = bk.KroneckerProduct([M, K]) + bk.KroneckerProduct([K, M])
    solver = op.factorise()
    assert not solver.unitary
    b = rng.standard_normal(16)
    np.testing.assert_array_equal(solver.solve(b), op.solve(b))
    assert (bk.KroneckerProduct([K, K]) + bk.Identity(16)).factorise().unitary


def test_exponentials(rng, dtype):
    K = [hermitian(rng, n, dtype) for n in (3, 4)]
    op = bk.KroneckerProduct(K) + 0.5 * bk.Identity(12, dtype)
    A = dense([(1, K), (0.5, [np.eye(3), np.eye(4)])])
    x = random_array(rng, (12, 2), dtype)
    expected = scipy.linalg.expm(-0.3 * A) @ x
    error = np.linalg.norm(op.expm_apply(x, -0.3) - expected)
    assert error <= 1000 * np.finfo(dtype).eps * np.linalg.norm(expected)
    M = mass(rng, 4, dtype)
    weighted = bk.KroneckerProduct([M, hermitian(rng, 4, dtype)]) + bk.KroneckerProduct(
        [hermitian(rng, 4, dtype), M]
    )
    with pytest.raises(ValueError, match="do not commute, so exp"):
        weighted.expm_apply(np.ones(16))


def test_a_vector_of_higher_precision(rng):
    K = [hermitian(rng, n, "float32") for n in (3, 4)]
    op = bk.KroneckerProduct(K) + 30 * bk.Identity(12, "float32")
    A = dense([(1, [k.astype("float64") for k in K]), (30, [np.eye(3), np.eye(4)])])
    b = rng.standard_normal(12)
    np.testing.assert_allclose(op.solve(b), np.linalg.solve(A, b), rtol=1e-12)
    assert op.solve(1j * b).dtype == np.complex128


def test_singular_and_refused(rng):
    one = np.ones((2, 2))
    singular = bk.KroneckerProduct([one, one]) - 4 * bk.Identity(4)
    with pytest.raises(np.linalg.LinAlgError, match="singular to working precision"):
        singular.solve(np.ones(4))
    assert singular.slogdet() == (0, -np.inf)
    assert singular.logdet() == -np.inf
    first, second = (hermitian(rng, 3, "float64") for _ in range(2))
    cases = [
        (bk.KroneckerProduct([first] * 2) + bk.KroneckerProduct([second] * 2) + bk.Identity(9),
         "the factors of mode 0 neither commute nor become diagonal"),
        (bk.KroneckerProduct([first + np.triu(np.ones((3, 3)), 1)] * 2) + bk.Identity(9),
         "the factors of mode 0 are not all Hermitian"),
    ]  # fmt: skip
    for op, text in cases:
        with pytest.raises(ValueError, match=text):
            op.solve(np.ones(9))
    with pytest.raises(ValueError, match=r"b has shape \(5,\); expected \(4,\)"):
        (bk.KroneckerProduct([one, one]) + bk.Identity(4)).solve(np.ones(5))


@pytest.mark.parametrize("kind", [bk.KroneckerProduct, bk.KroneckerSum])
def test_slogdet_of_products_and_sums(rng, dtype, kind):
    factors = [random_array(rng, (n, n), dtype) + 3 * np.eye(n, dtype=dtype) for n in (3, 1, 2)]
    op = kind(factors)
    sign, logarithm = np.linalg.slogdet(op.to_dense())
    found = op.slogdet()
    np.testing.assert_allclose(found, (sign, logarithm), atol=2000 * np.finfo(dtype).eps)
    flipped = kind([-factors[0], *factors[1:]]) if kind is bk.KroneckerProduct else -1 * op
    if kind is bk.KroneckerProduct:
        assert flipped.slogdet()[0] == pytest.approx(found[0] * (-1) ** (3 * 2), abs=1e-4)
    singular = kind([np.zeros((2, 2), dtype), np.zeros((2, 2), dtype)])
    assert singular.slogdet() == (0, -np.inf)
    if kind is bk.KroneckerSum:
        both = bk.KroneckerSum([np.stack([factors[0], -factors[0]]), factors[2]])
        dense_sums = [
            bk.KroneckerSum([f, factors[2]]).to_dense() for f in (factors[0], -factors[0])
        ]
        expected = np.array([np.linalg.slogdet(d) for d in dense_sums]).T
        np.testing.assert_allclose(both.slogdet(), expected, atol=2000 * np.finfo(dtype).eps)
