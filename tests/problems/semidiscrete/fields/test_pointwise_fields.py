"""Fields of the state as arguments of pointwise functions."""

import numpy as np
import pytest
from problem_oracle import rates

from batchkron import NotPhysicalError
from batchkron.problems import (
    PDE,
    Axis,
    Dirichlet,
    Moment,
    Poisson,
    Separable,
    div,
    load_problem,
    mass,
    pointwise,
    save_problem,
    time,
)
from batchkron.solvers import EvolveStatus, evolve

TURN = 2 * np.pi
X, V, W = Axis("x", 0, TURN), Axis("v", -6, 6), Axis("w", -5, 5)
PULSE = Separable(
    x=lambda s: 1 + 0.5 * np.cos(s), v=lambda s: np.exp(-s * s / 2) / np.sqrt(TURN)
)  # fmt: skip
ENDS = {X: "periodic", V: "dirichlet"}


def problem_of(terms, level=3, degree=2, grid="sparse", **more):
    pde = PDE([X, V], terms, boundary=ENDS, initial=PULSE, **more)
    return pde.discretize(level, degree, grid)


@pytest.mark.parametrize("degree", [1, 2, 3])
@pytest.mark.parametrize("at_points", ["p", "p+1"])
def test_values_of_moments_are_exact(degree, at_points):
    """The product of f and its moment, where it is a polynomial of the space: f = 1 + x."""
    term = pointwise(lambda f, n, v: n + v + 0 * f, degree=at_points, n=Moment(V))
    flat = Separable(x=lambda s: 1 + s, v=lambda s: 1 + 0 * s)
    problem = problem_of(term, 3, degree)
    given = PDE([X, V], [], boundary=ENDS, initial=flat, sources=0.0).discretize(3, degree)
    sums = 12.0 * Separable(x=lambda s: 1 + s) + Separable(v=lambda s: s)
    expected = PDE([X, V], [], boundary=ENDS, initial=sums, sources=0.0).discretize(3, degree)
    found = rates(problem, given.initial)
    np.testing.assert_allclose(found, expected.initial, rtol=0, atol=1e-11 * 432)


def test_a_field_is_the_same_as_in_a_term():
    """E(x) ∂f/∂v with E of Poisson's equation, on a full grid, where both converge."""
    field = Poisson(X, Moment(V), "mean")
    force = pointwise("E * f", speed_of="E", E=field)
    for level, allowed in ((4, 0.08), (5, 0.02)):
        given = problem_of(div(V) @ force, level, grid="full")
        term = div(V, 1.0, others={X: field}, flux="central")
        known = PDE([X, V], term, boundary={X: "periodic", V: "inflow"}, initial=PULSE)
        known = known.discretize(level, 2, "full")
        u = given.initial
        expected = rates(known, u)
        assert np.abs(rates(given, u) - expected).max() < allowed * np.abs(expected).max()


def test_relaxation_by_density_and_temperature():
    """f_t = n (1 - T) f, with n and T constant: T = 1 is kept, and ∫ f dv grows otherwise."""
    n, second = Moment(V), Moment({V: 2})
    term = pointwise("n * (2 - T) * f", n=n, T=second / n)
    flat = Separable(v=lambda s: np.exp(-s * s / 2) / np.sqrt(TURN))
    pde = PDE([X, V], term, boundary=ENDS, initial=flat)
    problem = pde.discretize(4, 3, "full")
    result = evolve(problem, until=0.5, method="rk4", dt=0.01)
    # n' = n² with n(0) = 1
    assert problem.integral(result.u) / TURN == pytest.approx(2.0, rel=1e-5)


def test_two_fields_of_two_axes_and_time():
    """A density along x and one along v, by name, also in a derivative and as a formula."""
    text = "n * m * cos(t) + f * n"
    problems = [
        problem_of(pointwise(function, n=Moment(V), m=Moment(X) / 2.0), 3)
        for function in (text, lambda m, f, t, n: n * m * np.cos(t) + f * n)
    ]
    u = np.random.default_rng(1).standard_normal(problems[0].unknowns)
    np.testing.assert_allclose(*(rates(problem, u, 0.4) for problem in problems), atol=1e-12)


def test_positional_fields():
    """They are the arguments after f, in their order; others are axes, the time, named fields."""
    n, m, T = Moment(V), Moment(X) / 2.0, Moment({V: 2})
    problems = [
        problem_of(term, 3)
        for term in (
            pointwise("n * m * cos(t) + f * n + T * x", n=n, m=m, T=T),
            pointwise(lambda f, n, m, x, t, T: n * m * np.cos(t) + f * n + T * x, n, m, T=T),
            pointwise(lambda f, m, n, T, x, t: n * m * np.cos(t) + f * n + T * x, m, n, T),
        )
    ]
    u = np.random.default_rng(1).standard_normal(problems[0].unknowns)
    first, *others = (rates(problem, u, 0.4) for problem in problems)
    for other in others:
        np.testing.assert_allclose(other, first, atol=1e-12)


def test_positional_fields_of_speeds_and_derivatives():
    given = {"speed_of": lambda f, n: n + 0 * f, "derivative": lambda f, n: n + 0 * f}
    problem = problem_of(-1 * div(V) @ pointwise(lambda f, n: n * f, Moment(V), **given), 3)
    named = pointwise("n * f", n=Moment(V), speed_of="n", derivative="n")
    named = problem_of(-1 * div(V) @ named, 3)
    u = 1.0 + 0.1 * np.random.default_rng(1).standard_normal(problem.unknowns)
    np.testing.assert_allclose(rates(problem, u), rates(named, u), atol=1e-12)


