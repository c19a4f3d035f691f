"""A wave on top of an exponential, by least squares: the fit, and whether another fits as well."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import scipy  # which loads scipy.optimize and scipy.special on first use
from numpy.typing import NDArray

from batchkron.analysis.mode_guesses import basis, best_guesses, signs_of, spacing, trial_rates

__all__ = ["Mode", "fit_mode"]

Values = NDArray[np.float64]

_PARAMETERS = 6  # γ, ω, δ and three amplitudes
_MIN_VALUES = 8  # number of values: two remain beyond the parameters
_MAX_CHANGE = 3.0  # of |γ| times the spacing: a wave changes by a factor of 20 between values
_NEGATIVE = 0.5  # sizes with noise may be negative by this share of the largest value
# Fewest periods during which the wave is not small, unless the fit is as exact as float64 allows:
# in less, a wave and an exponential fit all smooth curves. Chosen by hand, from sums of two waves.
_MIN_PERIODS, _EXACT = 1.2, 1e-9
# |cos| at S values a period is the same as at 2S / (S - 2): from S = 8 on, the other answer has
# less than 8/3 values a period, and is not considered.
_MIRRORED = 8.0 / 3.0
# Probability with which noise alone is taken for a wave, and confidence of the region of parameters
# in which answers count as equally good.
_FALSE_WAVE, _CONFIDENCE = 1e-4, 0.999
_STRUCTURED = 0.1  # largest residual that is not noise, relative to the wave; chosen by hand
_MAX_MIRRORED = 1e-3  # largest residual, likewise, of few values a period that may be sizes
_MAX_ERROR = 0.25  # largest standard error, relative to √(γ² + ω²); chosen by hand
_SAME = 1e-6  # two answers that differ by less than this share are the same: iterations end early


Mode: TypeAlias = tuple[
    tuple[float, float, float, float], float, Callable[[Any], Values], tuple[float, float]
]
"""The fit of exp(γt) (A cos ωt + B sin ωt) + C exp(δt), or of its size: γ and ω ≥ 0 with their
standard errors; the root mean square of fit minus values, relative to that of the values; the fit
as a function of time; and a time with the logarithm of the wave's amplitude there."""


class _Answer(NamedTuple):
    """A local minimum: γ, ω, δ and amplitudes for scaled times, in which standard errors are.

    ``freedom`` is the number of values where the wave is not small, less that of the parameters.
    """

    parameters: Values
    amplitudes: Values
    only_size: bool
    cost: float
    freedom: float
    scatters: tuple[float, float]


def fit_mode(times: Values, values: Values) -> Mode:
    """Fit a wave and an exponential to values; raise ValueError if they do not determine it.

    ``times``, ``values`` (ndarray, shape (m,), float64): times, ascending; values, or sizes if none
      is negative.

    For given γ, ω, δ the amplitudes are a linear problem, so that the sum of squares is a function
    of three parameters ("variable projection": G. H. Golub, V. Pereyra, SIAM J. Numer. Anal. 10
    (1973)). It has many local minima: those are refined that look best among guesses from spectra
    of the values, each weighted with a rate. Signs of sizes are found in turn with the parameters.
    """
    if len(times) < _MIN_VALUES:
        raise ValueError(
            f"there are {len(times)} values; expected at least {_MIN_VALUES} for model='mode'"
        )
    peak = float(np.abs(values).max())
    if peak == 0.0:
        raise ValueError("all values are 0, to which no wave can be fitted")
    first, last = 0.5 * float(times[0]), 0.5 * float(times[-1])  # halves, whose sum is finite
    middle, half = first + last, last - first
    s, y = np.clip((times - middle) / half, -1.0, 1.0), values / peak
    readings = [False, True] if y.min() > -_NEGATIVE else [False]
    exponential = _refined(s, y, np.array([_slope(s, y)]))
    answers = [
        answer
        for only_size in readings
        for answer in _answers(s, y, exponential.parameters[0], only_size)
    ]
    rounding = float(np.finfo(np.float64).eps) * max(1.0, float(np.abs(times).max()) / half)
    answers = sorted(answers, key=lambda answer: answer.cost)
    mirrored = [other for answer in answers[:1] for other in _mirrored(answer, s, y)]
    # if the mirrored one is better, its own mirrored one may be as good
    answers += mirrored + [other for answer in mirrored for other in _mirrored(answer, s, y)]
    best = _chosen(answers, exponential.cost, s, half, rounding)
    return _described(best, s, y, middle, half, peak, rounding)


