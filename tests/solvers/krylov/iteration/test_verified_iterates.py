"""Solves that do not converge return nothing worse than the guess, and its true residual."""

import itertools

import numpy as np
import pytest
import scipy.sparse.linalg as scipy_linalg
from dense_oracle import DTYPES

from batchkron import solvers
from batchkron.solvers import Status, bicgstab, block_cg, block_gmres, cg, fgmres, gmres, minres

METHODS = [cg, bicgstab, minres, gmres, fgmres]


def eps_of(dtype):
    return float(np.finfo(dtype).eps)


def neumann(size):
    """The second difference with a null space of constants."""
    A = 2.0 * np.eye(size) - np.eye(size, k=1) - np.eye(size, k=-1)
    A[0, 0] = A[-1, -1] = 1.0
    return A


def least_residual(A, b):
    return np.linalg.norm(b - A @ (np.linalg.pinv(A, rcond=1e-4) @ b))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("preconditioned", [False, True])
@pytest.mark.parametrize("scale", [1.0, 1e-30, 1e30])
def test_minres_finds_a_least_squares_solution(dtype, preconditioned, scale):
    """The null space is the first unit vector, and b has a share of 1 in it."""
    A, b = np.diag(scale * np.arange(20.0)).astype(dtype), np.ones(20, dtype)
    M = np.diag(1.0 + np.arange(20.0) % 3).astype(dtype) if preconditioned else None
    result = minres(A, b, M=M)
    assert result.status is Status.LEAST_SQUARES
    assert not result.converged
    assert result.info == result.iterations <= 25
    assert result.residual_norm == pytest.approx(1.0, rel=1e3 * eps_of(dtype))
    assert result.residual_norms[-1] == result.residual_norm
    x, exact = result.x[1:].astype(complex) * scale, 1 / np.arange(1.0, 20.0)
    np.testing.assert_allclose(x, exact, rtol=100 * eps_of(dtype) ** 0.5)


@pytest.mark.parametrize("seed", [1, 14, 19, 29, 149])  # in all but 1 rounding matters
@pytest.mark.parametrize("size", [10, 50])
@pytest.mark.parametrize("share", [1.0, 1e-3])
def test_minres_of_a_neumann_problem_with_a_mean(size, share, seed):
    rng = np.random.default_rng(seed)
    A = np.kron(neumann(size), np.eye(3)) + np.kron(np.eye(size), neumann(3))
    b = rng.standard_normal(3 * size)
    b += share - b.mean()
    result = minres(A, b, rtol=1e-8)
    assert result.status is Status.LEAST_SQUARES
    assert result.residual_norm == pytest.approx(share * np.sqrt(3 * size), rel=1e-9)
    b -= b.mean()
    assert minres(A, b, rtol=1e-8).converged


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_history_of_minres_is_true_to_the_end(rng, dtype):
    values = np.concatenate([np.zeros(5), np.linspace(1.0, 30.0, 40), -np.linspace(1.0, 5.0, 15)])
    basis = np.linalg.qr(rng.standard_normal((60, 60)))[0]
    A, b, seen = ((basis * values) @ basis.T).astype(dtype), rng.standard_normal(60), []
    b, wide = b.astype(dtype), A.astype(float)
    result = minres(A, b, callback=lambda x: seen.append(np.linalg.norm(b - wide @ x)))
    assert result.status is Status.LEAST_SQUARES
    np.testing.assert_allclose(result.residual_norms[1:], seen, rtol=1e4 * eps_of(dtype))
    assert (np.diff(result.residual_norms) <= 1e3 * eps_of(dtype) * result.residual_norm).all()
    assert result.residual_norm == pytest.approx(least_residual(wide, b), rel=eps_of(dtype) ** 0.5)


def test_systems_of_minres_end_by_themselves(rng):
    A, b = np.diag(np.arange(20.0)), np.ones((4, 20))
    b[1, 0], b[2, 0], b[3, 1:] = 0.0, 1e-3, 0.0
    result = minres(A, b, batched="leading")
    assert [str(status) for status in result.statuses] == [
        "least-squares",
        "converged",
        "least-squares",
        "least-squares",
    ]
    np.testing.assert_allclose(result.residual_norm[[0, 2, 3]], [1.0, 1e-3, 1.0], rtol=1e-6)
    assert result.status is Status.LEAST_SQUARES
    assert result.info > 0
    assert "null space" in result.status.advice


