"""Guesses of the rates and the frequency of a wave on top of an exponential."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["basis", "best_guesses", "signs_of", "spacing", "trial_rates"]

Values = NDArray[np.float64]

_PHASES = 12  # phases with which the signs of sizes are guessed
_STARTS = 10  # number of distinct guesses that are refined
_PEAKS = 3  # maxima of a spectrum that are taken as guesses


def basis(parameters: Values, s: Values) -> Values:
    """Return exp(γs) cos ωs, exp(γs) sin ωs, exp(δs), the latter alone for δ alone; at most 1.

    Parameters have the shape (3,) or (1,), or (k, 3) for k sets; columns are the last index.
    """
    *wave, other = np.moveaxis(np.asarray(parameters)[..., None], -2, 0)
    last = np.exp(other * s - np.abs(other))
    if not wave:
        return np.asarray(last[..., None])
    rate, frequency = wave
    size, phase = np.exp(rate * s - np.abs(rate)), frequency * s
    return np.stack([size * np.cos(phase), size * np.sin(phase), last], axis=-1)


def trial_rates(count: int) -> list[float]:
    """Return rates of both signs for scaled times, up to a change by e between values."""
    sizes = 0.5 * 3.0 ** np.arange(1 + math.floor(math.log(count, 3.0)))
    return [float(rate) for size in sizes for rate in (size, -size)]


def spacing(s: Values) -> float:
    """Return the spacing that sets the highest frequency: the mean, or the median if smaller."""
    gaps = np.diff(s)
    return max(min(float(gaps.mean()), float(np.median(gaps))), 0.25 / len(s))


def best_guesses(s: Values, y: Values, slope: float, only_size: bool) -> Iterator[Values]:
    """Yield γ, ω, δ from spectra of the values, those that leave least first.

    ``s``, ``y`` (ndarray, shape (m,), float64): times from -1 to 1, and values.
    ``slope``: δ of the exponential that fits best alone.
    ``only_size``: whether the values are sizes.
    """
    gap = spacing(s)
    alone = basis(np.array([slope]), s)[:, 0]
    without = y - alone * (alone @ y) / (alone @ alone)
    guesses = []
    for rate in [0.0, *trial_rates(len(s))]:
        found = {math.pi / 4, math.pi / 2, math.pi}  # up to a period in all
        for signal in (y, without):
            found.update(_spectral_peaks(s, signal, rate, gap))
        if only_size:  # a size has twice the frequency of its wave, which spacing may mirror
            halves = {0.5 * frequency for frequency in found}
            found |= halves | {math.pi / gap - half for half in halves}
        others = {slope, 0.5 * rate, 1.5 * rate}
        starts = np.array([(rate, frequency, other) for frequency in found for other in others])
        left = _left_over(starts, s, y, only_size)
        guesses += [(share, *start) for share, start in zip(left, starts, strict=True)]
    yield from _distinct(sorted(guesses))


def _spectral_peaks(s: Values, y: Values, rate: float, gap: float) -> list[float]:
    """Return the frequencies at which Σ y exp(γs + iωs) is largest, up to π / gap."""
    step = 0.5 * gap
    length = 1 << math.ceil(math.log2(8.0 / step))
    places = (s + 1.0) / step
    below = np.floor(places).astype(np.int64)
    above_share = places - below
    weighted = y * np.exp(rate * s - abs(rate))
    grid = np.bincount(below, weighted * (1.0 - above_share), minlength=length)
    grid += np.bincount(below + 1, weighted * above_share, minlength=length)
    power = np.abs(np.fft.rfft(grid))[: length // 4 + 2]  # up to π / gap, and a neighbour
    inner = power[1:-1]
    at = 1 + np.flatnonzero((inner >= power[:-2]) & (inner >= power[2:]))
    at = at[np.argsort(power[at])[::-1][:_PEAKS]]
    return [float(f) for f in at * (2.0 * math.pi / (length * step))]


def _left_over(starts: Values, s: Values, y: Values, only_size: bool) -> Values:
    """Return the shares of the values, of sizes their squares, that guesses (k, 3) cannot fit."""
    columns = basis(starts, s)
    if only_size:  # squares are a linear problem, too, though with more amplitudes
        first, second, last = np.moveaxis(columns, -1, 0)
        pairs = (first * first, second * second, first * second, first * last, second * last)
        columns, y = np.stack([*pairs, last * last], axis=-1), y * y
    turned = np.swapaxes(columns, -1, -2)
    products = turned @ y
    inverses = np.linalg.pinv(turned @ columns, rcond=1e-10, hermitian=True)
    return np.asarray(1.0 - np.einsum("ki,kij,kj->k", products, inverses, products) / (y @ y))


def _distinct(guesses: list[Any]) -> Iterator[Values]:
    """Yield the best guesses that are not close to a better one."""
    taken: list[Values] = []
    for _, *numbers in guesses:
        start = np.array(numbers)
        reach = 0.5 + 0.3 * np.abs(start[:2])
        reach[1] = 0.5
        if all((np.abs(start - other)[:2] > reach).any() for other in taken):
            taken.append(start)
            yield start
        if len(taken) == _STARTS:
            return


def signs_of(start: Values, s: Values, y: Values) -> Values:
    """Return the signs of sizes that suit a guess best, of some phases and of one sign for all."""
    columns = basis(start, s)
    solution = np.linalg.pinv(columns)
    best, least = np.ones_like(y), math.inf
    phases = np.linspace(0.0, np.pi, _PHASES, endpoint=False)
    for signs in [best, *(np.sign(np.cos(start[1] * s + phase)) for phase in phases)]:
        for _ in range(20):
            fitted = columns @ (solution @ (signs * y))
            after = np.where(fitted < 0.0, -1.0, 1.0)
            if np.array_equal(after, signs):
                break
            signs = after
        cost = float(np.sum((np.abs(fitted) - y) ** 2))
        if cost < least:
            best, least = signs, cost
    return best
