"""Runs in time of problems whose state is spread over simulated ranks, next to one process."""

import errno
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.linalg
from dense_oracle import random_array
from several_steps import several_at_once, without_seconds

import batchkron as bk
from batchkron.distributed import DistributedProblem, distribute, simulate
from batchkron.problems import (
    PDE,
    Axis,
    Dirichlet,
    LinearProblem,
    Neumann,
    Separable,
    div,
    grad,
    make,
    mass,
    time,
)
from batchkron.solvers import Adapt, CheckpointError, EvolveStatus, Quantity, evolve
from batchkron.solvers.evolution import stepping
from batchkron.solvers.krylov.phi_functions import KrylovPhi
from batchkron.solvers.steppers import Stepper
from batchkron.solvers.steppers.step_runner import StepRunner
from batchkron.storage import load_checkpoint


def run_on(ranks, problem, **options):
    """The whole state, the result and the L2 error on each rank."""

    def program(comm):
        part = distribute(problem, comm)
        result = evolve(part, **options)
        return part.gather(result.u), result

    return simulate(ranks, program)


@pytest.fixture(scope="module")
def driven():
    """Terms, a source and boundary data that depend on time, with an explicit and implicit part."""
    x, y = Axis("x", 0, 1), Axis("y", -1, 1)
    pde = PDE(
        [x, y],
        [
            div(x, -1.0, time=time.polynomial([1.0, 1.0])),
            div(y) @ grad(y),
            mass(x, -0.5, time=time.cos(1.0)),
        ],
        boundary={
            x: "periodic",
            y: (Dirichlet(Separable(t=time.polynomial([0.0, 1.0]))), Neumann(0.3)),
        },
        sources=Separable(x=lambda x: np.sin(2 * np.pi * x), t=time.exp(1.0)),
        initial=Separable(x=lambda x: np.cos(2 * np.pi * x), y=lambda y: 1 - y * y),
    )
    return pde.discretize(level=3, degree=2)


@pytest.mark.parametrize("method", ["ssp-rk3", "rk4", "forward-euler"])
def test_explicit_steps_have_the_bits_of_one_process(method):
    problem = make("continuity-2d", 4, 2)
    options = {"until": 0.02, "method": method, "dt": 0.002}
    alone = evolve(problem, **options)
    for ranks in (1, 2, 5):
        for u, result in run_on(ranks, problem, **options):
            np.testing.assert_array_equal(u, alone.u)
            assert result.status is EvolveStatus.COMPLETED
            assert (result.steps, result.t) == (alone.steps, alone.t)


def test_adaptive_steps_are_the_same_on_all_ranks():
    problem = make("continuity-2d", 3, 2)
    options = {"until": 0.3, "method": "dormand-prince", "rtol": 1e-6}
    alone = evolve(problem, **options)
    for ranks in (2, 3):
        results = run_on(ranks, problem, **options)
        for u, result in results:
            assert (result.steps, result.rejected) == (alone.steps, alone.rejected)
            assert result.last_error == results[0][1].last_error
            np.testing.assert_allclose(result.dt, alone.dt, rtol=1e-6)
            np.testing.assert_allclose(u, alone.u, rtol=0, atol=1e-10 * np.abs(alone.u).max())


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"method": "esdirk3", "rtol": 1e-4},
        {"method": "backward-euler", "solver": {"name": "bicgstab", "rtol": 1e-11}, "dt": 0.004},
    ],
    ids=lambda options: options.get("method", "default"),
)
def test_implicit_steps(options):
    problem = make("diffusion-2d", 3, 1)
    alone = evolve(problem, until=0.02, **options)

    def program(comm):
        part = distribute(problem, comm)
        result = evolve(part, until=0.02, **options)
        return part.gather(result.u), result, part.l2_error(result.u, result.t)

    for u, result, error in simulate(3, program):
        assert (result.status, result.steps) == (alone.status, alone.steps)
        np.testing.assert_allclose(u, alone.u, rtol=0, atol=1e-9 * np.abs(alone.u).max())
        np.testing.assert_allclose(error, problem.l2_error(alone.u, alone.t), rtol=1e-5)


