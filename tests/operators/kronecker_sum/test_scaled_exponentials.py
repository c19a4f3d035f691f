"""exp and φ of Kronecker sums whose factors' exponentials overflow or vanish by themselves."""

import itertools
import math

import numpy as np
import pytest
import scipy.linalg

import batchkron as bk
from batchkron.operators.kronecker_sum.phi_functions import PhiFunctions

SHIFTS = (120.0, -80.0, -40.0)
DTYPES = ["float32", "float64", "complex64", "complex128"]
TIMES = [4.0, -4.0, 2.5 - 3.0j, 6.0j]


def symmetric(n):
    return np.diag(np.full(n, -2.0)) + np.diag(np.ones(n - 1), 1) + np.diag(np.ones(n - 1), -1)


def upwind(n):
    return np.diag(np.full(n, -1.0)) + np.diag(np.ones(n - 1), -1)


def triangular(n):
    return np.triu(np.sin(np.arange(1.0, n * n + 1)).reshape(n, n))


def diagonal(n):
    return np.diag(-np.arange(1.0, n + 1))


KINDS = {
    "symmetric": symmetric,
    "upwind": upwind,
    "triangular": triangular,
    "diagonal": diagonal,
    "skew": lambda n: np.diag(np.ones(n - 1), 1) - np.diag(np.ones(n - 1), -1),
    "growing": lambda n: 3 * np.cos(np.arange(1.0, n * n + 1)).reshape(n, n),
}


def shifted(factors, shifts, dtype):
    eyes = [np.eye(len(factor)) for factor in factors]
    moved = [f + s * one for f, s, one in zip(factors, shifts, eyes, strict=True)]
    return bk.KroneckerSum([one.astype(dtype) for one in moved])


def dense_sum(factors):
    """A_1 ⊕ … ⊕ A_d by NumPy's kron."""
    total = np.zeros((1, 1))
    for factor in factors:
        total = np.kron(total, np.eye(len(factor))) + np.kron(np.eye(len(total)), factor)
    return total


def close(found, expected, bound):
    """Compare up to rounding errors of a size relative to the largest entry."""
    eps = np.finfo(found.dtype).eps
    assert np.abs(found - expected).max() <= bound * eps * np.abs(expected).max()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_shifts_that_cancel(rng, kind, dtype):
    sizes = (4, 1, 3)
    factors = [KINDS[kind](n) for n in sizes]
    op, dense = shifted(factors, SHIFTS, dtype), dense_sum(factors)
    x = rng.standard_normal(12).astype(dtype)
    # t A has entries of some 500, whose rounding errors exp multiplies
    bound = 4 * 500
    for t in TIMES:
        expected = scipy.linalg.expm(t * dense) @ x.astype("complex128")
        found = op.expm_apply(x, t)
        assert found.dtype == np.result_type(
            dtype, "complex64" if isinstance(t, complex) else dtype
        )
        close(found, expected, bound)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("t", [4.0, -4.0, 3.0j])
@pytest.mark.parametrize("kind", ["symmetric", "upwind", "diagonal"])
def test_phi_of_shifts_that_cancel(rng, kind, t, dtype):
    factors = [KINDS[kind](n) for n in (3, 1, 2)]
    op, dense = shifted(factors, SHIFTS, dtype), dense_sum(factors)
    vectors = [rng.standard_normal(6).astype(dtype) for _ in range(3)]
    augmented = np.zeros((8, 8), "complex128")
    augmented[:6, :6], augmented[:6, 6], augmented[:6, 7] = dense, vectors[2], vectors[1]
    augmented[6, 7] = 1.0
    start = np.concatenate([vectors[0], [0.0, 1.0]])
    expected = (scipy.linalg.expm(t * augmented) @ start)[:6]
    for found in (op.phi_apply(vectors, t), PhiFunctions(op, t).apply(vectors)):
        assert found.dtype == np.result_type(
            dtype, "complex64" if isinstance(t, complex) else dtype
        )
        close(found, expected, 4 * 500)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shift", [30.0, 700.0, 1e4, -(2.0**30)])
