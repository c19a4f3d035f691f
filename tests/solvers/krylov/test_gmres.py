"""GMRES against SciPy's on the same systems, and every way it can stop."""

import itertools
import tracemalloc
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse
import scipy.sparse.linalg as scipy_linalg

from batchkron.solvers import Gmres, KrylovResult, Status, gmres


def well_conditioned(rng, size, dtype=np.float64):
    """A random matrix with eigenvalues around 4: GMRES needs some tens of iterations."""
    A = 4.0 * np.eye(size) + rng.standard_normal((size, size)) / np.sqrt(size)
    if np.dtype(dtype).kind == "c":
        A = A + 1j * rng.standard_normal((size, size)) / np.sqrt(size)
    return A.astype(dtype)


def vector(rng, size, dtype=np.float64):
    b = rng.standard_normal(size)
    if np.dtype(dtype).kind == "c":
        b = b + 1j * rng.standard_normal(size)
    return b.astype(dtype)


def true_residual(A, x, b):
    return np.linalg.norm(b - A @ x)


@pytest.mark.parametrize("restart", [1, 5, 60])
@pytest.mark.parametrize("guess", [False, True])
def test_agrees_with_scipy(restart, guess):
    rng = np.random.default_rng(1)
    A, b = well_conditioned(rng, 60), vector(rng, 60)
    x0 = vector(rng, 60) if guess else None
    norms = []
    expected, info = scipy_linalg.gmres(
        A, b, x0, rtol=1e-10, restart=restart, callback=norms.append, callback_type="pr_norm"
    )
    result = gmres(A, b, x0, rtol=1e-10, restart=restart)
    assert info == 0
    assert result.status is Status.CONVERGED
    assert abs(result.iterations - len(norms)) <= 2
    np.testing.assert_allclose(result.x, expected, rtol=0, atol=1e-9)
    assert true_residual(A, result.x, b) <= 1e-10 * np.linalg.norm(b)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])
def test_dtypes(dtype):
    rng = np.random.default_rng(2)
    A, b = well_conditioned(rng, 40, dtype), vector(rng, 40, dtype)
    rtol = 50 * np.finfo(dtype).eps
    result = gmres(A, b, rtol=rtol)
    assert result.x.dtype == dtype
    assert result.converged
    exact = np.result_type(dtype, np.float64)
    residual = true_residual(A.astype(exact), result.x.astype(exact), b.astype(exact))
    assert residual <= 2 * rtol * np.linalg.norm(b)


@pytest.mark.parametrize(
    ("matrix_dtype", "vector_dtype", "expected"),
    [
        (np.float32, np.float64, np.float64),
        (np.float64, np.float32, np.float64),
        (np.float32, np.complex64, np.complex64),
        (np.complex64, np.float64, np.complex128),
        (np.int64, np.int32, np.float64),
        (np.float16, np.float16, np.float32),
    ],
)
def test_dtype_follows_the_result_type(matrix_dtype, vector_dtype, expected):
    A = np.array([[4, 1], [1, 3]], dtype=matrix_dtype)
    b = np.array([1, 2], dtype=vector_dtype)
    result = gmres(A, b, rtol=1e-4)
    assert result.x.dtype == expected
    np.testing.assert_allclose(result.x, [1 / 11, 7 / 11], atol=1e-3)


def test_inputs_are_not_modified_and_x_is_fresh():
    rng = np.random.default_rng(3)
    A, b, x0, M = well_conditioned(rng, 20), vector(rng, 20), vector(rng, 20), 0.25 * np.eye(20)
    kept = [a.copy() for a in (A, b, x0, M)]
    for a in (A, b, x0, M):
        a.flags.writeable = False
    result = gmres(A, b, x0, M=M)
    assert all(np.array_equal(a, k) for a, k in zip((A, b, x0, M), kept, strict=True))
    assert not any(np.shares_memory(result.x, a) for a in (b, x0))


