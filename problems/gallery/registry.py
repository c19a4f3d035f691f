"""The table of all entries of the gallery, by name."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

from batchkron.names import StepperName
from batchkron.plugins import loaded_plugin, with_plugins

from ..grids.choice import GridChoice
from ..semidiscrete.problem import Problem
from . import (
    advection,
    collisions,
    continuity,
    diffusion,
    nonlinear,
    pitch_angle,
    runaway,
    transport,
    vlasov,
    vlasov_2d,
)
from .entry import GalleryEntry

__all__ = ["get", "make", "names"]

_ENTRIES: dict[str, GalleryEntry] = {
    entry.name: entry
    for module in (
        continuity,
        advection,
        diffusion,
        nonlinear,
        transport,
        pitch_angle,
        runaway,
        vlasov,
        vlasov_2d,
        collisions,
    )
    for entry in module.ENTRIES
}

_GROUP = "batchkron.problems"


def names() -> tuple[str, ...]:
    """Return the names of all entries.

    Those that other distributions bring by entry points of the group "batchkron.problems" come
    last: each is a `GalleryEntry` of the entry point's name.

    Examples
    --------
    >>> "continuity-2d" in names()
    True
    """
    return with_plugins(_ENTRIES, _GROUP, _checked)


def _checked(name: str, value: Any) -> GalleryEntry:
    """Return the entry that an entry point is; raise TypeError if it is none."""
    if not isinstance(value, GalleryEntry):
        raise TypeError(f"expected a GalleryEntry, got {value!r}")
    if value.name != name:
        raise TypeError(f"the entry is named {value.name!r}; expected the entry point's name")
    return value


def get(name: str) -> GalleryEntry:
    """Return the entry that has a name.

    Parameters
    ----------
    name : str
        One of `names`.

    Returns
    -------
    GalleryEntry

    Raises
    ------
    ValueError
        If there is no such entry; the text suggests similar names.

    Examples
    --------
    >>> get("diffusion-1d").method
    'crank-nicolson'
    """
    if name in _ENTRIES:
        return _ENTRIES[name]
    if isinstance(name, str) and (found := loaded_plugin(_GROUP, name, _checked)) is not None:
        return found  # type: ignore[no-any-return]
    known = names()
    close = get_close_matches(str(name).lower().replace("_", "-"), known, cutoff=0.5)
    hint = f" Did you mean {' or '.join(map(repr, close))}?" if close else ""
    raise ValueError(f"the gallery has no {name!r}; it has {', '.join(known)}.{hint}")


def make(
    name: str,
    level: int | Sequence[int] | None = None,
    degree: int | None = None,
    grid: GridChoice = "sparse",
    *,
    until: float | None = None,
    method: StepperName | None = None,
    dt: float | None = None,
    boundary_penalty: float = 1.0,
    **parameters: float,
) -> Problem:
    """Return a discretized problem of the gallery.

    Parameters
    ----------
    name : str
        One of `names`.
    level : int or sequence of int, optional
        Finest level, one for all axes or one per axis; by default the entry's.
    degree : int, optional
        Polynomial degree; by default the entry's.
    grid : {"sparse", "full"}, Mixed or SparseGrid
        Which blocks the grid has; a SparseGrid has its own levels.
    until, method, dt : optional
        Final time, time stepper and time step; by default the entry's.
    boundary_penalty : float
        See `PDE.discretize`.
    **parameters : float
        Values of the entry's own parameters, such as ``make("landau-1x1v", k=0.4)``.

    Returns
    -------
    Problem

    Raises
    ------
    TypeError, ValueError
        If the name or a parameter is unknown, or levels, degree or grid do not fit.

    Examples
    --------
    >>> make("continuity-2d", level=6, degree=2).unknowns
    2304
    """
    return get(name).make(
        level,
        degree,
        grid,
        until=until,
        method=method,
        dt=dt,
        boundary_penalty=boundary_penalty,
        **parameters,
    )
