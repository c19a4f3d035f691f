"""Contractions of a state along some of its axes: moments, integrals, slices.

A contraction multiplies the coefficients along an axis by a row of weights: the integrals of the
basis functions times a power of the coordinate, or their values at a point. On a grid that is one
small Kronecker product for each block, so that it is a `batchkron.BatchedKron`: with the identity
along an axis that is kept, and a row of n weights along one that is contracted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array

from batchkron.operators import BatchedKron, on_device

from ...discretization.basis.multiwavelets import (
    hierarchical_values,
    legendre_values,
    to_hierarchical,
)
from ...discretization.basis.quadrature import cell_points, gauss_rule
from ...grids.sparse_grid import SparseGrid
from ...statement.axis import Axis

__all__ = ["MomentComponents", "contraction", "end_weights", "point_weights", "power_weights"]

Weights = NDArray[np.float64]


def power_weights(
    axis: Axis, level: int, degree: int, power: int, mass: Weights | None = None
) -> Weights:
    """Return ∫ x^k ψ dV (cells, n) for all hierarchical functions ψ of an axis, k = ``power``.

    ``mass`` has the mass blocks (cells, n, n) of the volume element; by default dV = 1, and for k ≤
    p they are exactly zero except in cell 0, because multiwavelets are orthogonal to these powers.
    With a volume element ValueError is raised for k > p: the mass blocks do not tell these
    integrals.
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
    """Return the values (cells, n) of all hierarchical functions at a point of an axis."""
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


