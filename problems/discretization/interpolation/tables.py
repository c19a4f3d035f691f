"""Interpolation on one axis: nested points of hierarchical cells, and maps between three bases.

A function of degree M on every finest cell is given by its values at m = M + 1 points of each, by
the surpluses of these values, or by its multiwavelet coefficients. The points of a coarse cell are
among those of its halves, so that each hierarchical cell adds m points of its own. The surplus at a
point is the value minus that of the interpolant of the next coarser level; the surpluses of a cell
multiply Lagrange polynomials on its halves.

Values from surpluses are a matrix N, whose blocks map a cell to finer ones, with the identity on
its diagonal; so is its inverse. Multiwavelet coefficients from surpluses are a matrix B, whose
blocks map a cell to itself and to coarser ones; so is its inverse.

References: Tao, Jiang, Cheng, *An adaptive high-order piecewise polynomial based sparse grid
collocation method with applications*, J. Comput. Phys. 433 (2021); Huang, Cheng, *An adaptive
multiresolution discontinuous Galerkin method with artificial viscosity for scalar hyperbolic
conservation laws in multidimensions*, SIAM J. Sci. Comput. 42 (2020).
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array, eye_array, hstack, kron

from ...grids.sparse_grid import levels_of_cells
from ..basis.multiwavelets import filters, legendre_values
from ..matrices.mode_operator import DROP_TOLERANCE, sparse_transform

__all__ = ["MAX_POINTS", "CellBlocks", "PointTables", "check_points", "point_tables"]

Values: TypeAlias = NDArray[np.float64]
Ids: TypeAlias = NDArray[np.int64]

# The points of the cell [0, 1], and from which side they are approached: 0 is the limit from the
# right, 1 and the points marked - are limits from the left. Each set is closed under s → 2 s mod 1,
# and has the smallest Lebesgue constant of those with denominators up to 32.
_POINTS = (
    ("0+",),
    ("0+", "1-"),
    ("0+", "1/2-", "1-"),
    ("0+", "1/3", "2/3", "1-"),
    ("0+", "1/4-", "1/2-", "3/4-", "1-"),
    ("0+", "1/6", "1/3", "2/3", "5/6", "1-"),
)

MAX_POINTS = len(_POINTS)
"""Largest number of points for each cell and axis, one more than the largest degree."""


class CellBlocks(NamedTuple):
    """A matrix of blocks (m, n) between the cells of an axis.

    Attributes
    ----------
    rows, columns : ndarray of int64, (pairs,)
        The pairs of cells that are coupled, output and input.
    blocks : ndarray of float64, (pairs, m, n)
    """

    rows: Ids
    columns: Ids
    blocks: Values

    def scaled(self, number: float) -> CellBlocks:
        """Return the matrix times a number."""
        return self._replace(blocks=self.blocks * number)


class PointTables(NamedTuple):
    """Points of the unit interval, and the maps of functions of degree n - 1 and m - 1 on it.

    Attributes
    ----------
    places : ndarray of float64, (cells, m)
        The points that each hierarchical cell adds, in [0, 1].
    sides : ndarray of int, (m,) for cell 0 and for all others, (2, m)
        1, -1 or 0: limits from the right, from the left, points inside of finest cells.
    surpluses_of_state : CellBlocks
        From multiwavelet coefficients of degree n - 1 to surpluses; to the same or coarser cells.
        Blocks (m, n).
    values_of_state : CellBlocks
        The product of the next matrix and the last one: from multiwavelet coefficients to values.
        Blocks (m, n).
    values_of_surpluses, surpluses_of_values : CellBlocks
        N - 1 and its inverse counterpart N⁻¹ - 1; to finer cells.
    coefficients_of_surpluses : CellBlocks
        B, to coefficients of degree m - 1; to the same or coarser cells.
    projection : CellBlocks or None
        From coefficients of degree m - 1 to those of degree n - 1, the L² projection; to the same
        or finer cells. Blocks (n, m). None if m = n.
    projected_surpluses : CellBlocks or None
        The product of the projection and B. Blocks (n, m). None if m = n.
    """

    places: Values
    sides: Ids
    surpluses_of_state: CellBlocks
    values_of_state: CellBlocks
    values_of_surpluses: CellBlocks
    surpluses_of_values: CellBlocks
    coefficients_of_surpluses: CellBlocks
    projection: CellBlocks | None
    projected_surpluses: CellBlocks | None


def check_points(points: int) -> int:
    """Return a number of points of a cell; refuse one for which there is no set of points."""
    if not 1 <= points <= MAX_POINTS:
        degrees = ", ".join(str(degree) for degree in range(MAX_POINTS))
        raise ValueError(
            f"functions of several axes are taken at points, of which there are sets for the "
            f"degrees {degrees}; got degree {points - 1}. Give a lower degree, or the function as "
            "a Separable or a sum of them"
        )
    return points


@lru_cache(maxsize=32)
def point_tables(level: int, n: int, m: int) -> PointTables:
    """Return the points and maps of the unit interval with 2^level finest cells; m ≥ n."""
    points = _Points(level, m)
    first = points.surpluses_of_values
    evaluation = points.evaluation(n)
    lower = first - eye_array(first.shape[0], format="csr")
    projection = projected = None
    if m > n:
        widened = kron(eye_array(1 << level), np.eye(n, m), format="csr")
        whole = sparse_transform(level, n - 1) @ widened @ sparse_transform(level, m - 1).T
        projection = _blocks(whole, n, m, finer=True, diagonal=True)
        projected = _blocks(
            sparse_transform(level, n - 1) @ widened @ points.finest_nodal, n, m, diagonal=True
        )
    return PointTables(
        points.places,
        points.sides,
        _blocks(first @ evaluation, m, n, finer=False, diagonal=True),
        _blocks(evaluation, m, n, diagonal=True),
        _blocks(points.lagrange_values, m, m, finer=True, diagonal=False),
        _blocks(lower, m, m, finer=True, diagonal=False),
        _blocks(points.coefficients_of_surpluses, m, m, finer=False, diagonal=True),
        projection,
        projected,
    )


class _Points:
    """The nested points of the unit interval, numbered by hierarchical cell, then by point.

    ``places`` (ndarray of float64, (cells, m)).
    ``sides`` (ndarray of int, (2, m)): of the points of cell 0, and of those that any other cell
      adds.
    """

    def __init__(self, level: int, m: int) -> None:
        self._level, self._m = level, m
        coarse = [_parsed(text) for text in _POINTS[m - 1]]
        self._nodes = np.array([float(place) for place, _ in coarse])
        halves = [(half, k, (place + half) / 2, side)
                  for half in (0, 1) for k, (place, side) in enumerate(coarse)]  # fmt: skip
        self._new = [entry for entry in halves if entry[2:] not in coarse]
        self._old = {entry[:2]: coarse.index(entry[2:]) for entry in halves if entry[2:] in coarse}
        added = [(place, side) for _, _, place, side in self._new]
        self.sides = np.array([[side for _, side in own] for own in (coarse, added)])
        cells = np.arange(1 << level)
        levels = levels_of_cells(cells)
        positions = cells - (1 << np.maximum(levels - 1, 0)) * (levels > 0)
        self._levels = levels
        self.places = np.empty((cells.size, m))
        self._finest = np.empty((cells.size, m), dtype=np.int64)
        self._local = np.empty((cells.size, m))
        for j in range(m):
            for kind, (place, side) in enumerate((coarse[j], added[j])):
                own = (levels > 0) == bool(kind)
                # the place times the number of finest cells is steps / denominator
                denominator = place.denominator
                shift = level - np.maximum(levels[own] - 1, 0)
                steps = (place.numerator + positions[own] * denominator) << shift
                finest = -(-steps // denominator) - 1 if side < 0 else steps // denominator
                self.places[own, j] = steps / (denominator << level)
                self._finest[own, j] = finest
                self._local[own, j] = (steps - finest * denominator) / denominator

    @property
    def surpluses_of_values(self) -> csr_array[Any, Any]:
        """Each value minus that of the interpolant on the coarser cell that has the point inside.

        That cell's points are those of its own level and of coarser ones.
        """
        m, size = self._m, self.places.size
        weights = _lagrange(self._nodes, np.array([float(entry[2]) for entry in self._new]))
        numbers = np.arange(m)[None]  # of the points of each cell of a level
        rows, columns, values = [np.arange(size)], [np.arange(size)], [np.ones(size)]
        for level in range(1, self._level + 1):
            count = 1 << (level - 1)
            own = (count + np.arange(count))[:, None] * m + np.arange(m)
            shape = (count, m, m)
            rows.append(np.broadcast_to(own[:, :, None], shape).ravel())
            columns.append(np.broadcast_to(numbers[:, None, :], shape).ravel())
            values.append(np.broadcast_to(-weights, shape).ravel())
            finer = np.empty((count, 2, m), dtype=np.int64)
            for (half, k), old in self._old.items():
                finer[:, half, k] = numbers[:, old]
            for j, (half, k, _, _) in enumerate(self._new):
                finer[:, half, k] = own[:, j]
            numbers = finer.reshape(2 * count, m)
        return _sparse(rows, columns, values, (size, size))

    @property
    def lagrange_values(self) -> csr_array[Any, Any]:
        """Values of the Lagrange polynomials of each cell's points, N, at points of finer cells."""
        m = self._m

        def shapes(local: Values, half: Ids, level: int) -> Values:
            all_nodes = _lagrange(self._nodes, local)
            if level == 0:
                return all_nodes
            own = np.array([entry[0] for entry in self._new])
            picked = all_nodes[:, [entry[1] for entry in self._new]]
            return np.where(own == half[:, None], picked, 0.0)

        return self._evaluated(shapes, m)

    def evaluation(self, n: int) -> csr_array[Any, Any]:
        """Values of the multiwavelets of degree n - 1 at all points."""
        two_scale = filters(n - 1)

        def shapes(local: Values, half: Ids, level: int) -> Values:
            nodal = legendre_values(2 * local - 1, n - 1, 0.5**level)
            if level == 0:
                return nodal
            return np.where(half[:, None] == 1, nodal @ two_scale.G1.T, nodal @ two_scale.G0.T)

        return self._evaluated(shapes, n)

    def _evaluated(self, shapes: Any, count: int) -> csr_array[Any, Any]:
        """Return values at all points of ``count`` functions of each cell.

        ``shapes(local, half, level)`` has the values at places in [0, 1] of cells of a level, which
        are the left or right half of a hierarchical cell: (points, count).
        """
        finest, local = self._finest.ravel(), self._local.ravel()
        rows, columns, values = [], [], []
        for level in range(self._level, -1, -1):
            inside = finest >> (self._level - level)
            cell = (1 << (level - 1)) + (inside >> 1) if level else np.zeros_like(inside)
            found = shapes(local, inside & 1, level)
            rows.append(np.repeat(np.arange(finest.size), count))
            columns.append((cell[:, None] * count + np.arange(count)).ravel())
            values.append(found.ravel())
            local = (local + (inside & 1)) / 2
        return _sparse(rows, columns, values, (finest.size, count << self._level))

    @property
    def coefficients_of_surpluses(self) -> csr_array[Any, Any]:
        """The multiwavelet coefficients of each cell's Lagrange polynomials, B."""
        parts = []
        for level, nodal in enumerate(self._nodal):
            part = csr_array(sparse_transform(level, self._m - 1) @ nodal)
            part.resize((self._m << self._level, nodal.shape[1]))
            parts.append(part)
        return csr_array(hstack(parts, format="csr"))

    @property
    def finest_nodal(self) -> csr_array[Any, Any]:
        """The coefficients of each cell's Lagrange polynomials on the finest cells, nodal ones."""
        two_scale = filters(self._m - 1)
        halves = np.vstack((two_scale.H0.T, two_scale.H1.T))
        known = None
        for level, nodal in enumerate(self._nodal):
            if known is not None:
                finer = kron(eye_array(1 << (level - 1)), halves, format="csr") @ known
                nodal = hstack((finer, nodal), format="csr")
            known = csr_array(nodal)
        return csr_array(known)

    @property
    def _nodal(self) -> Iterator[csr_array[Any, Any]]:
        """For each level the nodal coefficients on its cells of the polynomials of its points."""
        m = self._m
        for level in range(self._level + 1):
            nodal = np.linalg.inv(legendre_values(2 * self._nodes - 1, m - 1, 0.5**level))
            if level == 0:
                yield csr_array(nodal)
                continue
            shapes = np.zeros((2 * m, m))
            for j, (half, k, _, _) in enumerate(self._new):
                shapes[half * m : (half + 1) * m, j] = nodal[:, k]
            yield csr_array(kron(eye_array(1 << (level - 1)), shapes, format="csr"))


