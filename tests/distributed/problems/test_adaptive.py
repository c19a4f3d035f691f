"""Grids that follow the solution on simulated ranks, next to one process."""

import numpy as np
import pytest

from batchkron.distributed import distribute, simulate
from batchkron.distributed.sweeps.sweeps_plan import moved_bounds
from batchkron.problems import PDE, Axis, Separable, div, grad, make
from batchkron.solvers import Adapt, evolve
from batchkron.solvers.preconditioners import CombinationPreconditioner, block_jacobi
from batchkron.storage import load_checkpoint

x, y = Axis("x", -1, 1), Axis("y", -1, 1)
RULE = Adapt(5e-3, every=3, max_level=5, horizon=0.05)
END = 0.18
GMRES = {"name": "gmres", "rtol": 1e-12}


def pulse(s):
    return np.exp(-40 * (1 - np.cos(np.pi * s)))


@pytest.fixture(scope="module")
def drifting():
    """A pulse that moves and spreads on a torus: cells are needed before it, not behind it."""
    terms = [div(x, -1), div(y, -0.5), div(x, 0.002) @ grad(x), div(y, 0.002) @ grad(y)]
    start = Separable(x=pulse, y=pulse)
    return PDE([x, y], terms, boundary="periodic", initial=start).discretize(level=3, degree=1)


RUNS = {
    "explicit": {"method": "rk4", "dt": 0.01},
    "chosen steps": {"method": "bogacki-shampine", "rtol": 1e-2, "dt": 0.01},
    "implicit": {"method": "crank-nicolson", "dt": 0.02, "solver": GMRES},
    "combination": {
        "method": "crank-nicolson",
        "dt": 0.02,
        "solver": GMRES,
        "preconditioner": "combination",
    },
    "block-jacobi": {
        "method": "backward-euler",
        "dt": 0.02,
        "solver": GMRES,
        "preconditioner": "block-jacobi",
    },
    "exponential": {"method": "exponential-euler", "dt": 0.02, "solver": {"rtol": 1e-11}},
}
# Explicit equal steps have the bits of one process, whoever owns a cell. Other steps depend on sums
# over ranks in another order, and each of at most 20 steps on a solve to 1e-12 of its increment.
BOUND = {name: 0.0 if name == "explicit" else 1e-10 for name in RUNS}


def changes(result):
    """The changes of a run's grid."""
    names = ("event", "step", "unknowns", "added", "removed")
    return [
        tuple(each[name] for name in names)
        for each in result.history
        if each["event"] in ("adapt", "repeat")
    ]


class Steps:
    """A callback that keeps the cells, the whole state and the problem after each step."""

    def __init__(self, stop=None):
        self.cells, self.states, self.problems, self._stop = [], [], [], stop

    def __call__(self, state):
        problem = state.problem
        whole = getattr(problem, "whole", problem)
        self.cells.append(whole.grid.cells)
        self.states.append(state.u.copy() if whole is problem else problem.gather(state.u))
        self.problems.append(problem)
        return state.step == self._stop


def agree(found, expected, bound):
    """The same grids, step for step, and the same states up to a share of the largest element."""
    assert len(found.cells) == len(expected.cells)
    for cells, others in zip(found.cells, expected.cells, strict=True):
        np.testing.assert_array_equal(cells, others)
    for u, other in zip(found.states, expected.states, strict=True):
        np.testing.assert_allclose(u, other, rtol=0, atol=bound * np.abs(other).max())


@pytest.fixture(scope="module")
def alone(drifting):
    """Each run in one process, with its steps; made when it is first asked for."""
    known = {}

    def run(name):
        if name not in known:
            steps = Steps()
            result = evolve(drifting, until=END, adapt=RULE, callback=steps, **RUNS[name])
            known[name] = result, steps
        return known[name]

    return run


