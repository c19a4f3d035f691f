"""Conjugate gradients and BiCGSTAB against SciPy's, and every way they can stop."""

import itertools
import tracemalloc
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse.linalg as scipy_linalg

from batchkron.operators import Diagonal
from batchkron.solvers import Bicgstab, Cg, Status, bicgstab, cg, evolve, gmres

METHODS = [cg, bicgstab]
SCIPY = {cg: scipy_linalg.cg, bicgstab: scipy_linalg.bicgstab}


def hermitian(rng, size, dtype=np.float64, condition=100.0):
    """A Hermitian matrix with eigenvalues from 1 to ``condition``."""
    columns = rng.standard_normal((size, size))
    if np.dtype(dtype).kind == "c":
        columns = columns + 1j * rng.standard_normal((size, size))
    orthogonal = np.linalg.qr(columns)[0]
    return ((orthogonal * np.linspace(1, condition, size)) @ orthogonal.conj().T).astype(dtype)


def general(rng, size):
    return 4.0 * np.eye(size) + rng.standard_normal((size, size)) / np.sqrt(size)


def relative_residual(A, x, b):
    return np.linalg.norm(b - A @ x) / np.linalg.norm(b)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("guess", [False, True])
def test_agrees_with_scipy(method, guess):
    rng = np.random.default_rng(1)
    A, b = hermitian(rng, 60), rng.standard_normal(60)
    x0 = rng.standard_normal(60) if guess else None
    count = itertools.count()
    expected, info = SCIPY[method](A, b, x0, rtol=1e-9, callback=lambda _: next(count))
    result = method(A, b, x0, rtol=1e-9)
    assert (info, result.status) == (0, Status.CONVERGED)
    assert abs(result.iterations - next(count)) <= 0.2 * result.iterations
    np.testing.assert_allclose(result.x, expected, atol=1e-7)
    assert result.residual_norm <= 1e-9 * np.linalg.norm(b)
    assert result.residual_norm == pytest.approx(np.linalg.norm(b - A @ result.x), rel=1e-3)
    assert result.residual_norms.shape == (result.iterations + 1,)


def test_bicgstab_solves_a_nonsymmetric_system():
    rng = np.random.default_rng(2)
    A, b = general(rng, 80), rng.standard_normal(80)
    result = bicgstab(A, b, rtol=1e-10)
    assert result.converged
    np.testing.assert_allclose(result.x, np.linalg.solve(A, b), atol=1e-8)
    assert result.restarts == 0
    assert result.applications - 2 * result.iterations in (0, 1)  # the last may be half a step


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])
def test_dtypes(method, dtype):
    rng = np.random.default_rng(3)
    A, b = hermitian(rng, 40, dtype, 20.0), rng.standard_normal(40).astype(dtype)
    if np.dtype(dtype).kind == "c":
        b = b + 1j * rng.standard_normal(40).astype(b.real.dtype)
    rtol = 100 * float(np.finfo(dtype).eps)
    result = method(A, b, rtol=rtol)
    assert result.converged
    assert result.x.dtype == dtype
    wide = np.result_type(dtype, np.float64)
    assert relative_residual(A.astype(wide), result.x.astype(wide), b.astype(wide)) < 3 * rtol


@pytest.mark.parametrize("method", METHODS)
def test_preconditioner_reduces_iterations(method):
    rng = np.random.default_rng(4)
    scales = np.logspace(0, 2, 60)
    A = scales[:, None] * hermitian(rng, 60, condition=4.0) * scales
    b, M = rng.standard_normal(60), np.diag(scales**-2)
    plain, better = method(A, b), method(A, b, M=M)
    assert better.converged
    assert 2 * better.iterations < plain.iterations
    assert relative_residual(A, better.x, b) <= 1e-5


@pytest.mark.parametrize("method", METHODS)
def test_inputs_are_not_modified(method):
    rng = np.random.default_rng(5)
    arrays = [hermitian(rng, 20), rng.standard_normal(20), rng.standard_normal(20), np.eye(20)]
    kept = [a.copy() for a in arrays]
    for a in arrays:
        a.flags.writeable = False
    A, b, x0, M = arrays
    result = method(A, b, x0, M=M)
    assert all(np.array_equal(a, k) for a, k in zip(arrays, kept, strict=True))
    assert not any(np.shares_memory(result.x, a) for a in (b, x0))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("size", [0, 1, 2, 5])
