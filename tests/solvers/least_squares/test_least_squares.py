"""LSQR and LSMR against dense least squares and SciPy's, with what they cost."""

import array_api_strict as strict
import numpy as np
import pytest
import scipy.sparse
import scipy.sparse.linalg as spla
from dense_oracle import random_array

import batchkron as bk
from batchkron.solvers import expm_multiply, lsmr, lsqr, phi_multiply

METHODS = [lsqr, lsmr]
SHAPES = [(30, 20), (20, 30), (25, 25), (7, 1), (1, 7)]


def with_singular_values(rng, shape, values, dtype):
    left, right = (
        np.linalg.qr(random_array(rng, (n, len(values)), np.result_type(dtype, "f8")))[0]
        for n in shape
    )
    return ((left * values) @ right.conj().T).astype(dtype)


def limits(dtype):
    tolerance = 1e-6 if np.finfo(dtype).eps > 1e-10 else 1e-13
    return {"atol": tolerance, "btol": tolerance}


def solve(method, A, b, damp=0.0, maxiter=2000, **options):
    name = "iter_lim" if method is lsqr else "maxiter"
    return method(A, b, damp, **{name: maxiter}, **options)


def dense_solution(A, b, damp=0.0):
    stacked = np.vstack([A, damp * np.eye(A.shape[1])])
    zeros = np.zeros((A.shape[1], *b.shape[1:]))
    wide = np.result_type(A.dtype, b.dtype, "f8")
    return np.linalg.lstsq(stacked.astype(wide), np.concatenate([b, zeros]).astype(wide))[0]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("damp", [0.0, 0.7])
def test_solutions_and_norms(rng, dtype, method, shape, damp):
    values = np.linspace(1.0, 3.0, min(shape))
    A = with_singular_values(rng, shape, values, dtype)
    b = random_array(rng, (shape[0],), dtype)
    result = solve(method, A, b, damp, **limits(dtype))
    assert result.converged
    rtol = 1e-4 if np.finfo(dtype).eps > 1e-10 else 1e-10
    expected = dense_solution(A, b, damp)
    np.testing.assert_allclose(result.x, expected, atol=rtol * np.linalg.norm(expected))
    residual = np.linalg.norm(b - A @ result.x)
    gradient = np.linalg.norm(A.conj().T @ (b - A @ result.x) - damp**2 * result.x)
    found = dict(zip(result._tuple, result, strict=True))
    eps = np.finfo(dtype).eps * 100
    names = ("r1norm", "arnorm") if method is lsqr else ("normr", "normar")
    for name, true in zip(names, (residual, gradient), strict=True):
        np.testing.assert_allclose(found[name], true, rtol=1e-3, atol=eps * np.linalg.norm(b))
    x_norm = found["xnorm" if method is lsqr else "normx"]
    np.testing.assert_allclose(x_norm, np.linalg.norm(result.x), rtol=1e-5)


@pytest.mark.parametrize("damp", [0.0, 0.3])
def test_iterates_are_those_of_scipy(rng, damp):
    A = with_singular_values(rng, (40, 25), np.geomspace(1.0, 50.0, 25), np.float64)
    b = rng.standard_normal(40)
    for steps in (1, 2, 9):
        options = {"atol": 0.0, "btol": 0.0, "conlim": 0.0}
        ours = lsqr(A, b, damp, iter_lim=steps, calc_var=True, **options)
        theirs = spla.lsqr(A, b, damp, iter_lim=steps, calc_var=True, **options)
        # SciPy's r1norm takes ‖x‖ of the step before, its anorm leaves out the first alpha
        for k in (0, 1, 2, 4, 7, 9) if damp else (0, 1, 2, 3, 4, 7, 9):
            np.testing.assert_allclose(ours[k], theirs[k], rtol=1e-9, err_msg=f"{steps} {k}")
        ours = lsmr(A, b, damp, maxiter=steps, **options)
        theirs = spla.lsmr(A, b, damp, maxiter=steps, **options)
        for k in (0, 1, 2, 4, 7):
            np.testing.assert_allclose(ours[k], theirs[k], rtol=1e-9, err_msg=f"{steps} {k}")


