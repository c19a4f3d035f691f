"""Which cells a grid that follows the solution gets and loses."""

import pickle
from dataclasses import fields, replace

import numpy as np
import pytest

from batchkron.problems import PDE, Axis, Dirichlet, Problem, Separable, SparseGrid, div, make
from batchkron.problems.grids.refinement import children

x, v = Axis("x", -1, 1), Axis("v", -2, 2)


def resting(initial=0.0, sources=0.0):
    """f_t = sources: cells change by the sources only."""
    return PDE([x, v], [], boundary="periodic", initial=initial, sources=sources)


def growing(problem, rates):
    """The problem with u' = 0 but for rates[c], the norm of the rate of cell c at t = 0."""

    class Growing(Problem):
        def rhs(self, t, u, out):
            out[:] = state(self, rates) if t == 0.0 else 0.0

    return Growing(**{entry.name: getattr(problem, entry.name) for entry in fields(problem)})


def state(problem, sizes):
    """A state whose block of cell c has the norm sizes[c], 0 for other cells."""
    u = np.zeros((problem.grid.num_cells, problem.block_size))
    for cell, size in sizes.items():
        if (place := problem.grid.find(list(cell))) >= 0:
            u[place, :2] = [0.6 * size, -0.8 * size]
    return u.ravel()


def cells_of(adaptive):
    return {tuple(cell) for cell in adaptive.problem.grid.cells.tolist()}


def test_children_with_large_rates_enter_and_the_grid_stays_closed():
    rates = {(2, 1): 0.8, (3, 1): 0.6, (1, 2): 0.6, (1, 3): 0.8, (4, 0): 9.0}
    problem = growing(resting().discretize(2, 1), rates)
    u = state(problem, {(0, 0): 3.0, (1, 1): 1.1, (3, 0): 0.9})
    adaptive = problem.adaptive(tol=1.0, max_level=5)
    found = adaptive.changed(u, 0.0, 1.0, 0.1)
    # (1, 1) is large, and so are the rates of two of its children; (4, 0) has no large parent
    more = {(2, 1), (1, 3)}
    assert cells_of(found) == {tuple(cell) for cell in problem.grid.cells.tolist()} | more
    assert (found.added, found.removed, found.missed, found.is_finer) == (2, 0, False, True)
    assert found.problem.grid.is_downward_closed
    kept = found.problem.on_grid(problem.grid)
    np.testing.assert_array_equal(kept.initial, u)  # new cells are 0, old ones unchanged


def test_children_of_children_enter_if_they_would_have_grown_in_the_interval():
    rates = {(2, 1): 11.0, (4, 1): 8.0, (5, 1): 6.0, (9, 1): 99.0}
    problem = growing(resting().discretize(2, 1), rates)
    u = state(problem, {(0, 0): 3.0, (1, 1): 1.1})
    found = problem.adaptive(tol=1.0, max_level=5).changed(u, 0.0, 0.1, 0.1)
    assert cells_of(found) - cells_of(problem.adaptive(tol=1.0)) == {(2, 1), (4, 0), (4, 1)}
    assert found.missed


def test_the_grid_of_rates_is_kept_for_the_next_adaptation():
    problem = growing(resting().discretize(2, 1), {(2, 1): 0.1})
    calm = {tuple(cell): 0.2 for cell in problem.grid.cells.tolist()}
    u = state(problem, {**calm, (1, 1): 1.1})
    first = problem.adaptive(tol=1.0, max_level=5).changed(u, 0.0, 1.0, 0.1)
    second = first.changed(1.5 * u, 0.1, 1.0, 0.1)
    assert first.problem is problem is second.problem
    assert first.probe is not None is not second.probe
    assert first.probe is second.probe


def test_a_tolerance_relative_to_the_state():
    problem = growing(resting().discretize(2, 1), {(2, 1): 0.8})
    u = state(problem, {(0, 0): 3.0, (1, 1): 1.1, (3, 0): 0.9})
    size = np.linalg.norm(u)
    found = problem.adaptive(tol=1.0, max_level=5).changed(u, 0.0, 1.0, 0.1)
    same = problem.adaptive(tol=1.0 / size, relative=True, max_level=5).changed(u, 0.0, 1.0, 0.1)
    assert cells_of(same) == cells_of(found)
    assert found.added == 1


def test_no_cell_is_finer_than_allowed():
    everywhere = {(i, j): 9.0 for i in range(32) for j in range(32)}
    problem = growing(resting().discretize([2, 1], 1, "full"), everywhere)
    for limits in ([2, 1], [4, 1], [3, 3]):
        found = problem.adaptive(tol=1e-3, max_level=limits)
        for _ in range(6):
            ones = np.ones(found.problem.unknowns)
            found = found.changed(ones, 0.0, 1.0, 0.1)
        assert found.problem.grid.levels == tuple(limits)
        assert found.problem.grid.num_cells == 2 ** sum(limits)
    assert problem.adaptive(tol=1.0).limits == (5, 4)


