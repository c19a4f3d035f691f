"""Factors that are Hermitian but for rounding, such as inverses, and those that are not."""

import numpy as np
import pytest
import scipy.linalg
from dense_oracle import random_array
from hermitian_sums import hermitian

import batchkron as bk
from batchkron.operators.hermitian import hermitian_part, is_hermitian, is_nearly_hermitian
from batchkron.operators.scaling import times_power_of_two


def definite(rng, n, condition, dtype):
    """A positive definite matrix, symmetric in every bit."""
    vectors = np.linalg.qr(random_array(rng, (n, n), np.result_type(dtype, np.float64)))[0]
    matrix = (vectors * np.geomspace(1.0, condition, n)) @ vectors.conj().T
    return ((matrix + matrix.conj().T) / 2).astype(dtype)


def skew(rng, n, dtype):
    """An antisymmetric matrix of norm 1."""
    matrix = random_array(rng, (n, n), np.dtype(dtype))
    matrix = matrix - matrix.conj().T
    return matrix / np.linalg.norm(matrix)


def nearly(rng, dtype):
    """Matrices that are Hermitian in exact arithmetic, each with the norm of what they lack."""
    for n, condition in ((4, 1e2), (30, 1e3), (60, 3e3)):
        A = definite(rng, n, condition, dtype)
        yield scipy.linalg.inv(A)
        yield scipy.linalg.sqrtm(A).astype(dtype)
        deficient = A - np.outer(A[:, 0], A[0]) / A[0, 0]
        yield np.linalg.pinv(deficient, rcond=1e-4)
    x = rng.random((80, 2))
    squares = (x**2).sum(axis=1)
    distances = squares[:, None] + squares - 2 * x @ x.T
    kernel = np.exp(-distances / 0.08).astype(dtype)
    yield kernel + (0.3 * limit(dtype) * np.linalg.norm(kernel) * skew(rng, 80, dtype)).astype(
        dtype
    )
    r = np.sqrt(5 * np.maximum(distances, 0)) / 0.4  # a Matérn kernel
    matern = ((1 + r + r * r / 3) * np.exp(-r)).astype(dtype)
    yield np.linalg.inv(matern + 0.01 * np.eye(80, dtype=dtype))


def limit(dtype):
    return 3e-4 if np.finfo(dtype).bits == 32 else 1e-8


def test_inverses_roots_and_kernels(rng, dtype):
    uneven = 0
    for F in nearly(rng, dtype):
        assert F.dtype == dtype
        uneven += not np.array_equal(F, F.conj().T)
        exact = F.astype(np.result_type(dtype, np.float64))
        exact = (exact + exact.conj().T) / 2
        size, eps = len(F), np.finfo(dtype).eps
        scale = np.linalg.norm(exact, 2)
        values, V = bk.KroneckerProduct([F]).eigh()
        V = V.factors[0]
        assert np.abs(V * values @ V.conj().T - exact).max() <= 50 * size * eps * scale
        single = np.linalg.eigvalsh(exact)
        other = np.array([[2.0, 1.0], [1.0, 3.0]], dtype)
        shift = 0.5 * scale
        op = bk.KroneckerProduct([F, other]) + shift * bk.Identity(2 * size, dtype)
        shifted = np.outer(single, np.linalg.eigvalsh(other)).ravel() + shift
        found, _ = bk.eigh(op)
        assert np.abs(np.sort(found) - np.sort(shifted)).max() <= 200 * size * eps * scale
        if shifted.min() > 0.1 * scale:
            logarithm = np.log(shifted).sum()
            assert abs(op.logdet() - logarithm) <= 2000 * size * eps
            b = random_array(rng, (2 * size,), dtype)
            A = np.kron(exact, other) + shift * np.eye(2 * size)
            error = np.linalg.norm(op.solve(b) - np.linalg.solve(A, b))
            assert error <= 2000 * size * eps * np.linalg.norm(b) / scale
        x = random_array(rng, (size,), dtype)
        moved = bk.KroneckerProduct([F]).expm_apply(x, -1 / scale)
        expected = scipy.linalg.expm(-exact / scale) @ x
        assert np.linalg.norm(moved - expected) <= 200 * size * eps * np.linalg.norm(x)
        sums = bk.KroneckerSum([np.stack([F, 2 * F]), other]).eigh()[0]
        np.testing.assert_allclose(
            np.sort(sums[0]),
            np.sort(np.add.outer(single, np.linalg.eigvalsh(other)).ravel()),
            atol=200 * size * eps * max(scale, 4),
        )
    assert uneven >= 4


