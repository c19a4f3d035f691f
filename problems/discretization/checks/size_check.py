"""Check, before anything large is allocated, whether a discretization can fit in memory."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence

from ...grids.choice import GridChoice, size_of_choice
from ...grids.degrees import common_or_each, degree_text
from ...statement.axis import Axis
from ...statement.terms import Term

__all__ = ["check_size"]


def check_size(
    grid: GridChoice,
    level: int | Sequence[int] | None,
    degrees: Sequence[int],
    axes: Sequence[Axis],
    terms: Iterable[Term],
) -> None:
    """Refuse a grid whose unknowns cannot fit in this machine's memory.

    Parameters
    ----------
    grid, level
        As of `PDE.discretize`.
    degrees : sequence of int
        Along each axis.
    axes, terms
        Of the PDE.

    Raises
    ------
    MemoryError
        If a lower bound of its memory is more than the machine has; the text says how many unknowns
        there would be.
    TypeError, ValueError
        If levels or groups of axes do not fit the axes.

    Notes
    -----
    The lower bound counts 8 d bytes per cell of the grid, one state, and for each axis with a
    derivative an operator of 4 blocks of n × n numbers for each of its 2^L cells. (With constant
    coefficients a first derivative has 8 blocks per cell, a second one 13.)
    """
    cells, levels = size_of_choice(grid, level, axes)
    sizes = [degree + 1 for degree in degrees]
    unknowns = cells * math.prod(sizes)
    derived = {factor.axis for term in terms for factor in term.factors if factor.kind != "mass"}
    matrices = sum(
        (4 << own) * n * n
        for axis, own, n in zip(axes, levels, sizes, strict=True)
        if axis in derived
    )
    needed = 8 * (cells * len(axes) + unknowns + matrices)
    memory = _memory()
    if memory is not None and needed > memory:
        text = degree_text(common_or_each(degrees), [axis.name for axis in axes])
        raise MemoryError(
            f"{unknowns} unknowns in {cells} cells of levels {', '.join(map(str, levels))}, degree "
            f"{text}, take at least {_gib(needed)}, and this machine has {_gib(memory)}"
        )


def _memory() -> int | None:
    """Return this machine's memory in bytes, None if the system does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None


def _gib(size: int) -> str:
    return f"{size / 2**30:.3g} GiB" if size < 1000 << 30 else f"{size / 2**30:.0f} GiB"
