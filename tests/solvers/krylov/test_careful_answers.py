"""Extreme inputs of solvers: no wrong answer is reported as converged."""

import numpy as np
import pytest

import batchkron as bk
from batchkron import solvers
from batchkron.solvers import preconditioners

METHODS = ("cg", "minres", "bicgstab", "gmres", "fgmres")
CLASSES = ("Cg", "Minres", "Bicgstab", "Gmres", "Fgmres")


@pytest.mark.parametrize("method", METHODS)
def test_a_residual_that_is_tiny_beside_b_is_measured(method):
    A, b = np.diag([1.0, 3.0, 7.0]), np.array([1e200, 1.0, 1.0])
    result = getattr(solvers, method)(A, b, rtol=0.0, atol=1e-5)
    assert result.converged == (np.linalg.norm(b - A @ result.x) <= 1e-5)
    assert result.residual_norm == pytest.approx(np.linalg.norm(b - A @ result.x))


@pytest.mark.parametrize("method", METHODS)
def test_a_residual_that_is_tiny_beside_the_first_one_is_measured(method):
    A, b = np.diag(np.arange(1.0, 21.0)), np.ones(20)
    result = getattr(solvers, method)(A, b, x0=np.full(20, 1e200))
    residual = b - A @ result.x
    size = np.abs(residual).max()
    length = size * np.linalg.norm(residual / size)
    assert result.converged == (length <= 1e-5 * np.linalg.norm(b))


@pytest.mark.parametrize("method", METHODS)
def test_single_precision_loses_more(method):
    n = 100_000
    b = np.full(n, 3e-16, np.float32)
    b[:2] = 1e30, 1.2e-15
    x0 = np.zeros(n, np.float32)
    x0[0] = 1e30
    A = bk.Diagonal(np.ones(n, np.float32))
    result = getattr(solvers, method)(A, b, x0=x0, rtol=0.0, atol=5e-15)
    length = np.linalg.norm((b - result.x).astype(float))
    assert result.converged == (length <= 5e-15)
    assert result.residual_norm == pytest.approx(length, rel=1e-5)


@pytest.mark.parametrize("method", METHODS)
def test_zero_systems_cost_one_product(method):
    result = getattr(solvers, method)(np.eye(3), np.zeros((5, 3)), batched="leading")
    assert result.converged
    assert result.applications == 1


BLOCK_METHODS = ("block_cg", "block_gmres")


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("dtype", "fdFD")
@pytest.mark.parametrize("method", [*METHODS, *BLOCK_METHODS])
def test_zero_does_not_solve_what_is_not_finite(method, dtype, value):
    A = np.eye(3, dtype=dtype)
    A[1, 1] = value
    b = np.array([[0.0, 1e-8, 1.0]] * 3, dtype)
    cases = [(0, {}), (0, {"x0": np.ones((3, 1), dtype)}), (1, {"atol": 1e-3}), (2, {"rtol": 1.0})]
    for column, options in cases:
        result = getattr(solvers, method)(A, b[:, column : column + 1], **options)
        assert result.status is solvers.Status.NOT_FINITE
        assert np.isnan(result.residual_norm)


@pytest.mark.parametrize("method", METHODS)
def test_one_zero_system_beside_others_that_are_not_finite(method):
    A = bk.KroneckerProduct([np.array([np.eye(3), np.diag([1.0, np.nan, 1.0])])])
    result = getattr(solvers, method)(A, np.zeros((2, 3)), batched="leading")
    assert list(result.statuses) == [solvers.Status.CONVERGED, solvers.Status.NOT_FINITE]


def test_workspaces_take_any_byte_order():
    result = solvers.Cg(3, ">f8").solve(bk.KroneckerSum([np.diag([1.0, 2.0, 4.0])]), np.ones(3))
    assert result.x == pytest.approx([1.0, 0.5, 0.25])


@pytest.mark.parametrize("method", METHODS)
def test_tiny_residuals_of_many_systems_are_measured(method):
    A, b = np.diag([1.0, 3.0, 7.0]), np.ones((4, 3))
    b[1], b[2, 0] = 0.0, 1e200
    result = getattr(solvers, method)(A, b, rtol=0.0, atol=1e-5, batched="leading")
    residuals = np.linalg.norm(b - result.x @ A, axis=1)
    assert result.residual_norm == pytest.approx(residuals)
    for status, residual in zip(result.statuses, residuals, strict=True):
        assert (status is solvers.Status.CONVERGED) == (residual <= 1e-5)


@pytest.mark.parametrize("name", CLASSES)
def test_a_workspace_is_for_one_solve_at_a_time(name):
    size, b = 4, np.arange(1.0, 5.0)
    solver = getattr(solvers, name)(size)

    class Nested:
        shape, dtype = (size, size), np.dtype(float)

        def matvec(self, x):
            solver.solve(np.eye(size), b)
            return x

    with pytest.raises(RuntimeError, match="solving already"):
        solver.solve(Nested(), b)
    assert solver.solve(2.0 * np.eye(size), b).x == pytest.approx(b / 2)


