"""Between the hierarchical functions of a sparse grid and the nodal ones of all its full grids.

Full grids with the same levels in the last modes have the transforms along these in common: the
sweeps go from the last mode to the first, and each one transforms every distinct fibre once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchkron.functions.segmented import SegmentedModeMultiply
from batchkron.operators.couplings import Ids

from ..wavelets import wavelet_blocks

__all__ = ["NodalSweeps"]

Vector = NDArray[Any]


class _Sweep:
    """Blocks along one mode: block ``inputs[e]`` times ``matrices[ids[e]]`` goes to ``outputs[e]``.

    The matrices are those from nodal to hierarchical functions; forward they are transposed.

    ``numbers``: those of the blocks that it reads, of each cell of each grid.
    ``written``: the numbers of the blocks that it writes for each grid.
    """

    def __init__(
        self,
        mode: int,
        numbers: Sequence[Ids],
        levels: Sequence[int],
        filters: Vector | None,
        sizes: tuple[int, ...],
        num_inputs: int,
    ) -> None:
        ids, inputs, outputs, matrices = [], [], [], []
        written: list[Ids] = [np.zeros(0, np.int64)] * len(numbers)
        count, first = 0, 0
        for level in sorted(set(levels)):
            some = [grid for grid, own in enumerate(levels) if own == level]
            moved = [np.moveaxis(numbers[grid], mode, -1) for grid in some]
            fibres = np.concatenate([own.reshape(-1, own.shape[-1]) for own in moved])
            # nested: fibres of one level that begin with the same block are the same
            _, where, which = np.unique(fibres[:, 0], return_index=True, return_inverse=True)
            width = fibres.shape[1]
            starts = count + width * np.arange(len(where))
            rows, columns, blocks = _transform(level, filters, width, sizes[mode])
            inputs.append(fibres[where][:, rows].ravel())
            outputs.append((starts[:, None] + columns).ravel())
            ids.append(np.tile(first + np.arange(len(rows)), len(where)))
            matrices.append(blocks)
            count, first = count + width * len(where), first + len(rows)
            stops = np.cumsum([own.size // width for own in moved])[:-1]
            for grid, own, found in zip(some, moved, np.split(which, stops), strict=True):
                placed = starts[found][:, None] + np.arange(width)
                written[grid] = np.moveaxis(placed.reshape(own.shape), -1, mode)
        self.mode, self.num_inputs, self.num_outputs = mode, num_inputs, count
        self.matrices, self.ids = np.concatenate(matrices), np.concatenate(ids)
        self.inputs, self.outputs = np.concatenate(inputs), np.concatenate(outputs)
        self.written = written

    def give_each_grid_its_own(self) -> None:
        """Write the outputs in the order of grids, each with blocks of its own."""
        wanted = np.concatenate([own.ravel() for own in self.written])
        order = np.argsort(self.outputs, kind="stable")
        starts = np.searchsorted(self.outputs[order], wanted)
        counts = np.searchsorted(self.outputs[order], wanted, side="right") - starts
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        edges = order[np.repeat(starts, counts) + within]
        self.ids, self.inputs = self.ids[edges], self.inputs[edges]
        self.outputs = np.repeat(np.arange(len(wanted)), counts)
        self.num_outputs = len(wanted)

    def multiply(self, sizes: Sequence[int], dtype: Any, *, back: bool) -> SegmentedModeMultiply:
        """Return the transform to nodal functions, or the one back."""
        nodes, children = (self.inputs, self.outputs) if back else (self.outputs, self.inputs)
        count, others = self.num_outputs, self.num_inputs
        if back:
            count, others = others, count
        order = np.argsort(nodes, kind="stable")
        matrices = self.matrices if back else self.matrices.swapaxes(1, 2)
        return SegmentedModeMultiply(
            np.ascontiguousarray(matrices, dtype),
            np.concatenate([[0], np.cumsum(np.bincount(nodes, minlength=count))]),
            self.ids[order],
            children[order],
            before=math.prod(sizes[: self.mode]),
            behind=math.prod(sizes[self.mode + 1 :]),
            num_inputs=others,
        )


class NodalSweeps:
    """The nodal coefficients of full grids from the hierarchical ones of a sparse grid, and back.

    ``cells`` (sequence of ndarray of int64): for each full grid the sparse grid's cell of each of
      its cells, an axis for each mode.
    ``levels`` (sequence of tuples of int): of each full grid.
    ``sizes``: functions of a 1-D cell, for each mode.
    ``filters`` (sequence of (ndarray (4, n, n) or None)): the two-scale filters of each mode; None
      leaves it as it is.
    ``num_cells``: cells of the sparse grid.
    ``dtype``: of the vectors.
    """

    def __init__(
        self,
        cells: Sequence[Ids],
        levels: Sequence[tuple[int, ...]],
        sizes: tuple[int, ...],
        filters: Sequence[Vector | None],
        num_cells: int,
        dtype: Any,
    ) -> None:
        made, numbers, count = [], list(cells), num_cells
        for mode in range(len(sizes) - 1, -1, -1):
            own = filters[mode]
            if own is None and mode:
                continue
            heights = [height[mode] for height in levels]
            sweep = _Sweep(mode, numbers, heights, own, sizes, count)
            numbers, count = sweep.written, sweep.num_outputs
            made.append(sweep)
        made[-1].give_each_grid_its_own()
        multiply = partial(_Sweep.multiply, sizes=sizes, dtype=dtype)
        self._forward = [multiply(sweep, back=False) for sweep in made]
        self._back = [multiply(sweep, back=True) for sweep in reversed(made)]

    def to_nodal(self, x: Vector) -> Vector:
        """Return the nodal coefficients of all grids one after another, (Σ n_l,), of x, (N,)."""
        blocks = x.reshape(self._forward[0].input_shape)
        for sweep in self._forward:
            blocks = sweep.apply(blocks)
        return blocks.reshape(-1)

    def add_hierarchical(self, y: Vector, target: Vector) -> None:
        """Add the sum over all grids of the hierarchical coefficients of y to ``target``, (N,)."""
        blocks = y.reshape(self._back[0].input_shape)
        for sweep in self._back[:-1]:
            blocks = sweep.apply(blocks)
        last = self._back[-1]
        last.accumulate(blocks, target.reshape(last.output_shape))


def _transform(level: int, filters: Vector | None, width: int, n: int) -> tuple[Ids, Ids, Vector]:
    if filters is not None:
        return wavelet_blocks(level, filters)
    same = np.arange(width)
    return same, same, np.tile(np.eye(n), (width, 1, 1))
