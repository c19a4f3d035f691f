"""Problems with a rule of their own by which their grid follows the solution, also in files."""

import h5py
import numpy as np
import pytest

from batchkron.distributed import distribute, simulate
from batchkron.problems import (
    PDE,
    AdaptSettings,
    Axis,
    Moment,
    Separable,
    SparseGrid,
    div,
    load_problem,
    make,
    save_problem,
)
from batchkron.solvers import Adapt, evolve

x, y = Axis("x", -1, 1), Axis("y", -1, 1)
RUN = {"until": 0.1, "method": "rk4", "dt": 0.002}


def pulse(s):
    return np.exp(-40 * (1 - np.cos(np.pi * s)))


@pytest.fixture(scope="module")
def pde():
    start = Separable(x=pulse, y=pulse)
    return PDE([x, y], [div(x, -1), div(y, -0.5)], boundary="periodic", initial=start)


def test_a_run_adapts_by_the_problems_rule(pde):
    problem = pde.discretize(3, 2)
    rule = Adapt(1e-3, every=5, max_level=6, keep=y, weight="x^2", relative=True, horizon=0.2)
    own = problem.with_adapt(rule)
    steps = own.adapt.steps
    assert own.adapt == AdaptSettings(1e-3, 5, 0.2, (6, 6), ("y",), "x^2", True, steps)
    assert len(steps) == 7
    found = evolve(own, **RUN)
    given = evolve(own.with_adapt(None), **RUN, adapt=rule)
    np.testing.assert_array_equal(found.u, given.u)
    assert found.u.size != own.unknowns
    other = evolve(own, **RUN, adapt=Adapt(1e-2))
    assert other.u.size != found.u.size
    fixed = evolve(own, **RUN, adapt=False)
    assert fixed.problem is own
    np.testing.assert_array_equal(fixed.u, evolve(own.with_adapt(None), **RUN).u)


def test_a_file_has_the_grid_and_the_rule(pde, tmp_path):
    path, plain = tmp_path / "adapts.h5", tmp_path / "plain.h5"
    problem = pde.discretize(3, 2)
    own = problem.with_adapt(Adapt(1e-3, max_level=6))
    save_problem(path, own)
    save_problem(plain, problem)
    with h5py.File(path) as file, h5py.File(plain) as other:
        assert (file.attrs["format_version"], other.attrs["format_version"]) == (2, 1)
        assert "adapt" not in other
    loaded = load_problem(path)
    assert loaded.adapt == own.adapt
    assert loaded.content_hash == own.content_hash != problem.content_hash
    np.testing.assert_array_equal(loaded.grid.cells, own.grid.cells)
    assert loaded.grid.levels == (6, 6)
    # the file does not know the pulse, but has the cells that it needs
    full = pde.discretize(6, 2, grid="full")
    expected = evolve(full, **RUN).u
    sizes, errors = [], []
    for start in (problem, loaded):
        rule = {"adapt": Adapt(1e-3, max_level=6)} if start is problem else {}
        result = evolve(start, **RUN, **rule)
        moved = result.problem.on_grid(full.grid, result.u).initial
        sizes.append(result.u.size)
        errors.append(np.linalg.norm(moved - expected))
    assert errors[1] <= 1.1 * errors[0]
    assert sizes[1] <= 1.1 * sizes[0]


def test_a_grid_that_suffices_stays():
    problem = make("continuity-2d", 3, 1)  # begins at 0
    own = problem.with_adapt(Adapt(1e-3, max_level=3))
    np.testing.assert_array_equal(own.grid.cells, problem.grid.cells)
    assert own.terms is problem.terms
    assert own.with_adapt(None).content_hash == problem.content_hash


