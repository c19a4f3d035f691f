"""Values at the Gauss points of the finest cells of one axis: from coefficients, and integrals.

Arrays of values are (cells, q), with q points in each of the 2^level cells. All functions take and
return arrays of one library, NumPy or CuPy; nothing is copied between the host and a device.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.polynomial.legendre import legint, legval
from numpy.typing import NDArray

from ...statement.axis import Axis
from ...statement.coefficients import Function
from ..basis.multiwavelets import filters, legendre_values
from ..basis.quadrature import cell_points, evaluate, gauss_rule
from ..matrices.dg_matrices import volume_nodes

__all__ = ["CellPoints", "product", "sum_of_products"]

Values = NDArray[np.float64]

# Points of a cell up to which a projection on it is one product with a matrix; chosen by hand.
_MAX_PROJECTION = 128


class CellPoints:
    """The Gauss points of the finest cells of an axis, those of `dg_matrices.mass_blocks`.

    ``level``, ``degree``: finest level, and degree of the basis.
    ``module``: numpy or cupy, the library of all arrays that are given and returned.
    ``cells``, ``count``: number of cells, and of points in each.
    """

    def __init__(self, axis: Axis, level: int, degree: int, module: Any = np) -> None:
        self.axis, self.level, self.degree, self._module = axis, level, degree, module
        self.cells, self.count = 1 << level, volume_nodes(degree)
        width = axis.cell_width(level)
        nodes, weights = gauss_rule(self.count)
        shapes = legendre_values(nodes, degree, width)
        two_scale = filters(degree)
        children = np.block([[two_scale.H0, two_scale.H1], [two_scale.G0, two_scale.G1]])
        outer = (shapes[:, :, None] * shapes[:, None, :]) * (weights * (width / 2))[:, None, None]
        self._weights = module.asarray(weights * (width / 2))
        self._shapes = module.asarray(shapes)
        self._children = module.asarray(children.T)
        self._outer = module.asarray(outer.reshape(self.count, -1))
        self._projections: dict[int, Values] = {}
        self._traces = [module.asarray(row) for row in _traces(nodes, weights)]
        self._antiderivative = module.asarray(_antiderivative(nodes, weights) * (width / 2))

    @property
    def outer(self) -> Values:
        """The products φ_i φ_j at the points of a cell times the weights, (q, n²)."""
        return self._outer  # type: ignore[no-any-return]

    def sample(self, function: Function, what: str) -> Values:
        """Return the values of a function or number; it may not be infinite or NaN."""
        points = cell_points(self.axis, self.level, gauss_rule(self.count)[0])
        return self._module.asarray(evaluate(function, points, what))  # type: ignore[no-any-return]

    def place(self, cell: int, point: int) -> float:
        """Return the coordinate of a point."""
        nodes, _ = gauss_rule(self.count)
        return float(cell_points(self.axis, self.level, nodes)[cell, point])

    def values(self, hierarchical: Values) -> Values:
        """Return the values (functions, cells, q) from hierarchical coefficients.

        These are (functions, cells * n).

        In O(cells n²) operations for each function.
        """
        module, n = self._module, self.degree + 1
        given = hierarchical.reshape(len(hierarchical), self.cells, n, 1)
        work = given[:, :1]
        for half in (1 << finer for finer in range(self.level)):
            pairs = module.concatenate([work, given[:, half : 2 * half]], axis=2)
            work = (self._children @ pairs).reshape(len(given), 2 * half, n, 1)
        return work[..., 0] @ self._shapes.T  # type: ignore[no-any-return]

    def projected(self, values: Values, level: int) -> Values:
        """Return the values (cells, q) of the L2 projection on polynomials of a level's cells."""
        matrix = self.projection(level)
        if matrix is None:
            return self._projected(values, level)
        return product(values.reshape(-1, len(matrix)), matrix).reshape(values.shape)

    def projection(self, level: int) -> Values | None:
        """Return the matrix (size, size) of `projected`, for the values on a cell of the level.

        It multiplies rows of values from the right. None if it would be large.
        """
        size = self.count << (self.level - level)
        if size > _MAX_PROJECTION:
            return None
        if level not in self._projections:
            units = self._module.eye(size).reshape(-1, self.count)
            self._projections[level] = self._projected(units, level).reshape(size, size)
        return self._projections[level]

    def _projected(self, values: Values, level: int) -> Values:
        """Return the same for any number of cells of the level, in O(cells n²) operations."""
        n, gap = self.degree + 1, self.level - level
        parent = self._children[:, :n]  # the functions of a cell in those of its halves
        nodal = (values * self._weights) @ self._shapes
        for _ in range(gap):
            nodal = nodal.reshape(-1, 2 * n) @ parent
        for _ in range(gap):
            nodal = (nodal @ parent.T).reshape(-1, n)
        return nodal @ self._shapes.T  # type: ignore[no-any-return]

    def mass_blocks(self, values: Values) -> Values:
        """Return the blocks ∫ g φ_i φ_j of multiplications by g, (..., cells, n, n)."""
        n = self.degree + 1
        return product(values, self._outer).reshape(*values.shape[:-1], n, n)

    def traces(self, values: Values) -> tuple[Values, Values]:
        """Return the values at the left and at the right end of each cell, (..., cells).

        They are those of the polynomial of degree q - 1 through the values in the cell.
        """
        return product(values, self._traces[0]), product(values, self._traces[1])

    def integral(self, values: Values) -> Any:
        """Return ∫ g dx over the axis, an array of shape ()."""
        return product(values, self._weights).sum()

    def antiderivative(self, values: Values) -> Values:
        """Return the integrals ∫ g dx from the lower end of the axis to each point.

        g is the polynomial of degree q - 1 through its values in each cell, which is integrated
        exactly.
        """
        whole = product(values, self._weights)
        before = self._module.cumsum(whole) - whole
        return before[:, None] + product(values, self._antiderivative)  # type: ignore[no-any-return]


