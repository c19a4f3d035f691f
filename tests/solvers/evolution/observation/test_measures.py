"""Quantities that belong to the grid of a problem: moments."""

from types import SimpleNamespace

import numpy as np
import pytest

from batchkron.problems import PDE, Axis, Separable, div
from batchkron.solvers import Quantity


def streaming():
    """A pulse that leaves a square at its right end, and a wave along the other axis."""
    x, y = Axis("x", -1, 1), Axis("y", -1, 1)
    start = Separable(x=lambda s: np.exp(-20 * (s - 0.4) ** 2), y=lambda s: 2 + np.cos(np.pi * s))
    return PDE(
        [x, y],
        [div(x, -1), div(y, -0.5)],
        boundary={x: "inflow", y: "periodic"},
        initial=start,
    )


def test_a_problem_of_ones_own_keeps_the_measure():
    """One that only evaluates f has no grid that it could tell of."""
    problem = streaming().discretize(2, 1)
    own = SimpleNamespace(initial=problem.initial, t0=0.0, rhs=problem.rhs)
    measure = Quantity.moment(problem, problem.axes).measure
    assert measure.for_problem(own) is measure
    assert measure.for_problem(SimpleNamespace(untimed=problem)) is measure


def test_moments_follow_the_grid(rng):
    problem = streaming().discretize(3, 2)
    x, y = problem.axes
    moved = problem.on_grid(streaming().discretize(3, 2, "full").grid)
    quantity = Quantity.moment(problem, {x: 2, y: 1})
    there = Quantity(quantity.measure.for_problem(moved))
    u = rng.uniform(-1, 1, moved.unknowns)
    expected = moved.moment_weights({x: 2, y: 1}) @ u
    assert there.value(0.0, u) == pytest.approx(expected, rel=1e-13)
    with pytest.raises(ValueError, match="size"):
        quantity.value(0.0, u)