def test_exact_guess_is_returned_without_an_iteration():
    rng = np.random.default_rng(4)
    A, x = well_conditioned(rng, 20), vector(rng, 20)
    result = gmres(A, A @ x, x, rtol=1e-10)
    assert (result.iterations, result.info, result.applications) == (0, 0, 1)
    np.testing.assert_array_equal(result.x, x)


def test_column_vectors_and_strided_vectors():
    rng = np.random.default_rng(5)
    A, b = well_conditioned(rng, 20), vector(rng, 40)[::2]
    flat, column = gmres(A, b).x, gmres(A, b[:, None], np.zeros((20, 1))).x
    assert flat.shape == column.shape == (20,)
    np.testing.assert_array_equal(flat, column)


def test_guess_from_the_preconditioner():
    A, b = np.diag([2.0, 4.0, 8.0]), np.array([1.0, -3.0, 5.0])
    result = gmres(A, b, "Mb", M=np.diag(1 / np.diag(A)))
    assert result.iterations == 0
    np.testing.assert_array_equal(result.x, b / np.diag(A))


@pytest.mark.parametrize("restart", [4, 40])
def test_preconditioner_reduces_iterations(restart):
    rng = np.random.default_rng(6)
    scales = np.logspace(0, 4, 40)
    A = scales[:, None] * well_conditioned(rng, 40)
    b = vector(rng, 40)
    M = np.diag(1 / np.diag(A))
    plain, better = gmres(A, b, restart=restart, maxiter=50), gmres(A, b, restart=restart, M=M)
    assert better.converged
    assert better.iterations < plain.iterations
    assert true_residual(A, better.x, b) <= 1e-5 * np.linalg.norm(b)
    assert better.preconditioner_applications >= better.iterations
    assert better.residual_norm == pytest.approx(true_residual(A, better.x, b), rel=1e-6)


def test_exact_preconditioner_takes_one_iteration():
    rng = np.random.default_rng(7)
    A, b = well_conditioned(rng, 30), vector(rng, 30)
    result = gmres(A, b, M=np.linalg.inv(A), rtol=1e-10)
    assert (result.iterations, result.info) == (1, 0)


@pytest.mark.parametrize("form", ["array", "sparse", "LinearOperator", "matvec", "out", "apply"])
def test_forms_of_the_operator(form):
    rng = np.random.default_rng(8)
    A, b = well_conditioned(rng, 25), vector(rng, 25)

    class WithMatvec:
        shape = A.shape

        def matvec(self, x):
            return A @ x

    class WithOut:
        shape, dtype = A.shape, A.dtype
        given = 0

        def matvec(self, x, out=None):
            assert out is not None
            assert not np.shares_memory(x, out)
            out.fill(np.nan)
            WithOut.given += 1
            return np.dot(A, x, out=out)

    class WithApply:
        def apply(self, x, out=None):
            return np.dot(A, x, out=out)

    forms = {
        "array": A,
        "sparse": scipy.sparse.csr_array(A),
        "LinearOperator": scipy_linalg.aslinearoperator(A),
        "matvec": WithMatvec(),
        "out": WithOut(),
        "apply": WithApply(),
    }
    result = gmres(forms[form], b, rtol=1e-10)
    assert result.converged
    np.testing.assert_allclose(result.x, np.linalg.solve(A, b), rtol=1e-8, atol=1e-9)
    if form == "out":
        assert WithOut.given == result.applications


@pytest.mark.parametrize("size", [1, 2, 7])
def test_terminates_in_as_many_steps_as_unknowns(size):
    rng = np.random.default_rng(9)
    A, b = well_conditioned(rng, size), vector(rng, size)
    result = gmres(A, b, rtol=1e-12)
    assert result.converged
    assert result.iterations <= size
    assert result.restarts == 0


def test_residual_history():
    rng = np.random.default_rng(10)
    A, b = well_conditioned(rng, 50), vector(rng, 50)
    result = gmres(A, b, rtol=1e-8, restart=6)
    assert result.residual_norms.shape == (result.iterations + 1,)
    assert result.residual_norms[0] == pytest.approx(np.linalg.norm(b))
    assert (np.diff(result.residual_norms) <= 0).all()
    assert result.residual_norm == pytest.approx(true_residual(A, result.x, b), rel=1e-4)
    assert result.restarts == (result.iterations - 1) // 6
    assert result.applications == result.iterations + result.restarts + 1


