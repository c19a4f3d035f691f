"""Rates and frequencies that are fitted to values over time."""

import functools

import numpy as np
import pytest
from scipy.linalg import expm

from batchkron.solvers import fit_growth

T = np.linspace(0.0, 20.0, 401)
TICKS = np.arange(80.0)


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
    found = fit_growth(T, values, between=(1.0, 8.0))  # which no exponential fits
    assert (found.model, found.frequency) == ("mode", pytest.approx(1.0, abs=1e-10))


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
        (T, np.exp(T), {"model": "mode"}, "do not oscillate: an exponential alone fits"),
        (T, 0.0 * T + 3.0, {"model": "mode"}, "do not oscillate"),
        (T, 0.0 * T, {"model": "mode"}, "all values are 0"),
        (T[:3], np.cos(T[:3]), {"model": "mode"}, "there are 3 values; expected at least 8"),
        (T[:40], np.cos(T[:40]) + 1e-3 * T[::-1][:40] ** 2, {"model": "mode"}, "0.31 periods"),
        (T, np.cos(2 * T) + 0.5 * np.cos(3.1 * T), {"model": "mode"}, "something else in them"),
        (TICKS, np.abs(np.cos(1.5 * TICKS)), {"model": "maxima"}, "apart, and the correlation"),
        (TICKS, np.abs(np.cos(1.5 * TICKS)), {}, "apart, and the correlation"),
        (TICKS, np.abs(np.cos(1.0 * TICKS)), {"model": "maxima"}, "maxima are 3.1 values apart"),
        (T[:6], np.cos(3 * T[:6]), {"model": "mode"}, "expected at least 8"),
    ],
)
def test_what_cannot_be_fitted_is_refused(t, values, options, words):
    with pytest.raises(ValueError, match=words):
        fit_growth(t, values, **options)


def test_complex_values_are_refused():
    with pytest.raises(TypeError, match="t or values are complex"):
        fit_growth(T, np.exp(1j * T))


@pytest.mark.parametrize("even", [True, False])
@pytest.mark.parametrize(
    ("per_period", "rate"), [(2.2, 0.05), (3.0, -0.3), (3.6, -0.1), (4.2, -0.1), (12.0, 0.2)]
)
def test_waves_with_few_values_a_period(per_period, even, rate, rng):
    """Values are exact, so is the fit; without a guess from maxima, of which there are none."""
    frequency = 2.0 * np.pi / per_period
    t = 100.0 + np.arange(40) + (0.0 if even else rng.uniform(-0.3, 0.3, 40))
    s = t - t[0]
    wave = np.exp(rate * s) * np.cos(frequency * s + 0.3)
    offset = 3.0 * np.exp(-0.1 * s)
    for values in (wave, 1e300 * (wave + offset)) if even else (1e-300 * wave, wave + offset):
        fit = fit_growth(t, values, model="mode")
        assert (fit.rate, fit.frequency) == pytest.approx((rate, frequency), abs=1e-10)
        assert 0.0 < fit.rate_scatter < 1e-10
        assert 0.0 < fit.frequency_scatter < 1e-10
        assert fit.residual < 1e-12
        size = np.abs(values).max()
        np.testing.assert_allclose(fit.curve(t) / size, values / size, atol=1e-12)


@pytest.mark.parametrize("per_period", [3.6, 4.2, 5.0, 7.0, 9.0, 50.0])
@pytest.mark.parametrize("offset", [0.0, 0.5])
def test_sizes_whose_frequency_has_another_answer_are_refused(per_period, offset):
    """|cos(ωn)| = |cos((π - ω)n)|: only with an offset, or many values, one is known."""
    frequency = 2.0 * np.pi / per_period
    t = np.arange(max(40.0, 3 * per_period))
    values = np.abs(np.exp(-0.02 * t) * np.cos(frequency * t + 0.3) + offset * np.exp(-0.01 * t))
    if per_period < 8.0 and not offset:
        with pytest.raises(ValueError, match=r"do not tell rate -0\.02 with frequency"):
            fit_growth(t, values, model="mode")
    else:
        fit = fit_growth(t, values, model="mode")
        assert (fit.rate, fit.frequency) == pytest.approx((-0.02, frequency), abs=1e-9)


def test_times_of_any_size():
    values = np.abs(np.exp(-0.1 * TICKS) * np.cos(0.5 * TICKS + 0.1))
    for model in ("mode", "maxima", "exponential"):
        fit = fit_growth(TICKS, values, model=model)
        for unit in (1e-300, 1e300):
            t = unit * TICKS
            scaled = fit_growth(t, values, model=model)
            assert scaled.rate * unit == pytest.approx(fit.rate, rel=1e-6)
            assert scaled.frequency * unit == pytest.approx(fit.frequency, rel=1e-6)
            assert scaled.rate_scatter * unit == pytest.approx(fit.rate_scatter, abs=1e-6)
            np.testing.assert_allclose(scaled.envelope(t), fit.envelope(TICKS), rtol=1e-6)