def _parsed(text: str) -> tuple[Fraction, int]:
    """Return a point and its side, of a text such as "1/2-"."""
    return Fraction(text.rstrip("+-")), {"+": 1, "-": -1}.get(text[-1], 0)


def _lagrange(nodes: Values, places: Values) -> Values:
    """Return the values of the Lagrange polynomials of the nodes at places, (places, nodes)."""
    gaps = places[:, None] - nodes
    result = np.ones_like(gaps)
    for j in range(nodes.size):
        for k in range(nodes.size):
            if j != k:
                result[:, j] *= gaps[:, k] / (nodes[j] - nodes[k])
    return result


def _sparse(
    rows: list[Ids], columns: list[Ids], values: list[Values], shape: tuple[int, int]
) -> csr_array[Any, Any]:
    places = (np.concatenate(rows), np.concatenate(columns))
    return csr_array(coo_array((np.concatenate(values), places), shape=shape))


def _blocks(
    matrix: csr_array[Any, Any],
    rows: int,
    columns: int,
    *,
    finer: bool | None = None,
    diagonal: bool,
) -> CellBlocks:
    """Return the blocks of a matrix that map to finer cells, or to coarser ones, or to both.

    With ``diagonal`` also those that map a cell to itself. The others are zero but for rounding.
    """
    blocks = matrix.tobsr((rows, columns))
    outputs = np.repeat(np.arange(blocks.indptr.size - 1), np.diff(blocks.indptr)).astype(np.int64)
    inputs, data = blocks.indices.astype(np.int64), np.ascontiguousarray(blocks.data)
    steps = levels_of_cells(outputs) - levels_of_cells(inputs)
    kept = steps != 0 if finer is None else steps > 0 if finer else steps < 0
    largest = np.abs(data).max(axis=(1, 2), initial=0.0)
    kept &= largest > DROP_TOLERANCE * max(rows, columns) * largest.max(initial=0.0)
    if diagonal:
        kept |= outputs == inputs
    return CellBlocks(outputs[kept], inputs[kept], data[kept])