def test_zero_right_hand_side():
    result = gmres(np.eye(3), np.zeros(3), np.array([1.0, 2.0, 3.0]))
    assert (result.status, result.info, result.iterations) == (Status.CONVERGED, 0, 0)
    np.testing.assert_array_equal(result.x, 0.0)


def test_empty_system():
    result = gmres(np.empty((0, 0)), np.empty(0))
    assert (result.x.shape, result.info) == ((0,), 0)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", ["b", "x0", "A", "M"])
def test_not_finite(bad, place):
    rng = np.random.default_rng(11)
    parts = {
        "A": well_conditioned(rng, 10),
        "b": vector(rng, 10),
        "x0": vector(rng, 10),
        "M": np.eye(10),
    }
    parts[place].flat[3] = bad
    result = gmres(**parts)
    assert result.status is Status.NOT_FINITE
    assert result.info == -2
    if place in "AM":
        assert np.isfinite(result.x).all()


def test_overflow_in_the_operator_leaves_the_last_good_iterate():
    rng = np.random.default_rng(12)
    A, b = well_conditioned(rng, 30), vector(rng, 30)
    calls = itertools.count()

    def failing(x):
        return A @ x if next(calls) < 12 else np.full(30, np.inf)

    operator = scipy_linalg.LinearOperator((30, 30), matvec=failing, dtype=np.float64)
    result = gmres(operator, b, rtol=1e-14, restart=5)
    assert result.status is Status.NOT_FINITE
    assert result.restarts == 2
    assert true_residual(A, result.x, b) == pytest.approx(result.residual_norm)
    assert 0 < result.residual_norm < np.linalg.norm(b)


def test_maxiter_counts_cycles():
    rng = np.random.default_rng(13)
    A, b = well_conditioned(rng, 50), vector(rng, 50)
    result = gmres(A, b, rtol=1e-13, restart=4, maxiter=3)
    assert result.status is Status.MAX_ITERATIONS
    assert (result.iterations, result.info, result.restarts) == (12, 12, 2)
    np.testing.assert_allclose(
        result.x, scipy_linalg.gmres(A, b, rtol=1e-13, restart=4, maxiter=3)[0], atol=1e-10
    )


@pytest.mark.parametrize("restart", [1, 4])
def test_stagnation_of_a_cyclic_shift(restart):
    shift, b = np.roll(np.eye(6), 1, axis=0), np.eye(6)[0]
    result = gmres(shift, b, restart=restart)
    assert result.status is Status.STAGNATED
    assert result.info == restart
    np.testing.assert_array_equal(result.x, 0.0)
    assert gmres(shift, b, restart=6).converged


def test_tolerance_below_rounding_stagnates():
    rng = np.random.default_rng(14)
    A, b = well_conditioned(rng, 60), vector(rng, 60)
    result = gmres(A, b, rtol=1e-18)
    assert result.status is Status.STAGNATED
    assert result.residual_norm <= 1e-14 * np.linalg.norm(b)


def test_singular_inconsistent_system_gives_least_squares():
    result = gmres(np.diag([1.0, 2.0, 0.0]), np.ones(3))
    assert result.status is Status.BREAKDOWN
    assert result.info == -1
    np.testing.assert_allclose(result.x[:2], [1.0, 0.5])
    assert result.residual_norm == pytest.approx(1.0)


def test_singular_consistent_system_converges():
    rng = np.random.default_rng(15)
    size = 40
    shift = np.roll(np.eye(size), 1, axis=0)
    A = 2 * np.eye(size) - shift - shift.T
    b = vector(rng, size)
    b -= b.mean()
    result = gmres(A, b, rtol=1e-10, restart=size)
    assert result.converged
    assert true_residual(A, result.x, b) <= 1e-10 * np.linalg.norm(b)