class MomentComponents:
    """The vectors of coefficients along one axis of which moments of a state are combinations.

    Where all moments need only cells whose indices along the other axes are 0, these vectors are
    entries of the state: reading them is one gather. Otherwise they are the moments.

    Parameters
    ----------
    grid : SparseGrid
        The grid of the state.
    sizes : sequence of int
        Functions per cell of each axis.
    axis : int
        The axis that is kept.
    rows : sequence of mapping of int to ndarray, shape (cells_k, n_k), float64
        For each moment the weights of each other axis k.
    cells : ndarray, shape (2^level,), int64
        The order of the axis's cells in the result.
    device : {"cpu", "cuda"}
        Where the states are.

    Attributes
    ----------
    weights : ndarray, shape (moments, components), float64
        Of each component in each moment.
    """

    def __init__(
        self,
        grid: SparseGrid,
        sizes: Sequence[int],
        axis: int,
        rows: Sequence[Mapping[int, Weights]],
        cells: NDArray[np.int64],
        device: str = "cpu",
    ) -> None:
        self._sizes, self._axis, self._num_cells = tuple(sizes), axis, len(cells)
        self._unknowns = grid.num_cells * math.prod(sizes)
        self._batch: BatchedKron | None = None
        self._present: Weights | None = None
        if all(not weights[1:].any() for row in rows for weights in row.values()):
            self._gather(grid, axis, rows, cells, device)
            return
        order = np.empty_like(cells)
        order[cells] = np.arange(len(cells))
        outputs = order[grid.cells[:, axis]]
        self._batch = contraction(grid, sizes, [axis], rows, outputs, len(cells), device)
        self._contracted = grid, axis, rows, outputs
        self.weights = np.eye(len(rows))

    def _gather(
        self,
        grid: SparseGrid,
        axis: int,
        rows: Sequence[Mapping[int, Weights]],
        cells: NDArray[np.int64],
        device: str,
    ) -> None:
        n, d = self._sizes[axis], grid.dimensions
        one = np.ones(1)
        products = []
        for row in rows:
            product = np.ones(1)
            for k in range(d):
                product = np.kron(product, one if k == axis else row[k][0])
            products.append(product)
        found = np.stack(products)  # (moments, functions of the other axes)
        used = np.flatnonzero(found.any(axis=0))
        self.weights = found[:, used]
        behind = math.prod(self._sizes[axis + 1 :])
        function = (used // behind) * behind * n + used % behind
        corner = np.zeros((len(cells), d), dtype=np.int64)
        corner[:, axis] = cells
        blocks = grid.find(corner)
        starts = np.maximum(blocks, 0)[None, :, None] * math.prod(self._sizes)
        places = starts + np.arange(n) * behind
        self._places = on_device((places + function[:, None, None]).reshape(len(used), -1), device)
        if (blocks < 0).any():
            present = np.repeat((blocks >= 0).astype(np.float64), n)
            self._present = on_device(present, device)

    def __call__(self, u: Weights) -> Weights:
        """Return the components (components, 2^level n) of a state (N,)."""
        if self._batch is not None:
            blocks = self._batch.apply(u.reshape(self._batch.num_inputs, -1))
            return blocks.reshape(len(self.weights), -1)
        found = u.take(self._places)
        return found if self._present is None else found * self._present

    def sparse(self, max_entries: int) -> csr_array | None:
        """Return the components (components · 2^level n) of a state as a sparse matrix, on the CPU.

        None if it has more entries than the given number.
        """
        if self._batch is not None:
            grid, axis, rows, outputs = self._contracted
            if self._batch.num_products * math.prod(self._sizes) // self._sizes[axis] > max_entries:
                return None
            return _sparse_contraction(grid, self._sizes, axis, rows, outputs, self._num_cells)
        columns = self._places.ravel()
        if columns.size > max_entries:
            return None
        values = np.ones(self._places.shape)
        if self._present is not None:
            values = values * self._present
        starts = np.arange(columns.size + 1)
        return csr_array((values.ravel(), columns, starts), (columns.size, self._unknowns))


def contraction(
    grid: SparseGrid,
    sizes: Sequence[int],
    kept: Sequence[int],
    rows: Sequence[Mapping[int, Weights]],
    outputs: NDArray[np.int64],
    num_outputs: int,
    device: str = "cpu",
) -> BatchedKron:
    """Return several contractions of a state as one batch of Kronecker products.

    Each row has, for one of them, the weights (cells_k, n_k) of each axis k that is not kept;
    ``outputs`` has, for each cell of the grid, the number of the block of the result that it
    contributes to. The batch maps blocks (num_cells, Π n_k) to blocks (contractions · num_outputs,
    Π n_k of those kept), one result after another.
    """
    d = grid.dimensions
    pools = [
        np.eye(n)[None] if k in kept else np.concatenate([row[k] for row in rows])[:, None]
        for k, n in enumerate(sizes)
    ]
    inputs, targets, ids = [], [], []
    for number, row in enumerate(rows):
        chosen = _used_cells(grid, row)
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


def _used_cells(grid: SparseGrid, row: Mapping[int, Weights]) -> NDArray[np.int64]:
    """Return the numbers of the cells that have weights in a contraction."""
    used = np.full(grid.num_cells, True)
    for k, weights in row.items():
        used &= (weights != 0.0).any(axis=1)[grid.cells[:, k]]
    return np.flatnonzero(used)


def _sparse_contraction(
    grid: SparseGrid,
    sizes: Sequence[int],
    axis: int,
    rows: Sequence[Mapping[int, Weights]],
    outputs: NDArray[np.int64],
    num_outputs: int,
) -> csr_array:
    """Return the matrix of `contraction` for one axis that is kept."""
    n, functions = sizes[axis], np.arange(math.prod(sizes))
    shape = len(rows) * num_outputs * n, grid.num_cells * len(functions)
    total = csr_array(shape)
    for number, row in enumerate(rows):
        chosen = _used_cells(grid, row)
        values = np.ones((len(chosen), n, 1))
        for k in range(grid.dimensions):
            if k == axis:
                own = np.eye(n)[None, :, None, :]
            else:
                own = row[k][grid.cells[chosen, k]][:, None, None, :]
            values = (values[..., None] * own).reshape(len(chosen), n, sizes[k] * values.shape[2])
        first = (outputs[chosen] + number * num_outputs) * n
        places = np.broadcast_to(first[:, None, None] + np.arange(n)[:, None], values.shape)
        columns = np.broadcast_to(chosen[:, None, None] * len(functions) + functions, values.shape)
        kept = values != 0.0
        found = coo_array((values[kept], (places[kept], columns[kept])), shape)
        total = total + found.tocsr()
    return csr_array(total)
