"""The rate and the frequency with which a recorded quantity grows or falls."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from batchkron.analysis.mode_fit import fit_mode

__all__ = ["GrowthFit", "fit_growth"]

Values = NDArray[np.float64]

_MODELS = ("auto", "exponential", "maxima", "mode")
# Fewest maxima from which a line is fitted, and from which its scatter is known.
_MIN_MAXIMA, _MAXIMA_WITH_SCATTER = 2, 3
# A value counts as a maximum if it is the largest of this many on each side: noise has more maxima.
_NEIGHBOURS = 2
# Fewest values from one maximum to the next, on average; where they are closer, they are maxima of
# noise, or of a wave of which each period has too few values. Maxima of noise are 5 apart.
_MIN_SPACING = 6.0
# Smallest correlation of one value with the next. It is cos(2π / p) for p values a period of the
# sizes: at least 0.5 at this spacing, and less than 0.2 if each period has so few values that those
# which are larger than two neighbours on each side are not all maxima.
_MIN_CORRELATION = 0.2
# Largest relative standard error of their frequency with which "auto" takes maxima for those of a
# wave: those of noise leave 2% to 30%, those of smooth waves less than 1%. Chosen by hand.
_IRREGULAR = 0.03
# Largest residual with which "auto" takes values that rise and fall for an exponential with noise.
# |cos| leaves 0.91 with many values a period, and no less than 0.33, which it does with six. Only
# about four values a period, at which sizes may all be the same, can leave less.
_NOISE = 0.25


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
    residual : float
        What the fit leaves, as a root mean square: for "mode" of fit minus values, relative to that
        of the values; otherwise of the differences of logarithms, which for small ones are relative
        differences.
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
    residual: float = math.nan


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
        The quantity, with its sign or as a norm, |exp(γt) cos(ωt + φ)|. Values that are not finite
        are left out.
    between : (float, float), optional
        The first and the last time that are used; by default all.
    model : {"auto", "exponential", "maxima", "mode"}
        "exponential": the line through all logarithms of |values|. "maxima": the line through the
        logarithms at the maxima of |values|, each that of the parabola through three points; ω is
        π over the time between them. Two maxima suffice. "mode": A exp(γt) cos(ωt + φ) + C exp(δt)
        by least squares, for waves on top of something that does not oscillate, whose maxima are
        not on a line, or with few values a period. "auto" takes the maxima if there are at least
        three, else "mode" if values have both signs, or rise and fall by more than noise of 25%;
        else the exponential.

    Returns
    -------
    GrowthFit

    Raises
    ------
    TypeError, ValueError
        If shapes or times do not fit, values are zero where a logarithm is needed, or there are too
        few values or maxima, or maxima too close to each other, or with signs that are not those of
        half periods; for "exponential" if values have both signs. For "mode" also if the values do
        not determine the wave: if an exponential alone fits them as well, or another rate or
        frequency, or if the fit leaves more than noise.

    Notes
    -----
    The scatters are standard errors of the parameters of the least-squares fits; for "mode" they
    are larger if what is left is correlated. They know nothing of errors that all points share,
    such as those of a coarse grid.

    Values at equal spacing h do not tell ω from 2π/h - ω, and sizes not from π/h - ω either: "mode"
    assumes two values a period. Sizes with less than eight are refused, where this leaves a choice;
    it assumes that they have not less than 8/3. Sizes with four values a period may all be equal,
    as if they did not oscillate.

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
    if model == "mode":
        return _fit_mode(times, found)
    # a power of two, which changes no bit, so that no square overflows
    unit = 2.0 ** (math.frexp(float(np.abs(times).max()))[1] - 1)
    return _in_unit(_fitted(times / unit, found, model), unit)


def _fitted(times: Values, found: Values, model: str) -> GrowthFit:
    """Return the fit of a line, or in "auto" of a wave, for times of at most 2."""
    sizes = np.abs(found)
    has_signs = bool(found.min() < 0.0 < found.max())
    if model != "exponential":
        at, heights, places = _maxima(times, sizes)
        doubt = _crowding(times, sizes, at, heights) or _folding(found, places)
        if model == "maxima":
            if doubt:
                raise ValueError(f"{doubt}. Record more values, or take model='mode'")
            return _fit_maxima(at, heights)
        is_noise = not has_signs and _is_noise(times, sizes)
        if len(at) >= _MAXIMA_WITH_SCATTER and not doubt and not is_noise:
            fit = _fit_maxima(at, heights)
            if fit.frequency_scatter <= _IRREGULAR * fit.frequency:
                return fit
            doubt = "the maxima are not equally spaced, as those of noise"
        if has_signs:
            return _fit_mode(times, found)
    if has_signs:
        raise ValueError(
            "values have both signs, which an exponential has not. Take model='mode' or 'maxima', "
            "or choose times by between at which the values have one sign"
        )
    if (sizes == 0.0).any():
        raise ValueError("a value is 0, whose logarithm is needed; choose other times by between")
    logs = np.log(sizes)
    rate, height, scatter, residual = _line(times, logs)
    is_monotone = bool((np.diff(logs) >= 0.0).all() or (np.diff(logs) <= 0.0).all())
    if model == "auto" and residual > _NOISE and not is_monotone:
        if not doubt:
            return _fit_mode(times, found)
        raise ValueError(
            f"{doubt}. Record more values, or take model='mode', or model='exponential' for noise"
        )
    interval, line = (float(times[0]), float(times[-1])), _envelope(rate, height)
    count = len(times)
    return GrowthFit(rate, 0.0, scatter, 0.0, "exponential", count, interval, line, line, residual)


def _is_noise(times: Values, sizes: Values) -> bool:
    """Return whether sizes differ from an exponential by little, and as independent noise does."""
    if (sizes == 0.0).any():
        return False
    logs = np.log(sizes)
    rate, height, _, residual = _line(times, logs)
    rest = logs - rate * times - height
    related = 4.0 / math.sqrt(len(rest))  # four standard deviations of the correlation of noise
    return residual <= _NOISE and float(rest[1:] @ rest[:-1]) < related * float(rest @ rest)


def _crowding(times: Values, sizes: Values, at: Values, heights: Values) -> str:
    """Return a text if maxima may be those of noise, or of a faster wave, else ""."""
    if len(at) < _MIN_MAXIMA:
        return ""
    spacing = float(np.diff(np.interp(at, times, np.arange(len(times)))).mean())
    rate, height, _, _ = _line(at, heights)
    with np.errstate(divide="ignore"):  # of values that are 0
        shares = np.exp(np.minimum(np.log(sizes) - rate * times - height, 1.0))
    shares -= shares.mean()
    correlation = float(shares[1:] @ shares[:-1]) / float(shares @ shares)
    if spacing >= _MIN_SPACING and correlation >= _MIN_CORRELATION:
        return ""
    # rounded down, so that what is too small also reads so
    apart, found = math.floor(10.0 * spacing) / 10.0, math.floor(100.0 * correlation) / 100.0
    return (
        f"the maxima are {apart:.3g} values apart, and the correlation of values with the next "
        f"ones is {found:.2f}; expected at least {_MIN_SPACING:.0f} and {_MIN_CORRELATION}, "
        "because others may be maxima of noise, or of a faster wave"
    )


def _folding(found: Values, places: NDArray[np.int64]) -> str:
    """Return a text if signs at the maxima of |values| are not those of half periods, else ""."""
    if not found.min() < 0.0 < found.max() or len(places) < _MIN_MAXIMA:
        return ""
    signs = np.sign(found)
    around = signs[places[:, None] + np.array([-1, 0, 1])]
    if (around == around[:, :1]).all() and (np.diff(signs[places]) != 0.0).all():
        return ""
    return (
        "the signs of values at the maxima are not those of a wave with one maximum each half "
        "period: it may be faster, or not alone"
    )


def _selected(
    t: ArrayLike, values: ArrayLike, between: tuple[float, float] | None
) -> tuple[Values, Values]:
    """Return the times and values that are used."""
    if np.iscomplexobj(t) or np.iscomplexobj(values):
        raise TypeError("t or values are complex; expected real numbers, such as the real part")
    times, found = (np.asarray(part, dtype=np.float64) for part in (t, values))
    if times.ndim != 1 or times.shape != found.shape:
        raise ValueError(
            f"t has shape {times.shape} and values {found.shape}; expected two vectors (m,)"
        )
    used = np.isfinite(times) & np.isfinite(found)
    if between is not None:
        first, last = _ends(between)
        used &= (times >= first) & (times <= last)
    times, found = times[used], found[used]
    if len(times) < 3:
        raise ValueError(
            f"there are {len(times)} values between these times; expected at least three"
        )
    if not (np.diff(times) > 0).all():
        raise ValueError("t is not ascending")
    return times, found


def _ends(between: tuple[float, float]) -> tuple[float, float]:
    """Return the two times of ``between``; raise if it is something else."""
    words = f"between is {between!r}; expected two ascending times, such as (6.0, 20.0)"
    try:
        parts = tuple(between)
        if isinstance(between, str) or any(isinstance(part, (str, bytes)) for part in parts):
            raise TypeError(words)
        ends = [float(part) for part in parts]
    except (TypeError, ValueError):
        raise TypeError(words) from None
    if len(ends) != 2 or not ends[0] < ends[1]:
        raise ValueError(words)
    return ends[0], ends[1]


def _maxima(times: Values, sizes: Values) -> tuple[Values, Values, NDArray[np.int64]]:
    """Return times and logarithms of local maxima, by parabolas through three points, and places.

    Those at the ends are left out.
    """
    count = len(sizes)
    with np.errstate(divide="ignore"):
        logs = np.log(sizes)
    at, heights, places = [], [], []
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
        places.append(j)
    return np.array(at), np.array(heights), np.array(places, dtype=np.int64)


def _fit_maxima(at: Values, heights: Values) -> GrowthFit:
    """Fit lines to the heights of maxima over time, and to their times over their number."""
    if len(at) < _MIN_MAXIMA:
        raise ValueError(
            f"there are {len(at)} maxima between these times; expected at least {_MIN_MAXIMA}. "
            "Take a longer time, or model='exponential'"
        )
    rate, height, scatter, residual = _line(at, heights)
    spacing, _, spread, _ = _line(np.arange(len(at), dtype=np.float64), at)
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
        residual,
    )


def _line(x: Values, y: Values) -> tuple[float, float, float, float]:
    """Return slope and value at 0 of the line of least squares, the slope's error, and the rest."""
    shifted = x - x.mean()
    squares = float(shifted @ shifted)
    slope = float(shifted @ y) / squares
    rest = y - y.mean() - slope * shifted
    freedom = len(x) - 2
    scatter = math.sqrt(float(rest @ rest) / freedom / squares) if freedom > 0 else math.nan
    residual = math.sqrt(float(rest @ rest) / len(x))
    return slope, float(y.mean() - slope * x.mean()), scatter, residual