@pytest.mark.parametrize(("noise", "is_norm"), [(0.01, False), (0.1, False), (0.01, True)])
def test_errors_of_waves_with_noise_are_those_that_the_fit_states(noise, is_norm, rng):
    t = np.arange(60) * 0.2
    shifts = []
    for _ in range(6):
        wave = np.exp(-0.1 * t) * np.cos(1.5 * t + rng.uniform(0.0, 6.0))
        values = (np.abs(wave) if is_norm else wave) + noise * rng.standard_normal(60)
        fit = fit_growth(t, values, model="mode")
        shifts += [(fit.rate + 0.1) / fit.rate_scatter]
        shifts += [(fit.frequency - 1.5) / fit.frequency_scatter]
        assert 0.5 * noise < fit.residual * np.sqrt(np.mean(values**2)) < 1.5 * noise
    assert np.abs(shifts).max() < 4.5
    assert 0.3 < np.sqrt(np.mean(np.square(shifts))) < 1.5


def test_the_residual_of_lines_is_that_of_logarithms(rng):
    noise = 0.03 * rng.standard_normal(401)
    fit = fit_growth(T, np.exp(0.1 * T + noise))
    assert (fit.model, fit.frequency) == ("exponential", 0.0)  # though noise has maxima
    assert fit.residual == pytest.approx(np.std(noise), rel=0.02)
    assert fit_growth(T, np.exp(-0.1 * T) * np.cos(T)).residual < 1e-3


@pytest.mark.parametrize(
    ("per_period", "count", "rate"),
    [(4.0, 100, -0.1), (2.2, 100, -0.01), (6.0, 19, 0.0), (21.0, 28, 0.02), (3.0, 8, 0.1)],
)
def test_signs_keep_auto_from_slow_or_no_waves(per_period, count, rate):
    """Sizes alone look like an exponential, or like the slower wave of π - ω."""
    t, frequency = np.arange(count), 2.0 * np.pi / per_period
    for factor in (1.0, -1e-7):
        values = factor * np.exp(rate * t) * np.cos(frequency * t + 0.3)
        fit = fit_growth(t, values)
        assert (fit.rate, fit.frequency) == pytest.approx((rate, frequency), abs=1e-10)
        assert fit.model == "mode"
        with pytest.raises(ValueError, match="both signs, which an exponential has not"):
            fit_growth(t, values, model="exponential")


@pytest.mark.parametrize("is_norm", [True, False])
def test_auto_is_right_or_refuses(is_norm, rng):
    """Short series of exact waves; of sizes only those with more than 8/3 values a period."""
    found = 0
    for _ in range(40):
        per_period = np.exp(rng.uniform(np.log(4.3 if is_norm else 2.1), np.log(30.0)))
        t = np.arange(np.clip(round(per_period * rng.choice([1.5, 3.0, 5.0])) + 1, 8, 50))
        frequency = 2.0 * np.pi / per_period
        values = np.exp(rng.uniform(-0.1, 0.05) * t) * np.cos(frequency * t + rng.uniform(0, 6))
        try:
            fit = fit_growth(t, np.abs(values) if is_norm else values)
        except ValueError:
            continue
        found += 1
        assert fit.frequency == pytest.approx(frequency, rel=0.02)
    assert found > (10 if is_norm else 32)


def test_auto_takes_noise_on_an_exponential_for_noise(rng):
    """Ten percent of noise has maxima, of which some are six values apart."""
    for _ in range(300):
        t = np.arange(rng.integers(8, 100))
        fit = fit_growth(t, np.exp(0.1 * t + 0.1 * rng.standard_normal(t.size)))
        assert (fit.model, fit.frequency) == ("exponential", 0.0)


@pytest.mark.parametrize("per_period", [2.2, 2.1])
def test_maxima_of_a_faster_wave_are_refused_by_their_signs(per_period):
    t = np.arange(100.0)
    values = np.exp(-0.01 * t) * np.cos(2.0 * np.pi / per_period * t + 0.3)
    with pytest.raises(ValueError, match="signs of values at the maxima"):
        fit_growth(t, values, model="maxima")
    assert fit_growth(t, np.abs(values), model="maxima").model == "maxima"


@pytest.mark.parametrize("count", [12, 20, 100])
def test_square_waves_are_refused(count):
    with pytest.raises(ValueError, match=r"something else|do not oscillate|periods"):
        fit_growth(TICKS[:count], np.sign(np.cos(0.3 * TICKS[:count])))


def test_spacings_that_are_too_small_read_so():
    """Maxima 5.97 values apart, of which the text said that they are 6 apart."""
    values = np.abs(np.cos(np.pi / 5.97 * np.arange(200.0) + 0.4))
    with pytest.raises(ValueError, match=r"maxima are 5\.9 values apart.*at least 6 and"):
        fit_growth(np.arange(200.0), values, model="maxima")


def test_sizes_of_which_the_mirrored_answer_is_found_first():
    """The best answer had no mirrored one, because it was itself found as that of a worse one."""
    t = np.arange(8.0)
    values = np.abs(np.exp(-0.233 * t) * np.cos(2.0 * np.pi / 2.693 * t + 5.66))
    with pytest.raises(ValueError, match="do not tell rate"):
        fit_growth(t, values, model="mode")


@pytest.mark.parametrize(
    ("between", "error"),
    [((1, 2, 3), ValueError), ((1,), ValueError), ((np.nan, 2), ValueError), (5.0, TypeError),
     ("12", TypeError), (("1", "2"), TypeError), ((None, 2), TypeError), ((1j, 2), TypeError)],
)  # fmt: skip
def test_intervals_that_are_none_are_refused(between, error):
    with pytest.raises(error, match=r"between is .*; expected two ascending times, such as"):
        fit_growth(T, np.exp(T), between=between)
