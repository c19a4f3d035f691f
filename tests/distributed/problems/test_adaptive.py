"""Grids that follow the solution on simulated ranks, next to one process."""

import numpy as np
import pytest

from batchkron.distributed import distribute, simulate
from batchkron.distributed.sweeps.sweeps_plan import moved_bounds
from batchkron.problems import make
from batchkron.solvers import Adapt, evolve

RUNS = {
    "explicit": ("continuity-2d", 2, {"dt": 2e-3}, Adapt(1e-3, every=5)),
    "implicit": (
        "diffusion-2d",
        1,
        {"dt": 0.01, "method": "backward-euler"},
        Adapt(1e-3, every=2, horizon=1e-3),
    ),
    "chosen steps": (
        "continuity-2d",
        2,
        {"method": "dormand-prince", "rtol": 1e-6},
        Adapt(1e-3, every=3),
    ),
}


def changes(result):
    """The changes of a run's grid."""
    names = ("event", "step", "unknowns", "added", "removed")
    return [
        tuple(each[name] for name in names)
        for each in result.history
        if each["event"] in ("adapt", "repeat")
    ]


@pytest.mark.parametrize("name", RUNS)
def test_runs_have_the_grids_of_one_process(name):
    """Explicit equal steps have its bits, whoever owns a cell; others are equal to rounding."""
    gallery, degree, options, rule = RUNS[name]
    problem = make(gallery, 3, degree)
    alone = evolve(problem, until=0.06, adapt=rule, **options)
    assert len(changes(alone)) >= 1
    atol = 0 if name == "explicit" else 1e-9 * np.abs(alone.u).max()

    def program(comm, bound):
        part = distribute(problem, comm, max_imbalance=bound)
        result = evolve(part, until=0.06, adapt=rule, **options)
        return result.problem, result.problem.gather(result.u), result

    for ranks, bound in ((1, 1.2), (2, 1.0), (3, 1.2), (3, 1e9)):
        for last, u, result in simulate(ranks, lambda comm, bound=bound: program(comm, bound)):
            np.testing.assert_array_equal(last.whole.grid.cells, alone.problem.grid.cells)
            np.testing.assert_allclose(u, alone.u, rtol=0, atol=atol)
            assert changes(result) == changes(alone)
            assert result.u.shape == last.initial.shape


def test_cells_are_dealt_out_anew_beyond_the_bound():
    """Below it ranks keep their cells, although the work becomes uneven."""
    problem, rule = make("continuity-2d", 3, 2), Adapt(2e-4, every=5)

    def program(comm, bound):
        part = distribute(problem, comm, max_imbalance=bound)
        last = evolve(part, until=0.06, dt=2e-3, adapt=rule).problem
        old, new = (
            [tuple(cell) for cell in each.whole.grid.cells.tolist()] for each in (part, last)
        )
        owner = [dict.fromkeys(old, None), dict.fromkeys(new, None)]
        for each, cells, owners in ((part, old, owner[0]), (last, new, owner[1])):
            ends = np.asarray(each.layout.bounds) // 9
            for rank in range(comm.size):
                owners.update(dict.fromkeys(cells[ends[rank] : ends[rank + 1]], rank))
        stays = [owner[0][cell] == owner[1][cell] for cell in old if cell in owner[1]]
        return last.imbalance, all(stays)

    (even, stays), *_ = simulate(3, lambda comm: program(comm, 1.2))
    assert even <= 1.2
    assert not stays
    (uneven, stays), *_ = simulate(3, lambda comm: program(comm, 1e9))
    assert uneven > 1.5
    assert stays


