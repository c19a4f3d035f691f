"""The field of Poisson's equation: known fields, order, smoothness, ends that are not periodic."""

import numpy as np
import pytest
from problem_oracle import orders

from batchkron.problems import PDE, Axis, Inflow, Moment, Poisson, Separable, div, make

V = Axis("v", -6.0, 6.0)


def maxwellian(v):
    return np.exp(-(v**2) / 2) / np.sqrt(2 * np.pi)


def problem_with(density, x, level, degree=2, boundary="periodic"):
    pde = PDE(
        [x, V],
        div(x, -1.0),
        boundary={x: boundary, V: Inflow()},
        initial=Separable(**{x.name: density, "v": maxwellian}),
    )
    return pde.discretize((level, 5), degree, "full")


def test_the_field_of_two_streams_is_known():
    """n = ½ (1 - ½ cos(x/2)) gives E = -½ sin(x/2)."""
    problem = make("two-stream", 5, 2)
    x, v = problem.axes
    field = problem.field(problem.initial, Poisson(x, Moment(v)))
    points = np.linspace(x.lower, x.upper, 401)
    np.testing.assert_allclose(field.evaluate(points), -0.5 * np.sin(points / 2), atol=1e-6)
    assert abs(field.integral()) < 1e-14
    assert field.norm() == pytest.approx(0.5 * np.sqrt(2 * np.pi), rel=1e-6)


@pytest.mark.parametrize("degree", [0, 1, 2, 3])
def test_the_order_is_two_more_than_the_degree(degree):
    """In the norm of L2; n itself has the order degree + 1."""
    x = Axis("x", 0.0, 2.0)
    errors = []
    points = np.linspace(0.0, 2.0, 1601)
    for level in (3, 4, 5):
        problem = problem_with(lambda s: 1.0 + 0.5 * np.cos(np.pi * s), x, level, degree)
        field = problem.field(problem.initial, Poisson(x, Moment(V)))
        scale = problem.integral(problem.initial) / x.length  # Maxwellian cut off at 6
        exact = 0.5 * scale * np.sin(np.pi * points) / np.pi
        errors.append(np.sqrt(np.mean((field.evaluate(points) - exact) ** 2)))
    assert orders(errors).min() > degree + 2 - 0.25


def test_the_field_is_continuous_and_its_slope_is_the_charge(rng):
    x = Axis("x", -1.0, 1.0)
    problem = problem_with(np.ones_like, x, 3)
    u = problem.initial + 0.1 * rng.uniform(-1, 1, problem.unknowns)
    field = problem.field(u, Poisson(x, Moment(V)))
    density = problem.moment(u, V)
    edges = np.linspace(-1.0, 1.0, 9)
    just_below = field.evaluate(np.nextafter(edges[1:], -2.0))
    above = np.append(field.evaluate(edges[1:-1]), field.evaluate(edges[:1]))  # periodic
    np.testing.assert_allclose(just_below, above, atol=1e-13)
    inside = (edges[:-1, None] + np.array([0.05, 0.11, 0.19])).ravel()
    step = 1e-4
    slope = (field.evaluate(inside + step) - field.evaluate(inside - step)) / (2 * step)
    mean = problem.integral(u) / 2.0
    np.testing.assert_allclose(slope, density.evaluate(inside) - mean, atol=1e-6)


@pytest.mark.parametrize("potential", [None, (0.0, 0.0), (1.0, -0.5)])
def test_ends_with_given_potentials(potential):
    """-φ'' = n - n_0 on [0, 1] with n = 2 + 6x, n_0 = 1: E = -φ' = x + 3x² + c."""
    x = Axis("x", 0.0, 1.0)
    problem = problem_with(lambda s: 2.0 + 6.0 * s, x, 2, boundary=Inflow())
    scale = problem.moment(problem.initial, V).evaluate([0.0])[0] / 2.0
    E = Poisson(x, Moment(V) / scale, background=1.0, potential=potential)
    points = np.linspace(0.0, 1.0, 33)
    drop = 0.0 if potential is None else potential[0] - potential[1]
    expected = points + 3 * points**2 + drop - 1.5
    field = problem.field(problem.initial, E)
    np.testing.assert_allclose(field.evaluate(points), expected, atol=1e-12)
    assert field.integral() == pytest.approx(drop, abs=1e-12)


def test_a_background_may_be_a_function_or_a_field():
    x = Axis("x", 0.0, 1.0)
    problem = problem_with(lambda s: 2.0 + 6.0 * s, x, 2, boundary=Inflow())
    n, u = Moment(V), problem.initial
    points = np.linspace(0.0, 1.0, 17)
    same = problem.field(u, Poisson(x, n, background=n)).evaluate(points)
    np.testing.assert_allclose(same, 0.0, atol=1e-14)
    given = problem.field(u, Poisson(x, n, background=lambda s: 2.0 * s))
    split = problem.field(u, Poisson(x, n - (lambda s: 2.0 * s), background=0.0))
    np.testing.assert_array_equal(given.coefficients, split.coefficients)
    neutral = problem.field(u, Poisson(x, n))
    mean = problem.integral(u)
    shifted = problem.field(u, Poisson(x, n, background=mean))
    np.testing.assert_allclose(neutral.coefficients, shifted.coefficients, atol=1e-13)
