"""The blocks of all multiplications by fields along one axis, from the fields' values at points."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchkron.arrays import array_module
from batchkron.backends import backend
from batchkron.functions.segmented import SegmentedModeMultiply
from batchkron.operators import on_device

from ...statement.axis import Axis
from ...statement.fields import FieldExpression
from ..basis.quadrature import gauss_rule
from .local_blocks import BlockVector, LocalBlocks, ancestor_sums, matrices_of
from .modes import FieldMode
from .points import CellPoints

__all__ = ["PartBlocks", "heap_sums"]

Values = NDArray[np.float64]


class PartBlocks:
    """The map from values of fields at Gauss points to the hierarchical blocks of their parts.

    Parameters
    ----------
    modes : sequence of FieldMode
        The parts of the fields, along one axis.
    fields : sequence of FieldExpression
        The fields, in the order of their values.
    mass : ndarray, shape (cells, n, n), float64, or None
        Mass blocks of the axis's volume element, None if there is none.
    device : {"cpu", "cuda"}
        Where the values are.

    Notes
    -----
    On the host the blocks of the finest cells are coarsened level by level. On a device all levels
    are one launch, with an edge from each cell to each finest cell in it, and all ancestors another
    one; with a volume element it is done as on the host.
    """

    def __init__(
        self,
        modes: Sequence[FieldMode],
        fields: Sequence[FieldExpression],
        mass: Values | None,
        device: str = "cpu",
    ) -> None:
        first = modes[0]
        axis, level, degree = first.axis, first.level, first.degree
        module = array_module(on_device(np.zeros(0), device))
        numbers = [next(i for i, f in enumerate(fields) if f is mode.field) for mode in modes]
        self._chosen = None if len(fields) == 1 else on_device(np.array(numbers), device)
        parts = np.array([mode.part for mode in modes])
        signs = np.where(parts == 0, 1.0, parts)[:, None, None]
        lowest = np.where(parts == 0, -np.inf, 0.0)[:, None, None]
        self._signs = on_device(signs, device) if (signs != 1.0).any() else None
        self._lowest: Any = None
        if (parts != 0).any():
            self._lowest = on_device(lowest, device) if (parts == 0).any() else 0.0
        self._module, self._points = module, CellPoints(axis, level, degree, module)
        self._volume: Values | None = None
        self._inverse: Values | None = None
        if first.volume is not None and mass is not None:
            self._volume = on_device(first.volume, device)
            self._inverse = on_device(np.asarray(np.linalg.inv(mass)), device)
        symmetric = self._volume is None
        self._sums: list[SegmentedModeMultiply] = []
        if device != "cpu" and symmetric:
            self._sums = [heap_sums(axis, level, degree, len(modes)).to(device)]
            if level:
                self._sums.append(ancestor_sums(level, degree, len(modes)).to(device))
        self._fast: tuple[Values, ...] | None = None
        if device == "cpu" and symmetric:
            coarsen, upward = matrices_of(level, degree)
            self._fast = (
                np.array(numbers, dtype=np.int64),
                np.ascontiguousarray(signs.ravel()),
                np.ascontiguousarray(lowest.ravel()),
                np.ascontiguousarray(self._points.outer),
                coarsen,
                upward,
            )
        self.local = LocalBlocks(
            level,
            degree,
            module,
            parts=len(modes),
            symmetric=symmetric,
            by_block=bool(self._sums),
        )

    def __call__(self, values: Sequence[Values], into: BlockVector) -> None:
        """Write the blocks for values (cells, q) of each field."""
        if self._fast is not None:
            stacked = values[0] if len(values) == 1 else np.stack(values)
            arrays = (np.ascontiguousarray(stacked), *self._fast, into.heap, into.ancestors)
            if backend().fast_field_blocks(arrays):
                return
        given = values[0][None] if len(values) == 1 else self._module.stack(values)
        if self._chosen is not None:
            given = given[self._chosen]
        if self._signs is not None:
            given = given * self._signs
        if self._lowest is not None:
            given = self._module.maximum(given, self._lowest)
        if self._sums:
            source = self._module.ascontiguousarray(given).reshape(-1, self._points.count)
            q = (self._points.degree + 1) ** 2
            self._sums[0].apply(source, out=into.heap.reshape(-1, 4 * q))
            for sums in self._sums[1:]:
                sums.apply(into.heap.reshape(-1, q), out=into.ancestors.reshape(-1, q))
            return
        if self._volume is not None:
            given = given * self._volume
        blocks = self._points.mass_blocks(given)
        if self._inverse is not None:
            blocks = self._inverse @ blocks
        self.local.write(blocks, into)


def heap_sums(axis: Axis, level: int, degree: int, parts: int) -> SegmentedModeMultiply:
    """Return the map from values (parts, finest cells, q) to the heap of `BlockVector`.

    Parameters
    ----------
    axis : Axis
        The axis.
    level, degree : int
        Finest level, and degree of the basis.
    parts : int
        Number of matrices.

    Returns
    -------
    SegmentedModeMultiply
        From blocks (parts · cells, q) to blocks (cells · parts, 4 n²). S is zero but for cell 0.
    """
    n, q, cells = degree + 1, (degree + 1) ** 2, 1 << level
    matrices: list[Values] = []
    firsts = []
    for own in range(level + 1):
        depth = level - max(own - 1, 0)
        small = Axis(axis.name, 0.0, axis.length / (1 << (level - depth)))
        points = CellPoints(small, depth, degree)
        weights = gauss_rule(points.count)[1] * (small.cell_width(depth) / 2)
        made = np.zeros((1 << depth, 4 * q, points.count))
        phi = points.values(np.eye(n << depth)[:n]) * weights
        if own == 0:
            made[:, :q] = _products(phi / weights, phi)
        else:
            psi = points.values(np.eye(n << depth)[n : 2 * n])
            made[:, q : 2 * q] = _products(psi, phi)
            made[:, 2 * q : 3 * q] = _products(psi, psi * weights)
            made[:, 3 * q :] = _products(phi, psi)
        firsts.append(sum(len(known) for known in matrices))
        matrices.append(made)
    ids, children, counts = [], [], []
    for cell in range(cells):
        own = cell.bit_length()
        depth = level - max(own - 1, 0)
        inside = np.arange(1 << depth)
        first = (cell - (1 << (own - 1))) << depth if own else 0
        for part in range(parts):
            ids.append(firsts[own] + inside)
            children.append(part * cells + first + inside)
            counts.append(len(inside))
    return SegmentedModeMultiply(
        np.concatenate(matrices),
        np.concatenate([[0], np.cumsum(counts)]),
        np.concatenate(ids),
        np.concatenate(children),
        before=1,
        behind=1,
        num_inputs=parts * cells,
    )


def _products(rows: Values, columns: Values) -> Values:
    """Return for each cell and point all products of (functions, cells, q), (cells, n², q)."""
    products = rows[:, None] * columns[None]
    return products.reshape(-1, *products.shape[2:]).transpose(1, 0, 2)