@pytest.mark.parametrize(
    "options",
    [
        {"method": "exponential-euler", "dt": 0.02},
        {"method": "exponential-trapezoidal", "rtol": 1e-3},
        {"method": "exponential-euler", "dt": 0.02, "solver": {"dimension": 8}},  # with substeps
    ],
    ids=["equal", "chosen", "short spaces"],
)
def test_exponential_steps(driven, options):
    """The Krylov space is one of whole vectors, also where a rank has fewer elements than it."""
    several = driven if "rtol" in options else make("diffusion-2d", 3, 1)
    for problem, ranks in ((several, 3), (make("diffusion-1d", 2, 1), 5)):  # four cells on five
        alone = evolve(problem, until=0.02, **options)
        results = run_on(ranks, problem, **options, until=0.02)
        assert (0 in {result.u.size for _, result in results}) == (ranks == 5)
        for u, result in results:
            assert (result.status, result.steps) == (alone.status, alone.steps)
            np.testing.assert_array_equal(u, results[0][0])
            np.testing.assert_allclose(u, alone.u, rtol=0, atol=1e-9 * np.abs(alone.u).max())


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_phi_functions_of_vectors_on_ranks(rng, dtype):
    """Next to the exponential of the dense augmented matrix."""
    factors = [random_array(rng, (n, n), dtype) - 2 * np.eye(n) for n in (3, 4)]
    whole, dt = bk.KroneckerSum(factors), 0.5
    vectors = [random_array(rng, 12, dtype) for _ in range(3)]
    augmented = np.zeros((14, 14), dtype)  # w' = A w + v_1 + t v_2
    augmented[:12, :12], augmented[:12, 12] = whole.to_dense(), vectors[2]
    augmented[:12, 13], augmented[12, 13] = vectors[1], 1.0
    start = np.concatenate([vectors[0], [0.0, 1.0]])
    expected = (scipy.linalg.expm(dt * augmented) @ start)[:12]

    def program(comm):
        op = distribute(whole, comm, (1, 5))
        blocks = [op.scatter(vector) for vector in vectors]
        out = np.full_like(blocks[0], np.nan)
        phi = KrylovPhi(out, rtol=1e-12, dimension=9, ranks=op.communicator)
        result = phi.solve(lambda x, y: op.apply(x, y), blocks, dt, out)
        return op.gather(out), result

    results = simulate(5, program)
    assert {len(result.x) for _, result in results} == {0, 4}  # three slices of four on five ranks
    for w, result in results:
        assert result.converged
        np.testing.assert_array_equal(w, results[0][0])
        np.testing.assert_allclose(w, expected, rtol=0, atol=1e-11 * np.abs(expected).max())


@pytest.mark.parametrize("method", ["ark2", "crank-nicolson", "rk4"])
@pytest.mark.parametrize("form", ["sweep", "batch"])
def test_everything_that_depends_on_time(driven, method, form):
    problem = driven.with_form(form)
    options = {"until": 0.004, "method": method, "dt": 0.0005 if method == "rk4" else 0.002}
    alone = evolve(driven, **options)
    for u, result in run_on(3, problem, **options):
        assert result.status is EvolveStatus.COMPLETED
        np.testing.assert_allclose(u, alone.u, rtol=0, atol=1e-9 * np.abs(alone.u).max())


def test_the_right_side_is_that_of_the_whole_problem(driven, rng):
    u, t = rng.standard_normal(driven.unknowns), 0.3
    assert len(driven.time_parts().operators) > 1
    whole = [np.full_like(u, np.nan) for _ in range(3)]
    driven.rhs(t, u, whole[0])
    driven.source(t, whole[1])
    driven.implicit_source(t, whole[2])
    product = driven.implicit_operator_at(t) @ u

    def program(comm):
        part = distribute(driven, comm)
        assert isinstance(part, DistributedProblem)
        block = part.scatter(u if comm.rank == 1 else None, root=1)
        outs = [np.full_like(block, np.nan) for _ in range(3)]
        part.rhs(t, block, outs[0])
        part.source(t, outs[1])
        part.implicit_source(t, outs[2])
        outs.append(part.implicit_operator_at(t) @ block)
        with pytest.raises(ValueError, match="depends on time"):
            part.operator  # noqa: B018
        return [part.gather(out) for out in outs], part.gather(part.initial)

    for outs, initial in simulate(4, program):
        for out, expected in zip(outs, [*whole, product], strict=True):
            scale = np.abs(expected).max()
            np.testing.assert_allclose(out, expected, rtol=0, atol=1e-13 * scale)
        np.testing.assert_array_equal(initial, driven.initial)