def test_a_singular_preconditioner():
    A, M, b = np.diag([2.0, 3.0, 4.0]), np.diag([1.0, 1.0, 0.0]), np.array([0.0, 1.0, 1.0])
    result = gmres(A, b, np.array([1.0, 0.0, 0.0]), M=M, rtol=1e-15)
    assert result.status is Status.BREAKDOWN
    np.testing.assert_allclose(A @ result.x, [0.0, 1.0, 0.0], atol=1e-14)


@pytest.mark.parametrize("A", [np.zeros((3, 3)), np.eye(3, k=1)], ids=["zero", "nilpotent"])
def test_breakdown_without_any_progress(A):
    result = gmres(A, np.array([1.0, 0.0, 0.0]) if A.any() else np.ones(3))
    assert result.status is Status.BREAKDOWN
    np.testing.assert_array_equal(result.x, 0.0)


def test_hilbert_matrix_is_never_reported_converged_wrongly():
    size = 30
    A = 1.0 / (np.arange(size)[:, None] + np.arange(size) + 1.0)
    b = np.ones(size)
    for rtol in (1e-4, 1e-6, 1e-8, 1e-10, 1e-12):
        result = gmres(A, b, rtol=rtol, restart=size)
        assert result.converged == (true_residual(A, result.x, b) <= rtol * np.sqrt(size))


@pytest.mark.parametrize("restart", [3, 10, 60])
def test_non_normal_matrix(restart):
    size = 60
    A = sum(np.eye(size, k=k) for k in range(4)) - np.eye(size, k=-1)  # Grcar's
    b = np.cos(np.arange(size))
    result = gmres(A, b, rtol=1e-8, restart=restart, maxiter=30)
    within = true_residual(A, result.x, b) <= 1e-8 * np.linalg.norm(b)
    assert result.converged == within == (restart > 3)


@pytest.mark.parametrize(
    ("of_matrix", "of_b"),
    [(a, b) for a in (1e-200, 1.0, 1e200) for b in (1e-200, 1.0, 1e200) if 1e-300 < b / a < 1e300],
)
def test_scaling(of_matrix, of_b):
    rng = np.random.default_rng(16)
    A, b = well_conditioned(rng, 30), vector(rng, 30)
    plain, scaled = gmres(A, b, rtol=1e-10), gmres(A * of_matrix, b * of_b, rtol=1e-10)
    assert scaled.converged
    assert scaled.iterations == plain.iterations
    np.testing.assert_allclose(scaled.x * (of_matrix / of_b), plain.x, rtol=1e-9)


def test_single_precision_reaches_its_own_accuracy():
    rng = np.random.default_rng(17)
    A = np.diag(np.linspace(1, 1e3, 200)).astype(np.float32)
    b = vector(rng, 200, np.float32)
    result = gmres(A, b, rtol=2e-6, restart=150)
    assert result.converged
    assert true_residual(A.astype(float), result.x.astype(float), b) <= 4e-6 * np.linalg.norm(b)


def test_basis_stays_orthogonal():
    size = 40
    rng = np.random.default_rng(18)
    A = np.diag(np.logspace(0, 10, size)) + np.triu(rng.standard_normal((size, size)), 1)
    solver = Gmres(size, restart=size)
    solver.solve(A, vector(rng, size), rtol=0.0, maxiter=1)
    basis = solver._recursion.at.basis[1:]  # the first row holds the residual after a cycle
    kept = basis[np.isclose(np.linalg.norm(basis, axis=1), 1.0)]
    assert len(kept) >= size - 2
    assert np.abs(kept @ kept.T - np.eye(len(kept))).max() <= 100 * np.finfo(float).eps


def test_callback_pr_norm():
    rng = np.random.default_rng(19)
    A, b = well_conditioned(rng, 40), vector(rng, 40)
    ours, theirs = [], []
    result = gmres(A, b, rtol=1e-8, restart=7, callback=ours.append)
    scipy_linalg.gmres(A, b, rtol=1e-8, restart=7, callback=theirs.append, callback_type="pr_norm")
    assert len(ours) == result.iterations
    assert all(isinstance(value, float) for value in ours)
    shared = min(len(ours), len(theirs))
    np.testing.assert_allclose(ours[:shared], theirs[:shared], rtol=1e-5)