class _Projection:
    """The residual of the best amplitudes, and its derivatives in γ, ω, δ, kept for one point.

    Sizes are given with signs to begin with, and get those of the fit.
    """

    def __init__(self, s: Values, y: Values, signs: Values | None) -> None:
        self._s, self._y, self._at, self._signs = s, y, np.empty(0), signs

    def _move(self, parameters: Values) -> None:
        if np.array_equal(parameters, self._at):
            return
        self._at, s = parameters.copy(), self._s
        columns = basis(parameters, s)
        left, sizes, right = np.linalg.svd(columns, full_matrices=False)
        kept = sizes > 1e-13 * sizes[0] if sizes[0] > 0.0 else sizes > 0.0
        left = left[:, kept]
        for _ in range(20):  # signs: each pass lowers the cost, so that they settle
            self.aim = self._y if self._signs is None else self._signs * self._y
            found = left.T @ self.aim
            self.fitted = left @ found
            after = np.where(self.fitted < 0.0, -1.0, 1.0)
            if self._signs is None or np.array_equal(after, self._signs):
                break
            self._signs = after
        self.amplitudes = right[kept].T @ (found / sizes[kept])
        changes = [s * columns[:, -1] * self.amplitudes[-1]]
        if len(parameters) > 1:
            (a, b), (cosine, sine) = self.amplitudes[:2], columns[:, :2].T
            changes = [s * (a * cosine + b * sine), s * (b * cosine - a * sine), *changes]
        jacobian = np.column_stack(changes)
        self._jacobian = jacobian - left @ (left.T @ jacobian)

    def residual(self, parameters: Values) -> Values:
        self._move(parameters)
        return np.asarray(self.fitted - self.aim)

    def jacobian(self, parameters: Values) -> Values:
        self._move(parameters)
        return np.asarray(self._jacobian)


def _refined(s: Values, y: Values, start: Values, signs: Values | None = None) -> _Answer:
    """Return the local minimum from a guess; of sizes, if signs are given to begin with."""
    projection = _Projection(s, y, signs)
    found = scipy.optimize.least_squares(
        projection.residual, start, projection.jacobian, method="lm", max_nfev=60,
        ftol=1e-15, xtol=1e-12, gtol=1e-15,
    )  # fmt: skip
    parameters, rest = found.x, projection.residual(found.x)
    cost, freedom = float(rest @ rest), _freedom(parameters[0], s)
    scatters = _standard_errors(projection.jacobian(parameters), math.sqrt(cost / freedom))
    amplitudes = projection.amplitudes
    return _Answer(parameters, amplitudes, signs is not None, cost, freedom, scatters)


def _freedom(rate: float, s: Values) -> float:
    """Return the number of values where exp(γs) is not small, less that of the parameters, >= 1.

    All values count for errors that are as large everywhere, these for errors that follow the
    wave, as those of a simulation and of another wave do.
    """
    envelope = np.exp(rate * s - abs(rate))
    count = float(envelope.sum() ** 2 / (envelope @ envelope))
    return max(1.0, count - _PARAMETERS)


def _standard_errors(jacobian: Values, deviation: float) -> tuple[float, float]:
    """Return the standard errors of γ and ω, for independent errors of values of a deviation.

    The amplitudes are eliminated in the Jacobian already. Its columns are scaled, so that one that
    matters little, as that of δ without an exponential, does not hide that others are undetermined.
    """
    sizes = np.linalg.norm(jacobian, axis=0)
    if len(sizes) < 3 or not (sizes[:2] > 0.0).all():
        return math.inf, math.inf
    used = sizes > 0.0
    _, singular, right = np.linalg.svd(jacobian[:, used] / sizes[used], full_matrices=False)
    if not singular[-1] > 1e-14:
        return math.inf, math.inf
    errors = np.linalg.norm(right.T / singular, axis=1)[:2] / sizes[:2] * deviation
    return float(errors[0]), float(errors[1])