def test_minres_takes_steps_that_gain_nothing():
    """A has the eigenvalues ±1: the first step is zero, the second one solves."""
    A = np.kron(np.eye(3), np.array([[0.0, 1.0], [1.0, 0.0]]))
    result = minres(A, np.array([1.0, 0.0, 2.0, 0.0, 3.0, 0.0]))
    assert result.converged
    assert result.iterations == 2


@pytest.mark.parametrize("condition", [1e4, 1e8, 1e10])
def test_regular_systems_are_no_least_squares_problems(rng, condition):
    values = np.logspace(0, np.log10(condition), 60) * np.where(np.arange(60) % 3, 1, -1)
    basis = np.linalg.qr(rng.standard_normal((60, 60)))[0]
    A = (basis * values) @ basis.T
    for b in (A @ rng.standard_normal(60), rng.standard_normal(60)):
        result = minres(A, b, maxiter=300)
        assert result.status in (Status.CONVERGED, Status.MAX_ITERATIONS)


def hostile(name):
    """A matrix on which a method's last residual may be larger than its first."""
    if name == "indefinite":
        return np.diag(np.concatenate([np.linspace(-3.0, -0.01, 7), np.linspace(0.02, 9.0, 13)]))
    if name == "skew":
        half = np.triu(np.random.default_rng(3).standard_normal((20, 20)), 1)
        return half - half.T + 1e-3 * np.diag(np.arange(20.0))
    if name == "singular":
        basis = np.linalg.qr(np.random.default_rng(4).standard_normal((20, 20)))[0]
        return (basis * np.arange(20.0)) @ basis.T
    if name == "jordan":
        return np.diag(np.full(20, 0.1)) + np.eye(20, k=1)
    return np.diag(np.arange(20.0))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", ["indefinite", "skew", "singular", "jordan", "diagonal"])
@pytest.mark.parametrize("maxiter", [1, 2, 5, 19, None])
def test_no_iterate_is_worse_than_the_first(method, name, maxiter):
    rng, A = np.random.default_rng(5), hostile(name)
    b = rng.standard_normal(20)
    for x0 in (None, 3.0 * rng.standard_normal(20)):
        first = np.linalg.norm(b if x0 is None else b - A @ x0)
        result = method(A, b, x0, maxiter=maxiter, rtol=1e-9)
        true = np.linalg.norm(b - A @ result.x)
        assert result.residual_norm <= first * (1 + 1e-14)
        assert result.residual_norm == pytest.approx(true, rel=1e-9, abs=1e-12)
        assert len(result.residual_norms) == result.iterations + 1
        if not result.converged:
            assert result.residual_norms[-1] == result.residual_norm


@pytest.mark.parametrize("method", METHODS)
def test_nor_is_any_of_many_systems(method):
    """No system of a batch ends with a larger residual than it began with."""
    rng = np.random.default_rng(6)
    names = ["indefinite", "skew", "singular", "jordan", "diagonal"]
    A = np.stack([hostile(name) for name in names] + [np.diag(np.linspace(1.0, 2.0, 20))])
    b, x0 = rng.standard_normal((2, 6, 20))
    for guess in (None, x0):
        first = np.linalg.norm(b if guess is None else b - (A @ guess[..., None])[..., 0], axis=1)
        result = method(A, b, guess, maxiter=18, batched="leading")
        true = np.linalg.norm(b - (A @ result.x[..., None])[..., 0], axis=1)
        assert (result.residual_norm <= first * (1 + 1e-14)).all()
        np.testing.assert_allclose(result.residual_norm, true, rtol=1e-9, atol=1e-12)
        assert result.statuses[5] is Status.CONVERGED
        for k, status in enumerate(result.statuses):
            if status is not Status.CONVERGED:
                assert result.residual_norms[result.iterations[k], k] == result.residual_norm[k]
        one = out_of(method, A, b, guess)
        np.testing.assert_array_equal(one, result.x)


