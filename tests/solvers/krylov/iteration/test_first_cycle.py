"""Iterations and their check at once, as on a device, with a recorder that does work as it is."""

import numpy as np
import pytest
from dense_oracle import DTYPES, random_array

from batchkron.solvers import Fgmres, Gmres, Status
from batchkron.solvers.krylov.gmres import GmresRecursion
from batchkron.solvers.krylov.vectors.space import KrylovSpace


class Recorder:
    """Notes the keys of what it does."""

    def __init__(self):
        self.keys, self.at = [], {}

    def run(self, key, work):
        self.keys.append(key)
        work()
        return False


class Matrix:
    """A dense matrix whose products might be captured."""

    capturable = True

    def __init__(self, entries):
        self.entries, self.shape, self.dtype = entries, entries.shape, entries.dtype

    def matvec(self, x, out):
        np.dot(self.entries, x, out=out)


@pytest.fixture
def recorder(monkeypatch):
    found = Recorder()
    monkeypatch.setattr(KrylovSpace, "recorder", lambda _: found)
    return found


def cycles(recorder):
    return [key for key in recorder.keys if key[0] == "cycle"]


def same(found, expected):
    """The same solution, but for the order in which a solve looks at its residual."""
    assert (found.status, found.iterations) == (expected.status, expected.iterations)
    assert (found.restarts, len(found.residual_norms)) == (
        expected.restarts,
        len(expected.residual_norms),
    )
    np.testing.assert_array_equal(found.x, expected.x)
    np.testing.assert_array_equal(found.residual_norms, expected.residual_norms)
    assert found.residual_norm == expected.residual_norm


@pytest.mark.parametrize("method", [Gmres, Fgmres])
@pytest.mark.parametrize("preconditioned", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_solves_are_those_of_single_iterations(recorder, rng, method, preconditioned, dtype):
    """Right-hand sides in spaces of several sizes: too many iterations, too few, and restarts."""
    n, restart = 30, 8
    rtol = 1e-5 if np.finfo(dtype).bits == 32 else 1e-10
    vectors = np.linalg.qr(random_array(rng, (n, n), dtype))[0]
    entries = (vectors * np.linspace(1.0, 4.0, n)) @ vectors.conj().T
    A = Matrix(np.ascontiguousarray(entries).astype(dtype))
    M = Matrix(np.diag(rng.uniform(0.5, 1.0, n)).astype(dtype)) if preconditioned else None
    solver = method(n, dtype, restart=restart)
    b = np.empty(n, dtype)
    for size in (3, 3, 2, 5, 5, 30, 30, 30, 1, 30, 4, 0, 3):
        b[:] = vectors[:, :size] @ random_array(rng, (size,), dtype)
        found = solver.solve(A, b, M=M, rtol=rtol, maxiter=60)
        alone = method(n, dtype, restart=restart).solve(A.entries, b, M=M, rtol=rtol, maxiter=60)
        same(found, alone)
    assert len(cycles(recorder)) >= 11
    assert {key[1] for key in cycles(recorder)} >= {3, restart} or preconditioned


def test_a_cycle_that_claimed_too_much_is_followed_by_another(recorder, rng, monkeypatch):
    """The estimate meets the tolerance, near rounding errors, and the residual does not."""
    went_on, go_on = [], GmresRecursion.go_on
    monkeypatch.setattr(GmresRecursion, "go_on", lambda self: (went_on.append(1), go_on(self)))
    n = 60
    vectors = np.linalg.qr(rng.standard_normal((n, n)))[0]
    A = Matrix(((vectors * np.logspace(0, 1, n)) @ vectors.T).astype(np.float32))
    solver, b = Gmres(n, np.float32, restart=50), np.empty(n, np.float32)
    for _ in range(12):
        b[:] = rng.standard_normal(n)
        found = solver.solve(A, b, rtol=2e-7)
        same(found, Gmres(n, np.float32, restart=50).solve(A.entries, b, rtol=2e-7))
    assert went_on


def test_systems_that_do_not_converge(recorder, rng):
    A = Matrix(np.diag([1.0, 2.0, 0.0, 3.0]))
    solver, b = Gmres(4, restart=3), np.ones(4)
    for _ in range(3):
        found = solver.solve(A, b, rtol=1e-10, maxiter=5)
        same(found, Gmres(4, restart=3).solve(A.entries, b, rtol=1e-10, maxiter=5))
        assert found.status is Status.BREAKDOWN
    b[1] = np.nan
    assert solver.solve(A, b).status is Status.NOT_FINITE
    b[:] = 0.0
    assert solver.solve(Matrix(np.diag([1.0, np.nan, 1.0, 1.0])), b).status is Status.NOT_FINITE
    assert cycles(recorder)


def test_tiny_residuals_are_measured_where_they_are(recorder, rng):
    """Squares of such residuals underflow: they are measured again, where the check left them."""
    A, b = Matrix(np.diag(np.linspace(1.0, 2.0, 12))), np.empty(12)
    solver = Gmres(12, restart=12)
    for _ in range(3):
        b[:] = 1e-200 * rng.standard_normal(12)
        found = solver.solve(A, b, rtol=1e-9)
        alone = Gmres(12, restart=12).solve(A.entries, b, rtol=1e-9)
        same(found, alone)
        assert found.residual_norm <= 1e-9 * np.abs(b).max() * 12
    assert cycles(recorder)


def test_right_hand_sides_at_other_addresses_are_solved_as_before(recorder, rng):
    A = Matrix(np.diag(np.linspace(1.0, 2.0, 12)))
    solver, kept = Gmres(12), [rng.standard_normal(12) for _ in range(6)]
    for b in kept:
        assert solver.solve(A, b, rtol=1e-9).converged
    assert not cycles(recorder)


def test_two_right_hand_sides_have_their_own_iterations(recorder, rng):
    """As those of a stage that is iterated, of which corrections need fewer iterations."""
    A = Matrix(np.diag(np.linspace(1.0, 2.0, 12)))
    solver, pair = Gmres(12), [(np.empty(12), 1e-9), (np.empty(12), 1e-2)]
    for _ in range(5):
        for b, rtol in pair:
            b[:] = rng.standard_normal(12)
            same(solver.solve(A, b, rtol=rtol), Gmres(12).solve(A.entries, b, rtol=rtol))
    counts = [{key[1] for key in cycles(recorder) if key[3] == b.ctypes.data} for b, _ in pair]
    assert min(counts[0]) > max(counts[1]) > 0


def test_others_see_every_iteration(recorder, rng):
    A, seen = Matrix(np.diag(np.linspace(1.0, 2.0, 12))), []
    solver, b = Gmres(12), rng.standard_normal(12)
    for _ in range(3):
        result = solver.solve(A, b, rtol=1e-9, callback=seen.append)
    assert len(seen) == 3 * result.iterations
    assert not cycles(recorder)
