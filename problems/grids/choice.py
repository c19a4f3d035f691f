"""The ways to choose the grid of a PDE: by a word, by groups of axes, or as a grid."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from ..statement.axis import Axis
from .sparse_grid import SparseGrid, count_cells

__all__ = ["GridChoice", "Mixed", "choose_grid", "size_of_choice"]


@dataclass(frozen=True, init=False)
class Mixed:
    """The tensor product of sparse grids, one for each group of axes.

    Parameters
    ----------
    *groups : Axis, str, or sequence of them
        The axes of each group, or their names. Every axis of the PDE is in exactly one group; the
        axes of a group need not be adjacent.

    Attributes
    ----------
    groups : tuple of tuple of str
        The names of each group's axes.

    Raises
    ------
    TypeError
        If a group holds anything else.
    ValueError
        If there is no group, one is empty, or a name occurs twice.

    Examples
    --------
    >>> x, v, w = Axis("x", 0, 1), Axis("v", -1, 1), Axis("w", -1, 1)
    >>> Mixed([x], [v, w])
    Mixed(groups=(('x',), ('v', 'w')))
    """

    groups: tuple[tuple[str, ...], ...]

    def __init__(self, *groups: Axis | str | Iterable[Axis | str]) -> None:
        named = tuple(_names(f"groups[{k}]", group) for k, group in enumerate(groups))
        if not named:
            raise ValueError("no group given; expected groups of axes, as in Mixed([x], [v1, v2])")
        names = [name for group in named for name in group]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(
                    f"the axis {name!r} occurs {names.count(name)} times in the groups {named}; "
                    "expected every axis once"
                )
        object.__setattr__(self, "groups", named)

    def make(self, axes: Sequence[Axis], levels: Sequence[int]) -> SparseGrid:
        """Return the grid for axes and their finest levels.

        Parameters
        ----------
        axes : sequence of Axis
            The axes, each of them in one of the groups.
        levels : sequence of int
            The finest level L_i of each axis. The levels l_i of a cell satisfy Σ l_i / L_i ≤ 1 in
            each group.

        Returns
        -------
        SparseGrid
            Of kind "mixed", with its axes in the order of `axes`.

        Raises
        ------
        ValueError
            If the axes of the groups are not exactly `axes`.
        """
        parts = [SparseGrid.sparse(own) for own in self.levels_of(axes, levels)]
        named = [name for group in self.groups for name in group]
        return SparseGrid.product(*parts, order=[named.index(axis.name) for axis in axes])

    def levels_of(self, axes: Sequence[Axis], levels: Sequence[int]) -> list[list[int]]:
        """Return the finest levels of each group's axes.

        Parameters
        ----------
        axes, levels
            As of `make`.

        Returns
        -------
        list of list of int

        Raises
        ------
        ValueError
            If the axes of the groups are not exactly `axes`.
        """
        places = {axis.name: k for k, axis in enumerate(axes)}
        named = [name for group in self.groups for name in group]
        if sorted(named) != sorted(places):
            raise ValueError(
                f"the groups of the grid name the axes {', '.join(sorted(named))}; expected each "
                f"of the PDE's axes once: {', '.join(places)}"
            )
        return [[levels[places[name]] for name in group] for group in self.groups]


GridChoice: TypeAlias = Literal["sparse", "full"] | Mixed | SparseGrid
"""The values that `PDE.discretize` accepts as its grid: "sparse", "full", Mixed or SparseGrid."""


def choose_grid(
    grid: GridChoice, level: int | Sequence[int] | None, axes: Sequence[Axis]
) -> SparseGrid:
    """Return the grid of a choice and a finest level, or one per axis; a SparseGrid has its own."""
    if isinstance(grid, SparseGrid):
        if level is not None:
            raise ValueError("level must be left out where grid is a SparseGrid, which has its own")
        if grid.dimensions != len(axes):
            raise ValueError(f"grid has {grid.dimensions} axes; the PDE has {len(axes)}")
        return grid
    levels = _levels(level, len(axes))
    if isinstance(grid, Mixed):
        return grid.make(axes, levels)
    if grid == "sparse":
        return SparseGrid.sparse(levels)
    if grid == "full":
        return SparseGrid.full(levels)
    hint = " with the groups of axes" if grid == "mixed" else ""
    raise ValueError(
        f"grid is {grid!r}; expected 'sparse', 'full', Mixed([x], [v1, v2]){hint}, or a SparseGrid"
    )


def size_of_choice(
    grid: GridChoice, level: int | Sequence[int] | None, axes: Sequence[Axis]
) -> tuple[int, tuple[int, ...]]:
    """Return the number of cells and the finest levels of the grid of `choose_grid`."""
    if isinstance(grid, SparseGrid):
        chosen = choose_grid(grid, level, axes)
        return chosen.num_cells, chosen.levels
    levels = _levels(level, len(axes))
    if isinstance(grid, Mixed):
        parts = grid.levels_of(axes, levels)
        return math.prod(count_cells("sparse", own) for own in parts), levels
    return count_cells("full" if grid == "full" else "sparse", levels), levels


def _levels(level: int | Sequence[int] | None, dimensions: int) -> tuple[int, ...]:
    """Return one level per axis."""
    if level is None:
        raise TypeError("level is missing; give an integer, or one per axis")
    if isinstance(level, (int, np.integer)):
        return (level,) * dimensions
    if not isinstance(level, Sequence | np.ndarray):
        raise TypeError(f"level is {level!r}; expected an integer, or one per axis")
    if len(level) != dimensions:
        raise ValueError(f"level has {len(level)} entries; the PDE has {dimensions} axes")
    return tuple(level)


def _names(where: str, group: Axis | str | Iterable[Axis | str]) -> tuple[str, ...]:
    """Return the names of the axes of one group."""
    if isinstance(group, (Axis, str)):
        group = (group,)
    if not isinstance(group, Iterable):
        raise TypeError(
            f"{where} is {type(group).__name__}; expected axes or their names, as in "
            "Mixed([x], [v1, v2])"
        )
    members = tuple(group)
    for member in members:
        if not isinstance(member, (Axis, str)):
            raise TypeError(
                f"{where} holds {type(member).__name__}; expected axes or their names, as in "
                "Mixed([x], [v1, v2])"
            )
    if not members:
        raise ValueError(f"{where} is empty; expected at least one axis in each group")
    return tuple(member if isinstance(member, str) else member.name for member in members)
