"""Data of plots: values of a state on lines and in planes, and norms of its blocks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from batchkron.problems import Axis, Problem
from batchkron.problems.grids.sparse_grid import levels_of_cells

__all__ = ["Plane", "PlaneCells", "choose_plane", "plane_cells", "sample_line", "sample_plane"]

# All numbers were chosen by hand.
_LINE_POINTS = 2000  # wanted number of points of a curve
_PIXELS = 384  # wanted number of pixels in each direction of an image
_PROBES = 4096  # random points at which a state is evaluated to find where it is large
# The middle plane is not used if the state there is below this fraction of its largest value.
_VANISHING = 1e-3


@dataclass(frozen=True)
class Plane:
    """A plane in the direction of the first two axes.

    Attributes
    ----------
    fixed : dict of str to float
        The coordinates of the other axes, by name.
    """

    fixed: dict[str, float]


@dataclass(frozen=True, eq=False)
class PlaneCells:
    """The cells of a grid, projected to the first two axes.

    Attributes
    ----------
    levels : ndarray, shape (m, 2), int64
        Levels along the two axes.
    positions : ndarray, shape (m, 2), int64
        Positions among the cells of these levels, from 0.
    norms : ndarray, shape (m,), float64
        Euclidean norms of the coefficients of all cells with the same projection.
    """

    levels: NDArray[np.int64]
    positions: NDArray[np.int64]
    norms: NDArray[np.float64]


def sample_line(
    problem: Problem, u: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return points of a one-dimensional domain and the values of a state there.

    Parameters
    ----------
    problem : Problem
        A problem with one axis.
    u : ndarray, shape (N,), float64
        A state.

    Returns
    -------
    points, values : ndarray, shape (m,), float64
        The same number of points in each of the finest cells, none of them on a cell's edge.
    """
    points = _inside_cells(problem.axes[0], problem.grid.levels[0], _LINE_POINTS)
    return points, problem.evaluate(u, points[:, None])


def sample_plane(problem: Problem, u: NDArray[np.float64], plane: Plane) -> NDArray[np.float64]:
    """Return the values of a state in a plane of the first two axes.

    Parameters
    ----------
    problem : Problem
        With two axes or more.
    u : ndarray, shape (N,), float64
        A state.
    plane : Plane
        The fixed values of the other coordinates.

    Returns
    -------
    ndarray, shape (rows, columns), float64
        Values at the midpoints of equal pixels: rows along the second axis, columns along the
        first, both ascending.
    """
    first, second = (
        _inside_cells(axis, level, _PIXELS)
        for axis, level in zip(problem.axes[:2], problem.grid.levels[:2], strict=True)
    )
    points = np.empty((second.size, first.size, len(problem.axes)))
    points[..., 0] = first
    points[..., 1] = second[:, None]
    points[..., 2:] = list(plane.fixed.values())
    values = problem.evaluate(u, points.reshape(-1, len(problem.axes)))
    return values.reshape(second.size, first.size)


def choose_plane(problem: Problem, u: NDArray[np.float64]) -> Plane:
    """Return the plane of the first two axes through the middle, or one where the state is large.

    Parameters
    ----------
    problem : Problem
        With two axes or more.
    u : ndarray, shape (N,), float64
        A state.

    Returns
    -------
    Plane
        The plane through the middle of the domain. If the state nearly vanishes there, the plane
        through the largest of 4096 values at random points.
    """
    others = problem.axes[2:]
    middle = np.array([(axis.lower + axis.upper) / 2.0 for axis in others])
    if others:
        lower = np.array([axis.lower for axis in problem.axes])
        lengths = np.array([axis.length for axis in problem.axes])
        places = lower + lengths * np.random.default_rng(0).random((_PROBES, len(lower)))
        everywhere = np.abs(problem.evaluate(u, places))
        largest = places[np.argmax(everywhere), 2:].copy()
        places[:, 2:] = middle
        in_middle = np.abs(problem.evaluate(u, places))
        if in_middle.max() < _VANISHING * everywhere.max():
            middle = largest
    return Plane({axis.name: float(value) for axis, value in zip(others, middle, strict=True)})


def plane_cells(problem: Problem, u: NDArray[np.float64]) -> PlaneCells:
    """Return the cells of a grid projected to the first two axes.

    Parameters
    ----------
    problem : Problem
        With two axes or more.
    u : ndarray, shape (N,), float64
        A state.

    Returns
    -------
    PlaneCells
    """
    pairs, place = np.unique(problem.grid.cells[:, :2], axis=0, return_inverse=True)
    blocks = u.reshape(problem.grid.num_cells, -1)
    largest = float(np.abs(blocks).max()) or 1.0
    squares = np.sum((blocks / largest) ** 2, axis=1)
    norms = largest * np.sqrt(np.bincount(place.reshape(-1), weights=squares))
    levels = levels_of_cells(pairs)
    first = np.where(pairs > 0, 1 << np.maximum(levels - 1, 0), 0)
    return PlaneCells(levels, pairs - first, norms)


def _inside_cells(axis: Axis, level: int, wanted: int) -> NDArray[np.float64]:
    """Return the midpoints of about ``wanted`` equal parts of an axis.

    Each of the finest cells has a whole number of them, unless there are more cells than that.
    """
    cells = 1 << level
    count = wanted if cells > wanted else cells * (wanted // cells)
    return axis.lower + axis.length * (np.arange(count) + 0.5) / count