@pytest.mark.parametrize("method", METHODS)
def test_the_least_solution_of_a_rank_deficient_matrix(rng, dtype, method):
    A = with_singular_values(rng, (30, 20), np.linspace(1.0, 4.0, 8), dtype)
    b = random_array(rng, (30,), dtype)
    single = np.finfo(dtype).eps > 1e-10
    result = solve(method, A, b, conlim=0, atol=1e-5 if single else 1e-12, btol=0.0)
    assert result.converged
    expected = np.linalg.pinv(A.astype(np.result_type(dtype, "f8")), rcond=1e-4) @ b
    np.testing.assert_allclose(result.x, expected, atol=1e-3 if single else 1e-10)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("batched", ["columns", "leading"])
def test_many_right_hand_sides(rng, dtype, method, batched):
    A = with_singular_values(rng, (30, 20), np.geomspace(1.0, 20.0, 20), dtype)
    columns = random_array(rng, (30, 6), dtype)
    columns[:, 2] = 0
    columns[:, 3] = A @ random_array(rng, (20,), dtype)
    b = columns if batched == "columns" else columns.T.reshape(2, 3, 30)
    result = solve(method, A, b, batched=batched, **limits(dtype))
    assert result.converged.all()
    x = result.x if batched == "columns" else result.x.reshape(6, 20).T
    assert result.x.shape == ((20, 6) if batched == "columns" else (2, 3, 20))
    assert result.istop.shape == ((6,) if batched == "columns" else (2, 3))
    single = np.finfo(dtype).eps > 1e-10
    np.testing.assert_allclose(x, dense_solution(A, columns), atol=1e-3 if single else 1e-10)
    assert result.istop.ravel()[2] == 0
    assert result.itn.ravel()[2] == 0
    for k in (0, 3):
        alone = solve(method, A, columns[:, k], **limits(dtype))
        assert abs(alone.itn - result.itn.ravel()[k]) <= 3


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "scales", [(1e200, 1e200), (1e-200, 1e-200), (1e200, 1e-90), (1e-90, 1e150)]
)
def test_extreme_scales(rng, method, scales):
    A = with_singular_values(rng, (30, 20), np.linspace(1.0, 4.0, 20), np.float64)
    b = rng.standard_normal(30)
    result = solve(method, scales[0] * A, scales[1] * b, atol=1e-12)
    assert result.istop == 2
    expected = dense_solution(A, b) * (scales[1] / scales[0])
    np.testing.assert_allclose(result.x, expected, rtol=1e-7)
    damped = solve(method, scales[0] * A, scales[1] * b, 0.5 * scales[0], atol=1e-12)
    expected = dense_solution(A, b, 0.5) * (scales[1] / scales[0])
    np.testing.assert_allclose(damped.x, expected, rtol=1e-7)


@pytest.mark.parametrize("method", METHODS)
def test_all_kinds_of_operators(rng, method):
    A = bk.KroneckerProduct(random_array(rng, (6, 4), np.complex128), rng.standard_normal((5, 3)))
    dense = A.to_dense()
    b = random_array(rng, (30,), np.complex128)
    counted = []
    expected = dense_solution(dense, b)

    def multiply(matrix, x):
        counted.append(1)
        return matrix @ x

    wrapped = spla.LinearOperator(
        (30, 12),
        matvec=lambda x: multiply(dense, x),
        rmatvec=lambda x: multiply(dense.conj().T, x),
        dtype=dense.dtype,
    )
    for given in (A, dense, scipy.sparse.csr_array(dense), wrapped):
        result = solve(method, given, b, atol=1e-12)
        np.testing.assert_allclose(result.x, expected, atol=1e-9)
        assert result.products == 2 * result.itn + 3  # the first A* b, and the true residuals
    assert len(counted) == result.products
    np.testing.assert_allclose(
        solve(method, A, b[:, None], atol=1e-12).x.ravel(), expected, atol=1e-9
    )


@pytest.mark.parametrize("method", METHODS)
def test_a_guess(rng, method):
    A = with_singular_values(rng, (20, 30), np.linspace(1.0, 2.0, 20), np.float64)
    b, x0 = rng.standard_normal(20), rng.standard_normal(30)
    result = solve(method, A, b, x0=x0, atol=0.0, btol=1e-12)
    np.testing.assert_allclose(result.x, x0 + np.linalg.pinv(A) @ (b - A @ x0), atol=1e-9)
    damped = solve(method, A, b, 0.4, x0=x0, atol=1e-12)
    np.testing.assert_allclose(damped.x, x0 + dense_solution(A, b - A @ x0, 0.4), atol=1e-9)
    exact = A @ x0
    again = solve(method, A, exact, x0=x0)
    assert again.itn == 0
    np.testing.assert_array_equal(again.x, x0)


