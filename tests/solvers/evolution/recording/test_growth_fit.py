"""Rates and frequencies that are fitted to values over time."""

import functools

import numpy as np
import pytest
from scipy.linalg import expm

from batchkron.solvers import fit_growth

T = np.linspace(0.0, 20.0, 401)


@pytest.mark.parametrize("rate", [-0.7, -0.01, 0.0, 0.3])
def test_an_exponential_is_found_exactly(rate):
    fit = fit_growth(T, 3e-5 * np.exp(rate * T), model="exponential")
    assert fit.rate == pytest.approx(rate, abs=1e-13)
    assert (fit.frequency, fit.frequency_scatter) == (0.0, 0.0)
    assert fit.rate_scatter < 1e-13
    assert (fit.points, fit.between, fit.model) == (401, (0.0, 20.0), "exponential")
    np.testing.assert_allclose(fit.envelope(T), 3e-5 * np.exp(rate * T), rtol=1e-12)


@pytest.mark.parametrize("is_norm", [True, False])
@pytest.mark.parametrize(("rate", "frequency"), [(-0.153, 1.416), (-0.0126, 1.16), (0.2, 2.5)])
def test_a_wave_is_found_at_its_maxima(rate, frequency, is_norm):
    values = 1e-4 * np.exp(rate * T) * np.cos(frequency * T + 0.3)
    fit = fit_growth(T, np.abs(values) if is_norm else values, between=(2.0, 19.0))
    assert fit.model == "maxima"
    assert fit.rate == pytest.approx(rate, abs=2e-5)
    assert fit.frequency == pytest.approx(frequency, rel=2e-4)
    assert fit.points == pytest.approx(17.0 * frequency / np.pi, abs=1.0)
    assert 2.0 < fit.between[0] < fit.between[1] < 19.0
    # the maxima are below the envelope by the same factor
    at = np.linspace(*fit.between, 5)
    ratio = fit.envelope(at) / (1e-4 * np.exp(rate * at))
    np.testing.assert_allclose(ratio, np.cos(np.arctan(rate / frequency)), rtol=1e-3)


def test_the_scatter_is_that_of_the_points():
    """The slope's standard error against the spread of fits of many noisy copies."""
    rng = np.random.default_rng(3)
    fits = [
        fit_growth(T, np.exp(0.1 * T + 0.05 * rng.standard_normal(T.size)), model="exponential")
        for _ in range(300)
    ]
    spread = np.std([fit.rate for fit in fits])
    assert np.mean([fit.rate_scatter for fit in fits]) == pytest.approx(spread, rel=0.15)
    assert abs(np.mean([fit.rate for fit in fits]) - 0.1) < 4 * spread / np.sqrt(300)


@functools.cache
def hermite_amplitude(k, nu, modes=80):
    """n_k(t) of a plasma with Lenard-Bernstein collisions, and its slowest oscillating mode."""
    A = np.zeros((modes, modes), dtype=complex)
    order = np.arange(modes)
    A[order[1:], order[:-1]] = A[order[:-1], order[1:]] = -1j * k * np.sqrt(order[1:])
    A[1, 0] -= 1j / k
    A[order, order] -= np.where(order >= 3, nu * order, 0.0)
    step = expm(A * (T[1] - T[0]))
    state, found = np.eye(modes)[0].astype(complex), []
    for _ in T:
        found.append(state[0].real)
        state = step @ state
    roots = np.linalg.eigvals(A)
    waves = roots[np.abs(roots.imag) > 0.5]
    best = waves[np.argmax(waves.real)]
    return np.array(found), best.real, abs(best.imag)


@pytest.mark.parametrize("is_norm", [True, False])
@pytest.mark.parametrize("nu", [0.05, 0.25, 1.0, 10.0])
def test_a_wave_on_an_exponential_is_found_by_least_squares(nu, is_norm):
    """Collisions leave a mode that does not oscillate; the slope at maxima is wrong there."""
    values, rate, frequency = hermite_amplitude(0.5, nu)
    given = np.abs(values) if is_norm else values
    fit = fit_growth(T, given, between=(4.0, 20.0), model="mode")
    assert fit.rate == pytest.approx(rate, rel=5e-4)
    assert fit.frequency == pytest.approx(frequency, rel=5e-5)
    assert fit.rate_scatter < 1e-4 * abs(rate)
    assert (fit.model, fit.points) == ("mode", 321)
    used = T >= 4.0
    size = np.abs(values[used]).max()
    np.testing.assert_allclose(fit.curve(T[used]), given[used], atol=1e-3 * size)
    if nu == 10.0:
        naive = fit_growth(T, given, between=(4.0, 20.0), model="maxima")
        assert abs(naive.rate - rate) > 0.1 * abs(rate)


def test_two_maxima_make_a_line_without_a_scatter():
    values = np.exp(-0.2 * T) * np.abs(np.cos(T))
    fit = fit_growth(T, values, between=(1.0, 8.0), model="maxima")
    assert fit.points == 2
    assert fit.rate == pytest.approx(-0.2, abs=1e-4)
    assert np.isnan([fit.rate_scatter, fit.frequency_scatter]).all()
    assert fit_growth(T, values, between=(1.0, 8.0)).model == "exponential"


def test_values_that_are_missing_are_left_out():
    values = np.exp(0.2 * T)
    values[::7] = np.nan
    assert fit_growth(T, values).rate == pytest.approx(0.2, abs=1e-13)


@pytest.mark.parametrize(
    ("t", "values", "options", "words"),
    [
        (T, T[:3], {}, r"t has shape \(401,\) and values \(3,\)"),
        (T[:2], T[:2], {}, "there are 2 values between these times"),
        (T, np.exp(T), {"between": (30.0, 40.0)}, "there are 0 values"),
        (T, np.exp(T), {"between": (3.0, 2.0)}, "expected two ascending times"),
        (T[::-1], np.exp(T), {}, "t is not ascending"),
        (T, 0.0 * T, {}, "a value is 0"),
        (T, np.exp(T), {"model": "line"}, "model is 'line'; expected one of 'auto'"),
        (T, np.exp(T), {"model": "maxima"}, "there are 0 maxima.*model='exponential'"),
        (T, np.exp(T), {"model": "mode"}, "there are 0 maxima.*at least two"),
        (T[:6], np.cos(3 * T[:6]), {"model": "mode"}, "expected at least 8"),
    ],
)
def test_what_cannot_be_fitted_is_refused(t, values, options, words):
    with pytest.raises(ValueError, match=words):
        fit_growth(t, values, **options)
