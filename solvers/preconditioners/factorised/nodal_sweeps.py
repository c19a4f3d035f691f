"""Between the hierarchical functions of a sparse grid and the nodal ones of all its full grids.

Full grids with the same levels in the last modes have the transforms along these in common: the
sweeps go from the last mode to the first, and each one transforms every distinct fibre once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchkron.functions.segmented import SegmentedModeMultiply
from batchkron.operators.couplings import Ids

from ..wavelets import wavelet_blocks

__all__ = ["NodalSweeps"]

Vector = NDArray[Any]


@dataclass(frozen=True, eq=False)
class _Sweep:
    """Blocks along one mode: block ``inputs[e]`` times ``matrices[ids[e]]`` goes to ``outputs[e]``.

    The matrices are those from nodal to hierarchical functions; forward they are transposed.
    """

    mode: int
    matrices: Vector
    ids: Ids
    inputs: Ids
    outputs: Ids
    num_inputs: int
    num_outputs: int

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
            sweep, numbers = _along(
                mode, numbers, [height[mode] for height in levels], own, sizes, count
            )
            count = sweep.num_outputs
            made.append(sweep)
        made[-1] = _in_order(made[-1], numbers)
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


def _along(
    mode: int,
    numbers: Sequence[Ids],
    levels: Sequence[int],
    filters: Vector | None,
    sizes: tuple[int, ...],
    num_inputs: int,
) -> tuple[_Sweep, list[Ids]]:
    """Return the sweep along a mode, and the numbers of the blocks that it writes for each grid.

    ``numbers`` are those of the blocks that it reads, of each cell of each grid.
    """
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
    sweep = _Sweep(
        mode,
        np.concatenate(matrices),
        np.concatenate(ids),
        np.concatenate(inputs),
        np.concatenate(outputs),
        num_inputs,
        count,
    )
    return sweep, written


def _transform(level: int, filters: Vector | None, width: int, n: int) -> tuple[Ids, Ids, Vector]:
    if filters is not None:
        return wavelet_blocks(level, filters)
    same = np.arange(width)
    return same, same, np.tile(np.eye(n), (width, 1, 1))


def _in_order(sweep: _Sweep, numbers: Sequence[Ids]) -> _Sweep:
    """Return the last sweep with its outputs in the order of grids, each with blocks of its own."""
    wanted = np.concatenate([own.ravel() for own in numbers])
    order = np.argsort(sweep.outputs, kind="stable")
    starts = np.searchsorted(sweep.outputs[order], wanted)
    counts = np.searchsorted(sweep.outputs[order], wanted, side="right") - starts
    places = np.repeat(np.arange(len(wanted)), counts)
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    edges = order[np.repeat(starts, counts) + within]
    return _Sweep(
        sweep.mode,
        sweep.matrices,
        sweep.ids[edges],
        sweep.inputs[edges],
        places,
        sweep.num_inputs,
        len(wanted),
    )