def test_small_systems(method, size):
    rng = np.random.default_rng(6)
    A, b = hermitian(rng, size, condition=3.0), rng.standard_normal(size)
    result = method(A, b, rtol=1e-12)
    assert result.converged
    np.testing.assert_allclose(result.x, np.linalg.solve(A, b), atol=1e-10)


@pytest.mark.parametrize("method", METHODS)
def test_zero_right_hand_side(method):
    result = method(np.eye(3), np.zeros(3), np.ones(3))
    assert (result.info, result.iterations) == (0, 0)
    np.testing.assert_array_equal(result.x, 0.0)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("place", ["b", "x0", "A", "M"])
def test_not_finite(method, bad, place):
    rng = np.random.default_rng(7)
    parts = {
        "A": hermitian(rng, 10),
        "b": rng.standard_normal(10),
        "x0": rng.standard_normal(10),
        "M": np.eye(10),
    }
    parts[place].flat[3] = bad
    result = method(**parts)
    assert (result.status, result.info) == (Status.NOT_FINITE, -2)


@pytest.mark.parametrize("method", METHODS)
def test_overflow_in_the_operator_keeps_the_last_iterate(method):
    rng = np.random.default_rng(8)
    A, b = hermitian(rng, 30), rng.standard_normal(30)
    calls = itertools.count()

    def failing(x):
        return np.full(30, np.inf) if next(calls) == 7 else A @ x

    operator = scipy_linalg.LinearOperator((30, 30), matvec=failing, dtype=np.float64)
    result = method(operator, b, rtol=1e-14)
    assert result.status is Status.NOT_FINITE
    assert result.residual_norm == pytest.approx(np.linalg.norm(b - A @ result.x))
    assert result.residual_norm < np.linalg.norm(b)


@pytest.mark.parametrize("method", METHODS)
def test_maxiter(method):
    rng = np.random.default_rng(9)
    A, b = hermitian(rng, 50), rng.standard_normal(50)
    result = method(A, b, rtol=1e-12, maxiter=7)
    assert result.status is Status.MAX_ITERATIONS
    assert result.iterations == result.info == 7
    np.testing.assert_allclose(result.x, SCIPY[method](A, b, rtol=1e-12, maxiter=7)[0], atol=1e-9)


@pytest.mark.parametrize("method", METHODS)
def test_tolerance_below_rounding_stagnates(method):
    rng = np.random.default_rng(10)
    A, b = hermitian(rng, 50), rng.standard_normal(50)
    result = method(A, b, rtol=1e-19, maxiter=100_000)
    assert result.status in (Status.STAGNATED, Status.BREAKDOWN)
    assert result.residual_norm <= 1e-13 * np.linalg.norm(b)


@pytest.mark.parametrize("method", METHODS)
def test_ill_conditioned_systems_are_never_reported_converged_wrongly(method):
    size = 20
    A = 1.0 / (np.arange(size)[:, None] + np.arange(size) + 1.0)
    b = np.ones(size)
    seen = set()
    for rtol in (1e-1, 1e-4, 1e-8, 1e-12, 1e-15):
        result = method(A, b, rtol=rtol)
        assert result.converged == (relative_residual(A, result.x, b) <= rtol)
        seen.add(result.converged)
    assert seen == {True, False}


@pytest.mark.parametrize(
    ("A", "M"), [(np.diag([1.0, -2.0, 3.0]), None), (np.eye(3), np.diag([1.0, -5.0, 1.0]))]
)
def test_cg_finds_indefinite_operators(A, M):
    result = cg(A, np.ones(3), M=M)
    assert (result.status, result.info) == (Status.INDEFINITE, -3)
    assert "gmres" in result.status.advice


