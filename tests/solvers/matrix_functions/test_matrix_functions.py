"""Functions of operators times vectors, against dense ones, with what they cost."""

import warnings

import array_api_strict as strict
import numpy as np
import pytest
import scipy.linalg
import scipy.sparse
from dense_oracle import random_array
from scipy.sparse.linalg import LinearOperator

import batchkron as bk
from batchkron.solvers import (
    ConvergenceWarning,
    FunctionResult,
    Status,
    expm_multiply,
    matrix_function,
    phi_multiply,
)
from batchkron.solvers.matrix_functions import exponential

SCALARS = {
    "exp": np.exp,
    "sqrt": np.sqrt,
    "inverse-sqrt": lambda values: 1 / np.sqrt(values),
}


def is_single(dtype):
    return np.finfo(dtype).eps > 1e-10


def hermitian(rng, values, dtype):
    wide = np.result_type(dtype, "f8")
    basis = np.linalg.qr(random_array(rng, (len(values), len(values)), wide))[0]
    return basis, ((basis * values) @ basis.conj().T).astype(dtype)


def relative(found, expected):
    return np.linalg.norm(found - expected) / np.linalg.norm(expected)


@pytest.mark.parametrize("f", SCALARS)
@pytest.mark.parametrize("restart", [10, 60, 200])
def test_hermitian_operators(rng, dtype, f, restart):
    values = np.geomspace(0.1, 10.0, 120)
    basis, A = hermitian(rng, values, dtype)
    b = random_array(rng, (120,), dtype)
    t = -1.0 if f == "exp" else 2.0
    expected = basis @ (SCALARS[f](t * values) * (basis.conj().T @ b))
    rtol = 1e-5 if is_single(dtype) else 1e-10
    result = matrix_function(f, A, b, hermitian=True, t=t, rtol=rtol, restart=restart)
    assert result.converged
    assert result.x.dtype == dtype
    assert relative(result.x, expected) < (1e-4 if is_single(dtype) else 1e-9)
    # vectors that were not kept are computed twice
    assert result.products == result.steps + max(result.steps - restart, 0)
    any_ = matrix_function(f, A, b, t=t, rtol=rtol, restart=restart, maxiter=3000)
    assert any_.converged
    assert relative(any_.x, expected) < (1e-3 if is_single(dtype) else 1e-8)


@pytest.mark.parametrize("f", [*SCALARS, "log", "sine"])
@pytest.mark.parametrize("restart", [12, 200])
def test_any_operators(rng, dtype, f, restart):
    n = 90
    A = random_array(rng, (n, n), dtype) / (2 * np.sqrt(n).astype(np.float32)) + 1.5 * np.eye(
        n, dtype=dtype
    )
    b = random_array(rng, (n,), dtype)
    wide = A.astype(np.result_type(dtype, "f8"))
    functions = {
        "exp": scipy.linalg.expm,
        "sqrt": scipy.linalg.sqrtm,
        "inverse-sqrt": lambda X: np.linalg.inv(scipy.linalg.sqrtm(X)),
        "log": scipy.linalg.logm,
        "sine": scipy.linalg.sinm,
    }
    expected = functions[f](wide) @ b
    given = f if f in SCALARS else functions[f]
    rtol = 1e-5 if is_single(dtype) else 1e-10
    result = matrix_function(given, A, b, rtol=rtol, restart=restart)
    assert result.converged
    assert result.x.dtype == dtype
    assert relative(result.x, expected) < (2e-3 if is_single(dtype) else 1e-8)
    assert result.error <= rtol * 1.01 * np.linalg.norm(result.x)
    extra = {"sqrt": 1, "exp": 1}.get(f, 0)  # A b; the first growth rate
    assert result.products == result.steps + extra


