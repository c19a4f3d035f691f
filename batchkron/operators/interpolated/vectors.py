"""Which vectors of a batch are interpolated at once, and where their elements lie."""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["split", "starts"]

_MAX_VECTORS = 16  # of one call of a plan; it takes powers of two up to this


def split(count: int, most: int = _MAX_VECTORS) -> Iterator[tuple[int, int]]:
    """Yield (first, how many) for ``count`` vectors: powers of two, at most ``most``."""
    first, size = 0, _MAX_VECTORS
    while size > 1 and size > most:
        size //= 2
    while first < count:
        while size > count - first:
            size //= 2
        yield first, size
        first += size


def starts(first: int, count: int, length: int, inner: int) -> list[int]:
    """Return where vectors begin in an array (outer, length, inner), whose last axis they are of.

    Vector t has the index t % inner on the last axis, t // inner on the first one.
    """
    return [t // inner * length * inner + t % inner for t in range(first, first + count)]