def test_cells_leave_after_two_calm_adaptations_and_only_with_their_children():
    problem = resting().discretize(3, 1)
    large = {(0, 0): 1.0, (2, 1): 1.0, (5, 0): 0.2}
    u = state(problem, large)
    grid, now = problem.grid, problem.adaptive(tol=1.5, max_level=4)
    once = now.changed(u, 0.0, 1.0, 0.1)
    assert once.problem is problem
    assert once.calm.max() == 1
    twice = once.changed(u, 0.1, 1.0, 0.1)
    expected = {(0, 0), (1, 0), (2, 0), (5, 0), (0, 1), (1, 1), (2, 1)}  # the large ones' ancestors
    assert cells_of(twice) == expected
    assert (twice.added, twice.removed) == (0, grid.num_cells - len(expected))
    np.testing.assert_array_equal(twice.problem.initial, state(twice.problem, large))
    # A cell that is above a tenth of the tolerance in between begins to count anew.
    other = once.changed(state(problem, {**large, (7, 0): 0.16}), 0.1, 1.0, 0.1)
    assert (7, 0) in cells_of(other)


def test_new_cells_stay_for_three_adaptations():
    problem = growing(resting().discretize(1, 1), {(2, 0): 0.8})
    now = problem.adaptive(tol=1.0, max_level=4)
    now = now.changed(state(problem, {(1, 0): 2.0}), 0.0, 1.0, 0.1)
    assert (2, 0) in cells_of(now)
    for _ in range(2):
        now = now.changed(state(now.problem, {(0, 0): 0.5}), 0.1, 1.0, 0.1)
        assert (2, 0) in cells_of(now)
    now = now.changed(state(now.problem, {(0, 0): 0.5}), 0.1, 1.0, 0.1)
    assert (2, 0) not in cells_of(now)


@pytest.mark.parametrize("keep", [[v], "v", v, ["v"]])
def test_cells_that_carry_moments_are_kept(keep):
    problem = resting().discretize(3, 1)
    now = problem.adaptive(tol=1.0, keep=keep)
    for _ in range(4):
        now = now.changed(np.zeros(now.problem.unknowns), 0.0, 1.0, 0.1)
    assert cells_of(now) == {(k, 0) for k in range(8)}
    assert problem.adaptive(tol=1.0, keep=[x, v]).kept == (0, 1)


def test_the_rate_shows_a_source_before_the_state_does():
    def bump(s):
        return np.exp(-30 * s**2)

    problem = resting(sources=Separable(x=bump, v=1.0)).discretize(2, 2)
    assert not problem.initial.any()
    found = problem.adaptive(tol=1e-2, max_level=6).started(0.5)
    fine = resting(sources=Separable(x=bump, v=1.0)).discretize([6, 0], 2, "full")
    source = np.empty(fine.unknowns)
    fine.source(0.0, out=source)
    sizes = 0.5 * np.linalg.norm(source.reshape(-1, fine.block_size), axis=1)
    large = fine.grid.cells[sizes > 1e-2]
    more = children(large, [6, 0])
    entering = more[sizes[fine.grid.find(more)] > 0.2e-2]
    assert 0 < len(entering) < len(more)
    for cell in np.vstack((large, entering)).tolist():
        assert tuple(cell) in cells_of(found)
    assert any(tuple(cell) not in cells_of(found) for cell in more.tolist())
    assert found.problem.grid.levels[0] > 3
    assert found.started(0.5) is found


def test_cells_are_missed_if_they_would_have_grown_in_the_interval():
    def bump(s):
        return np.exp(-30 * s**2)

    problem = resting(sources=Separable(x=bump, v=1.0)).discretize(2, 2)
    now = problem.adaptive(tol=1e-2, max_level=6)
    u = np.zeros(problem.unknowns)
    assert now.changed(u, 0.0, 0.5, 0.5).missed
    assert not now.changed(u, 0.0, 0.5, 1e-3).missed
    found = now.changed(u, 0.0, 0.5, 0.5)
    extended = now.extended(u + 1.0, 0.0, found)
    assert cells_of(extended) == cells_of(found) | cells_of(now)
    assert set(extended.problem.initial) == {0.0, 1.0}
    assert extended.problem.initial.sum() == u.size


def test_the_initial_state_is_projected_on_its_grid():
    def peak(s):
        return np.exp(-20 * (s - 0.3) ** 2)

    pde = PDE([x, v], div(x, -1), boundary="periodic", initial=Separable(x=peak, v=peak))
    found = pde.discretize(2, 2).adaptive(tol=1e-3, max_level=6).started(0.01)
    exact = pde.discretize(None, 2, SparseGrid.custom(found.problem.grid.cells, [6, 6]))
    np.testing.assert_allclose(found.problem.initial, exact.initial, atol=1e-13)
    full = pde.discretize(6, 2, "full")
    sizes = np.linalg.norm(full.initial.reshape(-1, 9), axis=1)
    more = children(full.grid.cells[sizes > 1e-3], [6, 6])
    entering = more[sizes[full.grid.find(more)] > 0.2e-3]
    assert (found.problem.grid.find(entering) >= 0).all()
    assert not (found.problem.grid.find(more) >= 0).all()