def test_estimates_are_not_far_from_errors(rng):
    values = np.geomspace(1e-2, 1e2, 200)
    basis, A = hermitian(rng, values, np.float64)
    b = rng.standard_normal(200)
    for f, function in (("sqrt", np.sqrt), ("inverse-sqrt", lambda x: 1 / np.sqrt(x))):
        expected = basis @ (function(values) * (basis.T @ b))
        for hermitian_ in (False, True):
            for rtol in (1e-3, 1e-6):
                found = matrix_function(f, A, b, hermitian=hermitian_, rtol=rtol, maxiter=8000)
                assert found.converged
                assert np.linalg.norm(found.x - expected) <= 2 * found.error


def test_complex_times(rng):
    _, A = hermitian(rng, np.linspace(-3.0, 5.0, 60), np.float64)
    b = rng.standard_normal((60, 2))
    expected = scipy.linalg.expm(0.7j * A) @ b
    for flag in (False, True):
        found = matrix_function("exp", A, b, hermitian=flag, t=0.7j)
        assert found.converged
        assert found.error.shape == (2,)
        assert relative(found.x, expected) < 1e-7


@pytest.mark.parametrize("f", ["sqrt", "inverse-sqrt"])
@pytest.mark.parametrize("t", [1j, -1j, 0.5 + 1j])
def test_roots_of_complex_multiples(rng, dtype, f, t):
    values = np.concatenate([np.linspace(-3.0, -1.0, 20), np.linspace(1.0, 4.0, 20)])
    basis, A = hermitian(rng, values, dtype)
    b = random_array(rng, (40,), dtype)
    expected = basis @ (SCALARS[f](t * values) * (basis.conj().T @ b))
    found = matrix_function(f, A, b, hermitian=True, t=t, rtol=1e-6)
    assert found.converged
    assert relative(found.x, expected) < (1e-4 if is_single(dtype) else 1e-5)


def test_restarts_that_diverge_do_not_count_as_converged():
    _, A = hermitian(np.random.default_rng(0), np.linspace(-40.0, 40.0, 20), np.float64)
    with pytest.warns(ConvergenceWarning, match="ended with the status"):
        found = matrix_function("inverse-sqrt", A, np.ones(20), t=1j, restart=3, maxiter=1200)
    assert not found.converged


@pytest.mark.parametrize("restart", [8, 100])
@pytest.mark.parametrize(("f", "flag"), [(scipy.linalg.expm, False), ("exp", True)])
def test_results_whose_squares_overflow(f, flag, restart):
    values, b = np.linspace(390.0, 400.0, 60), np.linspace(1.0, 2.0, 60)
    found = matrix_function(f, np.diag(values), b, hermitian=flag, restart=restart)
    assert found.converged
    assert relative(found.x / 1e170, np.exp(values) / 1e170 * b) < 1e-4


@pytest.mark.parametrize(("f", "flag"), [(scipy.linalg.expm, False), ("exp", True)])
def test_results_beyond_the_range_of_float32(f, flag):
    """The small matrices are of float64."""
    A = np.diag(np.linspace(90.0, 100.0, 40)).astype("f4")
    with pytest.warns(ConvergenceWarning, match="range of numbers"):
        found = matrix_function(f, A, np.ones(40, "f4"), hermitian=flag)
    assert found.status is Status.NOT_FINITE


def test_semidefinite_operators(rng):
    values = np.concatenate([np.zeros(20), np.linspace(1.0, 3.0, 40)])
    basis, A = hermitian(rng, values, np.float64)
    b = rng.standard_normal(60)
    expected = basis @ (np.sqrt(values) * (basis.T @ b))
    for flag in (False, True):
        found = matrix_function("sqrt", A, b, hermitian=flag)
        assert relative(found.x, expected) < 1e-6
    with pytest.warns(ConvergenceWarning, match="indefinite"):
        found = matrix_function("inverse-sqrt", A - np.eye(60), b)
    assert found.status is Status.INDEFINITE
    assert np.isnan(found.x).all()
    with pytest.raises(RuntimeError, match="negative real axis"):
        matrix_function("sqrt", A - np.eye(60), b, hermitian=True, raise_on_failure=True)


