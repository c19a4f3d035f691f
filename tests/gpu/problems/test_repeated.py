"""Fields of the state as CUDA graphs: right-hand sides, implicit parts, whole steps."""

import gc
import threading
import weakref
from contextlib import contextmanager

import numpy as np
import pytest
from problem_oracle import rates

from batchkron.problems import (
    PDE,
    Axis,
    Moment,
    Poisson,
    Separable,
    SparseGrid,
    div,
    grad,
    make,
    mass,
    time,
)
from batchkron.solvers import Adapt, evolve, steppers

pytestmark = pytest.mark.gpu

CALLS = 8  # the first ones are not graphs


def close(found, expected, factor=1e-12):
    scale = factor * np.abs(expected).max()
    np.testing.assert_allclose(found.get(), expected, rtol=0, atol=scale)


@pytest.fixture
def no_launches(monkeypatch):
    """Refuses launches of our kernels from Python, in a `with` block."""
    from batchkron.backends.cuda.runtime.launch import Launch

    def refuse(*arguments):
        raise AssertionError("Python launches a kernel")

    @contextmanager
    def refusing():
        with monkeypatch.context() as patch:
            patch.setattr(Launch, "__call__", refuse)
            yield

    return refusing


def vlasov(coefficient=None, source=None):
    """Vlasov-Poisson with a force that may depend on time, and a source that may."""
    x, v = Axis("x", 0.0, 3.0), Axis("v", -6.0, 6.0)
    force = div(v, -1.0, others={x: Poisson(x, Moment(v))})
    if coefficient is not None:
        force = force * coefficient
    terms = [div(x, -1.0, others={v: lambda s: s}), force, mass(x, lambda s: -0.1 * s)]
    initial = Separable(
        x=lambda s: 1.0 + 0.1 * np.cos(2.0 * np.pi * s / 3.0),
        v=lambda s: np.exp(-0.5 * (s - 1.0) ** 2),
    )
    options = {} if source is None else {"sources": [Separable(
        x=lambda s: 1.0 + 0.0 * s, v=lambda s: np.exp(-(s**2)), t=source)]}  # fmt: skip
    pde = PDE([x, v], terms, boundary={x: "periodic", v: "inflow"}, initial=initial, **options)
    return pde.discretize(3, 2)


def moving(make_term=div, **options):
    """A wave that moves with the mean velocity of its state, and a force."""
    x, v = Axis("x", 0.0, 3.0), Axis("v", -6.0, 6.0)
    u = Moment({v: 1}) / Moment(v)
    terms = [make_term(x, -u, **options), div(v, -1.0, others={x: Poisson(x, Moment(v))})]
    initial = Separable(
        x=lambda s: 1.0 + 0.1 * np.cos(2.0 * np.pi * s / 3.0),
        v=lambda s: np.exp(-0.5 * (s - 1.0) ** 2),
    )
    pde = PDE([x, v], terms, boundary={x: "periodic", v: "inflow"}, initial=initial)
    return pde.discretize(4, 2)


