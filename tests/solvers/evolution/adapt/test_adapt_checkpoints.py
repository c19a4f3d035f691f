"""Checkpoints of runs whose grid follows the solution: the run goes on with the same bits."""

import numpy as np
import pytest

from batchkron.problems import make
from batchkron.solvers import Adapt, evolve
from batchkron.storage import StoredGrid, load_checkpoint, save_checkpoint

RULE = Adapt(2e-4, every=4, max_level=5)
RUNS = {
    "default steps": {"method": "ssp-rk3"},
    "a step": {"method": "rk4", "dt": 1e-3},
    "tolerances": {"method": "bogacki-shampine", "rtol": 1e-3, "dt": 1e-3},
    "implicit": {"method": "esdirk3", "dt": 2e-3},
}


class InterruptionError(Exception):
    pass


def interrupted(problem, path, step, until, **run):
    """Run with checkpoints until a callback raises at a step."""

    def stop(state):
        if state.step == step:
            raise InterruptionError

    with pytest.raises(InterruptionError):
        evolve(problem, until=until, adapt=RULE, checkpoint=path, checkpoint_every=1,
               callback=stop, **run)  # fmt: skip


def same(found, expected):
    np.testing.assert_array_equal(found.problem.grid.cells, expected.problem.grid.cells)
    np.testing.assert_array_equal(found.u, expected.u)
    assert (found.t, found.steps, found.dt) == (expected.t, expected.steps, expected.dt)


@pytest.mark.parametrize("kind", RUNS)
@pytest.mark.parametrize("step", [3, 5, 9])
def test_a_resumed_run_ends_with_the_same_bits(tmp_path, kind, step):
    problem, run = make("continuity-2d", 3, 2), RUNS[kind]
    until = 0.15 if kind in ("default steps", "tolerances") else 0.03
    expected = evolve(problem, until=until, adapt=RULE, **run)
    assert any(record["event"] == "adapt" for record in expected.history)
    assert expected.steps > step
    path = tmp_path / "run.checkpoint.h5"
    interrupted(problem, path, step, until, **run)
    stored = load_checkpoint(path)
    assert stored.step <= step
    assert stored.grid.cells.shape[0] * 9 == stored.u.size
    again = {key: value for key, value in run.items() if key in ("rtol", "method")}
    found = evolve(problem, until=until, adapt=RULE, resume=path, **again)
    same(found, expected)
    assert [r["event"] for r in found.history].count("resume") == 1


def test_fields_and_a_kept_axis(tmp_path):
    problem, until = make("two-stream", 3, 2), 0.3
    rule = Adapt(3e-3, every=3, max_level=4, keep="v")
    path = tmp_path / "run.checkpoint.h5"
    expected = evolve(problem, until=until, adapt=rule, method="rk4", dt=0.02)
    seen = []
    evolve(problem, until=until, adapt=rule, method="rk4", dt=0.02, checkpoint=path,
           checkpoint_every=6, callback=lambda s: seen.append(s.step) or s.step == 8)  # fmt: skip
    assert load_checkpoint(path).step <= 8
    same(evolve(problem, until=until, adapt=rule, resume=path), expected)


def test_the_end_of_a_run_is_stored_and_goes_on(tmp_path):
    problem, path = make("continuity-2d", 3, 2), tmp_path / "run.checkpoint.h5"
    first = evolve(problem, until=0.01, adapt=RULE, method="rk4", dt=1e-3, checkpoint=path)
    stored = load_checkpoint(path)
    assert (stored.t, stored.step) == (pytest.approx(0.01), 10)
    np.testing.assert_array_equal(stored.u, first.u)
    np.testing.assert_array_equal(stored.grid.cells, first.problem.grid.cells)
    assert stored.problem_hash == problem.content_hash
    found = evolve(problem, until=0.02, adapt=RULE, resume=path)
    assert (found.steps, found.t) == (20, 0.02)


def test_a_checkpoint_of_another_kind_is_refused(tmp_path):
    problem = make("continuity-2d", 3, 2)
    plain, adaptive = tmp_path / "plain.h5", tmp_path / "adaptive.h5"
    evolve(problem, until=0.01, method="rk4", dt=1e-3, checkpoint=plain)
    evolve(problem, until=0.01, adapt=RULE, method="rk4", dt=1e-3, checkpoint=adaptive)
    with pytest.raises(ValueError, match="whose grid follows the solution; give its adapt"):
        evolve(problem, until=0.02, resume=adaptive)
    with pytest.raises(ValueError, match="whose grid does not change; leave adapt out"):
        evolve(problem, until=0.02, resume=plain, adapt=RULE)
    with pytest.raises(ValueError, match="the rule's max_level is 3"):
        evolve(problem, until=0.02, resume=adaptive, adapt=Adapt(2e-4, max_level=3))
    with pytest.raises(ValueError, match="problem_hash"):
        evolve(make("continuity-2d", 2, 2), until=0.02, resume=adaptive, adapt=RULE)


def test_stored_grids_are_checked(tmp_path):
    problem, path = make("continuity-2d", 3, 2), tmp_path / "run.checkpoint.h5"
    evolve(problem, until=0.01, adapt=RULE, method="rk4", dt=1e-3, checkpoint=path)
    stored = load_checkpoint(path)
    grid = stored.grid
    fewer = StoredGrid(grid.cells[1:], grid.levels, grid.calm[1:])
    for changed, u, text in [
        (StoredGrid(grid.cells[::-1], grid.levels, grid.calm), stored.u, "not sorted"),
        (fewer, stored.u[9:], "closed downward"),
        (grid, stored.u[len(grid.cells) :], "has shape"),
    ]:
        wrong = vars(stored) | {"grid": changed, "u": u}
        with pytest.raises(ValueError, match=text):
            evolve(problem, until=0.02, adapt=RULE, resume=type(stored)(**wrong))
    for changed, text in [
        (fewer, f"{stored.u.size} values for the {len(fewer.cells)} cells"),
        (StoredGrid(grid.cells + 64, grid.levels, grid.calm), "'grid/cells' holds"),
        (StoredGrid(grid.cells, grid.levels + 40, grid.calm), "'grid/levels' holds"),
        (StoredGrid(grid.cells, grid.levels, grid.calm - 9), "'grid/calm' holds"),
    ]:
        save_checkpoint(path, type(stored)(**(vars(stored) | {"grid": changed})))
        with pytest.raises(ValueError, match=text):
            load_checkpoint(path, previous=False)
