"""Kernel families that are switched off, and caches of plans.

Each operation has one table of its families, and the choice of a kernel loops over it, without
special cases for single families. `without` switches families off, to measure what they gain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol, TypeVar


class _Named(Protocol):
    operation: str
    name: str


class _Cached(Protocol):
    def cache_clear(self) -> None: ...


Family = TypeVar("Family", bound=_Named)
Cached = TypeVar("Cached", bound=_Cached)

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


def forgotten(function: Cached) -> Cached:
    """Register the cache of a function, such as one of `functools.lru_cache`."""
    forget_by(function.cache_clear)
    return function


def forget_plans() -> None:
    """Clear all caches of plans; what plans depend on has changed."""
    for clear in _remembered:
        clear()
