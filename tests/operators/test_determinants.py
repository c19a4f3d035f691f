"""Determinants and traces of products and sums with many factors, against exact numbers."""

import math
from fractions import Fraction

import numpy as np
import pytest

import batchkron as bk
from batchkron.operators.determinants import repeated_phases, repeated_sum

FLIP = np.diag([-1.0, 1.0, 1.0])


def eyes(count, n=3):
    return [np.eye(n)] * count


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("count", [2, 33, 60, 200])
def test_the_sign_of_a_determinant_is_that_of_a_power(dtype, count):
    """3^count is odd, and no float from count = 34 on; 2 · 3^count is even."""
    for factors, expected in (
        ([FLIP, *eyes(count)], -1),
        ([FLIP, *eyes(count), np.eye(2)], 1),
        ([FLIP, FLIP, *eyes(count)], 1),
    ):
        op = bk.KroneckerProduct([factor.astype(dtype) for factor in factors])
        sign, logarithm = op.slogdet()
        assert abs(sign - expected) < 1e-6
        assert sign.dtype == dtype
        assert logarithm == 0
        if expected < 0 and dtype.startswith("float"):
            assert np.isnan(op.logdet())


@pytest.mark.parametrize("count", [2, 33, 60, 201])
def test_quarters_of_a_turn_are_exact(count):
    op = bk.KroneckerProduct([np.diag([1j, 1, 1]), *eyes(count)])
    assert abs(op.slogdet()[0] - 1j ** (3**count % 4)) < 1e-15
    assert abs(op.logdet().imag - (math.pi / 2 if count % 2 == 0 else -math.pi / 2)) < 1e-15


def test_phases_of_hermitian_factors_are_signs(rng):
    A = rng.standard_normal((4, 4)) + 1j * rng.standard_normal((4, 4))
    positive = A @ A.conj().T
    positive = (positive + positive.conj().T) / 2
    op = bk.KroneckerProduct([positive, *eyes(40)])
    assert op.slogdet()[0] == 1
    assert op.logdet().imag == 0


def test_phases_against_integers():
    """(2 + i)^m with Python's integers; m is N / n."""
    for count in (1, 4, 7):
        power, real, imag = 3**count, 1, 0
        for _ in range(power):
            real, imag = 2 * real - imag, real + 2 * imag
        unit = 1 << max(0, max(abs(real), abs(imag)).bit_length() - 200)
        angle = math.atan2(Fraction(imag, unit), Fraction(real, unit))
        found = bk.KroneckerProduct([np.diag([2 + 1j, 1]), *eyes(count)]).logdet()
        error = math.remainder(found.imag - angle, 2 * math.pi)
        assert abs(error) < power * 4 * np.finfo(float).eps
        assert found.real == pytest.approx(power * math.log(5) / 2, rel=1e-14)


def test_singular_factors_beside_empty_ones():
    for kind in (bk.KroneckerProduct, bk.KroneckerSum):
        op = kind([np.zeros((2, 2)), np.zeros((0, 0))])
        assert op.slogdet() == (1, 0)
        assert op.logdet() == 0
        assert op.trace() == 0
    singular = bk.KroneckerProduct([np.zeros((2, 2)), *eyes(60), np.diag([-1.0, 1.0])])
    assert singular.slogdet() == (0, -np.inf)
    assert singular.logdet() == -np.inf


def test_logarithms_above_all_floats():
    assert bk.KroneckerProduct([2 * np.eye(2)] * 1100).slogdet() == (1, np.inf)
    assert bk.KroneckerProduct([np.eye(2) / 2] * 1100).logdet() == -np.inf
    balanced = bk.KroneckerProduct([2 * np.eye(2), np.eye(2) / 2] * 550)
    assert balanced.slogdet() == (1, 0)