def _slope(s: Values, y: Values) -> float:
    """Return δ of the exponential that leaves least, of some."""
    guesses = [0.0, *trial_rates(len(s))]
    costs = []
    for rate in guesses:
        column = basis(np.array([rate]), s)[:, 0]
        costs.append(-((column @ y) ** 2) / (column @ column))
    return guesses[int(np.argmin(costs))]


def _answers(s: Values, y: Values, slope: float, only_size: bool) -> Iterator[_Answer]:
    """Yield the local minima from the best guesses."""
    gap = spacing(s)
    for start in best_guesses(s, y, slope, only_size):
        answer = _settled(s, y, start, only_size, gap)
        if answer is not None:
            yield answer


def _mirrored(answer: _Answer, s: Values, y: Values) -> list[_Answer]:
    """Return the other answer that equally spaced values of pure sizes have, if it is possible."""
    gap = spacing(s)
    rate, frequency, other = answer.parameters
    if not answer.only_size:
        return []
    parameters = np.array([rate, math.pi / gap - frequency, other])
    part = basis(answer.parameters, s)[:, 2] * answer.amplitudes[2]
    if _is_even(s) and np.linalg.norm(part) <= _EXACT * np.linalg.norm(y):
        # without an exponential |cos ωn| = |cos (π - ω)n|, and nothing has to be fitted
        is_resolved = parameters[1] <= 2.0 * math.pi / gap / _MIRRORED
        return [answer._replace(parameters=parameters)] if is_resolved else []
    found = _settled(s, y, parameters, True, gap)
    return [] if found is None else [found]


def _settled(s: Values, y: Values, start: Values, only_size: bool, gap: float) -> _Answer | None:
    """Return the local minimum from a guess with a frequency that the spacing resolves, if any."""
    highest = math.pi / gap * (1.0 + 1e-9)
    answer = _refined(s, y, start, signs_of(start, s, y) if only_size else None)
    rate, frequency, other = answer.parameters
    if not 0.0 <= frequency <= highest:
        if _is_even(s):  # the values are also those of a frequency below π / gap
            frequency = math.remainder(frequency, 2.0 * math.pi / gap)
        start = np.array([rate, abs(frequency), other])
        answer = _refined(s, y, start, signs_of(start, s, y) if only_size else None)
        rate, frequency, other = answer.parameters
    fitted = basis(answer.parameters, s) @ answer.amplitudes
    if only_size and fitted.min() < 0.0 < fitted.max():
        highest = 2.0 * math.pi / gap / _MIRRORED * (1.0 - 1e-6)
    is_resolved = abs(rate) * gap <= _MAX_CHANGE and 0.0 <= frequency <= highest
    return answer if is_resolved else None


def _is_even(s: Values) -> bool:
    gaps = np.diff(s)
    return bool(gaps.max() - gaps.min() <= 1e-6 * gaps.max())


def _chosen(
    answers: list[_Answer], without: float, s: Values, half: float, rounding: float
) -> _Answer:
    """Return the best answer; raise if there is none, or another one is as good."""
    count, freedom = len(s), 1.0
    answers = sorted(answers, key=lambda answer: answer.cost)
    best = answers[0] if answers else None
    floor = 0.0
    if best is not None:
        floor = count * (4.0 * rounding * (1.0 + float(np.abs(best.parameters[:2]).sum()))) ** 2
        cost, freedom = best.cost + floor, best.freedom
        gain = (without - best.cost) / (_PARAMETERS - 2) / (cost / freedom)
    if best is None or gain < scipy.special.fdtri(
        _PARAMETERS - 2, freedom, 1.0 - _FALSE_WAVE / count
    ):
        raise ValueError(
            "the values do not oscillate: an exponential alone fits them as well as one with a "
            "wave. Take more values, or model='exponential' if all have one sign"
        )
    spread = 3.0 * float(scipy.special.fdtri(3, freedom, _CONFIDENCE))
    size = math.hypot(*best.parameters[:2])
    if max(best.scatters) > _MAX_ERROR * size:
        raise ValueError(
            "the values do not determine rate and frequency: their standard errors are "
            f"{best.scatters[0] / half:.2g} and {best.scatters[1] / half:.2g}. Take a longer time, "
            "or more values a period"
        )
    for other in answers[1:]:
        if other.cost + floor > cost * (1.0 + spread / freedom):
            break
        apart = np.abs(other.parameters[:2] - best.parameters[:2])
        if (apart > math.sqrt(spread) * np.array(best.scatters) + _SAME * size).any():
            pairs = [found.parameters[:2] / half for found in (best, other)]
            texts = [f"rate {rate:.6g} with frequency {frequency:.6g}" for rate, frequency in pairs]
            raise ValueError(
                f"the values do not tell {texts[0]} from {texts[1]}, which fit equally well. Take "
                "more values a period, values with their sign, or a longer time"
            )
    return best