def test_fields_that_are_not_defined_end_a_run():
    term = pointwise("f * T", T=Moment({V: 2}) / Moment(V))
    problem = problem_of(term)
    with pytest.raises(NotPhysicalError, match="at x = "):
        rates(problem, -problem.initial, 0.3)
    assert problem.stepper.dt > 0.0


def test_functions_in_fields_and_volume_elements():
    """A field with a function of x, sampled for each level, on an axis v with a volume element."""
    radius = Axis("r", 0, 2)
    field = Moment(radius) * (lambda s: np.sin(s))
    ends = {X: "periodic", radius: "neumann"}
    pde = PDE([X, radius], pointwise("g - f + f", g=field), boundary=ends, initial=1.0,
              volume={radius: lambda s: s})  # fmt: skip
    problem = pde.discretize(4, 2, "full")
    found = problem.evaluate(rates(problem, problem.initial), [[0.7, 0.3], [2.9, 1.4]])
    np.testing.assert_allclose(found, 2 * np.sin([0.7, 2.9]), atol=5e-4)
    moved = pde.discretize(3, 2, "full").on_grid(problem.grid)
    np.testing.assert_array_equal(rates(moved, problem.initial), rates(problem, problem.initial))


def test_files(tmp_path):
    field = Moment(V) * (lambda s: 2 + np.sin(s))
    terms = [
        div(V) @ pointwise("E * f", speed_of="E", E=Poisson(X, Moment(V), "mean")),
        pointwise("g * f**2", g=field),
        -1 * mass(X, time=time.cos(2.0)) @ pointwise("f * f"),
    ]
    problem = problem_of(terms)
    save_problem(tmp_path / "p.h5", problem)
    again = load_problem(tmp_path / "p.h5")
    assert again.content_hash == problem.content_hash
    u = np.random.default_rng(1).standard_normal(problem.unknowns)
    np.testing.assert_array_equal(rates(again, u, 0.3), rates(problem, u, 0.3))
    other = problem_of([*terms[:1], pointwise("g * f**2", g=Moment(V)), *terms[2:]])
    assert other.content_hash != problem.content_hash
    known = problem_of(pointwise(lambda f, n: f * n, n=Moment(V)))
    assert known.content_hash == problem_of(pointwise(lambda f, n: f * n, n=Moment(V))).content_hash
    with pytest.raises(TypeError, match="is the Python function"):
        save_problem(tmp_path / "q.h5", known)


@pytest.mark.parametrize("method", ["esdirk3", "bdf", "ark3", "rk4"])
def test_methods(method):
    """f_t = -n f cos² x decays, by all kinds of methods."""
    problem = problem_of(pointwise("-n * f * cos(x)**2", n=Moment(V)), 4, 2, "full")
    steps = {"rtol": 1e-7} if method == "bdf" else {"dt": 0.02}
    result = evolve(problem, until=0.4, method=method, **steps)
    fine = evolve(problem, until=0.4, method="rk4", dt=0.005)
    assert result.status is EvolveStatus.COMPLETED
    assert 0 < np.abs(result.u - fine.u).max() < 1e-5 or method == "rk4"


@pytest.mark.parametrize(
    ("term", "error", "text"),
    [
        (lambda: pointwise("f", n=Moment(V)), TypeError, "field n, which its function does not"),
        (lambda: pointwise("f * x", x=Moment(V)), ValueError, "a field named 'x', as a coordinate"),
        (lambda: pointwise("f", f=Moment(V)), ValueError, "a field named 'f'"),
        (lambda: pointwise("f", n=1.0), TypeError, "n is float; expected a field such as Moment"),
        (lambda: pointwise("f * n", n=Moment(V), linear=True), ValueError, "leave out linear="),
        (lambda: pointwise("f * n", Moment(V)), TypeError, "takes fields by name"),
        (lambda: pointwise(lambda f: f, Moment(V)), TypeError, r"takes \(f\) and is followed by 1"),
        (lambda: pointwise(np.sin, Moment(V)), TypeError, "expected an argument after f for each"),
        (lambda: pointwise(lambda f, n: f, Moment(V), n=Moment(V)), TypeError, "n also by name"),
        (lambda: pointwise(lambda f: f, 1.0), TypeError, "argument 2 is float; expected a field"),
        (lambda: pointwise(lambda f, x: f, Moment(V)), ValueError, "named 'x', as a coordinate"),
        (lambda: pointwise("f * n", n=Moment([X, V])), ValueError, "integrates over all axes"),
        (lambda: pointwise("f * n", n=Moment(W)), ValueError, "not among the axes"),
        (lambda: pointwise("f * E", E=Poisson(X, Moment(V), 1.0)), ValueError, "which is periodic"),
        (lambda: div(X) @ grad_of("f * n"), ValueError, "takes no field|a coefficient"),
    ],
)
def test_refusals(term, error, text):
    with pytest.raises(error, match=text):
        PDE([X, V], term(), boundary=ENDS, initial=0.0)


def grad_of(text):
    from batchkron.problems import grad

    return pointwise(text, n=Moment(V)) @ grad(X)


@pytest.mark.parametrize(("text", "data"), [("f * n", 1.0), ("f + n", 0.0)])
def test_data_at_ends_are_refused(text, data):
    """Unless they are 0 and the function is 0 there."""
    flux = pointwise(text, speed=1.0, n=Moment(V))
    pde = PDE([X, V], div(V) @ flux, boundary={**ENDS, V: Dirichlet(data)}, initial=0.0)
    with pytest.raises(ValueError, match="has fields and meets data at an end of axis 'v'"):
        pde.discretize(2, 1)
