"""Coefficients that jump inside a cell: the order that remains, and the warning."""

import re
import warnings

import numpy as np
import pytest

from batchkron.problems import (
    PDE,
    Axis,
    Dirichlet,
    Inflow,
    JumpWarning,
    Moment,
    NoFlux,
    Separable,
    div,
    grad,
    mass,
    penalty,
)

X, Y = Axis("x", -1.0, 1.0), Axis("y", 0.0, 1.0)
THIRD = -1 / 3  # a third of the axis: in cells of all levels a jump lies at 1/3 or 2/3


def step(s, at=THIRD):
    return np.where(s < at, 1.0, 2.0)


def text_of(terms, level=3, axes=(X,), **options):
    pde = PDE(list(axes), terms, boundary=Inflow(), initial=1.0, **options)
    with pytest.warns(JumpWarning) as caught:
        pde.discretize(level, 2)
    assert len(caught) == 1
    return str(caught[0].message)


def test_a_jump_that_is_small_beside_values_elsewhere():
    text = text_of(div(X, lambda s: np.exp(8 * s) + 0.2 * (s > -0.9)), level=4)
    assert "at x = -0.9, inside a finest cell" in text


def steady_error(terms, boundary, exact, level, degree):
    pde = PDE([X], terms, boundary=boundary, initial=0.0, sources=0.0)
    with pytest.warns(JumpWarning, match="jumps from 1 to 2 at x = -0.3333333333, inside a"):
        problem = pde.discretize(level, degree)
    source = np.empty(problem.unknowns)
    problem.rhs(0.0, np.zeros(problem.unknowns), source)
    u = np.linalg.solve(problem.operator.to_dense(), -source)
    x = -1 + (np.arange(3 * 2**11) + 0.5) / (3 * 2**10)
    off = np.abs(problem.evaluate(u, x) - exact(x))
    return np.sqrt(2 * np.mean(off**2)), 2 * np.mean(off)


@pytest.mark.parametrize("degree", [0, 1, 3])
def test_half_an_order_remains_for_transport_and_one_for_its_integral(degree):
    """The solution jumps inside a cell, where it cannot; outside the cell it is exact."""
    coarse, fine = (
        steady_error(div(X, step), Inflow(1.0), lambda x: 2 / step(x), k, degree) for k in (4, 6)
    )
    orders = np.log2(np.divide(coarse, fine)) / 2  # over two levels, at the same place in a cell
    np.testing.assert_allclose(orders, [0.5, 1.0], atol=0.05)


@pytest.mark.parametrize("degree", [1, 3])
def test_one_order_remains_for_diffusion(degree):
    def exact(x):
        flux = 1 / ((1 + THIRD) + (1 - THIRD) / 2)
        return np.where(x < THIRD, flux * (x + 1), 1 - flux / 2 * (1 - x))

    ends = (Dirichlet(0.0), Dirichlet(1.0))
    coarse, fine = (steady_error(div(X, step) @ grad(X), ends, exact, k, degree)[0] for k in (4, 6))
    assert 0.8 < np.log2(coarse / fine) / 2 < 1.7


@pytest.mark.parametrize(
    "terms",
    [
        div(X, step),
        grad(X, step),
        penalty(X, step),
        mass(X, step),
        1e-200 * div(X, lambda s: 1e-100 * step(s)),
        div(X, boundary=NoFlux()) @ mass(X, step) @ grad(X),
        div(Y, -1.0, others={X: step}),
        div(Y, -1.0, others={X: Moment(Y) * step}),
        div(X, lambda s: np.exp(s) + 0.01 * step(s)),
        div(X, lambda s: 30 * s - 0.05 * step(s)),
    ],
)
def test_every_coefficient_is_looked_at(terms):
    text = text_of(terms, axes=(X, Y))
    assert "at x = -0.3333333333, inside a finest cell of level 3" in text


def test_the_text_says_what_to_align():
    text = text_of(div(X, lambda s: step(s, 0.375)), 2)
    assert "terms[0], div(x, <lambda>), jumps from 1 to 2 at x = 0.375, inside" in text
    assert "from level 4 on it is an edge" in text
    text = text_of(div(X, step))
    (lower, upper) = map(float, re.search(r"Axis\('x', (\S+), (\S+)\)", text).groups())
    moved = Axis("x", lower, upper)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        PDE([moved], div(moved, step), boundary=Inflow(), initial=1.0).discretize(3, 2)
    two = div(X, lambda s: step(s) + 3 * step(s, 0.6))
    assert "jumps from 5 to 8 at x = 0.6 (and at 1 more place)" in text_of(two)
    assert "the volume element jumps" in text_of(div(X), volume={X: step})


LAYERS = 10.0 ** -np.arange(1, 11)
CONTINUOUS = {
    **{f"a layer of {w:.0e}": lambda s, w=w: np.tanh((s - 0.123) / w) for w in LAYERS},
    **{f"a peak of {w:.0e}": lambda s, w=w: 1 / ((s - 0.123) ** 2 + w**2) for w in LAYERS},
    "a kink": lambda s: np.abs(s - 0.123),
    "a root": lambda s: np.sign(s - 0.123) * np.abs(s - 0.123) ** 0.1,
    "waves": lambda s: np.sin(1e4 * s),
    "a large range": lambda s: np.exp(300 * s),
    "single precision": lambda s: np.sin(s.astype(np.float32)),
    "a number": 2.0,
    "at an edge": lambda s: step(s, 0.25),
    "at an edge, up to rounding": lambda s: step(s, 0.25 + 1e-12),
}


@pytest.mark.parametrize("g", CONTINUOUS.values(), ids=CONTINUOUS)
def test_layers_and_jumps_at_edges_give_no_warning(g):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for level in (3, 6):
            PDE([X], mass(X, g), boundary=Inflow(), initial=Separable(x=step)).discretize(level, 1)


def test_far_from_the_origin_rounding_of_coordinates_counts():
    far = Axis("x", 1e6, 1e6 + 1)
    pde = PDE([far], div(far, lambda s: step(s, 1e6 + 0.25)), boundary=Inflow(), initial=1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pde.discretize(3, 1)
    with pytest.warns(JumpWarning, match="at x = 1000000.25"):
        pde.discretize(1, 1)
