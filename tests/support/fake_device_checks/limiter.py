"""Limiters on the device: single states, and runs, of full and mixed grids."""

import cupy
import numpy as np
import pytest

from batchkron import NotPhysicalError
from batchkron.problems import PDE, Axis, Mixed, div, pointwise
from batchkron.solvers import evolve
from fake_device_checks.common import close

X, Y, Z = Axis("x", 0.0, 2.0), Axis("y", -1.0, 1.0), Axis("z", 0.0, 1.0)


def on_a_device():
    """All checks, in one process."""
    rng = np.random.default_rng(3)
    for axes, grid in (([X, Y], "full"), ([X, Y, Z], Mixed([Y], [X, Z]))):
        for degree in (0, 2):
            _states(rng, axes, grid, degree)
    _a_run()
    _negative_means()


def _states(rng, axes, grid, degree):
    pde = PDE(axes, div(X, -1.0), boundary="periodic", initial=0.0)
    problem = pde.discretize(2, degree, grid, limiter="positive")
    device = problem.to("cuda")
    u = problem.project("1.02 + sin(3 * x) * cos(3 * y)")
    u += 0.01 * rng.standard_normal(problem.unknowns)
    expected, found = u.copy(), cupy.asarray(u)
    problem.limit_state(0.0, expected)
    assert degree == 0 or abs(expected - u).max() > 1e-3
    device.limit_state(0.0, cupy.asarray(u))  # its matrices are made
    with pytest.MonkeyPatch.context() as patch:
        patch.delattr(cupy.ndarray, "get")  # nothing is copied to the host
        device.limit_state(0.0, found)
    close(found, expected)


def _a_run():
    flux = pointwise("f**2 / 2", speed_of="f")
    pde = PDE([X], -1 * div(X) @ flux, boundary="periodic", initial="1 + sin(3 * x)")
    problem = pde.discretize(3, 2, "full", limiter="positive")
    options = {"until": 0.4, "dt": problem.stepper.dt / 2}
    close(evolve(problem.to("cuda"), **options).u, evolve(problem, **options).u)


def _negative_means():
    pde = PDE([X], div(X, -1.0), boundary="periodic", initial="0.5 + sin(3 * x)")
    problem = pde.discretize(2, 1, "full", limiter="positive").to("cuda")
    with pytest.raises(NotPhysicalError, match=r"the mean of f in the cell around x = 1\.75 is"):
        problem.limit_state(0.0, problem.initial)