@pytest.mark.parametrize("name", RUNS)
def test_runs_have_the_grids_of_one_process(drifting, alone, name):
    expected, steps = alone(name)
    found = changes(expected)
    assert any(added for _, step, _, added, _ in found if step)  # it is refined, and coarsened
    assert any(removed for *_, removed in found)

    def program(comm, bound):
        own = Steps()
        part = distribute(drifting, comm, max_imbalance=bound)
        result = evolve(part, until=END, adapt=RULE, callback=own, **RUNS[name])
        return result, own

    cases = {"explicit": ((1, 1.2), (3, 1e9)), "combination": ((4, 1.0),)}.get(name, ((3, 1.0),))
    for ranks, bound in cases:
        for result, own in simulate(ranks, lambda comm, bound=bound: program(comm, bound)):
            agree(own, steps, BOUND[name])
            assert changes(result) == found
            assert (result.status, result.steps) == (expected.status, expected.steps)
            assert result.u.shape == result.problem.initial.shape
            rebalanced = any(problem.is_rebalanced for problem in own.problems)
            assert rebalanced == (bound == 1.0)


def owners_of(problem):
    """The rank of each cell of a distributed problem with blocks of four."""
    bounds = np.asarray(problem.layout.bounds) // 4
    ranks = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
    return dict(zip(map(tuple, problem.whole.grid.cells.tolist()), ranks, strict=True))


@pytest.mark.parametrize(("ranks", "bound"), [(4, 1.0), (5, 1.1)])
def test_cells_are_dealt_out_anew_where_the_work_is_too_uneven(drifting, alone, ranks, bound):
    """Up to the bound ranks keep their cells; beyond it, cells are dealt out as on a first grid."""

    def program(comm):
        own, part = Steps(), distribute(drifting, comm, max_imbalance=bound)
        evolve(part, until=END, adapt=RULE, callback=own, **RUNS["explicit"])
        problems = [part, *dict.fromkeys(own.problems)]
        return own, problems, [distribute(each.whole, comm) for each in problems]

    (own, problems, even), *_ = simulate(ranks, program)
    agree(own, alone("explicit")[1], 0.0)
    kept, dealt = [], []
    for number, problem in enumerate(problems[1:], 1):
        old, new = owners_of(problems[number - 1]), owners_of(problem)
        stays = all(old[cell] == rank for cell, rank in new.items() if cell in old)
        if problem.is_rebalanced:
            assert problem.layout == even[number].layout
            dealt += [] if stays else [number]
        else:
            assert stays
            assert problem.imbalance <= bound
            kept.append(number)
    later = list(range(2, len(problems)))  # the first change is before the first step
    assert (kept, dealt) == (([], [1, *later]) if bound == 1.0 else (later, [1]))


def test_preconditioners_are_made_for_each_grid_and_its_owners(drifting, alone):
    """For equal steps once for each grid, of an operator with the layout that states then have."""
    expected, steps = alone("combination")

    def program(comm):
        made = []

        def recorded(A, c):
            made.append(A.layout)
            return distribute(CombinationPreconditioner(A, c, composition="symmetric"), like=A)

        run = {**RUNS["combination"], "preconditioner": recorded}
        own, part = Steps(), distribute(drifting, comm, max_imbalance=1.0)
        result = evolve(part, until=END, adapt=RULE, callback=own, **run)
        agree(own, steps, BOUND["combination"])
        return changes(result), made, [problem.layout for problem in own.problems]

    for found, made, layouts in simulate(4, program):
        assert found == changes(expected)
        before_steps = [event for event, step, *_ in found if (event, step) == ("adapt", 0)]
        assert len(made) == 1 + len(found) - len(before_steps)
        assert len({layout.bounds for layout in made}) > 2
        assert list(dict.fromkeys(made)) == list(dict.fromkeys(layouts))