def test_callback_x():
    rng = np.random.default_rng(20)
    A, b = well_conditioned(rng, 40), vector(rng, 40)
    ours, theirs = [], []
    result = gmres(A, b, rtol=1e-8, restart=7, callback=ours.append, callback_type="x")
    scipy_linalg.gmres(
        A, b, rtol=1e-8, restart=7, callback=lambda x: theirs.append(x.copy()), callback_type="x"
    )
    assert len(ours) == result.restarts + 1 == len(theirs)
    np.testing.assert_array_equal(ours[-1], result.x)
    np.testing.assert_allclose(ours[0], theirs[0], atol=1e-12)
    assert true_residual(A, ours[0], b) > true_residual(A, ours[-1], b)


def test_callback_legacy_counts_inner_iterations():
    rng = np.random.default_rng(21)
    A, b = well_conditioned(rng, 40), vector(rng, 40)
    norms = []
    result = gmres(
        A, b, rtol=1e-13, restart=4, maxiter=6, callback=norms.append, callback_type="legacy"
    )
    assert (result.iterations, len(norms), result.status) == (6, 6, Status.MAX_ITERATIONS)
    without = gmres(A, b, rtol=1e-13, restart=4, maxiter=2, callback_type="legacy")
    assert without.iterations == 8


def test_result_stands_for_scipys_pair():
    result = gmres(np.eye(2), np.ones(2))
    assert isinstance(result, KrylovResult)
    x, info = result
    assert len(result) == 2
    assert result[0] is x is result.x
    assert result[1] == info == 0


def test_every_status_has_advice():
    assert len({status.advice for status in Status}) == len(Status)


def test_workspace_is_reusable_and_allocates_no_vector():
    rng = np.random.default_rng(22)
    size = 20_000
    diagonal = np.linspace(1.0, 3.0, size)

    class Diagonal:
        shape, dtype = (size, size), np.dtype(np.float64)

        def matvec(self, x, out=None):
            return np.multiply(diagonal, x, out=out)

    A, b, out = Diagonal(), vector(rng, size), np.empty(size)
    solver = Gmres(size, restart=10)
    solver.solve(A, b, out=out, M=A)
    out.fill(np.nan)
    tracemalloc.start()
    result = solver.solve(A, b, out=out)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert result.x is out
    assert peak < 8 * size / 4
    np.testing.assert_allclose(out, b / diagonal, atol=1e-3)
    again = solver.solve(A, b, rtol=1e-12)
    np.testing.assert_array_equal(again.x, Gmres(size, restart=10).solve(A, b, rtol=1e-12).x)


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"A": np.ones((3, 4))}, ValueError, r"A has shape \(3, 4\); expected \(3, 3\)"),
        ({"M": np.eye(2)}, ValueError, r"M has shape \(2, 2\)"),
        ({"b": np.ones((3, 2))}, ValueError, r"b has shape \(3, 2\)"),
        ({"x0": np.ones(4)}, ValueError, r"x0 has shape \(4,\)"),
        ({"x0": "guess"}, ValueError, "expected an array, None or 'Mb'"),
        ({"x0": np.ones(3) * 1j}, TypeError, "x0 has dtype complex128"),
        ({"M": np.eye(3) * 1j}, TypeError, "M has dtype complex128"),
        ({"rtol": -1.0}, ValueError, "rtol is -1.0"),
        ({"rtol": np.nan}, ValueError, "rtol is nan"),
        ({"atol": None}, ValueError, "atol is None"),
        ({"restart": 0}, ValueError, "restart is 0"),
        ({"maxiter": 2.5}, TypeError, "maxiter is 2.5"),
        ({"callback_type": "residual"}, ValueError, "callback_type is 'residual'"),
        ({"A": "matrix"}, TypeError, "A is a str"),
        ({"b": np.ones(3, dtype=np.longdouble)}, TypeError, "common dtype"),
    ],
)
def test_wrong_arguments(change, error, text):
    arguments = {"A": 2 * np.eye(3), "b": np.ones(3), **change}
    with pytest.raises(error, match=text):
        gmres(**arguments)


