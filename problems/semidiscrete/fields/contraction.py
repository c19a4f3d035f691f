"""Contractions of a state along some of its axes: moments, integrals, slices.

A contraction multiplies the coefficients along an axis by a row of weights: the integrals of the
basis functions times a power of the coordinate, or their values at a point. On a grid that is one
small Kronecker product for each block, so that it is a `batchkron.BatchedKron`: with the identity
along an axis that is kept, and a row of n weights along one that is contracted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from batchkron.operators import BatchedKron

from ...discretization.multiwavelets import (
    hierarchical_values,
    legendre_values,
    to_hierarchical,
)
from ...discretization.quadrature import cell_points, gauss_rule
from ...grids.sparse_grid import SparseGrid
from ...statement.axis import Axis

__all__ = ["contraction", "end_weights", "point_weights", "power_weights"]

Weights = NDArray[np.float64]


def power_weights(
    axis: Axis, level: int, degree: int, power: int, mass: Weights | None = None
) -> Weights:
    """Return ∫ x^k ψ dV for all hierarchical functions ψ of an axis.

    Parameters
    ----------
    axis : Axis
        The axis.
    level, degree : int
        Finest level and degree p.
    power : int
        k.
    mass : ndarray, shape (cells, n, n), float64, optional
        Mass blocks of the volume element dV; by default dV = 1.

    Returns
    -------
    ndarray, shape (cells, n), float64
        Without a volume element and for k ≤ p exactly zero except in cell 0, because multiwavelets
        are orthogonal to these powers.

    Raises
    ------
    ValueError
        If there is a volume element and k > p: the mass blocks do not tell these integrals.
    """
    cells = 1 << level
    if mass is not None and power > degree:
        raise ValueError(
            f"the moment has the power {power} of {axis.name!r}, which has a volume element; "
            f"expected at most the degree {degree} of the discretization. Discretize with "
            f"degree={power}"
        )
    nodes, weights = gauss_rule(degree + power // 2 + 1)
    if mass is None and power <= degree:
        found = np.zeros((cells, degree + 1))
        points = cell_points(axis, 0, nodes)[0]
        shapes = legendre_values(nodes, degree, axis.length)
        found[0] = (points**power * weights * (axis.length / 2)) @ shapes
        return found
    width = axis.cell_width(level)
    shapes = legendre_values(nodes, degree, width)
    nodal = (cell_points(axis, level, nodes) ** power * (weights * (width / 2))) @ shapes
    if mass is not None:
        nodal = (mass @ nodal[:, :, None])[:, :, 0]
    return to_hierarchical(nodal.ravel(), level, degree).reshape(cells, -1)


def point_weights(axis: Axis, level: int, degree: int, point: float) -> Weights:
    """Return the values of all hierarchical functions of an axis at a point, (cells, n).

    Raises
    ------
    ValueError
        If the point is outside the axis.
    """
    cells, values = hierarchical_values([point], axis, level, degree)
    found = np.zeros((1 << level, degree + 1))
    found[cells[0]] = values[0]
    return found


def end_weights(axis: Axis, level: int, degree: int, power: int) -> Weights:
    """Return x^k ψ at the upper end minus x^k ψ at the lower end, for all ψ of an axis, (cells, n).

    ψ are the hierarchical functions; their values at the ends are those from inside.
    """
    upper, lower = (point_weights(axis, level, degree, at) for at in (axis.upper, axis.lower))
    return axis.upper**power * upper - axis.lower**power * lower


def contraction(
    grid: SparseGrid,
    n: int,
    kept: Sequence[int],
    rows: Sequence[Mapping[int, Weights]],
    outputs: NDArray[np.int64],
    num_outputs: int,
    device: str = "cpu",
) -> BatchedKron:
    """Return several contractions of a state as one batch of Kronecker products.

    Parameters
    ----------
    grid : SparseGrid
        The grid of the state.
    n : int
        Functions per cell and axis.
    kept : sequence of int
        The axes that are kept.
    rows : sequence of mapping of int to ndarray, shape (cells_k, n), float64
        For each contraction the weights of each other axis k.
    outputs : ndarray, shape (num_cells,), int64
        For each cell of the grid the number of the block of the result that it contributes to.
    num_outputs : int
        Number of blocks of one result.
    device : {"cpu", "cuda"}
        Where it is applied.

    Returns
    -------
    BatchedKron
        It maps blocks (num_cells, n^d) to blocks (contractions · num_outputs, n^kept), one result
        after another.
    """
    d = grid.dimensions
    pools = [
        np.eye(n)[None] if k in kept else np.concatenate([row[k] for row in rows])[:, None]
        for k in range(d)
    ]
    inputs, targets, ids = [], [], []
    for number, row in enumerate(rows):
        used = np.full(grid.num_cells, True)
        for k, weights in row.items():
            used &= (weights != 0.0).any(axis=1)[grid.cells[:, k]]
        chosen = np.flatnonzero(used)
        own = np.zeros((len(chosen), d), dtype=np.int64)
        for k, weights in row.items():
            own[:, k] = grid.cells[chosen, k] + number * len(weights)
        inputs.append(chosen)
        targets.append(outputs[chosen] + number * num_outputs)
        ids.append(own)
    batch = BatchedKron(
        pools,
        np.concatenate(ids),
        np.concatenate(inputs),
        np.concatenate(targets),
        num_inputs=grid.num_cells,
        num_outputs=len(rows) * num_outputs,
    ).to(device)
    assert isinstance(batch, BatchedKron)
    return batch
