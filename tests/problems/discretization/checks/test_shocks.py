"""A density that multiplies itself forms shocks: a warning, and the form that withstands them."""

import warnings

import numpy as np
import pytest

from batchkron.problems import (
    PDE,
    Axis,
    Inflow,
    Moment,
    Poisson,
    Separable,
    ShockWarning,
    div,
    grad,
    penalty,
)
from batchkron.solvers import EvolveStatus, evolve

Z, D = Axis("z", 0.0, 2 * np.pi), Axis("d", 0.0, 1.0)
W = Moment(D)


def pde(*terms):
    start = Separable(z=np.sin, d=1.0)
    return PDE([Z, D], terms, boundary={Z: "periodic", D: Inflow()}, initial=start)


@pytest.mark.parametrize(
    "field",
    [-0.5 * W, 1e-30 * W, W - 1.0, W**2, 1.0 / (1.0 + W**2), -Moment({D: 1}), W * np.cos],
)
def test_divs_with_a_moment_warn(field):
    for term in (div(Z, field), 3.0 * div(Z, field, flux="upwind"), div(Z, field, flux="central")):
        with pytest.warns(ShockWarning, match=r"terms\[1\].* add penalty\(z, c\)"):
            pde(div(D, 1.0), term).discretize((3, 0), 1, dt=0.1)


@pytest.mark.parametrize(
    "term",
    [
        [div(Z, -0.5 * W, flux="central"), penalty(Z, 0.55)],
        [div(Z, -0.5 * W), penalty(Z, 0.55)],
        div(Z, -Moment({D: 1}) / W, flux="central"),
        div(Z, -Moment({D: 1}) / (W + Moment({D: 1}))),
        div(Z, Poisson(Z, W)),
        grad(Z, -W),
        div(D, -1.0, others={Z: W}),
        div(Z, -1.0),
    ],
)
def test_others_do_not(term):
    positive = Separable(z=lambda s: 2 + np.sin(s), d=1.0)
    own = PDE([Z, D], term, boundary={Z: "periodic", D: Inflow()}, initial=positive)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        own.discretize((3, 0), 1, dt=0.1)


@pytest.mark.parametrize(("degree", "largest"), [(0, 1.09), (1, 1.15)])
def test_the_central_flux_with_a_penalty_withstands_shocks(degree, largest):
    """The shock of sin z forms at t = 1 and stands at π, of the same height up to t = π/2."""
    safe = pde(div(Z, -0.5 * W, flux="central"), penalty(Z, 0.55))
    problem = safe.discretize((5, 0), degree, grid="full")
    places = Z.length / 64 * (np.arange(64) + 0.5)
    states = [evolve(problem, until=t).u for t in (1.5, 6.0)]
    for u in states:
        density = problem.moment(u, {D: 0}).evaluate(places)
        assert np.abs(density).max() < largest
        assert problem.integral(u) == pytest.approx(0.0, abs=1e-12)
    away = np.abs(places - np.pi) > 1.0
    y = np.linspace(0.0, 2 * np.pi, 4001)  # characteristics that have not met the shock
    z = y + 6.0 * np.sin(y)
    kept = (np.maximum.accumulate(z) <= z) & (z < np.pi)
    exact = np.interp(np.minimum(places, Z.length - places), z[kept], np.sin(y[kept]))
    exact = np.where(places < np.pi, exact, -exact)
    np.testing.assert_allclose(density[away], exact[away], rtol=0, atol=0.05)


def test_the_upwind_flux_does_not():
    """The text of the warning is true."""
    with pytest.warns(ShockWarning):
        problem = pde(div(Z, -0.5 * W)).discretize((5, 0), 0, grid="full")
    result = evolve(problem, until=3.0)
    assert result.status is EvolveStatus.COMPLETED
    cells = problem.moment(result.u, {D: 0}).evaluate(Z.length / 32 * (np.arange(32) + 0.5))
    assert np.abs(cells).max() > 2.0