def test_opposite_numbers(dtype, shift):
    op = bk.KroneckerSum(np.array([[shift]], dtype), np.array([[-shift]], dtype))
    double = abs(shift) * np.finfo("float64").eps / np.finfo(dtype).eps  # rounding of exponents
    close(op.expm_apply(np.ones(1, dtype)), np.ones(1), 4 + 1e-3 * double)
    three = bk.KroneckerSum([np.full((1, 1), s * shift, dtype) for s in (2.0, -1.0, -1.0)])
    close(three.expm_apply(np.ones(1, dtype), 2.0), np.ones(1), 4 + 2e-3 * double)
    phi = op.phi_apply([np.ones(1, dtype), np.ones(1, dtype), None, np.ones(1, dtype)], 0.5)
    assert phi.dtype == dtype
    close(phi, np.full(1, 1 + 0.5 + 0.125 / 6), 40 + 4 * double)


def test_a_laplacian_whose_trace_is_large(rng):
    fine = (65 / math.pi) ** 2 * symmetric(64)
    factors = [fine, symmetric(2)]
    x = rng.standard_normal(128)
    values, vectors = np.linalg.eigh(fine)
    exponential = (vectors * np.exp(values)) @ vectors.T
    expected = exponential @ x.reshape(64, 2) @ scipy.linalg.expm(symmetric(2))
    found = shifted(factors, (900.0, -900.0), "float64").expm_apply(x)
    close(found, expected.ravel(), 4 * np.abs(fine).max())


@pytest.mark.parametrize("shift", [0.0, 900.0, -900.0])
def test_growth_of_matrices_far_from_normal(shift):
    n, time = 300, 2000.0  # exp(t (A + 1)) has entries of 10³⁷⁵, exp(t A) of 10⁻⁴⁹³
    logarithms = np.array([k * math.log(time) - math.lgamma(k + 1) for k in range(n)])
    lift = np.full((1, 1), (time - logarithms.max()) / time)
    op = shifted([upwind(n), lift], (shift / time, -shift / time), "float64")
    weights = np.exp(logarithms - logarithms.max())
    close(op.expm_apply(np.eye(n)[0], time), weights, 8 * time)
    # a nilpotent matrix with a large entry, to which eigenvalues say nothing
    nilpotent = np.array([[0.0, 1e6], [0.0, 0.0]])
    found = shifted([nilpotent, np.zeros((1, 1))], (shift, -shift), "float64")
    np.testing.assert_allclose(found.expm_apply(np.ones(2)), [1e6 + 1, 1], rtol=1e-11)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_factor_may_leave_the_range_with_small_vectors(dtype):
    # x exp(shift) is out of range, and so is x exp(-shift)
    shift = 80.0 if dtype == "float32" else 700.0
    for size in (1e30, 1e-30) if dtype == "float32" else (1e300, 1e-300):
        op = shifted([symmetric(2), symmetric(2)], (shift, -shift), dtype)
        x = np.full(4, size, dtype)
        close(op.expm_apply(x), math.exp(-2) * x, 4 * shift)
    alone = bk.KroneckerSum(np.array([[1.25 * shift]], dtype))
    small = np.full(1, 1e-20 if dtype == "float32" else 1e-200, dtype)
    expected = math.exp(1.25 * shift / 2) * small[0].item() * math.exp(1.25 * shift / 2)
    close(alone.expm_apply(small), np.full(1, expected), 4 * shift)


