"""The rate and the frequency with which a recorded quantity grows or falls."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import least_squares

__all__ = ["GrowthFit", "fit_growth"]

Values = NDArray[np.float64]

_MODELS = ("auto", "exponential", "maxima", "mode")
# Fewest maxima from which a line is fitted, and from which its scatter is known.
_MIN_MAXIMA, _MAXIMA_WITH_SCATTER = 2, 3
# A value counts as a maximum if it is the largest of this many on each side: noise has more maxima.
_NEIGHBOURS = 2
_STARTS = (0.0, 0.5, 1.5)  # rates of the second exponential that are tried first, relative to γ


@dataclass(frozen=True, eq=False)
class GrowthFit:
    """The fit of exp(γt) or exp(γt) cos(ωt + φ) to values over time.

    Attributes
    ----------
    rate : float
        γ, negative for damping, in 1 / (unit of time).
    frequency : float
        ω ≥ 0, in radians per unit of time; 0 if the values do not oscillate.
    rate_scatter, frequency_scatter : float
        Standard errors from the scatter of the points around the fit; NaN if these are too few.
    model : str
        "exponential", "maxima" or "mode", see `fit_growth`.
    points : int
        Number of values, or of maxima, that were fitted.
    between : (float, float)
        The first and the last time of them.
    envelope : callable
        Takes times and returns exp(γt) with the height of the fit.
    curve : callable
        Takes times and returns the fit: for "mode" the wave and the other exponential, without the
        sign if no value had one; otherwise the envelope.
    """

    rate: float
    frequency: float
    rate_scatter: float
    frequency_scatter: float
    model: str
    points: int
    between: tuple[float, float]
    envelope: Callable[[ArrayLike], Values] = field(repr=False)
    curve: Callable[[ArrayLike], Values] = field(repr=False)


def fit_growth(
    t: ArrayLike,
    values: ArrayLike,
    *,
    between: tuple[float, float] | None = None,
    model: str = "auto",
) -> GrowthFit:
    """Fit the rate γ and the frequency ω of a quantity that behaves as exp(γt) cos(ωt + φ).

    Parameters
    ----------
    t : array_like, shape (m,), float64
        Times, ascending.
    values : array_like, shape (m,), float64
        The quantity, with its sign or as a norm, |exp(γt) cos(ωt + φ)|. NaN are left out.
    between : (float, float), optional
        The first and the last time that are used; by default all.
    model : {"auto", "exponential", "maxima", "mode"}
        "exponential": the line through all logarithms of |values|. "maxima": the line through the
        logarithms at the maxima of |values|, each that of the parabola through three points; ω is
        π over the time between them. Two maxima suffice. "mode": A exp(γt) cos(ωt + φ) + C exp(δt)
        by least squares, for waves on top of something that does not oscillate, whose maxima are
        not on a line. "auto" takes the maxima if there are at least three, else the exponential.

    Returns
    -------
    GrowthFit

    Raises
    ------
    TypeError, ValueError
        If shapes or times do not fit, values are zero where a logarithm is needed, or there are too
        few values or maxima.

    Notes
    -----
    The scatters are standard errors of the parameters of the least-squares fits. They know nothing
    of errors that all points share, such as those of a coarse grid.

    Examples
    --------
    >>> import numpy as np
    >>> from batchkron.solvers import fit_growth
    >>> t = np.linspace(0.0, 20.0, 400)
    >>> fit = fit_growth(t, np.exp(-0.15 * t) * np.abs(np.cos(1.4 * t)), between=(2.0, 20.0))
    >>> print(fit.model, f"{fit.rate:.3f} {fit.frequency:.2f}")
    maxima -0.150 1.40
    """
    if model not in _MODELS:
        raise ValueError(f"model is {model!r}; expected one of {', '.join(map(repr, _MODELS))}")
    times, found = _selected(t, values, between)
    sizes = np.abs(found)
    peaks = _maxima(times, sizes) if model != "exponential" else None
    if model == "mode":
        assert peaks is not None
        return _fit_mode(times, found, *peaks)
    if peaks is not None and (model == "maxima" or len(peaks[0]) >= _MAXIMA_WITH_SCATTER):
        return _fit_maxima(*peaks)
    if (sizes == 0.0).any():
        raise ValueError("a value is 0, whose logarithm is needed; choose other times by between")
    rate, height, scatter = _line(times, np.log(sizes))
    interval, line = (float(times[0]), float(times[-1])), _envelope(rate, height)
    return GrowthFit(rate, 0.0, scatter, 0.0, "exponential", len(times), interval, line, line)


def _selected(
    t: ArrayLike, values: ArrayLike, between: tuple[float, float] | None
) -> tuple[Values, Values]:
    """Return the times and values that are used."""
    times, found = (np.asarray(part, dtype=np.float64) for part in (t, values))
    if times.ndim != 1 or times.shape != found.shape:
        raise ValueError(
            f"t has shape {times.shape} and values {found.shape}; expected two vectors (m,)"
        )
    used = np.isfinite(times) & np.isfinite(found)
    if between is not None:
        first, last = (float(end) for end in between)
        if not first < last:
            raise ValueError(f"between is ({first}, {last}); expected two ascending times")
        used &= (times >= first) & (times <= last)
    times, found = times[used], found[used]
    if len(times) < 3:
        raise ValueError(
            f"there are {len(times)} values between these times; expected at least three"
        )
    if not (np.diff(times) > 0).all():
        raise ValueError("t is not ascending")
    return times, found


def _maxima(times: Values, sizes: Values) -> tuple[Values, Values]:
    """Return the times and the logarithms of the local maxima, by parabolas through three points.

    Those at the ends are left out.
    """
    count = len(sizes)
    with np.errstate(divide="ignore"):
        logs = np.log(sizes)
    at, heights = [], []
    for j in range(1, count - 1):
        around = sizes[max(j - _NEIGHBOURS, 0) : j + _NEIGHBOURS + 1]
        if not (sizes[j - 1] < sizes[j] >= sizes[j + 1] and sizes[j] == around.max()):
            continue
        if not np.isfinite(logs[j - 1 : j + 2]).all():
            continue
        left, right = times[j - 1] - times[j], times[j + 1] - times[j]
        low, high = (logs[j - 1] - logs[j]) / left, (logs[j + 1] - logs[j]) / right
        bend = (high - low) / (right - left)
        slope = low - bend * left
        at.append(times[j] - slope / (2.0 * bend))
        heights.append(logs[j] - slope**2 / (4.0 * bend))
    return np.array(at), np.array(heights)


def _fit_maxima(at: Values, heights: Values) -> GrowthFit:
    """Fit lines to the heights of maxima over time, and to their times over their number."""
    if len(at) < _MIN_MAXIMA:
        raise ValueError(
            f"there are {len(at)} maxima between these times; expected at least {_MIN_MAXIMA}. "
            "Take a longer time, or model='exponential'"
        )
    rate, height, scatter = _line(at, heights)
    spacing, _, spread = _line(np.arange(len(at), dtype=np.float64), at)
    frequency, line = math.pi / spacing, _envelope(rate, height)
    return GrowthFit(
        rate,
        frequency,
        scatter,
        frequency * spread / spacing,
        "maxima",
        len(at),
        (float(at[0]), float(at[-1])),
        line,
        line,
    )


def _line(x: Values, y: Values) -> tuple[float, float, float]:
    """Return slope and value at 0 of the line of least squares, and the slope's standard error."""
    shifted = x - x.mean()
    squares = float(shifted @ shifted)
    slope = float(shifted @ y) / squares
    rest = y - y.mean() - slope * shifted
    freedom = len(x) - 2
    scatter = math.sqrt(float(rest @ rest) / freedom / squares) if freedom > 0 else math.nan
    return slope, float(y.mean() - slope * x.mean()), scatter


