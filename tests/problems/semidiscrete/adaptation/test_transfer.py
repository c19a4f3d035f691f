"""Problems on a refined or coarsened grid."""

import pickle
from dataclasses import replace

import numpy as np
import pytest

from batchkron.operators.sparse_grid import fibres
from batchkron.problems import SparseGrid, make
from batchkron.problems.gallery.registry import get
from batchkron.problems.semidiscrete.adaptation.transfer import carried_over


def changed(grid, rng):
    """The grid without its finest cells, but with five random ones and their ancestors."""
    kept = grid.cells[grid.cell_levels.sum(axis=1) < max(grid.levels)]
    more = np.column_stack([rng.integers(0, 1 << level, 5) for level in grid.levels])
    return SparseGrid.custom(np.vstack((kept, more)), grid.levels).closed()


@pytest.mark.parametrize("name", ["continuity-2d", "diffusion-2d", "continuity-3d"])
@pytest.mark.parametrize("form", ["sweep", "batch"])
def test_right_hand_sides_equal_those_of_a_new_problem(rng, name, form):
    problem = make(name, 5, 2).with_form(form)
    u = rng.standard_normal(problem.unknowns)
    problem.rhs(0.3, u, np.empty_like(u))
    grid = changed(problem.grid, rng)
    moved = problem.on_grid(grid, u, 0.3)
    new = replace(problem, grid=grid, initial=moved.initial, t0=0.3)
    assert "system" not in vars(new)
    assert ("_groups" in vars(moved.system)) == (form == "sweep")
    results = np.full((2, moved.unknowns), np.nan)
    for one, result in zip((moved, new), results, strict=True):
        one.rhs(0.3, one.initial, result)
    np.testing.assert_array_equal(*results)
    assert moved.t0 == 0.3
    assert moved.content_hash == new.content_hash
    implicit = [one.implicit_operator_at(0.3) @ one.initial for one in (moved, new)]
    np.testing.assert_array_equal(*implicit)


def test_nothing_is_assembled_again(rng, monkeypatch):
    problem = make("continuity-3d", 4, 1)
    before = problem.operator
    moved = problem.on_grid(problem.grid)
    assert moved.operator.num_new_profiles == 0
    assert moved.terms is problem.terms
    monkeypatch.setattr(fibres.Profiles, "_found", None)  # no table is computed anew
    cells = SparseGrid.sparse([3, 3, 3]).cells
    again = moved.on_grid(SparseGrid.custom(cells, problem.grid.levels))
    assert again.operator.num_profiles < before.num_profiles


def test_states_are_carried_over(rng):
    problem = make("continuity-2d", 4, 2)
    axes = problem.axes
    points = rng.uniform([axis.lower for axis in axes], [axis.upper for axis in axes], (20, 2))
    u = rng.standard_normal(problem.unknowns)
    finer = SparseGrid.full([4, 4])
    moved = problem.on_grid(finer, u)
    values = problem.evaluate(u, points)
    np.testing.assert_allclose(moved.evaluate(moved.initial, points), values, atol=1e-12)
    back = moved.on_grid(problem.grid)
    np.testing.assert_array_equal(back.initial, u)
    blocks = carried_over(u, problem.grid, SparseGrid.custom([[3, 1], [15, 15]], [4, 4]))
    place = problem.grid.find([3, 1])
    np.testing.assert_array_equal(blocks[:9], u.reshape(-1, 9)[place])
    assert not blocks[9:].any()


@pytest.mark.parametrize("name", ["continuity-2d", "diffusion-2d", "runaway-collisions"])
@pytest.mark.parametrize("change", [-1, 2])
def test_other_levels_are_those_of_a_new_discretization(rng, name, change):
    pde = get(name).pde
    problem = pde.discretize(3, 2)
    u = rng.standard_normal(problem.unknowns)
    grid = SparseGrid.sparse([3 + change, 3])
    moved, new = problem.on_grid(grid, u, 0.1), pde.discretize(None, 2, grid)
    results = np.full((2, moved.unknowns), np.nan)
    for one, result in zip((moved, new), results, strict=True):
        one.rhs(0.1, moved.initial, result)
    np.testing.assert_array_equal(*results)
    assert moved.stepper == new.stepper
    assert moved.l2_error(moved.initial, 0.1) == new.l2_error(moved.initial, 0.1)
    for one, other in zip(moved.masses, new.masses, strict=True):
        assert one is None is other or np.array_equal(one, other)
    np.testing.assert_array_equal(moved.initial, carried_over(u, problem.grid, grid))


def test_coefficients_keep_their_values_at_other_levels(rng):
    problem = make("continuity-2d", 3, 2)
    u = rng.standard_normal(problem.unknowns)
    moved = problem.on_grid(SparseGrid.custom(problem.grid.cells, [5, 4]), u)
    points = rng.uniform(-1, 1, (20, 2))
    values = problem.evaluate(u, points)
    np.testing.assert_allclose(moved.evaluate(moved.initial, points), values, atol=1e-12)
    results = np.full((2, u.size), np.nan)
    for one, result in zip((problem, moved), results, strict=True):  # first derivatives are nested
        one.rhs(0.2, u, result)
    np.testing.assert_allclose(*results, atol=1e-12 * np.abs(results).max())


def test_other_levels_are_refused_without_the_pde():
    problem = pickle.loads(pickle.dumps(make("continuity-2d", 4, 1)))
    assert problem.other_levels is None
    with pytest.raises(ValueError, match=r"the grid has levels \(5, 4\); expected \(4, 4\)"):
        problem.on_grid(SparseGrid.sparse([5, 4]))
    changed_terms = replace(make("continuity-2d", 4, 1), sources=())
    with pytest.raises(ValueError, match="terms or sources of the problem were replaced"):
        changed_terms.on_grid(SparseGrid.sparse([5, 4]))
    with pytest.raises(TypeError, match="must be a SparseGrid"):
        problem.on_grid(problem.grid.cells)
    with pytest.raises(ValueError, match="shape"):
        problem.on_grid(problem.grid, np.zeros(3))
