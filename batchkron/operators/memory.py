"""Whether the memory can hold what is computed for all rows of a product or sum."""

from __future__ import annotations

from decimal import Decimal

__all__ = ["refuse_without_memory"]

_SMALL = 1 << 24  # bytes that are allocated without a look at the memory, which takes milliseconds
_GIB = 1 << 30


def refuse_without_memory(count: int, arrays: int, item_bytes: int, what: str) -> None:
    """Raise MemoryError before so many arrays of ``count`` numbers are allocated that cannot fit.

    The text has what the numbers are, in the plural, and the bytes that are needed and that there
    are.
    """
    needed = count * arrays * item_bytes
    if needed < _SMALL:
        return
    from batchkron.storage.content_limits import memory_bytes  # which loads HDF5

    memory = memory_bytes()
    if needed > memory:
        number = count if count < 10**15 else f"{Decimal(count):.3g}"  # may be above all floats
        raise MemoryError(
            f"the {number} {what} take {Decimal(needed) / _GIB:.3g} GiB, and "
            f"{Decimal(memory) / _GIB:.3g} GiB of memory may be used here; take fewer or smaller "
            f"factors"
        )
