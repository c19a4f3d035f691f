"""Fluxes whose damping follows the state: α is the largest speed at the points."""

import numpy as np
import pytest
from problem_oracle import rates

from batchkron import NotPhysicalError
from batchkron.problems import PDE, Axis, div, grad, load_problem, pointwise, save_problem, time
from batchkron.solvers import EvolveStatus, evolve

TURN = 2 * np.pi
X, Y = Axis("x", 0, TURN), Axis("y", 0, TURN)
OTHERS = {Y: lambda s: np.sin(s)}


def problem_of(level=3, degree=2, **speed):
    flux = pointwise("f**2 / 2", **speed)
    slow = time.polynomial([1.0, 0.5])
    terms = [-2 * div(X) @ flux, div(Y, -0.3, time=slow) @ flux, div(X, 0.5, others=OTHERS) @ flux]
    pde = PDE([X, Y], terms, boundary="periodic", initial="0.5 + sin(x + y) * cos(x)")
    return pde.discretize(level, degree)


@pytest.mark.parametrize("speed", ["f", lambda f: f, lambda f, x: -f + 0 * x])
def test_the_largest_speed_at_the_points_damps(speed):
    problem = problem_of(speed_of=speed)
    u = np.random.default_rng(1).standard_normal(problem.unknowns)
    largest = np.abs(problem.system.transform.values(u)).max()
    other = problem_of(speed=largest)
    np.testing.assert_allclose(rates(problem, u, 0.7), rates(other, u, 0.7), rtol=0, atol=1e-10)
    assert np.abs(rates(problem, u, 0.7) - rates(problem_of(speed=1.0), u, 0.7)).max() > 1e-3


def test_default_steps_follow_the_speed_at_the_beginning():
    problem = problem_of(speed_of="f")
    largest = np.abs(problem.system.transform.values(problem.initial)).max()
    assert problem.stepper.dt == pytest.approx(problem_of(speed=largest).stepper.dt, rel=1e-12)


def test_runs_follow_a_speed_that_grows():
    """f = exp(t) exactly at all places: a speed that was given at the beginning would be too small.

    The default step becomes too long, which is said; steps by tolerances follow.
    """
    grows = pointwise("f")
    terms = [-1 * div(X) @ pointwise("f**2 / 2", speed_of="f"), grows]
    pde = PDE([X], terms, boundary="periodic", initial="1 + 0.001 * sin(x)")
    problem = pde.discretize(5, 2, until=4.0)
    assert evolve(problem, until=0.3).status is EvolveStatus.COMPLETED
    result = evolve(problem, until=4.0)
    assert result.status is EvolveStatus.UNSTABLE
    result = evolve(problem, until=2.0, rtol=1e-6, method="dormand-prince")
    assert result.status is EvolveStatus.COMPLETED
    assert problem.integral(result.u) / TURN == pytest.approx(np.exp(2.0), rel=1e-5)


def test_burgers_after_the_shock():
    """At degree 0 it stays in its range, with the mean conserved."""
    pde = PDE([X], -1 * div(X) @ pointwise("f**2 / 2", speed_of="f"), boundary="periodic",
              initial=lambda x: 0.5 + np.sin(x))  # fmt: skip
    problem = pde.discretize(6, 0)
    result = evolve(problem, until=1.5)
    assert result.status is EvolveStatus.COMPLETED
    values = problem.evaluate(result.u, np.linspace(0, TURN, 400))
    assert values.min() > -0.5
    assert values.max() < 1.5
    assert np.ptp(values) > 1.6
    assert abs(problem.integral(result.u) - TURN / 2) < 1e-12


def test_speeds_that_are_not_finite_end_a_run():
    term = -1 * div(X) @ pointwise("f**2", speed_of=lambda f: np.sqrt(f))
    problem = PDE([X], term, boundary="periodic", initial=1.0).discretize(2, 1)
    with pytest.raises(NotPhysicalError, match=r"^speed_of of .* is nan at x = "):
        rates(problem, -problem.initial)


def test_files(tmp_path):
    problem = problem_of(speed_of="f + 0.1 * x", derivative="f")
    save_problem(tmp_path / "p.h5", problem)
    again = load_problem(tmp_path / "p.h5")
    assert again.content_hash == problem.content_hash
    u = np.random.default_rng(1).standard_normal(problem.unknowns)
    np.testing.assert_array_equal(rates(again, u, 0.3), rates(problem, u, 0.3))
    assert problem_of(speed_of="f").content_hash != problem.content_hash
    with pytest.raises(TypeError, match=r"speed_of of .* is the Python function .*lambda>"):
        save_problem(tmp_path / "q.h5", problem_of(speed_of=lambda f: f))


def test_other_grids():
    coarse, fine = (problem_of(level, 1, speed_of="f") for level in (2, 4))
    moved = coarse.on_grid(fine.grid)
    u = np.random.default_rng(1).standard_normal(fine.unknowns)
    np.testing.assert_array_equal(rates(moved, u), rates(fine, u))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"speed": 1.0, "speed_of": "f"}, "both given; expected one of them"),
        ({"speed_of": "f", "linear": True}, r"a linear function takes no speed_of=; give speed="),
        ({"derivative": "f", "linear": True}, r"takes no derivative=; it is F\(1\)"),
        ({"speed_of": 1.0}, "speed_of is float; expected a function of f"),
        ({"derivative": 1.0}, "derivative is float"),
    ],
)
def test_refusals_of_arguments(arguments, text):
    with pytest.raises((TypeError, ValueError), match=text):
        pointwise("f**2", **arguments)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"speed_of": "f + g"}, "names 'g'; expected f, x, t"),
        ({"speed_of": lambda a, b: a}, "speed_of of .* is a function of"),
        ({}, "give pointwise.*speed=.*or speed_of="),
    ],
)
def test_refusals(given, text):
    with pytest.raises((TypeError, ValueError), match=text):
        PDE([X], -1 * div(X) @ pointwise("f**2", **given), boundary="periodic", initial=0.0)
    with pytest.raises((TypeError, ValueError), match="takes no linear=, speed= and speed_of="):
        PDE([X], div(X) @ grad(X) @ pointwise("f**2", speed_of="f"), boundary="periodic",
            initial=0.0)  # fmt: skip
