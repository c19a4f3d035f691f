"""Second derivatives of functions of the state: the porous medium equation f_t = (f²)_xx."""

import numpy as np
import pytest

from batchkron import NotPhysicalError
from batchkron.problems import (
    PDE,
    Axis,
    Dirichlet,
    div,
    grad,
    load_problem,
    pointwise,
    save_problem,
)
from batchkron.solvers import EvolveStatus, evolve

X, Y = Axis("x", -8, 8), Axis("y", 0, 2 * np.pi)
MASS = 4.61880215


def barenblatt(x, t):
    return t ** (-1 / 3) * np.maximum(1 - x**2 / (12 * t ** (2 / 3)), 0.0)


def positive_square(f):
    return np.maximum(f, 0.0) ** 2


def porous(level, degree=1, function=positive_square):
    pde = PDE([X], div(X) @ grad(X) @ pointwise(function), boundary="no-flux", t0=1.0,
              initial=lambda x: barenblatt(x, 1.0), exact=barenblatt)  # fmt: skip
    return pde.discretize(level, degree, until=2.0)


def test_barenblatts_solution():
    """The mass is kept, and the error falls with the level; undershoots are small."""
    errors = []
    x = np.linspace(-8, 8, 2001)
    for level in (4, 5, 6):
        problem = porous(level)
        result = evolve(problem, until=2.0)
        assert result.status is EvolveStatus.COMPLETED
        assert abs(problem.integral(result.u) - problem.integral(problem.initial)) < 1e-12
        found = problem.evaluate(result.u, x)
        errors.append(np.abs(found - barenblatt(x, 2.0)).mean() * 16)
    assert abs(problem.integral(problem.initial) - MASS) < 2e-3
    assert errors[0] > 2 * errors[1] > 4 * errors[2]
    assert errors[2] < 0.02
    assert found.min() > -0.02


def test_smooth_solutions():
    """f = 2 + exp(-t) cos(y): f_t = (f + f³)_yy + s, with the order of the degree."""
    rate = "-exp(-t) * cos(y)"
    f, slope, curve = "(2 + exp(-t)*cos(y))", "(exp(-t)*sin(y))", "(-exp(-t)*cos(y))"
    source = f"{rate} - (1 + 3*{f}**2) * {curve} - 6*{f}*{slope}**2"
    pde = PDE([Y], div(Y) @ grad(Y) @ pointwise("f + f**3"), boundary="periodic", sources=source,
              exact=lambda y, t: 2 + np.exp(-t) * np.cos(y))  # fmt: skip
    errors = []
    for level in (2, 3):
        problem = pde.discretize(level, 2, until=0.1)
        errors.append(problem.relative_error(evolve(problem, until=0.1).u, 0.1))
    assert errors[1] < 1e-3
    assert errors[0] > 6 * errors[1]


def test_values_at_ends():
    """F of the data enters: f = √(1 + x) is a steady state of (f²)_xx = 0."""
    axis = Axis("x", 0, 3)
    ends = Dirichlet(1.0), Dirichlet(lambda t: 2.0 + 0 * t)
    pde = PDE(
        [axis], div(axis) @ grad(axis) @ pointwise("f**2"), boundary=ends, initial="1 + x / 3"
    )
    problem = pde.discretize(4, 2, until=0.5)
    result = evolve(problem, until=6.0, method="esdirk3", dt=0.25)
    np.testing.assert_allclose(problem.evaluate(result.u, [0.5, 2.5]), np.sqrt([1.5, 3.5]), 1e-4)


def test_default_steps_resolve_the_diffusion():
    """k = 2 f at most 2: the step of a diffusivity of 2."""
    problem = porous(5)
    known = PDE([X], 2.0 * div(X) @ grad(X), boundary="no-flux", initial=0.0, t0=1.0)
    dt = known.discretize(5, 1, method="ssp-rk3").stepper.dt
    assert problem.stepper.method == "ssp-rk3"
    assert problem.stepper.dt == pytest.approx(dt, rel=0.05)


def test_functions_that_fall_are_refused():
    """f² where f is negative is backward diffusion: a run ends there, and says what to write."""
    problem = PDE([Y], div(Y) @ grad(Y) @ pointwise("f**2"), boundary="periodic",
                  initial="0.5 + cos(y)").discretize(3, 2)  # fmt: skip
    with pytest.raises(NotPhysicalError, match=r"falls with f at y = .*np\.maximum\(f, 0\)\*\*2"):
        problem.rhs(0.0, problem.initial)
    result = evolve(problem, until=0.1)
    assert result.status is EvolveStatus.NOT_PHYSICAL
    pde = PDE([Y], -1 * div(Y) @ grad(Y) @ pointwise("f"), boundary="periodic", initial=1.0)
    with pytest.raises(ValueError, match="is -1, less than 0"):
        pde.discretize(2, 1)
    falling = PDE([Y], div(Y) @ grad(Y) @ pointwise("-f"), boundary="periodic", initial="cos(y)")
    falling = falling.discretize(2, 1)
    with pytest.raises(NotPhysicalError, match="falls with f"):
        falling.rhs(0.0, falling.initial)


def test_files(tmp_path):
    problem = porous(3, 2, "f**2")
    save_problem(tmp_path / "p.h5", problem)
    again = load_problem(tmp_path / "p.h5")
    assert again.content_hash == problem.content_hash
    u = problem.project("1 + 0.1 * sin(x)")
    np.testing.assert_array_equal(again.rhs(1.0, u), problem.rhs(1.0, u))
    with pytest.raises(NotPhysicalError, match="falls with f"):
        again.rhs(1.0, -u)
    with pytest.raises(TypeError, match="the Python function positive_square"):
        save_problem(tmp_path / "q.h5", porous(3))
