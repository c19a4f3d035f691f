"""How many modes a rank holds whole, and where the parts of a vector begin."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from batchkron.spec.kron import Array

# Elements of the largest part in those of an equal part, up to which a part may hold more modes
# whole. Beyond, waiting for the largest part costs more than the exchange that is saved; chosen by
# hand.
_MAX_IMBALANCE = 1.25


def spreads_evenly(units: int, parts: int) -> bool:
    """Return whether parts of whole units are nearly equal: the largest at most 1.25 of the mean.

    Examples
    --------
    >>> spreads_evenly(8, 4), spreads_evenly(8, 7), spreads_evenly(2, 4)
    (True, False, False)
    """
    return units > 0 and -(-units // parts) * parts <= _MAX_IMBALANCE * units


def even_bounds(count: int, parts: int, unit: int = 1) -> tuple[int, ...]:
    """Return bounds 0 … count of consecutive parts that are nearly equal multiples of a unit.

    ``count``: the number of elements, a multiple of ``unit``.
    ``parts``: at least 1.
    ``unit``: elements that stay together.

    Returns tuple of int, (parts + 1,).

    Examples
    --------
    >>> even_bounds(12, 3, 2)
    (0, 4, 8, 12)
    >>> even_bounds(8, 3, 2)
    (0, 2, 4, 8)
    """
    units = count // max(unit, 1)
    return tuple(unit * (units * part // parts) for part in range(parts + 1))


def whole_modes(sizes: Sequence[int], parts: int) -> int:
    """Return how many of the last modes each part of a vector holds whole.

    As many as fit into an equal part; fewer if the slices of so many modes cannot be spread
    evenly. At least one, even where some parts then are empty.

    ``sizes``: the modes' sizes, the slowest index first.
    ``parts``: at least 1.

    Examples
    --------
    >>> whole_modes([4, 4, 4, 4], 4)  # a part has 64 elements
    3
    >>> whole_modes([4, 4, 4, 4], 3)  # 16 slices of 16 elements in 3 parts, rather than 4 of 64
    2
    """
    count = math.prod(sizes)
    if parts == 1 or count == 0:
        return len(sizes)
    best, least = 1, math.inf
    slices = count
    for modes, size in enumerate(reversed(sizes), 1):
        slices //= size
        imbalance = -(-slices // parts) * parts / slices
        if imbalance <= max(_MAX_IMBALANCE, least):
            best, least = modes, min(least, imbalance)
    return best


def mode_bounds(sizes: Sequence[int], parts: int) -> tuple[int, ...]:
    """Return bounds of parts of a vector that hold `whole_modes` modes whole, (parts + 1,)."""
    modes = whole_modes(sizes, parts)
    return even_bounds(math.prod(sizes), parts, math.prod(sizes[len(sizes) - modes :]))


def balanced_bounds(work: ArrayLike, parts: int, starts: ArrayLike) -> tuple[int, ...]:
    """Return bounds 0 … count of consecutive parts of nearly equal work.

    They begin where ``starts`` allows if the largest part then has at most 1.25 times the work of
    an equal part; otherwise anywhere.

    ``work`` (array_like, (count,)): the work of each entry, positive.
    ``parts``: at least 1.
    ``starts``: entries at which a part had better begin, ascending.

    Returns tuple of int, (parts + 1,).

    Examples
    --------
    >>> balanced_bounds([3, 1, 1, 1, 3, 3], 2, [0, 4])
    (0, 4, 6)
    >>> balanced_bounds([3, 1, 1, 1, 3, 3], 2, [0, 1])  # 3 against 9
    (0, 4, 6)
    """
    done = np.concatenate(([0.0], np.cumsum(np.asarray(work, np.float64))))
    equal = done[-1] / parts
    preferred = _nearest(done, parts, np.union1d(np.asarray(starts, np.int64), [0, len(done) - 1]))
    if np.diff(done[preferred]).max() <= _MAX_IMBALANCE * equal:
        return tuple(preferred.tolist())
    return tuple(_nearest(done, parts, np.arange(len(done))).tolist())


def _nearest(done: Array, parts: int, places: Array) -> Array:
    """Return those of the places at which the work done is nearest to equal shares."""
    wanted = done[-1] * np.arange(parts + 1) / parts
    above = np.clip(np.searchsorted(done[places], wanted), 1, len(places) - 1)
    closer = wanted - done[places[above - 1]] <= done[places[above]] - wanted
    found: Array = places[np.where(closer, above - 1, above)]
    found[0], found[-1] = 0, len(done) - 1
    return found