@pytest.mark.parametrize("method", METHODS)
def test_singular_operators(method):
    inconsistent = method(np.diag([1.0, 2.0, 0.0]), np.ones(3))
    assert not inconsistent.converged
    assert inconsistent.residual_norm >= 1.0 - 1e-12
    consistent = method(np.diag([1.0, 2.0, 0.0]), np.array([1.0, 1.0, 0.0]), rtol=1e-12)
    assert consistent.converged
    assert method(np.zeros((3, 3)), np.ones(3)).status is Status.BREAKDOWN


def test_bicgstab_breaks_down_on_a_rotation_where_gmres_does_not():
    A, b = np.array([[0.0, 1.0], [-1.0, 0.0]]), np.array([1.0, 2.0])
    result = bicgstab(A, b)
    assert (result.status, result.info) == (Status.BREAKDOWN, -1)
    assert gmres(A, b).converged


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("of_matrix", "of_b"),
    [(a, b) for a in (1e-200, 1.0, 1e200) for b in (1e-200, 1.0, 1e200) if 1e-300 < b / a < 1e300],
)
def test_scaling(method, of_matrix, of_b):
    rng = np.random.default_rng(11)
    A, b = hermitian(rng, 30, condition=10.0), rng.standard_normal(30)
    plain, scaled = method(A, b, rtol=1e-10), method(A * of_matrix, b * of_b, rtol=1e-10)
    assert scaled.converged
    assert abs(scaled.iterations - plain.iterations) <= 1
    np.testing.assert_allclose(scaled.x * (of_matrix / of_b), plain.x, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("method", METHODS)
def test_callback_sees_the_iterate(method):
    rng = np.random.default_rng(12)
    A, b = hermitian(rng, 30), rng.standard_normal(30)
    seen = []

    def callback(x):
        assert not x.flags.writeable
        seen.append(x.copy())

    result = method(A, b, callback=callback)
    assert len(seen) == result.iterations
    np.testing.assert_array_equal(seen[-1], result.x)
    expected = []
    SCIPY[method](A, b, callback=lambda x: expected.append(x.copy()))
    np.testing.assert_allclose(seen[2], expected[2], atol=1e-10)


@pytest.mark.parametrize("workspace", [Cg, Bicgstab])
def test_workspace_is_reusable_and_allocates_no_vector(workspace):
    size = 20_000
    diagonal = np.linspace(1.0, 3.0, size)

    class Diagonal:
        shape, dtype = (size, size), np.dtype(np.float64)

        def matvec(self, x, out=None):
            return np.multiply(diagonal, x, out=out)

    b, out = np.cos(np.arange(size)), np.empty(size)
    solver = workspace(size)
    solver.solve(Diagonal(), b, out=out, M=Diagonal())
    out.fill(np.nan)
    tracemalloc.start()
    result = solver.solve(Diagonal(), b, out=out)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert result.x is out
    assert peak < out.nbytes / 4
    np.testing.assert_allclose(out, b / diagonal, atol=1e-3)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"A": np.ones((3, 4))}, ValueError, r"A has shape \(3, 4\)"),
        ({"b": np.ones((3, 2))}, ValueError, r"b has shape \(3, 2\)"),
        ({"x0": np.ones(4)}, ValueError, r"x0 has shape \(4,\)"),
        ({"rtol": -1.0}, ValueError, "rtol is -1.0"),
        ({"maxiter": 0}, ValueError, "maxiter is 0"),
        ({"A": "matrix"}, TypeError, "A is a str"),
    ],
)
def test_wrong_arguments(method, change, error, text):
    with pytest.raises(error, match=text):
        method(**{"A": 2 * np.eye(3), "b": np.ones(3), **change})


@pytest.mark.parametrize("method", METHODS)
def test_raise_on_failure(method):
    with pytest.raises(RuntimeError, match="status 'breakdown'"):
        method(np.zeros((2, 2)), np.ones(2), raise_on_failure=True)


@pytest.mark.parametrize("name", ["gmres", "fgmres", "cg", "minres", "bicgstab"])
def test_steppers_solve_with_each(name):
    size = 30
    second = np.diag(np.ones(size - 1), 1) + np.diag(np.ones(size - 1), -1) - 2.0 * np.eye(size)

    class Diffusion:
        operator = 50.0 * second
        initial = np.sin(np.arange(size))

        def rhs(self, t, u, out):
            np.dot(self.operator, u, out=out)

    result = evolve(Diffusion(), until=0.1, dt=0.01, method="crank-nicolson", solver=name)
    exact = np.linalg.matrix_power(
        np.linalg.solve(np.eye(size) - 0.25 * second, np.eye(size) + 0.25 * second), 10
    )
    np.testing.assert_allclose(result.u, exact @ Diffusion.initial, atol=1e-8)