def out_of(method, A, b, guess):
    """The solution by the method's class, in an array of the caller."""
    out = np.full(b.shape, np.nan)
    solver = getattr(solvers, method.__name__.capitalize())(20, batched="leading")
    assert solver.solve(A, b, guess, maxiter=18, out=out).x is out
    return out


@pytest.mark.parametrize("method", [block_cg, block_gmres])
@pytest.mark.parametrize("name", ["indefinite", "skew", "singular", "jordan", "diagonal"])
def test_nor_is_any_column_of_a_block(method, name):
    """No column of a block method ends with a larger residual than it began with."""
    rng, A = np.random.default_rng(7), hostile(name)
    b, x0 = rng.standard_normal((2, 20, 3))
    for guess in (None, x0):
        first = np.linalg.norm(b if guess is None else b - A @ guess, axis=0)
        result = method(A, b, guess)
        assert (result.residual_norm <= first * (1 + 1e-14)).all()
        true = np.linalg.norm(b - A @ result.x, axis=0)
        rounding = 20 * np.finfo(float).eps * np.linalg.norm(np.abs(A) @ np.abs(result.x), axis=0)
        assert (np.abs(result.residual_norm - true) <= 1e-9 * true + 1e-12 + rounding).all()
        for k in np.flatnonzero(result.statuses != Status.CONVERGED):
            assert result.residual_norms[result.iterations[k], k] == result.residual_norm[k]


def turning(A, good):
    """An operator that multiplies ``good`` times by A, and from then on, wrongly, by -3 A."""
    calls = itertools.count()
    return scipy_linalg.LinearOperator(
        A.shape, matvec=lambda x: (A @ x) * (1.0 if next(calls) < good else -3.0), dtype=float
    )


@pytest.mark.parametrize("method", [cg, minres, bicgstab])
def test_the_best_of_several_recursions_is_returned(method):
    """The first recursion ends near rounding; after it, products are wrong."""
    rng = np.random.default_rng(1)  # with a few other seeds, norms of b differ by rounding
    A, b = np.diag(np.linspace(1.0, 3.0, 30)), rng.standard_normal(30)
    counted = method(A, b, rtol=1e-17)
    assert counted.restarts > 0
    until = counted.applications
    for good in (until // 2, until - 3, until - 2):
        result = method(turning(A, good), b, np.zeros(30), rtol=1e-17)
        assert not result.converged
        assert result.residual_norm <= np.linalg.norm(b)
    # the last one went wrong after the first recursion's end
    assert result.restarts > 0
    assert np.linalg.norm(b - A @ result.x) <= 1e-13 * np.linalg.norm(b)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_products_that_stay_bad_leave_the_guess(rng, method, bad):
    """No residual can be computed any more: the guess is what is known."""
    A, b, x0 = np.diag(np.linspace(1.0, 3.0, 30)), rng.standard_normal(30), np.full(30, 0.3)
    calls = itertools.count()

    def failing(x):
        return A @ x if next(calls) < 6 else np.full(30, bad)

    operator = scipy_linalg.LinearOperator((30, 30), matvec=failing, dtype=float)
    result = method(operator, b, x0, rtol=1e-12)
    assert result.status is Status.NOT_FINITE
    np.testing.assert_array_equal(result.x, x0)
    assert result.residual_norm == pytest.approx(np.linalg.norm(b - A @ x0))
    assert result.residual_norms[-1] == result.residual_norm


def test_the_guess_mb_is_formed_again(rng):
    values = np.concatenate([np.linspace(-3.0, -0.01, 7), np.linspace(0.02, 9.0, 13)])
    b, M = rng.standard_normal(20), np.diag(1 / np.abs(values))
    result = cg(np.diag(values), b, "Mb", M=M)
    assert result.status is Status.INDEFINITE
    np.testing.assert_array_equal(result.x, M @ b)
    assert result.preconditioner_applications >= 2
