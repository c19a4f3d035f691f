"""Fields on the device: the CPU's right-hand side to rounding, and nothing copied to the host."""

import numpy as np
import pytest

from batchkron.problems import PDE, Axis, Moment, Poisson, Separable, div, mass, time
from batchkron.problems import make as gallery_problem
from batchkron.solvers import Adapt, evolve

pytestmark = pytest.mark.gpu


def close(found, expected, factor=1e-12):
    np.testing.assert_allclose(found, expected, rtol=0, atol=factor * np.abs(expected).max())


def with_quotients(level, degree):
    """Drag to the mean velocity, with a field of the state in a term of its own."""
    x, v = Axis("x", 0.5, 2.0), Axis("v", -6.0, 6.0)
    n, momentum = Moment(v), Moment({v: 1})
    terms = [div(v, 1.0, others={x: momentum / n}), mass(x, (lambda s: 1.0 + s) / n**0.5) * 0.1]
    initial = Separable(
        x=lambda s: 1.0 + 0.1 * np.cos(s), v=lambda s: np.exp(-0.5 * (s - 1.0) ** 2)
    )
    pde = PDE([x, v], terms, boundary={x: "neumann", v: "inflow"}, initial=initial)
    return pde.discretize(level=level, degree=degree)


def two_fields(level, degree):
    """Poisson's field and a given force, in one term each."""
    x, v = Axis("x", 0.0, 3.0), Axis("v", -6.0, 6.0)
    field = Poisson(x, Moment(v))
    terms = [
        div(x, -1.0, others={v: lambda s: s}),
        div(v, -1.0, others={x: field}),
        div(v, -0.5, others={x: Moment({v: 3}) * field}),
    ]
    initial = Separable(x=lambda s: 1.0 + 0.1 * np.cos(2.0 * np.pi * s / 3.0),
                        v=lambda s: np.exp(-0.5 * (s - 1.0) ** 2))  # fmt: skip
    boundary = {x: "periodic", v: "inflow"}
    return PDE([x, v], terms, boundary=boundary, initial=initial).discretize(level, degree)


def in_time(level, degree):
    """A force that fades, and a reaction with a field whose sign changes."""
    x, v = Axis("x", 0.0, 3.0), Axis("v", -6.0, 6.0)
    field = Poisson(x, Moment(v))
    terms = [
        div(x, -1.0, others={v: lambda s: s}),
        div(v, -1.0, others={x: field}) * (0.5 * time.exp(-1.0)),
        mass(x, field) * (time.cos(1.0) - 3.0 * time.cos(2.0)),
    ]
    initial = Separable(x=lambda s: 1.0 + 0.1 * np.cos(2.0 * np.pi * s / 3.0),
                        v=lambda s: np.exp(-0.5 * (s - 1.0) ** 2))  # fmt: skip
    boundary = {x: "periodic", v: "inflow"}
    return PDE([x, v], terms, boundary=boundary, initial=initial).discretize(level, degree)


PROBLEMS = {
    "in time": lambda: in_time(4, 2),
    "two-stream": lambda: gallery_problem("two-stream", 5, 2),
    "degree 0": lambda: gallery_problem("two-stream", 4, 0),
    "level 0": lambda: gallery_problem("two-stream", 0, 2),
    "two velocities": lambda: gallery_problem("landau-1x2v", 3, 1),
    "quotients": lambda: with_quotients(4, 2),
    "two fields": lambda: two_fields(4, 2),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_right_hand_side_is_that_of_the_cpu(cupy, rng, name):
    problem = PROBLEMS[name]()
    device = problem.to("cuda")
    for _ in range(2):
        u = problem.initial * rng.uniform(0.9, 1.1, problem.unknowns)
        expected, found = np.full_like(u, np.nan), cupy.full(u.shape, np.nan)
        problem.rhs(0.0, u, expected)
        device.rhs(0.0, cupy.asarray(u), found)
        close(found.get(), expected)
    u = cupy.asarray(problem.initial)
    frozen = device.frozen(u)
    device.rhs(0.0, u, found)
    other = cupy.full(u.shape, np.nan)
    frozen.rhs(0.0, u, other)
    close(found.get(), other.get())
    assert device.validate(samples=5).ok


@pytest.mark.parametrize("name", PROBLEMS)
def test_nothing_is_copied_to_the_host(cupy, captured, name):
    """A graph cannot be captured if a copy has to be waited for; replays follow the state."""
    problem = PROBLEMS[name]()
    device = problem.to("cuda")
    u, out = cupy.array(device.initial), cupy.full(device.initial.shape, np.nan)
    stream = cupy.cuda.Stream(non_blocking=True)
    graph = captured(stream, lambda: device.rhs(0.0, u, out))
    u *= 0.5
    cupy.cuda.Device().synchronize()
    graph.launch(stream)
    stream.synchronize()
    expected = np.full(u.shape, np.nan)
    problem.rhs(0.0, u.get(), expected)
    close(out.get(), expected)


def test_what_is_not_positive_is_not_a_number(cupy):
    problem = with_quotients(3, 2)
    device = problem.to("cuda")
    out = cupy.zeros(problem.unknowns)
    device.rhs(0.0, -cupy.asarray(problem.initial), out)
    assert cupy.isnan(out).any()


@pytest.mark.parametrize("method", ["rk4", "ssp-rk3"])
def test_runs_end_where_those_of_the_cpu_do(cupy, method):
    problem = gallery_problem("two-stream", 4, 2)
    expected = evolve(problem, until=0.5, method=method, dt=0.02)
    found = evolve(problem.to("cuda"), until=0.5, method=method, dt=0.02)
    assert found.status is expected.status
    close(found.u.get(), expected.u, 1e-11)


@pytest.mark.parametrize("name", ["two-stream", "continuity-2d"])
def test_grids_follow_the_solution(cupy, name):
    problem = gallery_problem(name, 3, 2)
    rule = {"adapt": Adapt(1e-3, every=5, max_level=5), "dt": 1e-3, "method": "rk4"}
    expected = evolve(problem, until=0.02, **rule)
    found = evolve(problem.to("cuda"), until=0.02, **rule)
    np.testing.assert_array_equal(found.problem.grid.cells, expected.problem.grid.cells)
    assert isinstance(found.u, cupy.ndarray)
    close(found.u.get(), expected.u, 1e-11)


@pytest.mark.parametrize("weight", ["field^2*v^2", "density"])
def test_weights_of_fields_are_those_of_the_cpu(cupy, weight):
    problem = gallery_problem("two-stream", 3, 2)
    given = Moment(problem.axes[1]) if weight == "density" else weight
    rule = {"adapt": Adapt(1e-3, every=5, max_level=5, weight=given), "dt": 1e-3, "method": "rk4"}
    expected = evolve(problem, until=0.02, **rule)
    found = evolve(problem.to("cuda"), until=0.02, **rule)
    np.testing.assert_array_equal(found.problem.grid.cells, expected.problem.grid.cells)
    close(found.u.get(), expected.u, 1e-11)
