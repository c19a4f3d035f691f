"""Whether a discretization can fit in memory, found out before anything of its size is made."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from ..grids.choice import GridChoice, size_of_choice
from ..statement.axis import Axis
from ..statement.terms import Term

__all__ = ["check_size"]


def check_size(
    grid: GridChoice,
    level: int | Sequence[int] | None,
    degree: int,
    axes: Sequence[Axis],
    terms: Iterable[Term],
) -> None:
    """Refuse a grid whose unknowns cannot fit in this machine's memory.

    Parameters
    ----------
    grid, level, degree
        As of `PDE.discretize`.
    axes, terms
        Of the PDE.

    Raises
    ------
    MemoryError
        If the least that it takes is more than the machine has; the text says how many unknowns
        there would be.
    TypeError, ValueError
        For levels or groups of axes that do not fit.

    Notes
    -----
    The least is the grid, 8 d bytes per cell, one state, and for each axis with a derivative one
    operator of 4 blocks, n × n, for each of its 2^L cells. (Constant coefficients: 8 for a first
    derivative, 13 for a second one.)
    """
    cells, levels = size_of_choice(grid, level, axes)
    n = degree + 1
    unknowns = cells * n ** len(axes)
    derived = {factor.axis for term in terms for factor in term.factors if factor.kind != "mass"}
    blocks = sum(4 << own for axis, own in zip(axes, levels, strict=True) if axis in derived)
    needed = 8 * (cells * len(axes) + unknowns + blocks * n * n)
    memory = _memory()
    if memory is not None and needed > memory:
        raise MemoryError(
            f"{unknowns} unknowns in {cells} cells of levels {', '.join(map(str, levels))}, degree "
            f"{degree}, take at least {_gib(needed)}, and this machine has {_gib(memory)}"
        )


def _memory() -> int | None:
    """Return this machine's bytes of memory, None if it does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None


def _gib(size: int) -> str:
    return f"{size / 2**30:.3g} GiB" if size < 1000 << 30 else f"{size / 2**30:.0f} GiB"