def test_a_preconditioner_of_one_grid_ends_the_run_on_all_ranks(drifting):
    """Its function does not look at A: on the next grid, M does not fit."""

    def program(comm):
        part = distribute(drifting, comm)
        M = distribute(block_jacobi(part.operator, 0.01), like=part.operator)
        run = {**RUNS["implicit"], "preconditioner": lambda A, c: M}
        with pytest.raises(ValueError, match=r"expected|another grid"):
            evolve(part, until=END, adapt=RULE, **run)
        with pytest.raises(TypeError, match="preconditioner is an operator, which belongs to one"):
            evolve(part, until=END, adapt=RULE, **{**RUNS["implicit"], "preconditioner": M})

    simulate(3, program)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"method": "backward-euler", "preconditioner": "jacoby"}, "preconditioner is 'jacoby'"),
        ({"method": "rk4", "preconditioner": "auto"}, "is explicit and solves no system"),
    ],
)
def test_wrong_preconditioners_are_refused_before_a_grid_is_made(monkeypatch, options, text):
    problem = make("diffusion-1d", 2, 1)

    def program(comm):
        part = distribute(problem, comm)
        with pytest.raises(ValueError, match=text):
            evolve(part, until=0.1, dt=0.1, adapt=Adapt(1e-3), **options)

    monkeypatch.setattr(type(problem), "adaptive", lambda *_, **rule: pytest.fail("grids are made"))
    simulate(2, program)


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


@pytest.mark.parametrize("name", ["explicit", "chosen steps", "combination"])
def test_checkpoints_resume_on_another_number_of_ranks(tmp_path, drifting, alone, name):
    """In one process as well: grids, states and steps are those of the run without a break."""
    expected, steps = alone(name)
    path, stop = tmp_path / "run.h5", 7

    def first(comm):
        part, own = distribute(drifting, comm), Steps(stop)
        run = {"checkpoint": path, "checkpoint_every": 1, **RUNS[name]}
        assert evolve(part, until=END, adapt=RULE, callback=own, **run).steps == stop

    chosen = {key: value for key, value in RUNS[name].items() if key != "dt"}

    def second(comm):
        part = drifting if comm is None else distribute(drifting, comm)
        own = Steps()
        result = evolve(part, until=END, adapt=RULE, resume=path, callback=own, **chosen)
        return result, own

    simulate(3, first)
    kept = load_checkpoint(path)
    assert 0 < kept.step <= stop
    assert kept.grid is not None
    for result, own in (second(None), *simulate(4, second)):
        assert (result.steps, result.t) == (expected.steps, expected.t)
        assert changes(result) == changes(expected)
        rest = Steps()
        rest.cells, rest.states = (each[-len(own.cells) :] for each in (steps.cells, steps.states))
        agree(own, rest, BOUND[name])


def test_a_batch_form_is_dealt_out_evenly():
    problem, rule = make("continuity-2d", 3, 1).with_form("batch"), Adapt(1e-2, every=4)
    alone = evolve(problem, until=0.02, dt=2e-3, adapt=rule)

    def program(comm):
        result = evolve(distribute(problem, comm), until=0.02, dt=2e-3, adapt=rule)
        return result.problem.gather(result.u)

    for u in simulate(3, program):
        np.testing.assert_allclose(u, alone.u, rtol=0, atol=1e-13 * np.abs(alone.u).max())


def test_fields_are_refused_and_frozen_ones_are_not():
    """A kinetic problem, whose fields depend on the state, and the linear one of one state."""
    problem, rule = make("two-stream", 3, 1), Adapt(3e-2, every=3, keep="v")
    with pytest.raises(TypeError, match="the problem has fields, so that its operators depend on"):
        simulate(2, lambda comm: distribute(problem, comm))
    frozen = problem.frozen(problem.initial)
    run = {"until": 0.2, "dt": 0.02, "method": "rk4", "adapt": rule}
    expected = evolve(frozen, **run)
    assert any(removed for *_, removed in changes(expected))

    def program(comm):
        result = evolve(distribute(frozen, comm), **run)
        return result.problem.gather(result.u), changes(result)

    for u, found in simulate(3, program):
        assert found == changes(expected)
        np.testing.assert_array_equal(u, expected.u)


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