@pytest.mark.parametrize("scale", [1e-200, 1e200])
@pytest.mark.parametrize("flag", [False, True])
def test_extreme_scales(rng, scale, flag):
    values = np.linspace(1.0, 5.0, 40)
    basis, A = hermitian(rng, values, np.float64)
    b = rng.standard_normal(40)
    for f in ("sqrt", "inverse-sqrt"):
        expected = basis @ (SCALARS[f](values) * (basis.T @ b))
        found = matrix_function(f, A * scale, b, hermitian=flag)
        power = scale**0.5 if f == "sqrt" else scale**-0.5
        assert relative(found.x / power, expected) < 1e-7
        found = matrix_function(f, A, b * scale, hermitian=flag)
        assert relative(found.x / scale, expected) < 1e-7


@pytest.mark.parametrize("flag", [False, True])
def test_small_and_invariant_spaces(rng, dtype, flag):
    for n in (1, 2, 3):
        basis, A = hermitian(rng, np.arange(1.0, n + 1), dtype)
        b = random_array(rng, (n,), dtype)
        for f in SCALARS:
            expected = basis @ (SCALARS[f](np.arange(1.0, n + 1)) * (basis.conj().T @ b))
            found = matrix_function(f, A, b, hermitian=flag)
            assert relative(found.x, expected) < (1e-4 if is_single(dtype) else 1e-8)
    A = np.diag([4.0, 4.0, 9.0, 9.0, 9.0])
    found = matrix_function("sqrt", A, np.ones(5), hermitian=flag)
    np.testing.assert_allclose(found.x, [2, 2, 3, 3, 3], rtol=1e-8)
    assert found.steps == 2
    assert not matrix_function("sqrt", A, np.zeros(5), hermitian=flag).x.any()


@pytest.mark.parametrize("shift", [0.0, 600.0, -600.0])
def test_exponentials_of_any_size(rng, dtype, shift):
    if is_single(dtype):
        shift /= 10
    n = 60
    G = random_array(rng, (n, n), dtype) / 4
    A = G + shift * np.eye(n, dtype=dtype)
    B = random_array(rng, (n, 3), dtype)
    expected = scipy.linalg.expm(G.astype(np.result_type(dtype, "f8"))) @ B
    for options in ({}, {"traceA": np.trace(A).item()}, {"traceA": 0.0}):
        found = expm_multiply(A, B, **options)
        assert found.dtype == dtype
        assert relative(found * np.exp(-shift), expected) < (1e-2 if is_single(dtype) else 1e-8)


def test_stiff_decay(rng):
    values = -np.geomspace(1e-2, 1e4, 100)
    b = rng.standard_normal(100)
    counted = []
    A = LinearOperator(
        (100, 100), matvec=lambda x: counted.append(1) or values * np.ravel(x), dtype=float
    )
    for trace in (None, values.sum()):
        counted.clear()
        found = expm_multiply(A, b, traceA=trace)
        np.testing.assert_allclose(found, np.exp(values) * b, atol=1e-8)
        assert len(counted) < 4000


@pytest.mark.parametrize(("size", "factor"), [(5, 1e4), (8, 1e3)])
def test_exponentials_of_nilpotent_matrices(size, factor):
    """Sums of powers that grow by far more than their pieces; SciPy has them to rounding."""
    A, b = factor * np.eye(size, k=1), np.ones(size)
    powers = np.cumprod([1.0, *(factor / k for k in range(1, size))])
    expected = np.cumsum(powers)[::-1]
    found = matrix_function("exp", A, b)
    assert found.converged
    np.testing.assert_allclose(found.x, expected, rtol=1e-10)
    np.testing.assert_allclose(expm_multiply(A, b), expected, rtol=1e-10)


