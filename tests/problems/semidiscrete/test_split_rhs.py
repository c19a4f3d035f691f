"""Right-hand sides in parts: products with functions of time, and sources."""

from types import SimpleNamespace

import numpy as np
import pytest
from problems_in_parts import PROBLEMS

from batchkron.solvers import steppers


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
    assert problem.system._gains is not None
    if device == "cuda":
        monkeypatch.setitem(vars(problem.system.problem), "device", device)
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
