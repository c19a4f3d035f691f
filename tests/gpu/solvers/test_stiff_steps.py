"""Stiff runs on a device: BDF with and without Jacobians, RKC2, steady states, inner solves."""

import numpy as np
import pytest

from batchkron.problems import gallery
from batchkron.solvers import EvolveStatus, evolve, gmres, steady_state


def reaction(t, u):
    """A cubic reaction with diffusion, of NumPy's and CuPy's arrays."""
    out = -40.0 * u**3
    out[1:] += 900.0 * (u[:-1] - u[1:])
    out[:-1] += 900.0 * (u[1:] - u[:-1])
    return out


def start(size=300):
    return 1.0 + np.sin(np.linspace(0.0, 3.0, size))


@pytest.mark.parametrize("options", [{}, {"preconditioner": "combination"}])
def test_linear_bdf(cupy, options):
    problem = gallery.make("diffusion-2d", level=4, degree=2)
    options = {"until": 0.02, "method": "bdf", "rtol": 1e-6, **options}
    expected, found = evolve(problem, **options), evolve(problem.to("cuda"), **options)
    assert found.status is EvolveStatus.COMPLETED
    size = np.linalg.norm(expected.u)
    assert np.linalg.norm(found.u.get() - expected.u) < 1e-5 * size
    assert abs(found.steps - expected.steps) <= 0.1 * expected.steps


@pytest.mark.parametrize("atol", [None, "elements"])
def test_bdf_of_a_function(cupy, atol):
    u0 = start()
    options = {"until": 0.3, "method": "bdf", "rtol": 1e-6}
    if atol is not None:
        options["atol"] = np.full(u0.size, 1e-8)
    expected = evolve(reaction, u0=u0, **options)
    found = evolve(reaction, u0=cupy.asarray(u0), **options)
    assert found.status is EvolveStatus.COMPLETED
    assert isinstance(found.u, cupy.ndarray)
    np.testing.assert_allclose(found.u.get(), expected.u, rtol=1e-4)


@pytest.mark.parametrize("method", ["bdf", "rkc2", "dop853"])
def test_resumed_runs_repeat_the_bits(cupy, method, tmp_path):
    problem = gallery.make("diffusion-2d", level=3, degree=2).to("cuda")
    options = {"until": 0.002, "method": method, "rtol": 1e-6}
    whole = evolve(problem, **options)
    stop = whole.steps // 2
    path = tmp_path / "run.h5"
    evolve(problem, checkpoint=path, callback=lambda state: state.step == stop, **options)
    resumed = evolve(problem, resume=path, **options)
    assert resumed.steps == whole.steps
    np.testing.assert_array_equal(resumed.u.get(), whole.u.get())


def test_rkc2_of_a_function(cupy):
    u0 = start()
    options = {"until": 0.1, "method": "rkc2", "rtol": 1e-5}
    expected = evolve(reaction, u0=u0, **options)
    found = evolve(reaction, u0=cupy.asarray(u0), **options)
    assert found.status is EvolveStatus.COMPLETED
    np.testing.assert_allclose(found.u.get(), expected.u, rtol=1e-4)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex128])
def test_solves_without_confirmation(cupy, rng, dtype):
    A = (4.0 * np.eye(60) + 0.3 * rng.standard_normal((60, 60))).astype(dtype)
    b = rng.standard_normal(60).astype(dtype)
    device, right = cupy.asarray(A), cupy.asarray(b)
    for _ in range(4):  # graphs, and iterations that are done ahead
        sure = gmres(device, right, rtol=1e-3, restart=30)
        other = gmres(device, right, rtol=1e-3, restart=30, confirm=False)
        assert other.converged
        true = np.linalg.norm(b - A @ other.x.get())
        assert true <= 1.01e-3 * np.linalg.norm(b)
        np.testing.assert_allclose(other.x.get(), sure.x.get(), rtol=1e-2, atol=1e-2)


def test_steady_states(cupy):
    problem = gallery.make("diffusion-2d", level=4, degree=2)
    options = {"t": 0.05, "preconditioner": "combination"}
    expected = steady_state(problem, **options)
    found = steady_state(problem.to("cuda"), **options)
    assert found.converged
    np.testing.assert_allclose(found.u.get(), expected.u, atol=1e-6 * abs(expected.u).max())
    settled = steady_state(lambda t, u: reaction(t, u) + 1.0, u0=cupy.asarray(start()), rtol=1e-8)
    assert settled.converged
    np.testing.assert_allclose(settled.u.get(), np.cbrt(1.0 / 40.0), rtol=1e-6)