def test_exponentials_say_when_rounding_is_above_the_tolerance():
    A = np.diag([0.0, -1e10, -1.0])
    with pytest.warns(ConvergenceWarning, match="rounding prevents the accuracy"):
        found = matrix_function("exp", A, np.ones(3), rtol=1e-10)
    expected = np.exp(np.diag(A))
    assert np.linalg.norm(found.x - expected) <= found.error


def test_exponentials_of_large_nilpotent_matrices(rng):
    """The result is made of entries that have been far below rounding on the way."""
    A, b = 300.0 * np.eye(60, k=1), rng.standard_normal(60)
    expected = scipy.linalg.expm(A) @ b
    found = matrix_function("exp", A, b)
    assert found.converged
    assert relative(found.x, expected) < 1e-10
    assert relative(expm_multiply(A, b), expected) < 1e-10
    times = expm_multiply(A, b, start=0.2, stop=1.0, num=3)
    for t, x in zip((0.2, 0.6, 1.0), times, strict=True):
        assert relative(x, scipy.linalg.expm(t * A) @ b) < 1e-10
    found = phi_multiply(A, [None, b], 0.5)
    augmented = np.block([[A, b[:, None]], [np.zeros((1, 61))]])
    assert relative(found.x, scipy.linalg.expm(0.5 * augmented)[:60, 60]) < 1e-9


def far_from_normal(rng, kind, size, strength):
    """Return a matrix with growth that its eigenvalues do not show, turned by a random basis."""
    if kind == "nilpotent":
        A = 3 * strength * np.eye(size, k=1)
    elif kind == "triangular":
        A = strength * np.triu(rng.standard_normal((size, size)), 1) / np.sqrt(size)
        A -= np.diag(rng.uniform(0, strength, size))
    else:
        A = np.diag(rng.uniform(-strength, 0.0, size)) + 2 * strength * np.eye(size, k=2)
    basis = np.linalg.qr(rng.standard_normal((size, size)))[0]
    return basis @ A @ basis.T


@pytest.mark.parametrize("kind", ["nilpotent", "triangular", "shifted"])
@pytest.mark.parametrize("strength", [1.0, 10.0, 25.0])
@pytest.mark.parametrize("few", [True, False])
def test_exponentials_far_from_normal_are_right_or_refused(rng, monkeypatch, kind, strength, few):
    """What is said to converge is right, also where the matrix may not be formed."""
    if not few:
        monkeypatch.setattr(exponential, "MAX_MATRIX", 0)
    for size in (35, 60):
        A, b = far_from_normal(rng, kind, size, strength), rng.standard_normal(size)
        expected = scipy.linalg.expm(A) @ b
        other = scipy.linalg.expm(A * (1 + 2e-16 * rng.choice([-1.0, 1.0], A.shape))) @ b
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            found = matrix_function("exp", A, b, rtol=1e-8, restart=20)
        if found.converged:
            assert relative(found.x, expected) < 1e-7 + 10 * relative(other, expected)
        else:  # only where rounding of A's entries is amplified
            assert relative(other, expected) > 1e-14
            assert np.isnan(found.error) or found.error > 1e-8 * np.linalg.norm(found.x)


def test_results_that_vanish_have_an_absolute_tolerance():
    """A wave that has left: its beginning has not a digit in the state before."""
    n = 520
    A, b = n * (np.eye(n, k=-1) - np.eye(n)), np.ones(n)
    with pytest.warns(ConvergenceWarning, match="stagnated"):
        assert np.isnan(expm_multiply(2 * A, b)).all()
    assert np.abs(expm_multiply(2 * A, b, atol=1e-8)).max() < 1e-8