@pytest.mark.parametrize("method", METHODS)
def test_why_it_stops(rng, method):
    A = with_singular_values(rng, (40, 30), np.geomspace(1e-7, 1.0, 30), np.float64)
    b = rng.standard_normal(40)
    assert solve(method, A, b, maxiter=3).istop == 7
    assert not solve(method, A, b, maxiter=3).converged
    assert solve(method, A, b, atol=0, btol=0, conlim=100.0).istop == 3
    assert solve(method, A, np.zeros(40)).istop == 0
    left = np.linalg.svd(A)[0][:, 35]  # orthogonal to the range
    assert abs(solve(method, A, left).x).max() < 1e-8
    assert solve(method, A, np.where(np.arange(40) == 3, np.nan, b)).istop == 9
    assert solve(method, np.where(A[3, 3] == A, np.inf, A), b).istop == 9
    assert solve(method, np.zeros((4, 3)), np.ones(4)).istop == 0
    with pytest.raises(RuntimeError, match=r"istop = \[7\]"):
        solve(method, A, b, maxiter=3, raise_on_failure=True)


@pytest.mark.parametrize("method", METHODS)
def test_arrays_of_other_libraries(rng, method):
    A, b = rng.standard_normal((12, 5)), rng.standard_normal(12)
    result = method(strict.asarray(A), strict.asarray(b), atol=1e-12)
    assert isinstance(result.x, type(strict.asarray(b)))
    np.testing.assert_allclose(np.asarray(result.x), dense_solution(A, b), atol=1e-9)
    with pytest.raises(TypeError, match="kind"):
        method(A, strict.asarray(b))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"b": np.ones(5)}, ValueError, "b has vectors of 5 entries; expected 6"),
        ({"b": np.ones((6, 2))}, ValueError, "batched='columns'"),
        ({"A": np.ones((2, 6, 3))}, ValueError, "expected one operator"),
        ({"A": np.ones((6, 3)) + 1j}, None, ""),
        ({"A": bk.KroneckerProduct([np.ones((2, 3, 3))])}, ValueError, "expected one operator"),
        ({"A": lambda x: x}, ValueError, "A has shape"),
        ({"x0": np.ones(4)}, ValueError, "x0 has shape"),
        ({"damp": 1j}, ValueError, "damp is 1j"),
        ({"damp": -1.0}, ValueError, "damp is -1"),
        ({"atol": np.nan}, ValueError, "atol is nan"),
        ({"btol": -1}, ValueError, "btol is -1"),
        ({"conlim": np.inf}, ValueError, "conlim is inf"),
        ({"batched": "rows"}, ValueError, "batched is 'rows'"),
        ({"maxiter": -1}, ValueError, "iterations is -1"),
    ],
)
def test_bad_arguments(method, change, error, text):
    given = {"A": np.ones((6, 3)), "b": np.ones(6), **change}
    if error is None:
        solve(method, **given)
        return
    with pytest.raises(error, match=text):
        solve(method, **given)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("damp", [0.0, 0.5])
def test_right_sides_that_are_nothing_beside_the_start(rng, method, damp):
    A = rng.standard_normal((9, 4))
    b, x0 = np.stack([np.zeros(9), np.full(9, 1e-320), rng.standard_normal(9)]), np.ones((3, 4))
    found = method(A, b, damp, atol=1e-12, btol=1e-12, x0=x0, batched="leading")
    assert found.converged.all()
    expected = [x0[0] + dense_solution(A, side - A @ x0[0], damp) for side in b]
    np.testing.assert_allclose(found.x, expected, atol=1e-10)


@pytest.mark.parametrize("method", METHODS)
def test_systems_without_equations(method):
    assert not method(np.zeros((0, 3)), np.zeros(0)).x.any()
    assert method(np.zeros((0, 3)), np.zeros((2, 0)), batched="leading").x.shape == (2, 3)
    assert expm_multiply(np.zeros((0, 0)), np.zeros((0, 2))).shape == (0, 2)
    with pytest.raises(TypeError, match="t is 1j; expected a real number"):
        phi_multiply(np.eye(2), [np.ones(2)], 1j)


@pytest.mark.parametrize("method", METHODS)
def test_complex_products_of_a_real_system_are_refused(method):
    A = spla.LinearOperator((2, 2), lambda v: 1j * v, rmatvec=lambda v: -1j * v, dtype=float)
    with pytest.raises(TypeError, match="a product of A has dtype complex128"):
        method(A, np.ones(2))