def test_raise_on_failure():
    with pytest.raises(RuntimeError, match=r"status 'breakdown'.*singular"):
        gmres(np.zeros((2, 2)), np.ones(2), raise_on_failure=True)


def test_out_of_another_shape_is_refused():
    with pytest.raises(ValueError, match="out has shape"):
        Gmres(3).solve(np.eye(3), np.ones(3), out=np.empty(2))
    with pytest.raises(ValueError, match="b has 2 elements"):
        Gmres(3).solve(np.eye(2), np.ones(2))


def test_a_product_that_ignores_out_is_taken(rng):
    matrix = np.eye(6) + 0.1 * rng.standard_normal((6, 6))
    b = rng.standard_normal(6)
    operator = SimpleNamespace(shape=(6, 6), matvec=lambda x, out=None: matrix @ x)
    result = gmres(operator, b, rtol=1e-12)
    assert result.info == 0
    np.testing.assert_allclose(result.x, np.linalg.solve(matrix, b), rtol=1e-9)


def test_no_callback_type_is_the_legacy_one(rng):
    matrix = np.eye(6) + 0.1 * rng.standard_normal((6, 6))
    b = rng.standard_normal(6)
    seen = {}
    for kind in (None, "legacy"):
        seen[kind] = []
        gmres(matrix, b, callback=seen[kind].append, callback_type=kind, maxiter=3, rtol=1e-14)
    assert seen[None] == seen["legacy"]
    assert len(seen[None]) == 3


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])
@pytest.mark.parametrize("restart", [5, 50])
@pytest.mark.parametrize("preconditioned", [False, True])
def test_without_confirmation_a_product_is_saved(rng, dtype, restart, preconditioned):
    """The estimate is what a true residual would have been, and the solution is the same."""
    A = (4.0 * np.eye(40) + 0.3 * rng.standard_normal((40, 40))).astype(dtype)
    b = rng.standard_normal(40).astype(dtype)
    M = np.diag(1.0 / np.diagonal(A)) if preconditioned else None
    x0 = rng.standard_normal(40).astype(dtype)
    for rtol, start in ((1e-1, None), (1e-3, None), (1e-2, x0)):
        sure, other = (
            gmres(A, b, start, M=M, rtol=rtol, restart=restart, confirm=confirm)
            for confirm in (True, False)
        )
        np.testing.assert_array_equal(sure.x, other.x)
        assert other.status is sure.status is Status.CONVERGED
        assert other.applications == sure.applications - 1
        true = np.linalg.norm(b - A @ other.x)
        assert other.residual_norm == pytest.approx(true, rel=1e-3)


@pytest.mark.parametrize("diagonal", [[1.0, 2.0, 0.0], [1.0, 2.0, 3.0, 0.0]])
@pytest.mark.parametrize("by_preconditioner", [False, True])
def test_without_confirmation_a_singular_system_is_not_solved(diagonal, by_preconditioner):
    """The estimate is zero where the space is exhausted, which says nothing of the residual."""
    singular, b = np.diag(diagonal), np.ones(len(diagonal))
    A, M = (
        (np.eye(len(b), k=1) + np.eye(len(b)), singular) if by_preconditioner else (singular, None)
    )
    result = gmres(A, b, M=M, confirm=False)
    assert result.status is Status.BREAKDOWN
    assert result.residual_norm == pytest.approx(np.linalg.norm(b - A @ result.x))
    assert result.residual_norm > 0.5


def test_without_confirmation_zero_may_be_good_enough():
    result = gmres(np.eye(3), np.ones(3), rtol=2.0, confirm=False)
    assert result.applications == 0
    np.testing.assert_array_equal(result.x, 0.0)


def test_confirmation_of_many_systems_is_not_left_out():
    with pytest.raises(ValueError, match="confirm is False, which is for a single system"):
        gmres(np.eye(3), np.ones((3, 2)), batched="columns", confirm=False)
