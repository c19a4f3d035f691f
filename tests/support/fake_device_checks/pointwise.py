"""Functions of the state at points on the device: right-hand sides with and without graphs."""

import cupy
import numpy as np

from batchkron.backends.cuda.runtime.launch import Launch
from batchkron.problems import PDE, Axis, Dirichlet, Neumann, div, grad, pointwise
from fake_device_checks.common import close

X, Y = Axis("x", 0.0, 2.0), Axis("y", -1.0, 1.0)


def on_a_device():
    """All checks, in one process."""
    rng = np.random.default_rng(3)
    for degree in (1, (2, 1)):
        _many_calls(rng, degree)
    _one_graph(rng)


def problem_of(degree):
    """A flux, a reaction and a diffusivity, two of which depend on the time."""
    flux = pointwise("(1 + 0.5 * sin(t)) * f**2", speed=1.0)
    k = pointwise("(2 + cos(x * y) - t / 9) * f", linear=True)
    terms = [-1 * div(X) @ flux, pointwise("exp(-f) / (1 + x)"), div(Y) @ k @ grad(Y)]
    boundary = {X: (Dirichlet("y * t"), Neumann()), Y: "neumann"}
    return PDE([X, Y], terms, boundary=boundary, initial="x * y").discretize(2, degree)


def _many_calls(rng, degree):
    """State and time change from call to call, before and after all of it has become a graph."""
    problem = problem_of(degree)
    device = problem.to("cuda")
    for number in range(10):
        u, t = 0.1 * rng.standard_normal(problem.unknowns), 0.1 * number
        expected, out = np.full(u.shape, np.nan), cupy.asarray(np.full(u.shape, np.nan))
        problem.rhs(t, u, expected)
        device.rhs(t, cupy.asarray(u), out)
        close(out, expected)


def _one_graph(rng):
    """After some calls Python launches no kernel of what is at points."""
    problem = problem_of(1)
    points = problem.to("cuda").system._pointwise
    given = 0.1 * rng.standard_normal(problem.unknowns)
    u, out = cupy.asarray(given), cupy.asarray(np.full(given.shape, np.nan))
    for _ in range(8):
        points.write(0.3, u, out)
    launches, plain = [], Launch.__call__

    def counted(*arguments):
        launches.append(arguments)
        plain(*arguments)

    Launch.__call__ = counted
    try:
        points.write(0.7, u, out)
    finally:
        Launch.__call__ = plain
    assert not launches
    expected = np.full(given.shape, np.nan)
    problem.system._pointwise.write(0.7, given, expected)
    close(out, expected)
