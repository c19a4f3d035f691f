"""Terms at the ends of an axis: sources of boundary data, and boundary penalties.

φ is the vector of a cell's nodal basis functions at the end of the axis. Matrices and vectors are
in the nodal basis of the finest cells, as in `dg_matrices`.
"""

from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ...grids.levels import check_level
from ...statement.axis import Axis
from ...statement.coefficients import Function
from ..basis.edge_values import end_value
from ..basis.multiwavelets import check_degree, legendre_values
from ..basis.quadrature import evaluate
from .dg_matrices import NodalMatrix, block_diagonal

__all__ = [
    "SIDES",
    "Side",
    "boundary_penalty_matrix",
    "coefficient_at_end",
    "edge_data",
    "penalty_data",
    "value_at_end",
]

Side: TypeAlias = Literal["left", "right"]
SIDES: tuple[Side, Side] = ("left", "right")


def boundary_penalty_matrix(
    axis: Axis,
    level: int,
    degree: int,
    coefficient: Function = 1.0,
    *,
    sides: tuple[Side, ...] = ("left", "right"),
    tau: float = 1.0,
) -> NodalMatrix:
    """Return the matrix -(τ/h) g φ φ^T at ends of the axis, which ties f to its Dirichlet datum.

    g is the coefficient of the second-order operator, h the width of a finest cell, τ a number.
    There is one block per side. With it a chain div @ grad with Dirichlet data is not singular.
    """
    n = check_degree(degree) + 1
    cells = 1 << check_level(level)
    blocks = np.zeros((cells, n, n))
    for side in sides:
        cell, trace = _trace(axis, level, degree, side)
        strength = tau / axis.cell_width(level) * coefficient_at_end(axis, coefficient, side)
        blocks[cell] -= strength * np.outer(trace, trace)
    return block_diagonal(blocks)


def penalty_data(
    axis: Axis,
    level: int,
    degree: int,
    side: Side,
    coefficient: Function = 1.0,
    *,
    tau: float = 1.0,
) -> NDArray[np.float64]:
    """Return the vector +(τ/h) g φ at an end of the axis: the source of `boundary_penalty_matrix`.

    It belongs to a Dirichlet datum of 1 at this end; its coefficients are nodal.
    """
    cell, trace = _trace(axis, level, degree, side)
    vector = np.zeros((1 << level, degree + 1))
    strength = tau / axis.cell_width(level) * coefficient_at_end(axis, coefficient, side)
    vector[cell] = strength * trace
    return vector.ravel()


def edge_data(
    axis: Axis, level: int, degree: int, side: Side, coefficient: Function = 1.0
) -> NDArray[np.float64]:
    """Return the vector -g φ at the left end or +g φ at the right one: the source of a datum of 1.

    g is the coefficient of the first-order operator, and the coefficients are nodal. For a datum
    u_b at a "dirichlet" end, u_b times this vector is added to `div_matrix` or `grad_matrix` times
    f; in a chain it is first multiplied by the matrices to the left of that matrix.

    Examples
    --------
    >>> edge_data(Axis("x", 0, 1), 1, 0, "right")
    array([0.        , 1.41421356])
    """
    cell, trace = _trace(axis, level, degree, side)
    vector = np.zeros((1 << level, degree + 1))
    sign = -1.0 if side == "left" else 1.0
    vector[cell] = sign * coefficient_at_end(axis, coefficient, side) * trace
    return vector.ravel()


def value_at_end(axis: Axis, function: Function, side: Side) -> float:
    """Return the value of a function, such as boundary data, exactly at an end of the axis."""
    return float(evaluate(function, np.array([_end(axis, side)]), f"function of {axis.name!r}")[0])


def coefficient_at_end(axis: Axis, coefficient: Function, side: Side) -> float:
    """Return a coefficient's value at an end of the axis, the limit from inside if it jumps."""
    return end_value(coefficient, axis, _end(axis, side), f"coefficient of {axis.name!r}")


def _end(axis: Axis, side: Side) -> float:
    return axis.lower if side == "left" else axis.upper


def _trace(axis: Axis, level: int, degree: int, side: Side) -> tuple[int, NDArray[np.float64]]:
    """Index of the finest cell at an end of the axis, and its basis functions' values φ there."""
    if side not in ("left", "right"):
        raise ValueError(f"side is {side!r}; expected 'left' or 'right'")
    cell = 0 if side == "left" else (1 << check_level(level)) - 1
    end = -1.0 if side == "left" else 1.0
    return cell, legendre_values(end, check_degree(degree), axis.cell_width(level))
