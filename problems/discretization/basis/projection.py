"""Functions of one coordinate on the finest cells: samples, projection, derivative, remainder.

Samples are the values of a function at fixed points of every finest cell, in an array
(2^level, q + 2): the cell's left end, its q Gauss nodes, its right end. Sampled functions are
added, multiplied and differentiated as arrays, and then projected.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ...grids.levels import check_level
from ...statement.axis import Axis
from ...statement.coefficients import Function
from .edge_values import values_beside
from .multiwavelets import check_degree, legendre_derivatives, legendre_values, to_hierarchical
from .quadrature import cell_points, evaluate, gauss_rule

_MIN_NODES = 24  # smallest number of quadrature nodes in a cell
_MIN_AXIS_NODES = 96  # smallest number in a whole axis, for axes of one or two cells


def projection_nodes(level: int, degree: int) -> int:
    """Return the number q of Gauss nodes per finest cell in projections.

    At least 24, more on coarse grids and for high degrees, so that smooth functions are projected
    with rounding errors only.
    """
    cells = 1 << check_level(level)
    return max(_MIN_NODES, 2 * (check_degree(degree) + 1) + 8, -(-_MIN_AXIS_NODES // cells))


def sample_points(axis: Axis, level: int, degree: int) -> NDArray[np.float64]:
    """Return the points (2^level, q + 2) of the samples; q is that of `projection_nodes`."""
    return cell_points(axis, level, _reference_points(projection_nodes(level, degree)))


def sample(
    function: Function, axis: Axis, level: int, degree: int, *, finite: bool = True
) -> NDArray[np.float64]:
    """Return the samples (2^level, q + 2) of a function or number.

    A function is called with a one-dimensional array of all points, ends of the axis included, and
    with one of points beside the edges: where it jumps at an edge, each cell has its limit from
    inside. Values that are not finite are refused if ``finite``.
    """
    points, what = sample_points(axis, level, degree), f"function of {axis.name!r}"
    samples = evaluate(function, points, what, finite=finite)
    edges, at_edges = (np.append(values[:, 0], values[-1, -1]) for values in (points, samples))
    places, before, behind = values_beside(function, axis, edges, at_edges, what)
    is_left, is_right = places < len(points), places > 0
    samples[places[is_left], 0] = behind[is_left]
    samples[places[is_right] - 1, -1] = before[is_right]
    return samples


def node_values(function: Function, axis: Axis, level: int, degree: int) -> NDArray[np.float64]:
    """Return a function's values (2^level, q) at the Gauss nodes, which are inside the cells."""
    nodes, _ = gauss_rule(projection_nodes(level, degree))
    return evaluate(function, cell_points(axis, level, nodes), f"function of {axis.name!r}")


def differentiate(samples: NDArray[np.float64], axis: Axis) -> NDArray[np.float64]:
    """Return samples of the derivative df/dx from those of f, computed in each cell by itself.

    Exact, up to rounding, for polynomials of degree q + 1 on each cell; jumps between cells are not
    differentiated.

    Examples
    --------
    >>> x = Axis("x", -1, 1)
    >>> slope = differentiate(sample(lambda s: s**3, x, 2, 1), x)
    >>> np.allclose(slope, 3 * sample_points(x, 2, 1) ** 2)
    True
    """
    matrix = _differentiation(samples.shape[1] - 2)
    return np.asarray(samples @ matrix.T * (2.0 / axis.cell_width(_level_of(samples))))


def project_samples(samples: NDArray[np.float64], axis: Axis, degree: int) -> NDArray[np.float64]:
    """Return the coefficients ∫ f φ dx for all φ of the hierarchical basis, from samples of f.

    The values at the ends of the cells are not used.
    """
    _level_of(samples)
    return _project_nodes(samples[:, 1:-1], axis, degree)


def project_derivative(
    samples: NDArray[np.float64], axis: Axis, degree: int
) -> NDArray[np.float64]:
    """Return the coefficients ∫ (df/dx) φ dx for all hierarchical φ, from samples of f.

    Integration by parts on every finest cell, [f φ] - ∫ f φ' dx, so that f is not differentiated.

    Examples
    --------
    >>> x = Axis("x", 0, 1)
    >>> slope = project_derivative(sample(np.sin, x, 3, 2), x, 2)
    >>> np.allclose(slope, project(np.cos, x, 3, 2), atol=1e-13)
    True
    """
    level = _level_of(samples)
    width = axis.cell_width(level)
    nodes, weights = gauss_rule(samples.shape[1] - 2)
    ends = legendre_values([-1.0, 1.0], degree, width)
    slopes = legendre_derivatives(nodes, degree, width) * (weights * (width / 2))[:, None]
    inside = samples[:, 1:-1] @ slopes
    nodal = np.outer(samples[:, -1], ends[1]) - np.outer(samples[:, 0], ends[0]) - inside
    return to_hierarchical(nodal.ravel(), level, degree)


