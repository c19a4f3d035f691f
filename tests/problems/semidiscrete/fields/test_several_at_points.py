"""Several functions of the state beside each other, and their factors in time."""

import numpy as np
import pytest

from batchkron.problems import PDE, Axis, Dirichlet, Moment, div, grad, mass, pointwise, time

X, V = Axis("x", 0, 1), Axis("v", -3, 3)


def discretized(*terms, **options):
    pde = PDE(
        [X, V], terms, boundary={X: "periodic", V: "no-flux"}, initial="exp(-v**2) * (2 + x - x**2)"
    )
    return pde.discretize(2, 2, "full", **options)


@pytest.mark.parametrize("fields", [(Moment(V), Moment({V: 2})), (Moment(V), Moment(X))])
def test_each_function_has_its_own_fields(rng, fields):
    """Also where two of them give their fields the same name."""
    terms = [mass(X) @ pointwise("f * n", n=fields[0]), mass(X) @ pointwise("f * n", n=fields[1])]
    both, *alone = discretized(*terms), *(discretized(term) for term in terms)
    u = both.initial + 0.1 * rng.standard_normal(both.unknowns)
    first, second = (problem.rhs(0.0, u) for problem in alone)
    assert abs(first - second).max() > 0.1 * abs(first).max()
    np.testing.assert_allclose(both.rhs(0.0, u), first + second, atol=1e-12 * abs(first).max())


@pytest.mark.parametrize("numbers", [[-1.0, -0.1], [1.0, -2.0]])
def test_damping_that_becomes_negative_is_refused(numbers):
    factor = time.polynomial(numbers)
    term = factor * (div(X) @ pointwise("f**2 / 2", speed_of="f"))
    with pytest.raises(ValueError, match=r"damping of pointwise\[0\] becomes negative"):
        discretized(term, until=1.0)


def test_factors_in_time_cover_the_run():
    table = time.spline(np.linspace(0.0, 1.0, 5), np.linspace(1.0, 2.0, 5))
    problem = discretized(-1 * table * (div(X) @ pointwise("f", speed_of="1 + 0 * f")), until=0.5)
    with pytest.raises(ValueError, match=r"pointwise\[0\].* lies outside the spline's table"):
        problem.check_interval(0.0, 2.0)


def test_second_derivatives_that_change_their_sign_are_refused():
    problem = discretized(time.cos(1.0) * (div(X) @ grad(X) @ pointwise("f**3")), until=1.0)
    with pytest.raises(ValueError, match="factor in time changes sign"):
        problem.check_interval(0.0, 3.0)


def test_fluxes_at_ends_may_be_longer_than_a_formula():
    flux = "+".join(["f**2"] * 30)
    data = "1+" + "+".join(f"0.001*sin(v*t+{k})" for k in range(20))
    boundary = {X: (Dirichlet(data), "neumann"), V: "no-flux"}
    pde = PDE([X, V], -1 * div(X) @ pointwise(flux, speed=3.0), boundary=boundary, initial="1")
    problem = pde.discretize(2, 1, "full")
    assert np.isfinite(problem.rhs(0.1, problem.initial)).all()