@pytest.mark.parametrize("ends", [(-1.0, 1.0), (1.0, -1.0), (2.0, 0.5), (-2.0, -0.5)])
def test_exponentials_at_times_of_both_signs(ends):
    """What has decayed by one time is not asked to grow again for another."""
    rates = np.array([-1.0, -50.0])
    found = expm_multiply(np.diag(rates), np.ones(2), start=ends[0], stop=ends[1], num=5)
    expected = np.exp(np.linspace(*ends, 5)[:, None] * rates)
    errors = np.linalg.norm(found - expected, axis=1) / np.linalg.norm(expected, axis=1)
    assert errors.max() < 1e-9


def test_exponentials_at_several_times(rng):
    A = bk.KroneckerSum(rng.standard_normal((4, 4)), rng.standard_normal((5, 5)))
    b = rng.standard_normal((20, 2))
    for endpoint in (True, False):
        found = expm_multiply(A, b, start=-0.5, stop=1.0, num=4, endpoint=endpoint)
        times = np.linspace(-0.5, 1.0, 4, endpoint=endpoint)
        expected = np.stack([A.expm_apply(b, t) for t in times])
        np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-8)
    assert expm_multiply(A, b[:, 0], start=0, stop=1).shape == (50, 20)
    single = expm_multiply(A, b, start=0.5, stop=0.5, num=1)
    np.testing.assert_allclose(single[0], A.expm_apply(b, 0.5), rtol=1e-8)


@pytest.mark.parametrize("t", [1.5, -0.7, 0.0])
def test_phi_functions(rng, dtype, t):
    A = bk.KroneckerSum(*(random_array(rng, (n, n), dtype) / 2 for n in (4, 3)))
    vectors = [random_array(rng, (12,), dtype), None, random_array(rng, (12,), dtype)]
    result = phi_multiply(A, vectors, t)
    assert isinstance(result, FunctionResult)
    assert result.converged
    assert relative(result.x, A.phi_apply(vectors, t)) < (1e-3 if is_single(dtype) else 1e-7)
    assert result.products == result.steps


def test_all_kinds_of_operators(rng):
    A = bk.KroneckerProduct(np.diag([1.0, 2.0]), np.diag([1.0, 3.0, 4.0])) + bk.Identity(6)
    dense, b = A.to_dense(), rng.standard_normal(6)
    expected = np.sqrt(np.diag(dense)) * b
    wrapped = LinearOperator((6, 6), matvec=lambda x: dense @ x, dtype=float)
    for given in (A, dense, scipy.sparse.csr_array(dense), wrapped):
        for flag in (False, True):
            np.testing.assert_allclose(
                matrix_function("sqrt", given, b, hermitian=flag).x, expected, rtol=1e-7
            )
        np.testing.assert_allclose(expm_multiply(given, b), np.exp(np.diag(dense)) * b, rtol=1e-8)
    found = matrix_function("sqrt", strict.asarray(dense), strict.asarray(b))
    assert isinstance(found.x, type(strict.asarray(b)))
    np.testing.assert_allclose(np.asarray(found.x), expected, rtol=1e-7)
    there = expm_multiply(strict.asarray(dense), strict.asarray(b))
    np.testing.assert_allclose(np.asarray(there), np.exp(np.diag(dense)) * b, rtol=1e-8)


def test_functions_may_be_complex_at_first(rng):
    """As logarithms are of the first Ritz values, which may be negative."""
    A, b = rng.standard_normal((30, 30)), rng.standard_normal(30)

    def f(X):
        return X + 1e-3j if len(X) < 5 else X

    found = matrix_function(f, A, b)
    assert found.converged
    np.testing.assert_allclose(found.x, A @ b, rtol=1e-8)