def test_arguments_are_refused_before_a_solve():
    solver, b = solvers.Gmres(3), np.ones(3)
    read_only = np.empty(3)
    read_only.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        solver.solve(np.eye(3), b, out=read_only)
    with pytest.raises(TypeError, match="out is a list"):
        solver.solve(np.eye(3), b, out=[0.0, 0.0, 0.0])
    with pytest.raises(TypeError, match="callback is a int"):
        solvers.cg(np.eye(3), b, callback=3)
    with pytest.raises(TypeError, match="int32; expected float32"):
        solvers.Gmres(3, "i4")


@pytest.mark.parametrize("scale", [1e160, 1e-200])
@pytest.mark.parametrize("method", ["block_cg", "block_gmres"])
def test_blocks_of_any_scale(rng, method, scale):
    matrix = np.linalg.qr(rng.standard_normal((20, 20)))[0]
    A = (matrix * rng.uniform(1.0, 10.0, 20)) @ matrix.T
    b = rng.standard_normal((20, 3)) * scale
    result = getattr(solvers, method)(A, b, rtol=1e-10)
    assert result.converged
    assert np.abs(A @ result.x - b).max() <= 1e-8 * scale


@pytest.mark.parametrize("scale", [1e-300, 1e-295, 1.0, 1e160])
def test_nonsymmetric_sums_of_any_scale(rng, scale):
    factors = [np.eye(4) * 3 + np.triu(rng.standard_normal((4, 4))) for _ in range(2)]
    op = bk.KroneckerSum([scale * factor for factor in factors])
    x = rng.standard_normal(16)
    b = scale * (bk.KroneckerSum(factors) @ x)
    assert op.solve(b) == pytest.approx(x, rel=1e-10)
    expected = bk.KroneckerSum(factors).logdet() + 16 * np.log(scale)
    assert op.logdet() == pytest.approx(expected, rel=1e-12)


def test_nonsymmetric_sums_keep_single_precision(rng):
    factors = [(np.eye(3) * 3 + np.triu(rng.standard_normal((3, 3)))).astype("f4")] * 2
    assert bk.KroneckerSum(factors).solve(np.ones(9, "f4")).dtype == np.float32


def test_automatic_preconditioners_are_never_an_error():
    with pytest.warns(preconditioners.PreconditionerWarning, match="are too large"):
        assert preconditioners.make("auto", bk.KroneckerSum([np.eye(4100)])) is None
    with pytest.warns(preconditioners.PreconditionerWarning, match="the operator is a ndarray"):
        assert preconditioners.make("auto", np.eye(3)) is None
    for name, text in (
        ("combination", "knows its Kronecker terms"),
        ("block-jacobi", "with diagonal blocks"),
    ):
        with pytest.raises(TypeError, match=text):
            preconditioners.make(name, np.eye(3))


@pytest.mark.parametrize(("dtype", "exponent"), [("f", 30), ("F", 30), ("d", 100), ("D", 290)])
@pytest.mark.parametrize("method", METHODS)
def test_residual_norms_are_true_at_any_scale(rng, method, dtype, exponent):
    limits, wide = np.finfo(dtype), np.clongdouble
    scales = 10.0 ** np.array([0, -exponent, exponent, -exponent // 2, exponent // 2])
    seen = 0
    while seen < 50:
        n, count = rng.integers(1, 7), rng.integers(1, 4)
        A = np.diag(rng.uniform(1, 2, n)) * rng.choice(scales)
        b = rng.standard_normal((n, count)) * rng.choice(scales, (n, count))
        with np.errstate(over="ignore", invalid="ignore"):
            x0 = (b / A.diagonal()[:, None]) * rng.choice([1.0, 1.001], (n, count))
            x0 += rng.standard_normal((n, count)) * rng.choice(scales) * rng.integers(0, 2)
            b[rng.random((n, count)) < 0.3] = 0
            largest = max(abs(each).max() for each in (A, b, x0, A @ x0))
        if not largest < limits.max / 10:
            continue
        A, b, x0 = A.astype(dtype), b.astype(dtype), x0.astype(dtype)
        options = {"rtol": rng.choice([0, 1e-3]), "atol": rng.choice([0, 1e-3 / scales[2]])}
        maxiter = int(rng.choice([1, 3, 50]))
        result = getattr(solvers, method)(A, b, x0, batched="columns", maxiter=maxiter, **options)
        if limits.tiny / limits.eps > abs(result.x[result.x != 0]).min(initial=1):
            continue  # the solution is at the end of the dtype's range
        x = result.x.astype(wide)
        true = np.sqrt((abs(b - A.astype(wide) @ x) ** 2).sum(axis=0)).astype(float)
        size = np.sqrt(((abs(A).astype(wide) @ abs(x) + abs(b)) ** 2).sum(axis=0).real)
        allowed = 4 * n * limits.eps * size.astype(float) + n * limits.tiny + 1e-3 * true
        assert (abs(result.residual_norm - true) <= allowed).all()
        seen += 1


@pytest.mark.parametrize("shape", [(3,), (2, 3)])
@pytest.mark.parametrize(
    ("product", "error", "text"),
    [
        (lambda x: None, TypeError, "matvec returned None; expected the product, 3 numbers"),
        (lambda x: x[:1], ValueError, "cannot reshape array of size 1"),
    ],
)
def test_products_without_all_numbers_are_refused(shape, product, error, text):
    class Operator:
        shape, dtype = (3, 3), np.dtype(float)

        def matvec(self, x):
            return product(x)

    with pytest.raises(error, match=text):
        solvers.gmres(Operator(), np.ones(shape), batched="leading")
