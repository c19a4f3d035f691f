"""Sums, signs and phases with counts that no float holds: determinants and traces of products.

det (A_1 ⊗ … ⊗ A_d) = Π det A_k^(N / n_k), N = Π n_k, and N / n_k is above 2^53 for some fifty
factors, and above all floats for 1024. So counts are Python's integers here. Other numbers are
those of NumPy, or tensors of torch or JAX, which have the same operators.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

__all__ = ["repeated_phases", "repeated_signs", "repeated_sum", "repetitions"]

_STEP = 64  # exponent of the powers of two that results are scaled by; float32 ends at 2^128
_BITS = 32  # bits of a count that phases are multiplied by at a time


def repetitions(sizes: Sequence[int]) -> list[int]:
    """Return N / n_k of each size n_k, N = Π n_k: how often a factor stands in the product; or 0.

    Examples
    --------
    >>> from batchkron.operators.determinants import repetitions
    >>> repetitions([2, 3]), repetitions([2, 0])
    ([3, 2], [0, 0])
    """
    size = math.prod(sizes)
    return [size // n if n else 0 for n in sizes]


def repeated_sum(numbers: Sequence[Any], counts: Sequence[int], zero: Any = 0.0) -> Any:
    """Return Σ_k m_k z_k for counts m_k ≥ 0 of any size; 0 · z is 0 for infinite z, too.

    The numbers z_k are scalars, arrays or tensors, and ``zero`` the sum of none.
    """
    # the largest power of two is taken out, so that no term overflows if the sum does not
    plain = all(isinstance(count, int) for count in counts)  # else symbols of traced shapes
    shift = max(counts).bit_length() + len(counts).bit_length() if plain else 0
    total = zero
    for number, count in zip(numbers, counts, strict=True):
        if count:
            total = total + number * (count / (1 << shift))
    while shift:
        total, shift = total * 2.0 ** min(shift, _STEP), max(0, shift - _STEP)
    return total


def repeated_signs(signs: Sequence[Any], counts: Sequence[int], one: Any = 1.0) -> Any:
    """Return Π_k s_k^m_k for signs -1, 0 and 1, by the parity of m_k."""
    for sign, count in zip(signs, counts, strict=True):
        if count:
            one = one * sign ** (2 - count % 2)
    return one


def repeated_phases(
    turns: Any, counts: Sequence[int], constant: Callable[[list[list[float]]], Any] = np.array
) -> Any:
    """Return Σ_k m_k t_k modulo 1, in [-1/2, 1/2], for phases exp(2πi t_k) and counts m_k.

    ``constant`` makes an array of the kind of the t_k.

    Products with single bits of m_k, powers of two, are exact, and so is what is left of them
    modulo 1. Hence the error is m_k times that of t_k, and none for quarters of a turn.

    Examples
    --------
    >>> import numpy as np
    >>> from batchkron.operators.determinants import repeated_phases
    >>> float(repeated_phases(np.array([0.25, 0.5]), [2**60 + 1, 3**50]))
    -0.25
    """
    rest, total = list(counts), 0.0 * turns.sum()
    while any(rest):
        digits = [count % (1 << _BITS) for count in rest]
        powers = [[float(digit & 1 << j) for j in range(_BITS)] for digit in digits]
        parts = turns[:, None] * constant(powers)
        total = total + (parts - parts.round()).sum()
        turns = turns * 2.0**_BITS
        turns, rest = turns - turns.round(), [count >> _BITS for count in rest]
    return total - total.round()
