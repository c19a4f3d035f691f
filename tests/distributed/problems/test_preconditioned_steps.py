"""Implicit steps on simulated ranks with preconditioners by name, next to one process."""

from types import SimpleNamespace

import numpy as np
import pytest

import batchkron as bk
from batchkron.distributed import distribute, simulate
from batchkron.problems import PDE, Axis, Dirichlet, Separable, div, grad, make, mass, time
from batchkron.solvers import evolve, steady_state
from batchkron.solvers.preconditioners import CombinationPreconditioner, names


def iterations(result):
    """The iterations of the last solve of each step."""
    return [record["iterations"] for record in result.history if record["event"] == "step"]


@pytest.mark.parametrize(
    ("name", "form"),
    [*((name, "sweep") for name in (*names(), None)), ("auto", "batch"), ("block-jacobi", "batch")],
)
def test_steps_take_the_iterations_of_one_process(name, form):
    """None is the one that a run chooses."""
    problem = make("diffusion-2d", 4, 1).with_form(form)
    options = {"until": 0.1, "dt": 0.05, "method": "backward-euler", "preconditioner": name}
    alone = evolve(problem, **options)
    plain = evolve(problem, **{**options, "preconditioner": "none"})
    assert (iterations(alone) < iterations(plain)) == (name != "none")

    def program(comm):
        part = distribute(problem, comm)
        result = evolve(part, **options)
        return part.gather(result.u), iterations(result)

    for ranks in (1, 3):
        for u, found in simulate(ranks, program):
            assert np.abs(np.subtract(found, iterations(alone))).max() <= 1
            np.testing.assert_allclose(u, alone.u, rtol=0, atol=1e-9 * np.abs(alone.u).max())


@pytest.fixture(scope="module")
def driven():
    """A(t) is a sum of multiples of two operators; of these, IMEX methods take one implicitly."""
    x, y = Axis("x", 0, 1), Axis("y", -1, 1)
    pde = PDE(
        [x, y],
        [
            div(x, -1.0, time=time.polynomial([1.0, 1.0])),
            div(y) @ grad(y),
            mass(x, -0.5, time=time.cos(1.0)),
        ],
        boundary={x: "periodic", y: Dirichlet(0.0)},
        initial=Separable(x=lambda x: 2 + np.cos(2 * np.pi * x), y=lambda y: 1 - y * y),
    )
    return pde.discretize(level=3, degree=1)


@pytest.mark.parametrize("method", ["crank-nicolson", "sdirk3", "ark2"])
@pytest.mark.parametrize("name", ["symmetric-combination", "block-jacobi"])
def test_operators_that_depend_on_time(driven, method, name):
    options = {"until": 0.02, "dt": 0.01, "method": method, "preconditioner": name}
    alone = evolve(driven, **options)

    def program(comm):
        part = distribute(driven, comm)
        result = evolve(part, **options)
        return part.gather(result.u), iterations(result)

    for u, found in simulate(3, program):
        assert np.abs(np.subtract(found, iterations(alone))).max() <= 1
        np.testing.assert_allclose(u, alone.u, rtol=0, atol=1e-8 * np.abs(alone.u).max())


def test_a_preconditioner_is_shifted_where_only_the_step_changes(monkeypatch):
    """Steps that are chosen by their errors: the whole one is made once on each rank."""
    made = []
    known = CombinationPreconditioner.__init__

    def counted(self, *args, **more):
        made.append(1)
        known(self, *args, **more)

    monkeypatch.setattr(CombinationPreconditioner, "__init__", counted)
    problem = make("diffusion-2d", 3, 1)

    def program(comm):
        part = distribute(problem, comm)
        result = evolve(part, until=0.02, method="esdirk3", rtol=1e-4, preconditioner="combination")
        return result.steps

    steps = simulate(2, program)
    assert steps[0] == steps[1] > 2
    assert len(made) == 2


def test_a_preconditioner_that_fits_one_rank_is_refused_by_all():
    """Four cells on three ranks, of which one has two."""
    problem = make("diffusion-1d", 2, 1)

    def program(comm):
        part = distribute(problem, comm)
        sizes = [part.layout.part(rank) for rank in range(comm.size)]
        M = bk.Identity(sizes[0])
        with pytest.raises(ValueError) as error:  # noqa: PT011
            evolve(part, until=0.1, dt=0.1, preconditioner=lambda A, c: M)
        return sizes[comm.rank] == sizes[0], "another rank" in str(error.value)

    results = simulate(3, program)
    assert {fits for fits, _ in results} == {True, False}
    assert all(fits == told for fits, told in results)