def _fit_mode(times: Values, values: Values) -> GrowthFit:
    """Fit exp(γt) (A cos ωt + B sin ωt) + C exp(δt), or its size if no value is negative."""
    numbers, residual, curve, (middle, height) = fit_mode(times, values)
    between = float(times[0]), float(times[-1])
    envelope = _envelope(numbers[0], height, middle)
    return GrowthFit(*numbers, "mode", len(times), between, envelope, curve, residual)


def _envelope(rate: float, height: float, at: float = 0.0) -> Callable[[ArrayLike], Values]:
    """Return exp(γ (t - at) + height) as a function; inf where that is too large."""

    def envelope(t: ArrayLike) -> Values:
        with np.errstate(over="ignore"):
            return np.exp(rate * (np.asarray(t, dtype=np.float64) - at) + height)

    return envelope


def _in_unit(fit: GrowthFit, unit: float) -> GrowthFit:
    """Return the fit for times in another unit than those that were fitted."""
    envelope, curve = fit.envelope, fit.curve
    first, last = fit.between
    return replace(
        fit,
        rate=fit.rate / unit,
        frequency=fit.frequency / unit,
        rate_scatter=fit.rate_scatter / unit,
        frequency_scatter=fit.frequency_scatter / unit,
        between=(first * unit, last * unit),
        envelope=lambda t: envelope(np.asarray(t, dtype=np.float64) / unit),
        curve=lambda t: curve(np.asarray(t, dtype=np.float64) / unit),
    )