def test_the_bound_grows_with_size_and_condition(rng, dtype):
    eps = np.finfo(dtype).eps
    for n, condition in ((3, 10.0), (40, 10.0), (40, 1e3), (10, 1e30)):
        A = definite(rng, n, min(condition, 1e3), dtype)
        if condition > 1e3:
            values, vectors = np.linalg.eigh(A.astype(np.result_type(dtype, np.float64)))
            A = (vectors[:, 1:] * values[1:]) @ vectors[:, 1:].conj().T  # singular
            A = ((A + A.conj().T) / 2).astype(dtype)
        bound = min(max(n, 8) * eps * condition, limit(dtype))
        perturbation = np.linalg.norm(A) * skew(rng, n, dtype) / 2  # A - Aᴴ has twice its norm
        assert is_nearly_hermitian((A + 0.3 * bound * perturbation).astype(dtype))
        assert not is_nearly_hermitian((A + 5 * bound * perturbation).astype(dtype))
        exponent = 60 if eps > 1e-8 else 665
        for e in (exponent, -exponent):
            far = times_power_of_two((A + 5 * bound * perturbation).astype(dtype), e)
            near = times_power_of_two((A + 0.3 * bound * perturbation).astype(dtype), e)
            assert not is_nearly_hermitian(far)
            part = hermitian_part(near, "A is not Hermitian")
            np.testing.assert_array_equal(part, part.conj().T)
            assert is_nearly_hermitian(np.stack([near, A]))
            assert not is_nearly_hermitian(np.stack([A, far]))


def test_small_rows_beside_large_ones_are_no_rounding(dtype):
    """The skew part of a block is small beside another entry, and must not be dropped."""
    M = np.diag([1e9, 1.0, 1.0]).astype(dtype)
    M[1, 2], M[2, 1] = 1, -1
    if np.finfo(dtype).eps < 1e-8:  # else it is a rounding of the large one
        with pytest.raises(ValueError, match="entries of A - Aᴴ are of the size of their rows"):
            hermitian_part(M, "M is not Hermitian")
    K, one, b = np.diag([1.0, 2.0]), bk.Identity(6), np.arange(1.0, 7.0)
    op = bk.KroneckerSum(M, K)
    dense = op.to_dense() + np.eye(6)
    tolerance = 100 * float(np.finfo(dtype).eps)
    np.testing.assert_allclose((op + one).solve(b), np.linalg.solve(dense, b), rtol=tolerance)
    assert (op + one).logdet() == pytest.approx(np.linalg.slogdet(dense)[1], rel=tolerance)
    found = (op + one).expm_apply(b, -1.0)
    np.testing.assert_allclose(found, scipy.linalg.expm(-dense) @ b, atol=1e3 * tolerance)
    small = bk.KroneckerSum(np.diag([1e17, 1.0 + 1j]), np.zeros((1, 1)))
    np.testing.assert_allclose(small.solve(np.ones(2)), [1e-17, 0.5 - 0.5j], rtol=1e-14)


def test_a_large_matrix_needs_no_condition_number(rng, monkeypatch):
    n = 1000
    A = np.exp(-np.abs(np.subtract.outer(np.arange(n), np.arange(n))) / 50.0)
    A = A * (1 + 40 * np.finfo(np.float64).eps * rng.standard_normal((n, n)))
    monkeypatch.setattr(np.linalg, "eigvalsh", None)
    assert is_hermitian(A)
    part = hermitian_part(A, "A is not Hermitian")
    np.testing.assert_allclose(part, (A + A.T) / 2, rtol=1e-15)


def test_methods_for_other_matrices_are_taken_where_they_are_more_precise():
    """A graded matrix is nearly Hermitian by its norm; its sum is solved as it is nevertheless."""
    A = np.array([[1e10, 1.0], [0.0, 1.0]])
    assert is_nearly_hermitian(A)
    assert not is_hermitian(A)
    b = np.array([1.0, 0.0])
    np.testing.assert_allclose(bk.KroneckerSum([A]).solve(b), [1e-10, 0.0], atol=1e-25)


def test_matrices_that_equal_their_adjoints_keep_their_bits(rng, dtype):
    A = hermitian(rng, 5, dtype)
    np.testing.assert_array_equal(hermitian_part(A, ""), A)
    values, vectors = np.linalg.eigh(A)
    found, V = bk.KroneckerProduct([A]).eigh()
    np.testing.assert_array_equal(found, values)
    np.testing.assert_array_equal(V.factors[0], vectors)