def test_cells_stay_where_they_are(rng):
    """Each old cell that is still there keeps its rank; new ones join the cell before them."""
    for _ in range(200):
        every = np.unique(rng.integers(0, 6, (int(rng.integers(2, 40)), 3)), axis=0)
        before = every[np.sort(rng.permutation(len(every))[: rng.integers(1, len(every) + 1)])]
        after = every[np.sort(rng.permutation(len(every))[: rng.integers(1, len(every) + 1)])]
        parts = int(rng.integers(1, 6))
        cuts = np.sort(rng.integers(0, len(before) + 1, parts - 1)).tolist()
        bounds = (0, *cuts, len(before))
        found = moved_bounds(before, bounds, after)
        assert found[0] == 0
        assert found[-1] == len(after)
        assert list(found) == sorted(found)
        old = {
            tuple(cell): np.searchsorted(bounds, k, "right") - 1 for k, cell in enumerate(before)
        }
        for k, cell in enumerate(map(tuple, after)):
            below = [known for known in old if known <= cell]
            first = next(rank for rank in range(parts) if bounds[rank + 1] > 0)
            expected = old[max(below)] if below else None
            owner = np.searchsorted(found, k, "right") - 1
            assert owner == expected if below else owner <= first


@pytest.mark.parametrize("name", RUNS)
def test_checkpoints_resume_on_another_number_of_ranks(tmp_path, name):
    gallery, degree, options, rule = RUNS[name]
    problem, path = make(gallery, 3, degree), tmp_path / "run.h5"

    def first(comm):
        part = distribute(problem, comm)
        evolve(part, until=0.03, adapt=rule, checkpoint=path, checkpoint_every=4, **options)

    def second(comm):
        result = evolve(distribute(problem, comm), until=0.06, adapt=rule, resume=path, **chosen)
        return result.problem.gather(result.u), changes(result)

    simulate(3, first)
    chosen = {key: value for key, value in options.items() if key != "dt"}
    alone = evolve(problem, until=0.06, adapt=rule, resume=path, **chosen)
    atol = 0 if name == "explicit" else 1e-9 * np.abs(alone.u).max()
    for ranks in (1, 2, 4):
        for u, found in simulate(ranks, second):
            np.testing.assert_allclose(u, alone.u, rtol=0, atol=atol)
            assert found == changes(alone)


def test_a_batch_form_is_dealt_out_evenly():
    problem, rule = make("continuity-2d", 3, 1).with_form("batch"), Adapt(1e-2, every=4)
    alone = evolve(problem, until=0.02, dt=2e-3, adapt=rule)

    def program(comm):
        result = evolve(distribute(problem, comm), until=0.02, dt=2e-3, adapt=rule)
        return result.problem.gather(result.u)

    for u in simulate(3, program):
        np.testing.assert_allclose(u, alone.u, rtol=0, atol=1e-13 * np.abs(alone.u).max())


def test_errors():
    problem = make("continuity-1d", 2, 1)
    with pytest.raises(ValueError, match=r"max_imbalance is 0\.9; expected 1 or more"):
        distribute(problem, max_imbalance=0.9)
    with pytest.raises(TypeError, match="max_imbalance is 'large'; expected a number"):
        distribute(problem, max_imbalance="large")
    with pytest.raises(ValueError, match="max_imbalance is for a problem, whose grid may change"):
        distribute(problem.operator, max_imbalance=1.1)
    part = distribute(problem)
    with pytest.raises(TypeError, match=r"watch\['w'\] has weights, which belong to one grid"):
        evolve(part, until=0.1, adapt=Adapt(1e-3), watch={"w": np.ones(part.initial.size)})

    class Own:
        """A problem without grids."""

        initial = problem.initial
        time_parts = problem.time_parts

    with pytest.raises(TypeError, match="a Own has no grid that can follow the solution"):
        evolve(distribute(Own()), until=0.1, method="rk4", dt=0.01, adapt=Adapt(1e-3))


def test_ranks_that_decide_differently_all_hear_of_it():
    """As processors that round differently would make them."""

    def program(comm):
        part = distribute(make("continuity-2d", 3, 2), comm)
        begun = part.adaptive(tol=1e-3 if comm.rank else 1e-2)
        with pytest.raises(RuntimeError, match="decided for different grids"):
            begun.started(0.01)
        return True

    assert simulate(3, program) == [True] * 3