def _fit_mode(times: Values, values: Values, at: Values, heights: Values) -> GrowthFit:
    """Fit exp(γt) (A cos ωt + B sin ωt) + C exp(δt), or its size if no value is negative."""
    if len(times) < 8:
        raise ValueError(f"there are {len(times)} values; expected at least 8 for model='mode'")
    only_size = bool((values >= 0.0).all())
    middle = float(times.mean())
    s = times - middle  # so that amplitudes are those in the middle
    guesses = _guesses(s, values, at - middle, heights)
    best: Any = None
    for rate, frequency in guesses:
        for share in _STARTS:
            start = np.array([rate, frequency, share * rate])
            amplitudes = _amplitudes(start, s, values, only_size)
            found = least_squares(
                _misfit, [*start, *amplitudes], x_scale="jac", args=(s, values, only_size)
            )
            if best is None or found.cost < best.cost:
                best = found
    rate, frequency = float(best.x[0]), abs(float(best.x[1]))
    scatters = _standard_errors(best, len(times))
    height = math.log(math.hypot(best.x[3], best.x[4])) - rate * middle
    return GrowthFit(
        rate,
        frequency,
        scatters[0],
        scatters[1],
        "mode",
        len(times),
        (float(times[0]), float(times[-1])),
        _envelope(rate, height),
        lambda t: _fitted(best.x, np.asarray(t, dtype=np.float64) - middle, only_size),
    )