@pytest.mark.parametrize("size", [30, 40_000])
def test_products_are_read_where_the_operator_leaves_them(size):
    """An operator may return a new array, always the same one, a strided one, a column or x."""
    rng = np.random.default_rng(8)
    d, b = np.linspace(1.0, 5.0, size), rng.standard_normal(size)
    kept, wide = np.empty(size), np.full((size, 2), np.nan)

    def in_one_array(x):
        return np.multiply(d, x, out=kept)

    def in_a_column(x):
        wide[:, 0] = d * x
        return wide[:, 0]

    shape, dtype = (size, size), np.dtype(float)
    for product in (lambda x: d * x, in_one_array, in_a_column, lambda x: (d * x)[:, None]):
        operator = SimpleNamespace(shape=shape, dtype=dtype, matvec=product)
        solver = Cg(size)
        for _ in range(2):
            result = solver.solve(operator, b, rtol=1e-10)
            assert result.converged
            np.testing.assert_allclose(result.x, b / d, rtol=1e-6)
        np.testing.assert_allclose(solver.solve(Diagonal(d), b, rtol=1e-10).x, b / d, rtol=1e-6)
    identity = SimpleNamespace(shape=shape, dtype=dtype, matvec=lambda x: x)
    np.testing.assert_allclose(cg(identity, b).x, b)


def upwind(size, speed):
    """Advection and diffusion in two dimensions."""
    step = 1 / (size + 1)
    second = 2 * np.eye(size) - np.eye(size, k=1) - np.eye(size, k=-1)
    first = 0.5 * speed * step * (np.eye(size, k=1) - np.eye(size, k=-1))
    eye = np.eye(size)
    return np.kron(second + first, eye) + np.kron(eye, second + 2 * first)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
@pytest.mark.parametrize("speed", [1.0, 40.0])
def test_bicgstab_keeps_to_the_true_residual(dtype, speed):
    """Rounding errors of a large first residual spoil the recursive one once it is small."""
    rng = np.random.default_rng(5)
    A = upwind(20, speed).astype(dtype)
    b, guess = rng.standard_normal((2, 400)).astype(dtype)
    single = dtype == "float32"
    rtol = 1e-5 if single else 1e-11
    result = bicgstab(A, b, guess * (1e4 if single else 1e8), rtol=rtol)
    assert result.converged
    assert result.restarts == 0  # the recursion went on from each true residual,
    assert result.applications > 2 * result.iterations + 1  # for which A was applied
    true = np.linalg.norm(b.astype("D") - A.astype("D") @ result.x.astype("D"))
    assert true <= 1.5 * rtol * np.linalg.norm(b)
    np.testing.assert_allclose(result.residual_norms[-1], true, rtol=0.25)
    usual = bicgstab(A, b, rtol=rtol)
    assert usual.converged
    assert usual.applications <= 2 * usual.iterations + 3


def test_bicgstab_replaces_residuals_in_a_batch():
    """A system whose residual is replaced waits for the others, and goes on as it does alone."""
    rng = np.random.default_rng(6)
    A = np.stack([upwind(8, 1.0), upwind(8, 30.0), np.diag(np.linspace(1.0, 9.0, 64))])
    b, guess = rng.standard_normal((3, 64)), rng.standard_normal((3, 64))
    guess *= np.array([[1e7], [1.0], [1e3]])
    result = bicgstab(A, b, guess, rtol=1e-10, batched="leading")
    assert result.converged
    for k in range(3):
        alone = bicgstab(A[k], b[k], guess[k], rtol=1e-10)
        assert abs(result.iterations[k] - alone.iterations) <= 2
        assert result.restarts[k] == alone.restarts
        np.testing.assert_allclose(A[k] @ result.x[k], b[k], atol=1e-8)
