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
from ..basis.multiwavelets import legendre_values
from ..basis.quadrature import gauss_rule
from .local_blocks import BlockVector, LocalBlocks, ancestor_sums, matrices_of
from .modes import FieldMode
from .points import CellPoints

__all__ = ["PartBlocks", "heap_sums"]

Values = NDArray[np.float64]

# Levels that one launch of a device takes together. A cell has an edge for each finest cell in it,
# and up to 16 groups of threads share the edges of a cell: then each of them has one. With all 8
# levels in one launch a group has 16, one after another.
_MAX_DEPTH = 4


class PartBlocks:
    """The map from values of fields at Gauss points to the hierarchical blocks of their parts.

    ``modes``: the parts of the fields, along one axis.
    ``fields``: the fields, in the order of their values.
    ``mass`` (ndarray, shape (cells, n, n), float64, or None): mass blocks of the axis's volume
      element, None if there is none.
    ``device`` ({"cpu", "cuda"}): where the values are.

    On the host the blocks of the finest cells are coarsened level by level. On a device a few
    levels at a time are one launch, with an edge from each cell to each of the finest cells of
    these levels in it, and all ancestors another one; with a volume element it is done as on the
    host.
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
        self._sums: list[tuple[int, SegmentedModeMultiply]] = []
        self._upward: SegmentedModeMultiply | None = None
        if device != "cpu" and symmetric:
            found = heap_sums(axis, level, degree, len(modes))
            self._sums = [(first, sums.to(device)) for first, sums in found]
            if level:
                self._upward = ancestor_sums(level, degree, len(modes)).to(device)
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
            level, degree, module, parts=len(modes), symmetric=symmetric, by_block=bool(self._sums)
        )

    def plan_arrays(self, rows: Sequence[int]) -> dict[str, Values] | None:
        """Return what a plan of the core takes of the parts, for the given rows of the fields.

        None if there is no such plan: on a device, and with a volume element.
        """
        if self._fast is None:
            return None
        numbers, *rest = self._fast
        names = "signs", "lowest", "outer", "coarsen", "upward"
        own = np.array(rows, dtype=np.int64)[numbers]
        return {"fields": own, **dict(zip(names, rest, strict=True))}

    def __call__(self, values: Sequence[Values], into: BlockVector) -> None:
        """Write the blocks for values (cells, q) of each field."""
        if self._fast is not None:
            stacked = values[0] if len(values) == 1 else np.stack(values)
            arrays = (np.ascontiguousarray(stacked), *self._fast, into.heap, into.ancestors)
            if backend().fast_path("field_blocks")(arrays):
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
            q, end = (self._points.degree + 1) ** 2, len(into.heap)
            for first, sums in self._sums:
                sums.apply(source, out=into.heap[first:end].reshape(-1, 4 * q))
                # the next finest cells are the intervals of the first of these
                source, end = into.heap[first : 2 * first].reshape(-1, q), first
            if self._upward is not None:
                self._upward.apply(into.heap.reshape(-1, q), out=into.ancestors.reshape(-1, q))
            return
        if self._volume is not None:
            given = given * self._volume
        blocks = self._points.mass_blocks(given)
        if self._inverse is not None:
            blocks = self._inverse @ blocks
        self.local.write(blocks, into)


def heap_sums(
    axis: Axis, level: int, degree: int, parts: int
) -> list[tuple[int, SegmentedModeMultiply]]:
    """Return the maps from values (parts, finest cells, q) to the heap of `BlockVector`.

    Each is given with the first of the cells to whose blocks (cells · parts, 4 n²) it maps, up to
    that of the map before. The first map is of blocks (parts · finest cells, q); the others are of
    the blocks (intervals · parts · 4, n²) of the first cells of the map before, of which they use
    the S.
    """
    found: list[tuple[int, SegmentedModeMultiply]] = []
    end = level
    while end > 0 or not found:
        begin = max(0, end - _MAX_DEPTH)
        found.append(_sums_of_levels(axis, (begin, end), degree, parts, is_finest=end == level))
        end = begin
    return found


def _sums_of_levels(
    axis: Axis, levels: tuple[int, int], degree: int, parts: int, *, is_finest: bool
) -> tuple[int, SegmentedModeMultiply]:
    """Return one map of `heap_sums`, from intervals of the second of two levels.

    Its cells are those of the levels after the first, up to the second; if the first is 0, also
    the cell of level 0.
    """
    begin, end = levels
    n, intervals = degree + 1, 1 << end
    first = 0 if begin == 0 else 1 << begin
    matrices: list[Values] = []
    firsts: dict[int, int] = {}
    for own in range(0 if begin == 0 else begin + 1, end + 1):
        firsts[own] = sum(len(known) for known in matrices)
        matrices.append(_matrices_of_cell(axis, own, end, n, is_finest=is_finest))
    ids, children, counts = [], [], []
    for cell in range(first, intervals):
        own = cell.bit_length()
        depth = end - max(own - 1, 0)
        inside = np.arange(1 << depth)
        place = ((cell - (1 << (own - 1))) << depth if own else 0) + inside
        for part in range(parts):
            ids.append(firsts[own] + inside)
            children.append(part * intervals + place if is_finest else (place * parts + part) * 4)
            counts.append(len(inside))
    return first, SegmentedModeMultiply(
        np.concatenate(matrices),
        np.concatenate([[0], np.cumsum(counts)]),
        np.concatenate(ids),
        np.concatenate(children),
        before=1,
        behind=1,
        num_inputs=parts * intervals * (1 if is_finest else 4),
    )


def _matrices_of_cell(axis: Axis, own: int, end: int, n: int, *, is_finest: bool) -> Values:
    """Return what each interval adds to S, C, D and B of a cell, (intervals, 4 n², inputs).

    The cell is one of level ``own``, the intervals are those of level ``end`` in it. The inputs are
    values at Gauss points if these are the finest cells, else the entries of S on the interval.
    """
    q, depth = n * n, end - max(own - 1, 0)
    small = Axis(axis.name, 0.0, axis.length / (1 << (end - depth)))
    points = CellPoints(small, depth, n - 1)
    nodes, weights = gauss_rule(points.count)
    width = small.cell_width(depth)
    functions = points.values(np.eye(n << depth)[: 2 * n if own else n])  # φ, then ψ
    if is_finest:
        measure = weights * (width / 2)
    else:  # the functions in those of an interval
        shapes = legendre_values(nodes, n - 1, width) * (weights * (width / 2))[:, None]
        functions = functions @ shapes
    phi, psi = functions[:n], functions[n:]

    def block(rows: Values, columns: Values) -> Values:
        if is_finest:
            return _products(rows, columns * measure)
        return (
            (rows[:, None, :, :, None] * columns[None, :, :, None, :])
            .transpose(2, 0, 1, 3, 4)
            .reshape(1 << depth, q, q)
        )

    made = np.zeros((1 << depth, 4 * q, points.count if is_finest else q))
    made[:, :q] = block(phi, phi)
    if own:
        made[:, q : 2 * q] = block(psi, phi)
        made[:, 2 * q : 3 * q] = block(psi, psi)
        made[:, 3 * q :] = block(phi, psi)
    return made


def _products(rows: Values, columns: Values) -> Values:
    """Return for each cell and point all products of (functions, cells, q), (cells, n², q)."""
    products = rows[:, None] * columns[None]
    return products.reshape(-1, *products.shape[2:]).transpose(1, 0, 2)