def _described(
    best: _Answer, s: Values, y: Values, middle: float, half: float, peak: float, rounding: float
) -> Mode:
    """Return an answer in the units of the values; raise if it leaves more than noise."""

    def fitted(t: Any, factor: float = peak) -> Values:
        scaled = (np.asarray(t, dtype=np.float64) - middle) / half
        with np.errstate(over="ignore", invalid="ignore"):
            found = basis(best.parameters, scaled) @ best.amplitudes * factor
        return np.abs(found) if best.only_size else found

    wave = basis(best.parameters, s)[:, :2] @ best.amplitudes[:2]
    model = basis(best.parameters, s) @ best.amplitudes
    rest = (np.abs(model) if best.only_size else model) - y
    residual, strength = (float(np.sqrt(np.mean(part * part))) for part in (rest, wave))
    correlation = _correlation(rest)
    # near two values a period, sizes of a slower wave look like a wave on top of an exponential
    may_mirror = float(best.parameters[1]) * spacing(s) * _MIRRORED > 2.0 * math.pi and y.min() >= 0
    if may_mirror and residual > _MAX_MIRRORED * strength:
        raise ValueError(
            "the values may be those of a wave with few values a period, or sizes of a slower one. "
            "Take more values a period, or values with their sign"
        )
    if correlation > 1.0 and residual > _STRUCTURED * strength:
        raise ValueError(
            f"a wave and an exponential leave {residual / strength:.0%} of the wave, which is not "
            "noise: the values have something else in them. Choose other times by between"
        )
    turns = float(best.parameters[1]) / (2.0 * math.pi)
    periods = turns * float(s[-1] - s[0]) * (best.freedom + _PARAMETERS) / len(s)
    if periods < _MIN_PERIODS and residual > _EXACT * strength:
        raise ValueError(
            f"the values have {periods:.2g} periods in which the wave is not small; expected at "
            f"least {_MIN_PERIODS}, because other curves fit less as well. Take a longer time"
        )
    rate, frequency = float(best.parameters[0]) / half, float(best.parameters[1]) / half
    level = rounding * (1.0 + float(np.abs(best.parameters[:2]).sum())) / math.sqrt(len(s))
    first, second = (math.sqrt(correlation) * part / half + level / half for part in best.scatters)
    amplitude = math.hypot(*best.amplitudes[:2])
    height = math.log(amplitude) + math.log(peak) - abs(float(best.parameters[0]))
    size = float(np.sqrt(np.mean(y * y)))
    return (rate, frequency, first, second), residual / size, fitted, (middle, height)


def _correlation(rest: Values) -> float:
    """Return the factor by which correlation of the residual raises variances: 1 for noise.

    1 + 2 Σ |ρ_k| over the lags k at which the correlation ρ_k is more than that of noise.
    """
    count = len(rest)
    rest = rest - rest.mean()
    spectrum = np.abs(np.fft.rfft(rest, 2 * count)) ** 2
    lags = np.fft.irfft(spectrum)[: max(2, count // 3)]
    if not lags[0] > 0.0:
        return 1.0
    found = np.abs(lags[1:] / lags[0])
    return 1.0 + 2.0 * float(found[found > 4.0 / math.sqrt(count)].sum())