def test_ranks_without_cells_take_all_steps():
    problem = make("diffusion-1d", 2, 1)  # four cells
    alone = evolve(problem, until=0.01, rtol=1e-5, method="sdirk3")

    def program(comm):
        part = distribute(problem, comm)
        result = evolve(part, until=0.01, rtol=1e-5, method="sdirk3")
        return part.gather(result.u), result.steps, part.initial.size

    results = simulate(5, program)
    assert 0 in {size for _, _, size in results}
    for u, steps, _ in results:
        assert steps == alone.steps
        np.testing.assert_allclose(u, alone.u, rtol=0, atol=1e-9 * np.abs(alone.u).max())


def test_a_step_that_is_too_long_is_refused_on_all_ranks():
    problem = make("continuity-2d", 3, 2)
    texts = []

    def program(comm):
        with pytest.raises(ValueError, match="is not stable with it") as error:
            evolve(distribute(problem, comm), until=1.0, method="rk4", dt=0.5)
        texts.append(str(error.value))

    simulate(3, program)
    assert len(texts) == 3
    assert len(set(texts)) == 1


@pytest.mark.parametrize("method", ["forward-euler", "rk4"])
def test_growth_ends_the_run_on_all_ranks_at_once(method):
    problem = make("continuity-2d", 3, 2)
    options = {"until": 20.0, "method": method, "dt": 0.2, "allow_unstable": True}
    alone = evolve(problem, **options)
    assert alone.status is EvolveStatus.UNSTABLE
    for _, result in run_on(3, problem, **options):
        assert (result.status, result.steps) == (alone.status, alone.steps)


@pytest.mark.parametrize("rate", [20.0, 30.0])  # a step of 0.1 is stable, and is not
def test_steps_are_compared_with_halves_on_all_ranks(rate):
    """A right-hand side alone: only rank 0 has a component that grows."""
    rates = [rate, 1.0, 0.5]

    def run(u, rates, **more):
        def rhs(t, u, out):
            out[...] = -np.asarray(rates) * u

        problem = SimpleNamespace(initial=u, rhs=rhs, **more)
        result = evolve(problem, until=10.0, method="rk4", dt=0.1)
        return result.status, result.steps

    def program(comm):
        return run(np.ones(1), rates[comm.rank : comm.rank + 1], communicator=comm)

    alone = run(np.ones(3), rates)
    assert alone[0] is (EvolveStatus.COMPLETED if rate == 20.0 else EvolveStatus.UNSTABLE)
    assert simulate(3, program) == [alone] * 3


def test_a_state_that_is_not_finite_on_one_rank_ends_the_run():
    whole = bk.KroneckerProduct([np.eye(3), np.eye(2)])

    def program(comm):
        op = distribute(whole, comm, (1, 3))

        def rhs(t, u, out):
            op.apply(u, out)
            if comm.rank == 1 and t > 0.4:
                out[...] = np.inf

        part = SimpleNamespace(initial=op.scatter(np.ones(6)), rhs=rhs, communicator=comm)
        return evolve(part, until=1.0, method="ssp-rk2", dt=0.1)

    results = simulate(3, program)
    assert {result.status for result in results} == {EvolveStatus.NOT_FINITE}
    assert len({result.steps for result in results}) == 1


def test_an_initial_state_that_is_not_finite_is_refused_by_all():
    def program(comm):
        u = np.array([np.nan if comm.rank == 1 else 1.0])
        part = SimpleNamespace(initial=u, rhs=lambda t, u, out: None, communicator=comm)
        with pytest.raises(ValueError, match="NaN or infinite"):
            evolve(part, until=1.0, method="rk4", dt=0.1)

    simulate(3, program)