def test_a_later_state_is_not_replaced_by_the_initial_one():
    def peak(s):
        return np.exp(-20 * (s - 0.3) ** 2)

    pde = PDE([x, v], div(x, -1), boundary="periodic", initial=Separable(x=peak, v=peak))
    problem = pde.discretize(2, 2)
    later = problem.on_grid(problem.grid, 2.0 * problem.initial, 0.5)
    found = later.adaptive(tol=1e-3, max_level=6).started(0.01)
    assert found.added > 0
    assert found.problem.t0 == 0.5
    back = found.problem.on_grid(problem.grid).initial
    np.testing.assert_array_equal(back, later.initial)
    assert np.linalg.norm(found.problem.initial) == pytest.approx(np.linalg.norm(back), rel=1e-15)


def test_weights_are_the_largest_on_a_cell():
    problem = growing(resting().discretize(2, 1), {(k, 0): 1.0 for k in (4, 5, 6, 7)})
    u = state(problem, {(2, 0): 1.0, (3, 0): 1.0})
    seen = []

    def right(s, w):
        seen.append((s, w))
        return np.where(s > 0.0, 2.0, 0.1)

    found = problem.adaptive(tol=1.5, max_level=4, weight=right).changed(u, 0.0, 1.0, 0.1)
    assert found.added > 0
    assert {(6, 0), (7, 0)} <= cells_of(found)
    assert not {(4, 0), (5, 0)} & cells_of(found)
    grid = problem.grid
    for k, axis in enumerate((x, v)):
        points = np.array([pair[k] for pair in seen[: 1 + 4]])
        assert points.min() == axis.lower
        assert points.max() == axis.upper
        place = grid.find([2, 0] if k == 0 else [0, 2])
        np.testing.assert_allclose(points[0, place], axis.lower + axis.length / 4)
    with pytest.raises(ValueError, match="weight is not finite"):
        problem.adaptive(tol=1.0, weight=lambda s, w: s * np.nan).changed(u, 0.0, 1.0, 0.1)


def test_a_problem_without_its_pde_stays_within_its_levels():
    problem = pickle.loads(pickle.dumps(make("continuity-2d", 3, 1)))
    now = problem.adaptive(tol=1e-9)
    found = now.changed(np.ones(problem.unknowns), 0.0, 1.0, 0.1)
    for _ in range(5):
        found = found.changed(np.ones(found.problem.unknowns), 0.0, 1.0, 0.1)
    assert found.problem.grid.levels == (3, 3)
    assert found.problem.grid.num_cells == 64
    assert found.problem.terms is problem.terms
    with pytest.raises(ValueError, match="up to level 3 only"):
        problem.adaptive(tol=1.0, max_level=4)
    changed = replace(make("continuity-2d", 3, 1), sources=())
    assert changed.adaptive(tol=1e-9).limits == (3, 3)


def test_rules_that_do_not_fit_are_refused():
    problem = make("continuity-2d", 3, 1)
    with pytest.raises(ValueError, match="max_level is 2 for x, where the grid has cells of level"):
        problem.adaptive(tol=1.0, max_level=2)
    with pytest.raises(ValueError, match="3 entries; expected one for each of the 2 axes"):
        problem.adaptive(tol=1.0, max_level=[4, 4, 4])
    with pytest.raises(TypeError, match="expected an integer"):
        problem.adaptive(tol=1.0, max_level="nine")
    with pytest.raises(ValueError, match="keep names the axis 'w'; the problem has x, y"):
        problem.adaptive(tol=1.0, keep=["w"])
    with pytest.raises(TypeError, match="keep holds int"):
        problem.adaptive(tol=1.0, keep=[1])
    with pytest.raises(TypeError, match="weight is a float; expected a function"):
        problem.adaptive(tol=1.0, weight=2.0)
    with pytest.raises(ValueError, match="operators are dense"):
        problem.with_form("dense").adaptive(tol=1.0)
    with pytest.raises(ValueError, match="not closed downward"):
        problem.on_grid(SparseGrid.custom([[0, 0], [2, 0]], [3, 3])).adaptive(tol=1.0)


def test_default_steps_follow_the_finest_cells():
    def peak(s):
        return np.exp(-20 * s**2)

    pde = PDE([x], div(x, -1), boundary=Dirichlet(0.0), initial=Separable(x=peak))
    with pytest.warns(UserWarning, match="flows out"):
        problem = pde.discretize(2, 2)
    found = problem.adaptive(tol=1e-4, max_level=6).started(1e-3)
    levels = found.problem.grid.levels
    assert levels[0] > 2
    ratio = 2.0 ** (levels[0] - 2)
    assert found.problem.stepper.dt == pytest.approx(problem.stepper.dt / ratio, rel=1e-12)