def product(values: Values, matrix: Values) -> Values:
    """Return the product of values (..., r) with a small matrix (r, s) or vector (r,).

    Or of many matrices with as many others, (..., p, r) and (..., r, s). On a device it is a sum of
    products: CuPy refuses cuBLAS while a graph is captured.
    """
    return values @ matrix if isinstance(values, np.ndarray) else sum_of_products(values, matrix)


def sum_of_products(values: Values, matrix: Values) -> Values:
    """Return the same by elementwise products and a sum, as on a device."""
    found: Any
    if matrix.ndim == 1:
        found = (values * matrix).sum(axis=-1)
    elif matrix.ndim == 2:
        found = (values[..., None] * matrix).sum(axis=-2)
    else:
        found = (values[..., None] * matrix[..., None, :, :]).sum(axis=-2)
    return found  # type: ignore[no-any-return]


def _antiderivative(nodes: Values, weights: Values) -> Values:
    """Return the matrix S with Σ_r g(s_r) S[r, q] = ∫ g ds from -1 to s_q, for polynomials g.

    The values are transformed to the Legendre coefficients (j + ½) Σ_r w_r P_j(s_r) g(s_r), exact
    for degrees below the number of nodes, and the series is integrated.
    """
    count = len(nodes)
    units = np.eye(count)
    coefficients = (
        legval(nodes, units) * weights * (np.arange(count) + 0.5)[:, None]
    )  # (degrees, nodes)
    integrated = legval(nodes, legint(units, lbnd=-1))  # (degrees, nodes)
    return np.asarray(coefficients.T @ integrated, dtype=np.float64)


def _traces(nodes: Values, weights: Values) -> Values:
    """Return the weights (2, q) of values at the nodes in those of the polynomial at -1 and 1.

    The Legendre coefficients are those of `_antiderivative`, and P_j(±1) = (±1)^j.
    """
    degrees = np.arange(len(nodes))
    coefficients = legval(nodes, np.eye(len(nodes))) * weights * (degrees + 0.5)[:, None]
    return np.array([(-1.0) ** degrees, np.ones(len(nodes))]) @ coefficients
