"""Check that the arithmetic resolves the cells of a grid: their widths, and places inside them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...grids.levels import MAX_LEVEL
from ...statement.axis import Axis

__all__ = ["check_cell_widths", "finest_resolved"]

# Lengths of an axis, and volumes of a box, with which squares of norms and of derivatives neither
# overflow nor vanish: float64 goes from 1e-308 to 1e308, diffusion divides by the square of a
# width, and a norm squared has the volume and the square of f.
_LENGTHS = 1e-60, 1e60
_VOLUMES = 1e-100, 1e100
# Number of floating-point numbers in a finest cell: the 24 Gauss nodes or more that functions are
# sampled at lie 0.0024 of the width apart at the ends, which is then twice the spacing of numbers.
_MIN_NUMBERS = 1024


def finest_resolved(axis: Axis) -> int:
    """Return the finest level whose cells floating-point coordinates resolve, -1 if there is none.

    Examples
    --------
    >>> finest_resolved(Axis("x", 0, 1)), finest_resolved(Axis("x", 1e12, 1e12 + 1))
    (30, 3)
    """
    spacing = np.spacing(max(abs(axis.lower), abs(axis.upper)))
    level = math.floor(math.log2(axis.length / (float(spacing) * _MIN_NUMBERS)))
    return max(-1, min(level, MAX_LEVEL))


def check_cell_widths(axes: Sequence[Axis], levels: Sequence[int]) -> None:
    """Refuse axes and finest levels whose cells floating-point numbers do not resolve.

    That is, if a length is so small or so large that squares of norms or derivatives leave the
    range of float64, or a finest cell has too few coordinates; the text names the axis.
    """
    for axis, level in zip(axes, levels, strict=True):
        if not _LENGTHS[0] <= axis.length <= _LENGTHS[1]:
            raise ValueError(
                f"axis {axis.name!r} has the length {axis.length:.6g}; expected {_LENGTHS[0]:g} … "
                f"{_LENGTHS[1]:g}, as the squares of widths and norms leave the range of float64 "
                "beyond that. Take another unit for the axis"
            )
        finest = finest_resolved(axis)
        if level > finest:
            most = f"; the finest level is {finest}" if finest >= 0 else ""
            raise ValueError(
                f"axis {axis.name!r} is [{axis.lower!r}, {axis.upper!r}], where neighbouring "
                f"numbers are {np.spacing(max(abs(axis.lower), abs(axis.upper))):.3g} apart, and "
                f"its cells of level {level} are {axis.cell_width(level):.3g} wide: expected "
                f"{_MIN_NUMBERS} numbers in a cell or more{most}. Move the origin of the axis near "
                "the interval, or take a lower level"
            )
    volume = math.prod(axis.length for axis in axes)
    if not _VOLUMES[0] <= volume <= _VOLUMES[1]:
        raise ValueError(
            f"the box of {', '.join(axis.name for axis in axes)} has the volume {volume:.6g}; "
            f"expected {_VOLUMES[0]:g} … {_VOLUMES[1]:g}, as the squares of norms leave the range "
            "of float64 beyond that. Take other units for the axes"
        )