def test_traces_of_products_do_not_overflow_on_the_way():
    for dtype, large in (("float64", 1e200), ("float32", 1e30), ("complex128", 1e200)):
        one = np.eye(2, dtype=dtype)
        op = bk.KroneckerProduct([large * one] * 3 + [one / large] * 3)
        assert op.trace() == pytest.approx(64, rel=20 * float(np.finfo(dtype).eps))
        assert op.trace().dtype == dtype
    zero = bk.KroneckerProduct([1e200 * np.eye(2), 1e200 * np.eye(2), np.diag([1.0, -1.0])])
    assert zero.trace() == 0


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
@pytest.mark.parametrize("count", [3, 24])
def test_traces_of_sums_by_factors(rng, dtype, count):
    factors = [rng.integers(-9, 9, (n, n)).astype(dtype) for n in (2, 3) * count]
    size = 6**count
    exact = sum(Fraction(A.trace().real.item()) * (size // len(A)) for A in factors)
    found = bk.KroneckerSum(factors).trace()
    assert found.dtype == dtype
    assert found == pytest.approx(float(exact), rel=10 * count * float(np.finfo(dtype).eps))


def test_traces_of_sums_of_large_numbers():
    """The terms overflow, their sum does not; it does for the second operator."""
    large = 1e300 * np.eye(2)
    assert bk.KroneckerSum([large, -large, *eyes(40, 2)]).trace() == 40 * 2.0**42
    assert bk.KroneckerSum([large] * 40).trace() == np.inf
    assert bk.KroneckerSum([np.stack([np.eye(2), FLIP[:2, :2]]), np.eye(3)]).trace().tolist() == [
        12,
        6,
    ]


def test_sums_of_infinities_that_occur_never():
    assert repeated_sum([-np.inf, 2.0], [0, 3]) == 6
    assert repeated_sum([1.0, -1.0], [2**3000, 2**3000]) == 0


def test_phases_are_reduced_exactly(rng):
    turns = rng.uniform(-0.5, 0.5, 5)
    counts = [3**40, 2**64 + 1, 7, 10**30, 0]
    exact = sum(Fraction(t) * m for t, m in zip(turns.tolist(), counts, strict=True))
    difference = Fraction(float(repeated_phases(turns, counts))) - exact
    assert abs(difference - round(difference)) < 1e-14


GRADED = {
    "diagonal": [np.diag([1.0, 1e20]), np.diag([2.0, 3.0, 5.0])],
    "beside a full one": [np.diag([1e-20, 1.0]) * 1e20, np.array([[3.0, 1.0], [-1.0, 2.0]])],
    "beside a Hermitian one": [np.diag([1e20, 1.0]), np.array([[3.0, 1.0], [1.0, 2.0]])],
    "upper": [np.array([[1.0, 5.0], [0.0, 1e20]]), np.diag([1.0, 4.0])],
    "lower": [np.array([[1e20, 0.0], [7.0, 1.0]]), np.array([[1.0, 0.0], [2.0, 4.0]]), np.eye(2)],
    "one": [np.diag([1e-15, 1e10])],
}


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
@pytest.mark.parametrize("name", GRADED)
def test_sums_of_eigenvalues_of_very_different_size(rng, name, dtype):
    factors = [factor.astype(dtype) for factor in GRADED[name]]
    op = bk.KroneckerSum(factors)
    dense = sum(
        np.kron(np.kron(np.eye(math.prod(map(len, factors[:k]))), factor.astype("complex128")),
                np.eye(math.prod(map(len, factors[k + 1 :]))))
        for k, factor in enumerate(factors)
    )  # fmt: skip
    sign, logarithm = np.linalg.slogdet(dense)
    tolerance = 100 * float(np.finfo(dtype).eps)
    assert op.slogdet()[0] == pytest.approx(sign, abs=tolerance)
    assert op.logdet() == pytest.approx(logarithm, rel=tolerance)
    b = rng.uniform(1, 2, len(dense)).astype(dtype)
    np.testing.assert_allclose(op.solve(b), np.linalg.solve(dense, b), rtol=tolerance)
    both = bk.KroneckerSum([np.stack([factors[0], 2 * factors[0]]), *factors[1:]])
    np.testing.assert_allclose(both.logdet()[0], logarithm, rtol=tolerance)
    if name in ("diagonal", "beside a Hermitian one"):
        found = both.solve(np.stack([b, b]))[0]
        np.testing.assert_allclose(found, np.linalg.solve(dense, b), rtol=tolerance)


def test_singular_sums_of_triangular_factors():
    """A sum of entries that is rounded to something near 0, and exact zeros."""
    for factors in (
        [np.diag([0.1, 1e20]), np.diag([0.2, 5.0]), np.diag([-0.3, 7.0])],
        [np.diag([1.0, 1e20]), np.array([[-1e20, 3.0], [0.0, 2.0]])],
        [np.diag([0.0, 1e20])],
    ):
        op = bk.KroneckerSum(factors)
        assert op.slogdet() == (0, -np.inf)
        with pytest.raises(np.linalg.LinAlgError, match="singular"):
            op.solve(np.ones(op.shape[0]))
    systems = np.stack([np.diag([1.0, 1e20]), np.diag([0.0, 1e20])])
    assert np.isfinite(bk.KroneckerSum([systems, np.diag([0.0, 1.0])]).logdet()).tolist() == [
        True,
        False,
    ]


def test_the_sign_of_a_sum_of_many_eigenvalues():
    """A million angles of 0 and π, added in single precision, tell no sign."""
    sizes = (100, 99, 101)
    integers = [np.arange(n) - n // 2 for n in sizes]
    integers[0] = 2 * integers[0] + 1000 * (integers[0] > 40)
    totals = 4 * (integers[0][:, None, None] + integers[1][:, None] + integers[2]) + 1
    expected = -1 if np.count_nonzero(totals < 0) % 2 else 1
    assert expected == -1
    factors = [np.diag(4.0 * one + (k == 0)) for k, one in enumerate(integers)]
    op = bk.KroneckerSum([factor.astype("float32") for factor in factors])
    assert op.slogdet()[0] == expected


def test_memory_is_counted_before_it_is_taken():
    many = [np.array([[2.0, 1.0], [1.0, 2.0]])] * 70
    total, product = bk.KroneckerSum(many), bk.KroneckerProduct(many)
    assert total.trace() == 70 * 2.0**71
    assert product.trace() == 4.0**70
    assert product.logdet() == pytest.approx(70 * 2.0**69 * math.log(3))
    shifted = total + 3 * bk.Identity(2**70)
    for op, names in (
        (total, ("logdet", "slogdet", "diagonal", "eig", "eigh", "factorise")),
        (product, ("diagonal", "eig", "eigh", "svd")),
        (shifted, ("logdet", "factorise")),
    ):
        for name in names:
            with pytest.raises(MemoryError, match=r"1\.18e\+21 .* GiB of memory may be used here"):
                getattr(op, name)()
    with pytest.raises(MemoryError, match=r"1\.36e\+331"):
        bk.KroneckerSum(many[:1] * 1100).logdet()


def test_traces_of_sums_do_not_overflow_on_the_way():
    assert bk.KroneckerSum(1e308 * np.eye(2), -1e308 * np.eye(2)).trace() == 0
    large = bk.KroneckerSum(1e307 * np.eye(2), -1e307 * np.eye(20)).trace()
    assert abs(large) <= 1e-14 * 40 * 1e307