def test_the_text_says_how_far_off(rng):
    A = definite(rng, 4, 2.0, "float64")
    rough = A + 1e-3 * np.linalg.norm(A) * skew(rng, 4, "float64")
    one = np.eye(4)
    off = r"‖A - Aᴴ‖ is 0.002 ‖A‖, more than the 1e-08 ‖A‖ that rounding explains; if it should be"
    half = r"pass its Hermitian part, \(A \+ A.T\) / 2"
    product, total = bk.KroneckerProduct([one, rough]), bk.KroneckerSum([one, rough])
    for op in (product, total):
        with pytest.raises(ValueError, match=rf"factors\[1\] is not Hermitian .*: {off}, {half}"):
            op.eigh()
    with pytest.raises(ValueError, match=rf"factors of mode 1 are not all Hermitian .*{off}"):
        (bk.KroneckerProduct([A, rough]) + bk.Identity(16)).logdet()
    with pytest.raises(ValueError, match=rf"B.factors\[1\] is not Hermitian .*{off}"):
        bk.eigh(bk.KroneckerProduct([one, one]), product)
    with pytest.raises(ValueError, match=r"\(A \+ A.conj\(\).T\) / 2"):
        bk.KroneckerProduct([rough + 0j]).eigh()
    stack = np.stack([A, rough])
    with pytest.raises(ValueError, match=r"of system \(1,\) ‖A - Aᴴ‖ is 0.002 .*A.mT\) / 2"):
        bk.KroneckerSum([stack]).eigh()
    rounded = A + 4e-14 * np.linalg.norm(A) * skew(rng, 4, "float64")
    with pytest.raises(ValueError, match=r"is 8e-14 ‖A‖, more than the 1.8e-15 ‖A‖"):
        bk.KroneckerProduct([rounded]).eigh()
    rough[0, 1] = np.nan
    with pytest.raises(ValueError, match="entries that are infinite or NaN"):
        bk.KroneckerProduct([rough]).eigh()


def test_inverses_commute_with_their_matrices(rng, dtype):
    """K, its inverse and the identity: errors of the inverse are in the commutator, too."""
    eps = np.finfo(dtype).eps
    K = definite(rng, 20, 3e3 if eps > 1e-8 else 1e6, dtype)
    inverse, one = scipy.linalg.inv(K), bk.Identity(20, dtype)
    scaled = (inverse * np.linalg.norm(K)).astype(dtype)
    op = bk.KroneckerProduct([K]) + bk.KroneckerProduct([scaled]) + 10 * one
    A = K + scaled.astype(np.result_type(dtype, np.float64)) + 10 * np.eye(20)
    values = bk.eigh(op)[0]
    scale = np.linalg.norm(scaled)
    bound = 100 * eps * np.linalg.cond(K) * scale
    assert np.abs(np.sort(values) - np.linalg.eigvalsh((A + A.conj().T) / 2)).max() <= bound
    b = random_array(rng, (20,), dtype)
    assert np.linalg.norm(A @ op.solve(b) - b) <= bound / 10 * np.linalg.norm(b)
    small = [np.diag([1.0, 2.0]), np.diag([3.0, 1.0])]
    rough = bk.KroneckerProduct([K, small[0]]) + bk.KroneckerProduct(
        [1e-2 * hermitian(rng, 20, dtype), small[1]]
    )
    with pytest.raises(ValueError, match="neither commute"):
        (rough + 10 * bk.Identity(40, dtype)).solve(np.tile(b, 2))


def test_ill_conditioned_masses(rng):
    """Two kernels, of which one is so ill-conditioned that its congruence is 1 to 1e-8 only."""
    M, K = definite(rng, 20, 1e8, "float64"), hermitian(rng, 20, "float64")
    small = [np.array([[2.0, 1.0], [1.0, 2.0]]), np.array([[3.0, -1.0], [-1.0, 1.0]])]
    op = bk.KroneckerProduct([M, small[0]]) + bk.KroneckerProduct([K, small[1]])
    A, b = np.kron(M, small[0]) + np.kron(K, small[1]), rng.standard_normal(40)
    x = op.solve(b)
    # a backward error of the diagonalisation
    bound = 1e-8 * np.linalg.norm(A) * np.linalg.norm(x)
    assert np.linalg.norm(A @ x - b) <= bound