def project(function: Function, axis: Axis, level: int, degree: int) -> NDArray[np.float64]:
    """Return the hierarchical coefficients ∫ f φ dx of the projection P f of a function or number.

    It is called once with an array of all Gauss nodes, and never at an end of a cell.

    Examples
    --------
    >>> project(2.0, Axis("x", 0, 4), level=1, degree=0)
    array([4., 0.])
    """
    return _project_nodes(node_values(function, axis, level, degree), axis, degree)


def remainder_gram(
    functions: Sequence[Function],
    axis: Axis,
    level: int,
    degree: int,
    volume: Function | None = None,
) -> NDArray[np.float64]:
    """Return the Gram matrix ∫ (f - Pf)(g - Pg) dV of the projection errors of functions.

    P is orthogonal in the inner product ∫ f g dV; by default dV = 1. The errors are computed at the
    nodes of a Gauss rule, which avoids the cancellation in ‖f‖² - ‖Pf‖².

    Examples
    --------
    >>> gram = remainder_gram([lambda s: s**3], Axis("x", -1, 1), level=0, degree=2)
    >>> np.allclose(gram, 8 / 175)  # the norm of 2/5 P_3
    True
    """
    values = [node_values(function, axis, level, degree) for function in functions]
    if not values:
        return np.zeros((0, 0))
    if volume is None:
        remainders = [_remainder(entry, axis, degree) for entry in values]
    else:
        weights = node_values(volume, axis, level, degree)
        remainders = [_weighted_remainder(entry, weights, axis, degree) for entry in values]
    table = np.stack([remainder.ravel() for remainder in remainders])
    return table @ table.T


def _remainder(values: NDArray[np.float64], axis: Axis, degree: int) -> NDArray[np.float64]:
    """Values of f - Pf at the Gauss nodes, each times the square root of the node's weight."""
    nodes, weights = gauss_rule(values.shape[1])
    width = axis.cell_width(_level_of(values))
    shapes = legendre_values(nodes, degree, width)
    scaled = weights * (width / 2)
    rest = values - (values * scaled) @ shapes @ shapes.T
    # project a second time, to remove what rounding left of Pf
    rest -= (rest * scaled) @ shapes @ shapes.T
    return np.asarray(rest * np.sqrt(scaled))


def _weighted_remainder(
    values: NDArray[np.float64], volume: NDArray[np.float64], axis: Axis, degree: int
) -> NDArray[np.float64]:
    """Values of f - Pf at the Gauss nodes, each times the square root of weight · dV."""
    nodes, weights = gauss_rule(values.shape[1])
    width = axis.cell_width(_level_of(values))
    roots = np.sqrt(weights * (width / 2) * volume)
    Q, _ = np.linalg.qr(roots[:, :, None] * legendre_values(nodes, degree, width))
    rest = (values * roots)[:, :, None]
    for _ in range(2):  # the second time removes what rounding left of Pf
        rest = rest - Q @ (Q.transpose(0, 2, 1) @ rest)
    return np.asarray(rest[:, :, 0])


def _project_nodes(values: NDArray[np.float64], axis: Axis, degree: int) -> NDArray[np.float64]:
    """Hierarchical coefficients from values (2^level, q) at the Gauss nodes."""
    level = _level_of(values)
    nodes, weights = gauss_rule(values.shape[1])
    width = axis.cell_width(level)
    shapes = legendre_values(nodes, check_degree(degree), width) * (weights * (width / 2))[:, None]
    return to_hierarchical((values @ shapes).ravel(), level, degree)


def _level_of(samples: NDArray[np.float64]) -> int:
    cells = int(samples.shape[0]) if samples.ndim == 2 else 0
    if cells < 1 or cells & (cells - 1):
        raise ValueError(f"samples have shape {samples.shape}; expected (2^level, points)")
    return cells.bit_length() - 1


def _reference_points(count: int) -> NDArray[np.float64]:
    return np.concatenate(([-1.0], gauss_rule(count)[0], [1.0]))


@lru_cache(maxsize=64)
def _differentiation(count: int) -> NDArray[np.float64]:
    """Return the differentiation matrix of the q + 2 samples of the reference cell [-1, 1].

    It gives the derivatives, at the sample points, of the polynomial through the samples.

    Barycentric form; each diagonal entry is minus the sum of the others in its row: Berrut and
    Trefethen, *Barycentric Lagrange interpolation*, SIAM Review 46 (2004), section 9.3.
    """
    points = _reference_points(count)
    gaps = points[:, None] - points
    np.fill_diagonal(gaps, 1.0)
    logarithms = -np.log(np.abs(gaps)).sum(axis=1)
    weights = np.exp(logarithms - logarithms.max()) * (1 - 2 * (np.arange(points.size) % 2))
    matrix = weights / weights[:, None] / gaps
    np.fill_diagonal(matrix, 0.0)
    np.fill_diagonal(matrix, -matrix.sum(axis=1))
    matrix.setflags(write=False)
    return np.asarray(matrix)