def test_one_rank_stops_all_and_weights_are_summed_over_ranks():
    problem = make("continuity-2d", 3, 1)
    weights = np.random.default_rng(3).standard_normal(problem.unknowns)
    options = {"until": 0.1, "method": "ssp-rk3", "dt": 0.01, "at": [0.0, 0.015, 0.03]}
    alone = evolve(problem, watch={"w": weights}, callback=lambda state: state.step == 4, **options)

    def program(comm):
        part = distribute(problem, comm)
        result = evolve(
            part,
            watch={"w": Quantity(part.scatter(weights), 1e6)},
            callback=lambda state: comm.rank == 2 and state.step == 4,
            **options,
        )
        return result, [part.gather(u) for _, u in result.samples]

    for result, samples in simulate(3, program):
        assert (result.status, result.steps) == (EvolveStatus.STOPPED, 4)
        for sample, (_, expected) in zip(samples, alone.samples, strict=True):
            np.testing.assert_allclose(sample, expected, rtol=0, atol=1e-14 * abs(expected).max())
        np.testing.assert_allclose(result.watched["w"].drift, alone.watched["w"].drift, rtol=1e-9)


@pytest.mark.parametrize("adapt", [None, Adapt(1e-2, every=5, max_level=4)], ids=["", "adapt"])
def test_quantities_by_name(adapt):
    problem = make("continuity-2d", 3, 1)
    names = "mass", "x^2", "norm", "error"
    options = {"until": 0.1, "method": "rk4", "dt": 0.01, "adapt": adapt}
    alone = evolve(problem, watch=problem.quantities(*names), **options)

    def program(comm):
        part = distribute(problem, comm)
        assert list(part.quantities()) == list(problem.quantities())
        return evolve(part, watch=part.quantities(*names), **options)

    for result in simulate(3, program):
        for name in names:
            found, expected = result.watched[name], alone.watched[name]
            assert (found.label, found.unit) == (expected.label, expected.unit)
            np.testing.assert_allclose(result.recorded[name], alone.recorded[name], atol=1e-12)


def test_quantities_of_linear_problems(rng):
    factors = [-np.eye(4) - 0.1 * rng.random((4, 4)), np.eye(3)]
    problem = LinearProblem(
        bk.KroneckerProduct(factors), rng.random(12), quantities={"w": rng.random(12)}
    )
    options = {"until": 0.1, "method": "rk4", "dt": 0.05}
    alone = evolve(problem, watch=problem.quantities(), **options)

    def program(comm):
        part = distribute(problem, comm)
        return evolve(part, watch=part.quantities(), **options)

    for result in simulate(2, program):
        for name in ("w", "norm"):
            np.testing.assert_allclose(result.recorded[name], alone.recorded[name], rtol=1e-12)


def test_problems_without_quantities():
    problem = make("continuity-1d", 2, 1)
    whole = SimpleNamespace(initial=problem.initial, time_parts=problem.time_parts)
    with pytest.raises(TypeError, match="a SimpleNamespace has no quantities by name"):
        distribute(whole).quantities("mass")


def test_progress_is_shown_by_rank_0(capfd):
    problem = make("continuity-1d", 3, 1)
    run_on(3, problem, until=0.02, dt=0.01, method="rk4", progress=True)
    shown = capfd.readouterr().err
    run_on(1, problem, until=0.02, dt=0.01, method="rk4", progress=True)
    assert shown.count("\n") == capfd.readouterr().err.count("\n") > 0


def test_fields_are_refused():
    problem = make("landau-1x1v", 3, 1)

    def program(comm):
        with pytest.raises(TypeError, match="the problem has fields"):
            distribute(problem, comm)
        distribute(problem.frozen(problem.initial), comm)
        with pytest.raises(TypeError, match="an electric field of several positions, which cannot"):
            distribute(make("landau-2x2v", 1, 1), comm)

    simulate(2, program)