def test_default_steps_follow_the_finest_cells_in_files(pde, tmp_path):
    """As with the PDE, where cells are as fine along both axes; else they are shorter."""
    problem = pde.discretize(2, 1)
    own = problem.with_adapt(Adapt(1e-2, max_level=6))
    save_problem(tmp_path / "problem.h5", own)
    loaded = load_problem(tmp_path / "problem.h5")
    assert loaded.stepper == own.stepper
    for level in (1, 3, 6):
        grid = SparseGrid.custom(SparseGrid.sparse([level, level]).cells, [6, 6])
        expected = pde.discretize(level, 1).stepper.dt
        assert loaded.on_grid(grid).stepper.dt == pytest.approx(expected, rel=1e-12)
    thin = SparseGrid.custom(SparseGrid.sparse([5, 1]).cells, [6, 6])
    assert loaded.on_grid(thin).stepper.dt == loaded.adapt.steps[1] < problem.stepper.dt
    dt = []
    result = evolve(loaded, until=0.1, callback=lambda state: dt.append(state.dt))
    assert result.t == 0.1
    assert max(dt) > 1.5 * loaded.adapt.steps[0]
    path = tmp_path / "checkpoint.h5"
    evolve(loaded, until=0.1, callback=lambda state: state.t > 0.06, checkpoint=path)
    resumed = evolve(loaded, until=0.1, resume=path)
    assert 0 < resumed.steps == result.steps
    np.testing.assert_array_equal(resumed.u, result.u)
    again = loaded.with_adapt(Adapt(1e-3, max_level=6))
    assert again.adapt.steps == own.adapt.steps
    fixed = pde.discretize(2, 1, dt=0.01).with_adapt(Adapt(1e-2, max_level=6))
    assert fixed.adapt.steps == ()
    assert fixed.stepper.dt == 0.01


def test_ranks_adapt_by_the_problems_rule(pde):
    own = pde.discretize(3, 1).with_adapt(Adapt(1e-2, every=3, max_level=5))
    run = RUN | {"until": 0.02}
    expected = evolve(own, **run)

    def program(comm):
        part = distribute(own, comm)
        return evolve(part, **run).problem.whole.grid.cells, evolve(part, **run, adapt=False).u

    for cells, fixed in simulate(2, program):
        np.testing.assert_array_equal(cells, expected.problem.grid.cells)
        assert fixed.size < own.unknowns


def test_rules_that_files_cannot_hold_are_refused(pde):
    problem = pde.discretize(3, 1)
    for weight, fields in ((lambda x, y: x, ()), (Moment(x), ()), (lambda x, y, n: n, [Moment(x)])):
        with pytest.raises(ValueError, match=r"a function or a field.*expected a text such as"):
            problem.with_adapt(Adapt(1e-3, weight=weight, fields=fields))
    with pytest.raises(TypeError, match="rule is a float; expected an Adapt"):
        problem.with_adapt(1e-3)
    with pytest.raises(ValueError, match="keep names the axis 'v'"):
        problem.with_adapt(Adapt(1e-3, keep="v"))
    with pytest.raises(TypeError, match="adapt is a bool; expected an Adapt"):
        evolve(problem, **RUN, adapt=True)


def test_a_checkpoint_of_a_fixed_grid_needs_one(pde, tmp_path):
    own = pde.discretize(3, 1).with_adapt(Adapt(1e-2, max_level=5))
    path = tmp_path / "checkpoint.h5"
    evolve(own, **RUN, adapt=False, checkpoint=path)
    with pytest.raises(ValueError, match="give adapt=False, where the problem has a rule"):
        evolve(own, until=0.2, resume=path)
    assert evolve(own, until=0.2, resume=path, adapt=False).u.size == own.unknowns


def test_the_rule_of_another_problem_and_empty_fields(pde):
    problem = pde.discretize(3, 2)
    own = problem.with_adapt(Adapt(1e-3, every=5, max_level=5, keep=y, fields=[]))
    again = problem.with_adapt(own.adapt)
    assert again.adapt == own.adapt
    np.testing.assert_array_equal(again.grid.cells, own.grid.cells)