def test_names_are_checked_before_a_step():
    problem = make("diffusion-1d", 2, 1)

    def program(comm):
        part = distribute(problem, comm)
        options = {"until": 0.1, "callback": lambda state: pytest.fail("a step was taken")}
        with pytest.raises(ValueError, match="Did you mean 'block-jacobi'"):
            evolve(part, preconditioner="block_jacoby", **options)
        with pytest.raises(ValueError, match="is explicit and solves no system"):
            evolve(part, method="rk4", dt=1e-3, preconditioner="auto", **options)
        with pytest.raises(ValueError, match="takes no preconditioner"):
            evolve(part, method="exponential-euler", preconditioner="auto", **options)

    simulate(2, program)


def test_a_problem_that_cannot_deal_them_out():
    whole = bk.KroneckerSum([-np.eye(2), -np.eye(3)])

    def program(comm):
        op = distribute(whole, comm)
        part = SimpleNamespace(
            initial=op.scatter(np.ones(6)), rhs=lambda t, u, out: op.apply(u, out), operator=op
        )
        with pytest.raises(TypeError, match=r"has no distribute_preconditioner\(M, A\)"):
            evolve(part, until=1.0, dt=0.1, method="backward-euler", preconditioner="auto")
        part.distribute_preconditioner = lambda M, A: distribute(M, like=A)
        with pytest.raises(TypeError, match="does not know its Kronecker terms"):
            evolve(part, until=1.0, dt=0.1, method="backward-euler", preconditioner="combination")

    simulate(2, program)


@pytest.mark.parametrize(
    ("method", "name"), [("bdf", "combination"), ("bdf", None), ("rkc2", "none")]
)
def test_steps_by_their_errors_are_those_of_one_process(tmp_path, method, name):
    """Also of a run that is stopped and resumed on ranks: their memory is gathered."""
    problem = make("diffusion-2d", 3, 1)
    options = {"until": 0.05, "rtol": 1e-6, "method": method}
    if method == "bdf":
        options["preconditioner"] = name
    alone = evolve(problem, **options)
    path = tmp_path / "run.h5"

    def program(comm):
        part = distribute(problem, comm)
        result = evolve(part, **options)
        half = evolve(part, callback=lambda state: state.step == 7, checkpoint=path, **options)
        rest = evolve(part, resume=path, **options)
        return part.gather(result.u), result.steps, half.steps, part.gather(rest.u), rest.steps

    for ranks in (1, 3):
        for u, steps, half, resumed, whole in simulate(ranks, program):
            assert (steps, half, whole) == (alone.steps, 7, alone.steps)
            np.testing.assert_allclose(u, alone.u, rtol=0, atol=1e-10 * np.abs(alone.u).max())
            np.testing.assert_allclose(resumed, u, rtol=0, atol=1e-12 * np.abs(u).max())


def test_nonlinear_systems_on_ranks_are_solved_by_products():
    """Only all ranks together know how long a vector of difference quotients is."""
    rates = np.array([1.0, 30.0, 1000.0])

    def run(method, u, rates, **more):
        def rhs(t, u, out):
            out[...] = rates * (1.0 - u) - u**3

        problem = SimpleNamespace(initial=u, rhs=rhs, **more)
        result = evolve(problem, until=1.0, method=method, rtol=1e-6)
        steady = steady_state(problem)
        assert steady.converged
        return result.u, result.steps, steady.u

    def program(comm):
        part = slice(comm.rank, comm.rank + 1)
        return run(method, np.full(1, 0.2), rates[part], communicator=comm)

    for method in ("bdf", "rkc2"):
        alone = run(method, np.full(3, 0.2), rates)
        found = simulate(3, program)
        assert {steps for _, steps, _ in found} <= {alone[1] - 1, alone[1], alone[1] + 1}
        np.testing.assert_allclose(np.concatenate([u for u, *_ in found]), alone[0], atol=2e-5)
        np.testing.assert_allclose(np.concatenate([u for *_, u in found]), alone[2], atol=1e-5)


@pytest.mark.parametrize("name", ["none", "combination"])
def test_steady_states_on_ranks(name):
    problem = make("diffusion-2d", 3, 1)
    alone = steady_state(problem, t=0.0, preconditioner=name)

    def program(comm):
        part = distribute(problem, comm)
        found = steady_state(part, t=0.0, preconditioner=name)
        return part.gather(found.u), found.status, found.steps

    for u, status, steps in simulate(3, program):
        assert status == alone.status
        assert steps == alone.steps
        np.testing.assert_allclose(u, alone.u, rtol=0, atol=1e-6 * np.abs(alone.u).max())