class Own(Stepper):
    """A method of one's own, which does not say that it works on ranks."""

    name, order, stages, real_limit, imaginary_limit = "own", 1, 1, 2.0, 0.0

    def step(self, u, t, t_next):
        raise AssertionError("a step was taken")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"solver": lambda A, b, M: (b, 0), "method": "backward-euler"}, "solver is a function"),
        ({"events": lambda t, u: u[0]}, "events are functions"),
        ({"watch": {"w": lambda t, u: u[0]}}, r"watch\['w'\] is a function"),
        (
            {"method": Own, "dt": 0.01},
            "takes no steps of a state that is spread over ranks; take one of",
        ),
    ],
    ids=lambda case: case if isinstance(case, str) else "-".join(case),
)
def test_what_needs_whole_states_is_refused(options, text):
    problem = make("diffusion-1d", 2, 1)

    def program(comm):
        with pytest.raises(TypeError, match=text):
            evolve(distribute(problem, comm), until=0.1, **options)

    simulate(2, program)


@pytest.mark.parametrize("options", [{"method": "rk4", "dt": 0.002}, {"rtol": 1e-5, "dt": 0.002}])
def test_checkpoints_resume_on_another_number_of_ranks(tmp_path, options):
    """Rank 0 writes what one process writes; explicit steps go on with the same bits."""
    problem = make("continuity-2d", 3, 2)
    options = {"method": "bogacki-shampine", **options}
    whole = evolve(problem, until=0.04, **options)
    path = tmp_path / "run.h5"
    saved = run_on(
        3,
        problem,
        until=0.04,
        callback=lambda state: state.step == 5,
        checkpoint=path,
        checkpoint_every=2,
        **options,
    )
    checkpoint = load_checkpoint(path)
    np.testing.assert_array_equal(checkpoint.u, saved[0][0])
    assert (checkpoint.step, checkpoint.problem_hash) == (5, problem.content_hash)
    tolerance = 0 if "rtol" not in options else 1e-9
    for ranks in (1, 2):
        for u, result in run_on(ranks, problem, until=0.04, resume=path, **options):
            assert (result.status, result.steps) == (EvolveStatus.COMPLETED, whole.steps)
            atol = tolerance * np.abs(whole.u).max()
            np.testing.assert_allclose(u, whole.u, rtol=0, atol=atol)
    alone = evolve(problem, until=0.04, resume=path, **options)
    np.testing.assert_allclose(alone.u, whole.u, rtol=0, atol=tolerance * np.abs(whole.u).max())


def test_checkpoints_by_the_clock_are_those_of_rank_0(tmp_path):
    problem = make("continuity-1d", 3, 1)
    path = tmp_path / "run.h5"
    run_on(2, problem, until=0.02, dt=0.01, method="rk4", checkpoint=path, checkpoint_every=1e-9)
    assert load_checkpoint(path).step == 2
    assert load_checkpoint(tmp_path / "run.h5.previous").step == 1


def test_a_checkpoint_that_cannot_be_written_is_known_to_all(tmp_path, monkeypatch):
    problem = make("continuity-1d", 3, 1)
    options = {"until": 0.02, "dt": 0.01, "method": "rk4"}

    def full(path, checkpoint):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("batchkron.solvers.evolution.checkpoints.save_checkpoint", full)

    def program(comm):
        with pytest.raises(CheckpointError) as error:
            evolve(distribute(problem, comm), checkpoint=tmp_path / "run.h5", **options)
        return error.value.result.steps

    assert simulate(3, program) == [2, 2, 2]

    def nowhere(comm):
        with pytest.raises(ValueError, match="checkpoint is") as error:
            evolve(distribute(problem, comm), checkpoint=tmp_path / "no" / "run.h5", **options)
        return "rank 0 cannot write" in str(error.value)

    assert simulate(3, nowhere) == [False, True, True]


def test_checkpoints_need_ways_to_the_whole_state():
    def program(comm):
        part = SimpleNamespace(
            initial=np.ones(1), rhs=lambda t, u, out: np.negative(u, out=out), communicator=comm
        )
        with pytest.raises(TypeError, match="has no gather"):
            evolve(part, until=1.0, dt=0.1, method="rk4", checkpoint="run.h5")

    simulate(2, program)


