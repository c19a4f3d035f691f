"""Right-hand sides in parts: products with functions of time, and sources."""

from types import SimpleNamespace

import numpy as np
import pytest

from batchkron.problems import PDE, Axis, Moment, Poisson, Separable, bgk, div, make, mass
from batchkron.problems import time as times
from batchkron.solvers import steppers


def with_everything(*, constant=True):
    """Terms with fields and without, constant and not, sources that change, and a gain."""
    x, v = Axis("x", 0.0, 3.0), Axis("v", -6.0, 6.0)
    wave = times.cos(1.0)
    terms = [
        div(x, -1.0, others={v: lambda s: s}) * wave,
        div(v, -1.0, others={x: Poisson(x, Moment(v))}),
        *bgk(v, 2.0, position=x),
    ]
    if constant:
        terms.append(mass(x, lambda s: -0.1 * s))
    initial = Separable(
        x=lambda s: 1.0 + 0.1 * np.cos(2.0 * np.pi * s / 3.0),
        v=lambda s: np.exp(-0.5 * (s - 1.0) ** 2),
    )
    sources = [
        Separable(x=lambda s: 1.0 + 0.0 * s, v=lambda s: np.exp(-(s**2)), t=function)
        for function in (wave, times.exp(-1.0))
    ]
    boundary = {x: "periodic", v: "inflow"}
    return PDE([x, v], terms, boundary=boundary, initial=initial, sources=sources).discretize(3, 2)


def factors_only():
    """No term that does not depend on time."""
    x = Axis("x", 0.0, 1.0)
    terms = [div(x, -1.0) * times.cos(1.0), mass(x, lambda s: -s) * times.exp(-1.0)]
    initial = Separable(x=lambda s: np.cos(2.0 * np.pi * s))
    return PDE([x], terms, boundary={x: "periodic"}, initial=initial).discretize(3, 2)


PROBLEMS = {
    "fields": with_everything,
    "fields and factors": lambda: with_everything(constant=False),
    "factors": factors_only,
    "two-stream": lambda: make("two-stream", 3, 1),
    "batch": lambda: with_everything().with_form("batch"),
    "source": lambda: make("continuity-2d", 3, 1),
    "boundary data": lambda: make("diffusion-2d", 3, 1),
    "gain": lambda: make("bgk-1x1v", 3, 1),
}


def sum_of_parts(split, t, u):
    total = np.zeros_like(u)
    with split.turn():
        for function, product in split.products:
            part = np.full_like(u, np.nan)
            product(t, u, part)
            total += part if function is None else function(t) * part
    for function, vector in split.sources:
        total += function(t) * vector
    return total


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("name", PROBLEMS)
def test_the_parts_are_the_right_hand_side(rng, monkeypatch, name, device):
    """On a device there are more products; here the host has them."""
    problem = PROBLEMS[name]()
    t, u = 0.3, problem.initial * rng.uniform(0.999, 1.001, problem.unknowns)
    expected = np.full_like(u, np.nan)
    problem.rhs(t, u, expected)
    assert problem._gains is not None
    if device == "cuda":
        monkeypatch.setattr(type(problem), "_repeated", None)
        monkeypatch.setitem(vars(problem), "device", device)
    split = problem.split_rhs()
    assert all(function is None or not function.is_constant for function, _ in split.products)
    if device == "cpu":
        assert [function for function, _ in split.products] == [None]
    found = sum_of_parts(split, t, u)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-13 * np.abs(expected).max())


@pytest.mark.parametrize("method", ["ssp-rk3", "bogacki-shampine"])
@pytest.mark.parametrize("name", PROBLEMS)
def test_steps_of_the_parts(rng, name, method):
    problem = PROBLEMS[name]()
    hidden = SimpleNamespace(initial=problem.initial, rhs=problem.rhs)
    dt, t0 = 1e-4, problem.t0
    one, other = (steppers.get(method)(each, dt) for each in (problem, hidden))
    u = problem.initial * rng.uniform(0.999, 1.001, problem.unknowns)
    v, slope = u.copy(), np.empty_like(u)
    for k in range(3):
        problem.rhs(t0 + k * dt, u, slope)
        one.step(u, t0 + k * dt, t0 + (k + 1) * dt)
        other.step(v, t0 + k * dt, t0 + (k + 1) * dt)
        # the same products, but sources are added at other places of the sums
        bound = 64 * np.finfo(float).eps * (abs(u).max() + dt * abs(slope).max())
        np.testing.assert_allclose(u, v, rtol=0, atol=bound)
