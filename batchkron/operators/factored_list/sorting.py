"""Stable sorting of long arrays of integers: the numbers of the elements are part of the keys.

NumPy sorts int64 keys ten times as fast as it finds the order that would sort them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["lexicographic_order", "stable_order"]

_KEY_BITS = 63  # of int64, without the sign


def stable_order(keys: NDArray[Any], bits: int) -> NDArray[np.int64]:
    """Return the order that sorts integers from 0 to 2^bits - 1, equal ones by their places.

    Keys that leave no room for the places are sorted by their highest bits only.
    """
    room = len(keys).bit_length()
    packed = keys.astype(np.int64)
    if bits > _KEY_BITS - room:
        packed >>= bits - (_KEY_BITS - room)
    packed <<= room
    packed |= np.arange(len(keys))
    packed.sort()
    packed &= (1 << room) - 1
    return packed


def lexicographic_order(columns: Sequence[NDArray[Any]]) -> NDArray[np.int64]:
    """Return the order that sorts rows of integers >= -1 by their first column, then the next ….

    Columns are sorted one after another, the last ones first, as many at a time as fit into a key.
    """
    room = _KEY_BITS - len(columns[0]).bit_length()
    order: NDArray[np.int64] | None = None
    key, width = np.zeros(len(columns[0]), np.int64), 0
    for column in reversed(columns):
        bits = int(column.max(initial=0) + 1).bit_length()
        if width and width + bits > room:
            own = stable_order(key if order is None else key[order], width)
            order = own if order is None else order[own]
            key[:], width = 0, 0
        shifted = column.astype(np.int64)
        shifted += 1
        shifted <<= width
        key |= shifted
        width += bits
    own = stable_order(key if order is None else key[order], width)
    return own if order is None else order[own]
