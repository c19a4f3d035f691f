"""Steppers, preconditioners and problems of other distributions, by their entry points."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from batchkron.callers import users_level

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = ["PluginWarning", "loaded_plugin", "plugin_names", "with_plugins"]


class PluginWarning(UserWarning):
    """An entry point of another distribution cannot be loaded, or is of the wrong kind."""


@functools.cache
def _entry_points(group: str) -> dict[str, EntryPoint]:
    import importlib.metadata  # 65 modules, which help and completion of most words do without

    return {one.name: one for one in importlib.metadata.entry_points(group=group)}


def plugin_names(group: str) -> tuple[str, ...]:
    """Return the names in a group, such as "batchkron.steppers", without loading anything."""
    return tuple(sorted(_entry_points(group)))


@functools.cache
def loaded_plugin(group: str, name: str, checked: Callable[[str, Any], Any]) -> Any:
    """Return what an entry point loads, as ``checked`` returns it; None if it cannot be used.

    Parameters
    ----------
    group, name : str
        The entry point.
    checked : callable
        ``checked(name, value)`` returns the value, perhaps converted, and raises TypeError if it is
        of the wrong kind.

    Warns
    -----
    PluginWarning
        If it fails to load or is of the wrong kind, with the distribution's name; once in a
        process.
    """
    entry = _entry_points(group).get(name)
    if entry is None:
        return None
    try:
        return checked(name, entry.load())
    except Exception as error:  # whatever a foreign module raises must not end a run without it
        owner = "an unknown distribution" if entry.dist is None else entry.dist.name
        warnings.warn(
            f"{name!r} of {owner} ({group}: {entry.value}) is left out, since it does not load: "
            f"{type(error).__name__}: {error}",
            PluginWarning,
            stacklevel=users_level(),
        )
        return None


def with_plugins(
    own: Collection[str], group: str, checked: Callable[[str, Any], Any]
) -> tuple[str, ...]:
    """Return own names and then those of a group that load; own names win over equal ones."""
    more = (name for name in plugin_names(group) if name not in own)
    return (*own, *(name for name in more if loaded_plugin(group, name, checked) is not None))