def test_problems_that_cannot_be_distributed():
    problem = make("diffusion-1d", 2, 1)
    with pytest.raises(TypeError, match=r"with_form\('sweep'\)"):
        distribute(problem.with_form("dense"))
    with pytest.raises(ValueError, match="has one state"):
        distribute(problem, rows=2)

    def program(comm):
        with pytest.raises(ValueError, match=r"expected 'auto' or \(1, 2\)"):
            distribute(problem, comm, (2, 1))

    simulate(2, program)


def test_an_operator_of_ones_own_is_tested_on_all_ranks(rng):
    """f(t, u) = A u is accepted with the whole A and refused with another one."""
    factors = [-np.eye(n) + rng.standard_normal((n, n)) / 10 for n in (4, 5)]
    whole = bk.KroneckerSum(factors)
    u = rng.standard_normal(20)

    def program(comm):
        op = distribute(whole, comm)
        part = SimpleNamespace(initial=op.scatter(u), rhs=op.apply, operator=op)
        part.rhs = lambda t, u, out: op.apply(u, out)
        found = op.gather(evolve(part, until=0.1, method="crank-nicolson", dt=0.05).u)
        explicit = op.gather(evolve(part, until=0.1, method="rk4", dt=0.05).u)
        part.operator = 2 * op
        with pytest.raises(ValueError, match="differ"):
            evolve(part, until=0.1, method="crank-nicolson", dt=0.05)
        return found, explicit

    alone = SimpleNamespace(initial=u, rhs=lambda t, u, out: whole.apply(u, out), operator=whole)
    expected = evolve(alone, until=0.1, method="crank-nicolson", dt=0.05).u
    for found, explicit in simulate(3, program):
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-8)
        np.testing.assert_allclose(explicit, expected, rtol=0, atol=1e-3)


@pytest.mark.parametrize("method", ["ssp-rk3", "rk4", "dormand-prince"])
def test_several_steps_at_once_are_those_taken_one_by_one(driven, method):
    options = {"until": 0.02, "dt": 1e-4, "method": method}
    single = run_on(3, driven, **options)
    with several_at_once() as seen:
        together = run_on(3, driven, **options)
    assert max(seen.batches) > 16
    for (u, result), (v, other) in zip(single, together, strict=True):
        np.testing.assert_array_equal(u, v)
        assert without_seconds(result) == without_seconds(other)
        assert result.history[-2]["norm"] == pytest.approx(np.linalg.norm(u), rel=1e-14)


def test_ranks_whose_clocks_differ_take_the_same_steps(monkeypatch, rng):
    monkeypatch.setattr(StepRunner, "is_faster_ahead", True)
    clock = SimpleNamespace(perf_counter=lambda: float(rng.random()))
    monkeypatch.setattr(stepping, "time", clock)
    problem = make("continuity-2d", 3, 1)
    for u, result in run_on(3, problem, until=0.2, dt=1e-3):
        assert result.steps == 200
        np.testing.assert_array_equal(u, evolve(problem, until=0.2, dt=1e-3).u)


def test_sources_that_are_functions_of_all_axes():
    """Those of the axes alone are vectors; those of the time, too, are refused before any work."""
    x, y = Axis("x", 0, 1), Axis("y", 0, 1)

    def problem(source):
        terms = [div(x, -1.0), div(y, 0.5)]
        start = "exp(sin(6 * (x + y)))"
        pde = PDE([x, y], terms, boundary="periodic", initial=start, sources=source)
        return pde.discretize(4, 1)

    options = {"until": 0.02, "dt": 0.002, "method": "ssp-rk3"}
    steady = problem("x * (1 - x) * exp(y)")
    alone = evolve(steady, **options).u

    def program(comm):
        part = distribute(steady, comm)
        return part.gather(evolve(part, **options).u)

    for found in simulate(3, program):
        np.testing.assert_allclose(found, alone, rtol=0, atol=1e-13)
    with pytest.raises(TypeError, match="functions of all axes and the time, which cannot be"):
        simulate(2, lambda comm: distribute(problem("x * t"), comm))
