"""Hard cases for solvers: collisions in curved coordinates, diffusivities from 10⁻⁴ to 1."""

import numpy as np
import pytest
from problem_oracle import orders
from scipy.integrate import dblquad

from batchkron.problems import PDE, gallery, make
from batchkron.solvers import evolve

NAMES = ["runaway-collisions", "diffusion-2d-anisotropic", "advection-diffusion-2d"]


def evolved(name, level, grid="sparse", **options):
    problem = make(name, level, 2, grid)
    options.setdefault("solver", {"rtol": 1e-10})
    return problem, evolve(problem, until=0.1, **options)


@pytest.mark.parametrize("name", NAMES)
def test_errors_fall_with_the_order(name):
    levels = (3, 4, 5)
    errors = []
    for level in levels:
        problem, result = evolved(name, level, "full")
        errors.append(problem.relative_error(result.u, result.t))
    assert errors[-1] < {"runaway-collisions": 5e-4}.get(name, 5e-3)
    assert orders(errors)[-1] == pytest.approx(3.0, abs=0.6)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("grid", ["sparse", "full"])
def test_forms_agree(rng, name, grid):
    problem = make(name, 3, 2, grid)
    u = rng.standard_normal(problem.unknowns)
    expected = problem.with_form("batch").operator_at(0.0) @ u  # one product per pair of cells
    for form in ("sweep", "dense"):
        result = problem.with_form(form).operator_at(0.0) @ u
        np.testing.assert_allclose(result, expected, atol=1e-12 * np.abs(expected).max())
    assert problem.validate().ok


def content_weights(problem):
    """w with w · u = ∫∫ f p² dp dz: each basis function by quadrature over the finest cells."""
    nodes, weights = np.polynomial.legendre.leggauss(problem.degree + 3)
    cells = 2 ** problem.grid.levels[0]
    places = (np.arange(cells)[:, None] + 0.5 + 0.5 * nodes).ravel() / cells
    p, z = (axis.lower + axis.length * places for axis in problem.axes)
    p_weights, z_weights = (
        np.tile(0.5 * axis.length / cells * weights, cells) for axis in problem.axes
    )
    points = np.stack(np.meshgrid(p, z, indexing="ij"), axis=-1).reshape(-1, 2)
    each = np.outer(p_weights * p**2, z_weights).ravel()
    return np.array([each @ problem.evaluate(e, points) for e in np.eye(problem.unknowns)])


@pytest.mark.parametrize("grid", ["sparse", "full"])
def test_collisions_conserve_mass(rng, grid):
    """The mass of every state: each column of the operator has integral zero."""
    problem = make("runaway-collisions", 3, 2, grid)
    weights = content_weights(problem)
    exact, _ = dblquad(
        lambda z, p: p**2 * np.exp(-np.sqrt(1 + p**2)) * (1 + z), 0, 10, -1, 1, epsabs=1e-9
    )
    assert weights @ problem.initial == pytest.approx(exact, rel=1e-9)
    rates = problem.operator.T @ weights
    scale = np.abs(problem.operator.to_dense()).T @ np.abs(weights)
    assert np.abs(rates).max() < 1e-13 * scale.max()
    result = evolve(problem, until=0.2, solver={"rtol": 1e-13})
    assert weights @ result.u == pytest.approx(exact, rel=1e-9)


def test_collisions_keep_their_equilibrium():
    pde = gallery.get("runaway-collisions").pde
    alone = PDE(
        pde.axes, pde.terms, boundary="neumann", volume=pde.volume, initial=pde.exact[0]
    ).discretize(5, 2, method="crank-nicolson", dt=0.05)
    result = evolve(alone, until=1.0)
    assert np.linalg.norm(result.u - alone.initial) < 1e-3 * np.linalg.norm(alone.initial)