def test_what_does_not_converge_is_said(rng):
    A = np.diag(np.geomspace(1e-6, 1e6, 300))
    b = rng.standard_normal(300)
    for flag in (False, True):
        with pytest.warns(ConvergenceWarning, match="max-iterations"):
            found = matrix_function("inverse-sqrt", A, b, hermitian=flag, maxiter=20)
        assert found.status is Status.MAX_ITERATIONS
        assert found.error > 1e-8 * np.linalg.norm(found.x)
    broken = np.full((4, 4), np.nan)
    for call in (
        lambda: matrix_function("sqrt", broken, b[:4]),
        lambda: matrix_function("sqrt", broken, b[:4], hermitian=True),
        lambda: matrix_function(scipy.linalg.sinm, broken, b[:4]),
        lambda: matrix_function("exp", np.eye(4), b[:4] * np.nan),
        lambda: phi_multiply(broken, [b[:4]]),
    ):
        with pytest.warns(ConvergenceWarning, match="not-finite"):
            assert call().status is Status.NOT_FINITE
    with pytest.warns(ConvergenceWarning):
        assert np.isnan(expm_multiply(broken, b[:4])).all()


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"f": "cos"}, "f is 'cos'"),
        ({"A": np.ones((4, 5))}, "one square operator"),
        ({"b": np.ones(5)}, "b has shape"),
        ({"rtol": -1.0}, "rtol is -1"),
        ({"restart": 1}, "restart is 1"),
        ({"maxiter": 0}, "maxiter is 0"),
        ({"t": np.nan}, "t is nan"),
        ({"f": np.trace}, "expected a function of matrices"),
    ],
)
def test_bad_arguments(given, text):
    call = {"f": "sqrt", "A": np.eye(4), "b": np.ones(4), **given}
    with pytest.raises(ValueError, match=text):
        matrix_function(call.pop("f"), call.pop("A"), call.pop("b"), **call)


def test_bad_arguments_of_exponentials():
    A, b = np.eye(4), np.ones(4)
    for options, text in (
        ({"start": 0.0}, "start and stop"),
        ({"start": 0.0, "stop": np.inf}, "finite"),
        ({"start": 0.0, "stop": 1.0, "num": 0}, "num is 0"),
        ({"rtol": 0.0}, "rtol is 0"),
        ({"dimension": 1}, "dimension is 1"),
    ):
        with pytest.raises(ValueError, match=text):
            expm_multiply(A, b, **options)
    with pytest.raises(ValueError, match="B has shape"):
        expm_multiply(A, np.ones(5))
    with pytest.raises(ValueError, match="at least one vector"):
        phi_multiply(A, [None])
    with pytest.raises(ValueError, match=r"vectors\[1\] has shape"):
        phi_multiply(A, [b, np.ones(3)])


@pytest.mark.parametrize("f", [np.exp, np.sqrt, np.cos, lambda X: X**2])
@pytest.mark.parametrize("hermitian", [False, True])
def test_functions_of_numbers_are_refused(f, hermitian):
    A = 3.0 * np.eye(20) + np.eye(20, k=1) + np.eye(20, k=-1)
    with pytest.raises(ValueError, match=r"such as scipy\.linalg\.expm"):
        matrix_function(f, A, np.arange(1.0, 21.0), hermitian=hermitian)
    found = matrix_function(lambda X: X @ X, A, np.ones(20), hermitian=hermitian)
    np.testing.assert_allclose(found.x, A @ A @ np.ones(20))


@pytest.mark.parametrize("size", [1e3, 1e4, 1e5])
def test_rounding_that_grows_within_a_substep_is_seen(size):
    """Of a nilpotent matrix; the space holds all of it, so that only rounding is left."""
    M, b = np.array([[0.0, size], [0.0, 0.0]]), np.array([1.0, -1.0])
    expected = b + M @ b
    found = matrix_function("exp", M, b)
    assert found.status is Status.CONVERGED
    for x in (found.x, expm_multiply(M, b)):
        assert relative(x, expected) < 1e-8


def test_results_beyond_the_range_of_numbers_are_said():
    A, b = np.diag([2000.0, 1.0]), np.array([1e10, 1.0])
    with pytest.warns(match="range of numbers"):
        found = matrix_function("exp", A, b), phi_multiply(A, [b])
    for own in found:
        assert own.status is Status.NOT_FINITE
        assert np.isnan(own.x).all()