def test_many_modes_that_grow_and_vanish():
    signs = [(-1.0) ** (k // 10) for k in range(20)]
    op = bk.KroneckerSum([np.full((1, 1), 60.0 * sign) for sign in signs])
    close(op.expm_apply(np.ones(1)), np.ones(1), 40)


def test_what_overflows_and_what_vanishes(rng):
    x = rng.standard_normal(9)
    for dtype, shift in [("float32", 60.0), ("float64", 500.0)]:
        grows = shifted([symmetric(3), symmetric(3)], (shift, shift), dtype)
        with pytest.warns(RuntimeWarning, match="overflow"):
            found = grows.expm_apply(x.astype(dtype))
        direction = bk.KroneckerSum([symmetric(3)] * 2).expm_apply(x)
        np.testing.assert_array_equal(found, np.sign(direction) * np.inf)
        decays = shifted([symmetric(3), symmetric(3)], (-shift, -shift), dtype)
        np.testing.assert_array_equal(decays.expm_apply(x.astype(dtype)), 0.0)
        assert not grows.expm_apply(np.zeros(9, dtype)).any()
    kept = bk.KroneckerSum(np.array([[np.nan, 1.0], [0.0, 1.0]]), np.eye(2))
    assert np.isnan(kept.expm_apply(np.ones(4))).any()


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
def test_diagonal_modes_are_exact_entry_by_entry(dtype):
    first, second = np.array([0.0, 900.0, -30.0]), np.array([10.0, -900.0])
    op = bk.KroneckerSum(np.diag(first).astype(dtype), np.diag(second).astype(dtype))
    sums = np.array([a + b for a, b in itertools.product(first, second)])
    with np.errstate(over="ignore"):
        expected = np.exp(sums.astype(dtype))
        found = op.expm_apply(np.ones(6, dtype))
    np.testing.assert_array_equal(np.isinf(found), np.isinf(expected))
    regular = np.isfinite(expected)
    eps = np.finfo(dtype).eps
    np.testing.assert_allclose(found[regular], expected[regular], rtol=8 * eps, atol=0)


def test_a_number_lost_beside_infinity_is_not_zero():
    op = bk.KroneckerSum(np.array([[0.0, 0.0], [1.0, 900.0]]), np.array([[900.0]]))
    with np.errstate(over="ignore"):
        found = op.expm_apply(np.ones(2))
    assert np.isnan(found[0])
    assert np.isinf(found[1])


def test_many_systems_with_shifts_of_their_own(rng):
    shifts = np.array([[500.0], [-800.0], [0.0]])
    first = symmetric(3) + shifts[..., None] * np.eye(3)
    second = np.stack([np.stack([upwind(2)] * 2)] * 3) - shifts[..., None, None] * np.eye(2)
    op = bk.KroneckerSum(first[:, None], second)
    assert op.batch_shape == (3, 2)
    x = rng.standard_normal((5, 3, 2, 6))
    expected = x @ scipy.linalg.expm(3.0 * dense_sum([symmetric(3), upwind(2)])).T
    close(op.expm_apply(x, 3.0), expected, 4 * 2400)
    diagonal_ones = bk.KroneckerSum(np.stack([np.diag([800.0, 799.0]), np.eye(2)]), [[-799.0]])
    with np.errstate(over="ignore"):
        found = diagonal_ones.expm_apply(np.ones((2, 2)))
    np.testing.assert_allclose(found, [[math.e, 1.0], [math.exp(-798)] * 2], rtol=1e-14)


def test_modes_without_entries():
    op = bk.KroneckerSum(np.array([[900.0]]), np.zeros((0, 0)))
    assert op.expm_apply(np.ones(0)).shape == (0,)
    assert op.phi_apply([np.ones(0), np.ones(0)]).shape == (0,)


def test_ordinary_exponentials_keep_their_bits(rng):
    factors = [rng.standard_normal((n, n)) for n in (3, 4)]
    x = rng.standard_normal(12)
    expected = bk.KroneckerProduct([scipy.linalg.expm(0.5 * f) for f in factors]) @ x
    np.testing.assert_array_equal(bk.KroneckerSum(factors).expm_apply(x, 0.5), expected)