def _guesses(
    s: Values, values: Values, at: Values, heights: Values
) -> Sequence[tuple[float, float]]:
    """Return pairs (γ, ω) to begin with: from the maxima, and halves of this frequency.

    A wave on top of a larger value has one maximum per period, one around zero has two.
    """
    if len(at) < 2:
        raise ValueError(
            f"there are {len(at)} maxima between these times; expected at least two, from which "
            "the frequency is guessed"
        )
    spacing = float(np.diff(at).mean())
    rate = float(np.polyfit(at, heights, 1)[0])
    return [(rate, math.pi / spacing), (rate, 2.0 * math.pi / spacing)]


def _basis(rates: Values, s: Values) -> Values:
    """Return the columns exp(γs) cos ωs, exp(γs) sin ωs, exp(δs) for γ, ω, δ."""
    rate, frequency, other = rates
    wave = np.exp(rate * s)
    return np.column_stack(
        [wave * np.cos(frequency * s), wave * np.sin(frequency * s), np.exp(other * s)]
    )


def _amplitudes(start: Values, s: Values, values: Values, only_size: bool) -> Values:
    """Return A, B, C for given γ, ω, δ; of sizes by taking the signs of the fit so far."""
    basis = _basis(start, s)
    solution = np.linalg.pinv(basis)  # it is used for many signs
    if not only_size:
        return np.asarray(solution @ values)
    best: Values = np.zeros(3)
    least = math.inf
    for phase in np.linspace(0.0, np.pi, 12, endpoint=False):
        signs = np.sign(np.cos(start[1] * s + phase))
        for _ in range(20):
            found = solution @ (signs * values)
            after = np.sign(basis @ found)
            if np.array_equal(after, signs):
                break
            signs = after
        misfit = float(np.sum((np.abs(basis @ found) - values) ** 2))
        if misfit < least:
            best, least = found, misfit
    return best


def _misfit(x: Values, s: Values, values: Values, only_size: bool) -> Values:
    return (_fitted(x, s, only_size) - values) / float(np.abs(values).max())


def _fitted(x: Values, s: Values, only_size: bool) -> Values:
    """Return the values of γ, ω, δ, A, B, C."""
    values = np.asarray(_basis(x[:3], s) @ x[3:])
    return np.abs(values) if only_size else values


def _standard_errors(found: Any, count: int) -> tuple[float, float]:
    """Return the standard errors of γ and ω from the Jacobian of a least-squares fit."""
    freedom = count - len(found.x)
    if freedom <= 0:
        return math.nan, math.nan
    covariance = np.linalg.pinv(found.jac.T @ found.jac) * (2.0 * found.cost / freedom)
    return math.sqrt(float(covariance[0, 0])), math.sqrt(float(covariance[1, 1]))


def _envelope(rate: float, height: float) -> Callable[[ArrayLike], Values]:
    return lambda t: np.exp(rate * np.asarray(t, dtype=np.float64) + height)
