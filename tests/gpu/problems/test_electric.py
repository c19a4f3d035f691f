"""Electric fields of several positions on the device: the CPU's numbers, nothing copied to it."""

import numpy as np
import pytest

from batchkron.problems import PDE, Axis, Electric, Mixed, Moment, Separable, div, make, mass
from batchkron.solvers import Adapt, evolve

pytestmark = pytest.mark.gpu


def close(found, expected, factor=1e-12):
    np.testing.assert_allclose(found, expected, rtol=0, atol=factor * np.abs(expected).max())


def walls():
    """Walls of given potential, a given background, a reaction, and axes in another order."""
    v, x, w, y = Axis("v", -6, 6), Axis("x", 0, 1), Axis("w", -6, 6), Axis("y", -1, 2)
    E = Electric([x, y], 2.0 * Moment([v, w]) - Moment({v: 1, w: 0}), 0.5, potential={x: (0, 1)})
    terms = [
        div(v, -1.0, others={(x, y): E.x}),
        mass(w, lambda s: s, others={(x, y): E.y}),
        div(w, 1.0, flux="central", boundary="no-flux", others={(x, y): E.y}),
    ]
    bell = Separable(
        v=lambda s: np.exp(-(s**2) / 2), x=lambda s: 1 + s, w=lambda s: np.exp(-(s**2) / 2),
        y=lambda s: 1 + 0.3 * np.sin(2 * np.pi * s / 3),
    )  # fmt: skip
    ends = {x: "neumann", y: "periodic", v: "inflow", w: "inflow"}
    return PDE([v, x, w, y], terms, boundary=ends, initial=bell).discretize(3, 1)


PROBLEMS = {
    "sparse": lambda: make("landau-2x2v", 3, 2, amplitude=0.1),
    "mixed": lambda: make("landau-2x2v", (2, 2, 3, 3), 2, Mixed(["x", "y"], ["v1", "v2"])),
    "full": lambda: make("landau-2x2v", (1, 2, 2, 1), 2, "full", amplitude=0.1),
    "degree 0": lambda: make("landau-2x2v", 3, 0, amplitude=0.1),
    "walls": walls,
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_right_hand_side_is_that_of_the_cpu(cupy, rng, name):
    problem = PROBLEMS[name]()
    device = problem.to("cuda")
    for _ in range(10):  # the later calls are graphs
        u = problem.initial * rng.uniform(0.9, 1.1, problem.unknowns)
        expected, found = np.full_like(u, np.nan), cupy.full(u.shape, np.nan)
        problem.rhs(0.0, u, expected)
        device.rhs(0.0, cupy.asarray(u), found)
        close(found.get(), expected)


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


@pytest.mark.parametrize("name", ["sparse", "mixed"])
def test_the_right_hand_side_becomes_a_graph(cupy, name):
    """Not only can it be captured: the sum is repeated by a graph of its own."""
    device = PROBLEMS[name]().to("cuda")
    u, out = cupy.array(device.initial), cupy.empty_like(device.initial)
    for _ in range(12):
        device.rhs(0.0, u, out)
    assert device.system._electric._repeated.is_captured


@pytest.mark.parametrize("method", ["rk4", "ssp-rk3"])
def test_runs_and_quantities_are_those_of_the_cpu(cupy, method):
    problem = PROBLEMS["sparse"]()
    names = "mass", "field", "energy"
    given = {"until": 0.2, "method": method, "dt": 0.02}
    expected = evolve(problem, watch=problem.quantities(*names), **given)
    device = problem.to("cuda")
    found = evolve(device, watch=device.quantities(*names), **given)
    assert found.status is expected.status
    close(found.u.get(), expected.u, 1e-11)
    for name in names:
        np.testing.assert_allclose(
            found.recorded[name], expected.recorded[name], rtol=1e-10, atol=1e-10
        )


def test_grids_follow_the_solution(cupy):
    problem = make("landau-2x2v", 2, 1, amplitude=0.1)
    rule = {"adapt": Adapt(1e-3, every=2, max_level=3), "dt": 0.01, "method": "rk4"}
    expected = evolve(problem, until=0.04, **rule)
    found = evolve(problem.to("cuda"), until=0.04, **rule)
    np.testing.assert_array_equal(found.problem.grid.cells, expected.problem.grid.cells)
    assert isinstance(found.u, cupy.ndarray)
    close(found.u.get(), expected.u, 1e-11)
