"""Kernel families that are switched off, the shape of a launch, and caches of plans.

Each operation has one table of its families, and the choice of a kernel loops over it, without
special cases for single families. `without` switches families off, to measure what they gain.
Nothing here needs a device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol, TypeVar


@dataclass(frozen=True, slots=True)
class LaunchShape:
    """The grid, threads and memory of a launch."""

    blocks: int  # thread blocks along the first axis of the grid
    threads: int  # threads of a thread block
    # thread blocks that a multiprocessor should hold, which bounds the registers of a thread
    resident: int
    shared_bytes: int  # bytes of shared memory of a thread block
    # bytes of device memory of the whole grid for what does not fit in shared memory
    workspace: int = 0
    down: int = 1  # thread blocks along the second axis of the grid
    # percentage of the on-chip memory to use as shared memory, -1 for no preference
    carveout: int = -1


class _Named(Protocol):
    operation: str
    name: str


Family = TypeVar("Family", bound=_Named)

_switched_off: ContextVar[frozenset[str]] = ContextVar(
    "families without kernels", default=frozenset()
)
_remembered: list[Callable[[], None]] = []


@contextmanager
def without(*names: str) -> Iterator[None]:
    """Plan without some families in a ``with`` block, in this thread; for benchmarks and tests.

    Existing plans keep their kernels. No other thread may plan meanwhile: plans of functions are
    remembered for all threads.

    Parameters
    ----------
    *names : str
        Operation and name of each family, such as "batch.unit_slices".
    """
    token = _switched_off.set(_switched_off.get() | set(names))
    forget_plans()
    try:
        yield
    finally:
        _switched_off.reset(token)
        forget_plans()


def enabled(families: tuple[Family, ...]) -> tuple[Family, ...]:
    """Return the families of a table that are not switched off."""
    off = _switched_off.get()
    if not off:
        return families
    return tuple(one for one in families if f"{one.operation}.{one.name}" not in off)


def is_enabled(name: str) -> bool:
    """Return whether "operation.name" is not switched off: a family, or another way of a plan."""
    return name not in _switched_off.get()


def forget_by(clear: Callable[[], None]) -> None:
    """Register ``clear`` of a cache of plans whose keys lack the families and tuned choices."""
    _remembered.append(clear)


def forget_plans() -> None:
    """Clear all caches of plans; what plans depend on has changed."""
    for clear in _remembered:
        clear()