PROBLEMS = {
    "derivative of a field": moving,
    "gradient and a field": lambda: moving(grad),
    "central derivative of a field": lambda: moving(flux="central"),
    "two-stream": lambda: make("two-stream", 6, 2),
    "two velocities": lambda: make("landau-1x2v", 3, 1),
    "collisions": lambda: make("collisional-landau-1x1v", 5, 2),
    "relaxation": lambda: make("relaxation-1x1v", 4, 2),
    "maxwellian": lambda: make("bgk-1x1v", 4, 2),
    "level 0": lambda: make("two-stream", 0, 2),
    "batch": lambda: make("two-stream", 4, 1).with_form("batch"),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_right_hand_sides_without_launches(cupy, rng, no_launches, name):
    problem = PROBLEMS[name]()
    device, out = problem.to("cuda"), cupy.full(problem.unknowns, np.nan)
    for _ in range(CALLS):
        u = problem.initial * rng.uniform(0.99, 1.01, problem.unknowns)
        device.rhs(0.0, cupy.asarray(u), out)
        close(out, rates(problem, u), 1e-11)
    assert device.system._repeated.is_captured
    assert not device.system._gains or device.system._gains._repeated.is_captured
    for _ in range(2):
        u = problem.initial * rng.uniform(0.99, 1.01, problem.unknowns)
        given = cupy.asarray(u)  # other arrays than before
        out = cupy.full(problem.unknowns, np.nan)
        with no_launches():
            device.rhs(0.0, given, out)
        close(out, rates(problem, u), 1e-11)
    assert device.validate(samples=5).ok
    for _ in range(2):  # the transpose that was made follows, too
        device.rhs(0.0, given, out)
        close(out, rates(problem, u), 1e-11)
    assert device.validate(samples=5).ok
    added = cupy.asarray(problem.initial)
    device.accumulate(0.0, given, added)
    close(added, problem.initial + rates(problem, u), 1e-11)


@pytest.mark.parametrize("kind", ["coefficient", "source", "both"])
def test_what_depends_on_time_is_followed(cupy, rng, kind):
    wave = time.cos(1.0)
    problem = vlasov(**{key: wave for key in ("coefficient", "source") if kind in (key, "both")})
    device, out = problem.to("cuda"), cupy.full(problem.unknowns, np.nan)
    for t in np.linspace(0.0, 1.0, CALLS):
        u = problem.initial * rng.uniform(0.9, 1.1, problem.unknowns)
        device.rhs(t, cupy.asarray(u), out)
        close(out, rates(problem, u, t))
    assert (device.system._repeated is None) == (kind != "source")
    runs = [evolve(one, until=0.1, method="rk4", dt=0.01).u for one in (device, problem)]
    close(*runs, 1e-11)


def test_streams_and_threads_take_turns(cupy, rng):
    problem = make("two-stream", 5, 2)
    device = problem.to("cuda")
    states = [problem.initial * rng.uniform(0.9, 1.1, problem.unknowns) for _ in range(4)]
    expected = [rates(problem, u) for u in states]
    results = [None] * len(states)

    def work(k):
        with cupy.cuda.Stream(non_blocking=True) as stream:
            u, found = cupy.asarray(states[k]), []
            for _ in range(2 * CALLS):
                found.append(cupy.full(u.shape, np.nan))
                device.rhs(0.0, u, found[-1])
            stream.synchronize()
            results[k] = found

    threads = [threading.Thread(target=work, args=(k,)) for k in range(len(states))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for found, right in zip(results, expected, strict=True):
        for one in found:
            close(one, right)


def test_a_capture_of_the_user_after_ours(cupy, captured, rng):
    problem = make("two-stream", 4, 2)
    device = problem.to("cuda")
    u, out = cupy.array(device.initial), cupy.full(problem.unknowns, np.nan)
    for _ in range(CALLS):
        device.rhs(0.0, u, out)
    stream = cupy.cuda.Stream(non_blocking=True)
    graph = captured(stream, lambda: device.rhs(0.0, u, out))
    u *= 0.5
    cupy.cuda.Device().synchronize()
    graph.launch(stream)
    stream.synchronize()
    close(out, rates(problem, u.get()))


@pytest.mark.parametrize("method", ["forward-euler", "ssp-rk3", "rk4"])
@pytest.mark.parametrize("name", ["two-stream", "continuity-2d", "frozen"])
def test_steps_without_launches(cupy, no_launches, method, name):
    problem = make("two-stream" if name == "frozen" else name, 4, 2)
    device = problem.to("cuda")
    if name == "frozen":
        problem, device = problem.frozen(problem.initial), device.frozen(device.initial)
    dt = 1e-3 if problem.stepper is None else 0.1 * problem.stepper.dt
    steps = [steppers.get(method)(one, dt) for one in (problem, device)]
    u, v = problem.initial.copy(), cupy.array(device.initial)
    for k in range(CALLS):
        for stepper, state in zip(steps, (u, v), strict=True):
            stepper.step(state, k * dt, (k + 1) * dt)
    close(v, u, 1e-11)
    for t, length in ((CALLS * dt, dt), (0.3, 0.5 * dt), (0.1, dt)):  # the graph serves all times
        for stepper in steps:
            stepper.dt = length
        steps[0].step(u, t, t + length)
        with no_launches():
            steps[1].step(v, t, t + length)
        close(v, u, 1e-11)


def test_an_update_of_the_operator_is_followed(cupy):
    problem = make("two-stream", 4, 2)
    problem = problem.frozen(problem.initial)
    device = problem.to("cuda")
    stepper, dt = steppers.get("rk4"), 0.1 * problem.stepper.dt
    on_device, on_host = stepper(device, dt), stepper(problem, dt)
    v = cupy.array(device.initial)
    for _ in range(CALLS):
        v[...] = device.initial
        on_device.step(v, 0.0, dt)
    for one in (device, problem):
        terms = len(one.operator._spec.terms)
        one.operator.update(coefficients=np.full(terms, 0.25))
    for _ in range(CALLS):
        u, v[...] = problem.initial.copy(), device.initial
        on_host.step(u, 0.0, dt)
        on_device.step(v, 0.0, dt)
        close(v, u, 1e-11)


def test_implicit_parts_without_launches(cupy, rng, no_launches):
    problem = make("relaxation-1x1v", 5, 2)
    device = problem.to("cuda")
    parts = [one.implicit_part() for one in (problem, device)]
    for k in range(CALLS + 2):
        u = problem.initial * rng.uniform(0.99, 1.01, problem.unknowns)
        given = cupy.asarray(u)
        if k < CALLS:
            parts[1].follow(0.0, given)
        else:
            with no_launches():
                parts[1].follow(0.0, given)
        parts[0].follow(0.0, u)
        close(parts[1].operator.matvec(given), parts[0].operator.matvec(u), 1e-11)
    assert parts[1].operator.validate(samples=5).ok
    transpose = parts[1].operator.T  # from now on by way of the host
    for _ in range(2):
        u = problem.initial * rng.uniform(0.99, 1.01, problem.unknowns)
        for part, state in zip(parts, (u, cupy.asarray(u)), strict=True):
            part.follow(0.0, state)
        close(transpose.matvec(cupy.asarray(u)), parts[0].operator.T.matvec(u), 1e-11)


def test_preconditioners_without_launches(cupy, rng, no_launches):
    from batchkron.solvers.preconditioners import CombinationPreconditioner

    problem = make("diffusion-2d", 4, 1)
    host, device = (
        CombinationPreconditioner(one.operator, 1e-3, composition="symmetric")
        for one in (problem, problem.to("cuda"))
    )
    for k in range(CALLS + 2):
        x = rng.standard_normal(problem.unknowns)
        given, out = cupy.asarray(x), cupy.full(x.shape, np.nan)
        if k < CALLS:
            device.matvec(given, out)
        else:
            with no_launches():
                device.matvec(given, out)
        close(out, host.matvec(x), 1e-10)
    other = device.shifted(2e-3)
    for _ in range(CALLS):
        close(other.matvec(given), host.shifted(2e-3).matvec(x), 1e-10)
        close(device.matvec(given), host.matvec(x), 1e-10)


@pytest.mark.parametrize("method", ["ark2", "ark3"])
def test_implicit_runs_are_those_of_the_host(cupy, method):
    problem = make("relaxation-1x1v", 4, 2)
    settings = {"until": 12 * problem.stepper.dt, "method": method, "preconditioner": "auto"}
    expected = evolve(problem, **settings)
    close(evolve(problem.to("cuda"), **settings).u, expected.u, 1e-9)


def test_what_is_not_positive_is_not_a_number_in_graphs(cupy):
    device = make("relaxation-1x1v", 3, 2).to("cuda")
    out = cupy.zeros(device.unknowns)
    for _ in range(CALLS):
        device.rhs(0.0, device.initial, out)
        assert cupy.isfinite(out).all()
    device.rhs(0.0, cupy.zeros_like(out), out)
    assert cupy.isnan(out).any()
    device.rhs(0.0, device.initial, out)
    assert cupy.isfinite(out).all()


def test_graphs_end_with_their_problem(cupy):
    device = make("two-stream", 4, 2).to("cuda")
    stepper, u = steppers.get("rk4")(device, 1e-3), cupy.array(device.initial)
    for k in range(CALLS):
        stepper.step(u, 1e-3 * k, 1e-3 * (k + 1))
    cells = device.grid.cells
    coarser = SparseGrid.custom(cells[cells.max(axis=1) < 8], device.grid.levels)
    moved = device.on_grid(coarser)
    out = cupy.full(moved.unknowns, np.nan)
    for _ in range(CALLS):
        moved.rhs(0.0, moved.initial, out)
    close(out, rates(moved.to("cpu"), moved.initial.get()))
    runner = stepper._runner
    known = [weakref.ref(one) for one in (device.system._repeated, runner, runner._recorder)]
    assert any(runner._recorder._graphs.values())
    del runner
    assert all(one() is not None for one in known)
    del device, stepper
    gc.collect()
    assert all(one() is None for one in known)
    moved.rhs(0.0, moved.initial, out)
    close(out, rates(moved.to("cpu"), moved.initial.get()))


def test_long_runs_on_grids_that_follow(cupy):
    problem = make("two-stream", 3, 2)
    rule = {"adapt": Adapt(1e-3, every=12, max_level=5), "dt": 1e-3, "method": "ssp-rk3"}
    expected = evolve(problem, until=0.06, **rule)
    found = evolve(problem.to("cuda"), until=0.06, **rule)
    np.testing.assert_array_equal(found.problem.grid.cells, expected.problem.grid.cells)
    close(found.u, expected.u, 1e-11)


@pytest.mark.parametrize("solver", ["cg", "gmres", "bicgstab"])
def test_iterations_of_stages_become_graphs(cupy, solver):
    problem = make("diffusion-2d", 5, 1)
    device, dt = problem.to("cuda"), 1e-3
    pair = [steppers.get("backward-euler")(one, dt, solver=solver) for one in (problem, device)]
    u, v = problem.initial.copy(), cupy.array(device.initial)
    for k in range(12):
        for stepper, state in zip(pair, (u, v), strict=True):
            assert stepper.step(state, k * dt, (k + 1) * dt) is None
    close(v, u, 1e-8)
    assert pair[1]._solver._solver._workspace._recordings.recorder._graphs
