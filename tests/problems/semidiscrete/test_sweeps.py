"""Sweeps along fibres equal the sum of products over pairs of cells."""

import numpy as np
import pytest

import batchkron as bk
from batchkron.problems import PDE, Axis, SparseGrid, div, gallery, grad, make, mass
from batchkron.problems.discretization.matrices.dg_matrices import div_matrix, mass_matrix
from batchkron.problems.discretization.matrices.mode_operator import ModeOperator
from batchkron.problems.semidiscrete.batch_list import batch_list

SMALL = [
    (name, {1: 4, 2: 3, 3: 2, 4: 1, 6: 1}[len(make(name, 1, 0).axes)], degree, grid)
    for name in gallery.names()
    for degree, grid in ((1, "sparse"), (2, "sparse"), (1, "full"))
    if not (name.endswith("6d") and degree > 1)
    if not (name == "relaxation-1x3v" and degree == 1)  # its temperature would be negative
    if name != "bgk-1x1v"  # it has a part that is no operator
    if not (gallery.get(name).pde.pointwise or gallery.get(name).pde.electric)
]


def swept(problem, grid=None, t=0.0):
    """The terms of a problem as one operator, at a time."""
    return bk.SparseGridOperator(
        grid or problem.grid,
        [term.modes for term in problem.terms],
        problem.degree + 1,
        coefficients=[term.time(t) for term in problem.terms],
    )


def check_dot(op, rng):
    x, y = rng.standard_normal((2, op.shape[0]))
    magnitude = np.linalg.norm(op @ x) * np.linalg.norm(y)
    assert abs(y @ (op @ x) - (op.T @ y) @ x) < 1e-12 * magnitude


@pytest.mark.parametrize(("name", "level", "degree", "grid"), SMALL)
def test_the_gallery(rng, name, level, degree, grid):
    problem = make(name, level, degree, grid)
    problem = problem.frozen(problem.initial)
    op = swept(problem)
    assert op.num_added_cells == 0
    expected = problem.with_form("batch").operator_at(0.0)  # one product per pair of cells
    x = rng.standard_normal(problem.unknowns)
    size = np.abs(expected @ x).max()
    np.testing.assert_allclose(op @ x, expected @ x, atol=1e-13 * size)
    check_dot(op, rng)
    if problem.unknowns <= 400:
        dense = expected.to_dense()
        np.testing.assert_allclose(op.to_dense(), dense, atol=1e-13 * np.abs(dense).max())


@pytest.mark.parametrize("kind", ["sparse", "full"])
def test_variable_coefficients_in_all_modes(rng, kind):
    """Terms that act in both modes, with coefficients that vary in space."""
    x, y = Axis("x", 0, 1), Axis("y", -1, 1)
    terms = [
        div(x, lambda s: 2 + np.sin(2 * np.pi * s), others={y: lambda s: np.exp(s)}),
        div(y) @ mass(x, lambda s: 2 + s) @ grad(y, lambda s: 1 + s**2),
        div(x, 0.1) @ grad(x),
    ]
    problem = PDE([x, y], terms, boundary="periodic", initial=0.0).discretize(3, 2, kind)
    op, expected = swept(problem), problem.with_form("batch").operator
    u = rng.standard_normal(problem.unknowns)
    np.testing.assert_allclose(op @ u, expected @ u, atol=1e-13 * np.abs(expected @ u).max())
    check_dot(op, rng)


def adaptive(modes, level, rng):
    """Three random cells and all their ancestors."""
    cells = np.zeros((3, modes), int)
    for cell in cells:
        cell[rng.integers(modes, size=2)] = rng.integers(2**level, size=2)
    return SparseGrid.custom(cells, [level] * modes).closed()


@pytest.mark.parametrize("modes", [2, 3, 4, 5, 6])
def test_adaptive_grids_with_fluxes(rng, modes):
    level = {2: 7, 3: 6}.get(modes, 5)
    grid = adaptive(modes, level, rng)
    axes = [Axis(f"x{k}", -1, 1) for k in range(modes)]
    fluxes = [ModeOperator.from_nodal(div_matrix(axis, level, 1, -1.0), 1) for axis in axes]
    chains = [
        ModeOperator.from_nodal(div_matrix(axis, level, 1) @ div_matrix(axis, level, 1), 1)
        for axis in axes
    ]
    masses = [ModeOperator.from_nodal(mass_matrix(axis, level, 1, np.exp), 1) for axis in axes]
    terms = [[fluxes[k] if k == j else masses[k] for k in range(modes)] for j in range(modes)]
    terms += [[chains[k] if k == j else None for k in range(modes)] for j in range(modes)]
    op = bk.SparseGridOperator(grid, terms, 2, extend=False)
    check_against_list(op, grid, terms, rng)
    terms.append([fluxes[0], fluxes[1], *masses[2:]])
    op = bk.SparseGridOperator(grid, terms, 2)
    check_against_list(op, grid, terms, rng)


def check_against_list(op, grid, terms, rng):
    products = batch_list(grid, terms, 1)
    expected = bk.BatchedKron(*products[:4], num_inputs=grid.num_cells, num_outputs=grid.num_cells)
    x = rng.standard_normal(op.shape[0])
    y = expected @ x
    np.testing.assert_allclose(op @ x, y, atol=1e-12 * np.abs(y).max())
    check_dot(op, rng)
