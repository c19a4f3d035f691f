"""Inverses on many full grids at once by sweeps over all of them, for devices.

A launch on a device takes longer than the work on a small full grid. So the blocks of all grids
follow one another in one vector, and the products along a mode are one segmented mode multiply for
all grids: first with F of each mode, then with V in reverse order. The first one reads the sparse
grid's blocks where they are, the last one adds to them. On d modes these are 2 d + 1 launches.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from copy import copy
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from batchkron.backends import backend_on
from batchkron.functions.segmented import SegmentedModeMultiply
from batchkron.operators import on_device

from .bases import ModeBasis, dtype_of_solves
from .subgrids import Subgrid

__all__ = ["SweptGrids"]

Vector: TypeAlias = NDArray[Any]
_Ids: TypeAlias = NDArray[np.int64]
# Edges of a mode, of all grids. Each stands for a product with an n × n matrix, for which it reads
# two numbers; beyond, dense products in `SharedModes` are faster. Chosen by hand.
_MAX_EDGES = 1 << 19


class SweptGrids:
    """Σ_l c_l P_l V_l D_l⁻¹ F_l P_l* over full grids l, V_l, F_l and D_l as in `DiagonalInverse`.

    ``sizes`` are the basis functions per 1-D cell of each mode; the others are as for
    `SharedModes`. Storage: the matrices of a mode's bases twice, two numbers of 4 bytes for each
    pair of 1-D cells of each fibre of each grid and mode, twice, a number for each unknown of the
    grids, and two vectors of these while it is applied.
    """

    @staticmethod
    def fits(grids: Sequence[Subgrid]) -> bool:
        """Return whether the grids are so small that launches take most of the time."""
        modes = range(len(grids[0].levels) if grids else 0)
        edges = (sum(1 << (sum(g.levels) + g.levels[mode]) for g in grids) for mode in modes)
        return max(edges, default=0) <= _MAX_EDGES

    def __init__(
        self,
        sizes: Sequence[int],
        grids: Sequence[Subgrid],
        bases: Sequence[Sequence[ModeBasis]],
        dtype: Any,
        device: str,
    ) -> None:
        self.bases = bases
        self._sizes, self._grids = tuple(sizes), tuple(grids)
        self._dtype, self._device = np.dtype(dtype), device
        self._workspace = backend_on(device).workspace()
        self._block = math.prod(self._sizes)
        self._cells = [_cells(grid, self._sizes) for grid in grids]
        self._num_cells = 1 + max(int(cells.max(initial=-1)) for cells in self._cells)
        self._starts = np.cumsum([0, *(1 << sum(grid.levels) for grid in grids)])
        self._kind = self._dtype  # of the sweeps
        self._sweeps: list[SegmentedModeMultiply] = []
        self._scale: Any = None

    def with_diagonals(self, diagonals: Sequence[Vector]) -> SweptGrids:
        """Return the inverse for given D_l, one (unknowns,) array per grid, last mode fastest."""
        other = copy(self)
        other._prepare(diagonals)
        return other

    def rescale(self, diagonals: Sequence[Vector]) -> None:
        """Take other D_l in place: graphs on a device that contain products take them, too."""
        if self._scale is None or self._kind_of(diagonals) != self._kind:
            self._prepare(diagonals)
        else:
            self._scale[...] = on_device(self._inverted(diagonals), self._device)

    def add(self, x: Vector, target: Vector) -> None:
        """Add the product with x to ``target``; both are as for `GridInverses.add`."""
        used, total = self._num_cells * self._block, self._scale.size
        kind, is_same = self._scale.dtype, x.dtype == self._scale.dtype == target.dtype
        work = self._workspace.array(2 * total + (0 if is_same else used), kind)
        y, z = (work[k * total : (k + 1) * total].reshape(-1, self._block) for k in range(2))
        source, sink = x[:used], target[:used]
        if not is_same:
            source = work[2 * total :]
            source[...] = x[:used]
        blocks = source.reshape(-1, self._block)
        modes = len(self._sizes)
        for number, sweep in enumerate(self._sweeps[:-1]):
            blocks = sweep.apply(blocks, out=z if blocks is y else y)
            if number == modes - 1:
                np.multiply(blocks, self._scale, out=blocks)
        if is_same:
            self._sweeps[-1].accumulate(blocks, sink.reshape(-1, self._block))
            return
        self._sweeps[-1].apply(blocks, out=source.reshape(-1, self._block))
        sink += source if target.dtype.kind == "c" else source.real

    def _kind_of(self, diagonals: Sequence[Vector]) -> np.dtype[Any]:
        used = [basis.vectors for found in self.bases for basis in found]
        return dtype_of_solves(self._dtype, *diagonals, *used)

    def _prepare(self, diagonals: Sequence[Vector]) -> None:
        kind = self._kind_of(diagonals)
        if not self._sweeps or kind != self._kind:
            self._kind = kind
            self._sweeps = self._made_sweeps(kind)
        self._scale = on_device(self._inverted(diagonals), self._device)

    def _inverted(self, diagonals: Sequence[Vector]) -> Vector:
        """Return c_l / D_l of all grids, in blocks."""
        parts = [
            _in_blocks(grid.coefficient / diagonal, grid.levels, self._sizes)
            for grid, diagonal in zip(self._grids, diagonals, strict=True)
        ]
        return np.concatenate(parts).astype(self._kind)

    def _made_sweeps(self, kind: Any) -> list[SegmentedModeMultiply]:
        """Return the products with F of each mode, and then with V in reverse order."""
        modes = range(len(self._sizes))
        forward = [self._sweep(k, lambda basis: basis.forward, k == 0, False, kind) for k in modes]
        back = [self._sweep(k, lambda basis: basis.vectors, False, k == 0, kind) for k in modes]
        return forward + back[::-1]

    def _sweep(
        self,
        mode: int,
        matrix: Callable[[ModeBasis], Vector],
        reads_cells: bool,
        writes_cells: bool,
        kind: Any,
    ) -> SegmentedModeMultiply:
        """Return the product along a mode with a matrix of each grid's basis.

        It reads and writes the blocks of all grids, or those of the sparse grid's cells.
        """
        n, pool = self._sizes[mode], _Pool(self._sizes[mode], matrix)
        edges = []
        for grid, found, cells, start in zip(
            self._grids, self.bases, self._cells, self._starts, strict=False
        ):
            length = 1 << grid.levels[mode]
            numbers = np.arange(len(cells)).reshape([1 << level for level in grid.levels])
            fibres = np.moveaxis(numbers, mode, -1).reshape(-1, length)
            shape = len(fibres), length, length
            nodes = np.broadcast_to(fibres[:, :, None], shape).ravel()
            children = np.broadcast_to(fibres[:, None, :], shape).ravel()
            pairs = np.arange(length**2).reshape(length, length)
            ids = np.broadcast_to(pool.first(found[mode]) + pairs, shape).ravel()
            children = cells[children] if reads_cells else children + start
            nodes = cells[nodes] if writes_cells else nodes + start
            edges.append(np.stack([nodes, ids, children])[:, (nodes >= 0) & (children >= 0)])
        nodes, ids, children = np.concatenate(edges, axis=1)
        order = np.argsort(nodes, kind="stable")
        blocks = int(self._starts[-1])
        count = self._num_cells if writes_cells else blocks
        return SegmentedModeMultiply(
            np.concatenate(pool.matrices).astype(kind),
            np.concatenate([[0], np.cumsum(np.bincount(nodes, minlength=count))]),
            ids[order],
            children[order],
            before=math.prod(self._sizes[:mode]),
            behind=self._block // (n * math.prod(self._sizes[:mode])),
            num_inputs=self._num_cells if reads_cells else blocks,
        ).to(self._device)


class _Pool:
    """The n × n blocks of the matrices of several bases, each basis once."""

    def __init__(self, n: int, matrix: Callable[[ModeBasis], Vector]) -> None:
        self._n, self._matrix = n, matrix
        self._first: dict[int, int] = {}
        self._count = 0
        self.matrices: list[Vector] = []

    def first(self, basis: ModeBasis) -> int:
        """Return the number of the first block of a basis; blocks follow row by row."""
        key = id(basis)
        if key not in self._first:
            matrix, n = self._matrix(basis), self._n
            cells = len(matrix) // n
            blocks = matrix.reshape(cells, n, cells, n).swapaxes(1, 2).reshape(-1, n, n)
            self._first[key], self._count = self._count, self._count + len(blocks)
            self.matrices.append(blocks)
        return self._first[key]


def _in_blocks(values: Vector, levels: Sequence[int], sizes: Sequence[int]) -> Vector:
    """Return values of a full grid, last mode fastest, as (cells, functions)."""
    shape = [size for level, n in zip(levels, sizes, strict=True) for size in (1 << level, n)]
    modes = len(sizes)
    axes = [*range(0, 2 * modes, 2), *range(1, 2 * modes, 2)]
    return values.reshape(shape).transpose(axes).reshape(-1, math.prod(sizes))


def _cells(grid: Subgrid, sizes: Sequence[int]) -> _Ids:
    """Return the sparse grid's cell of each cell of a full grid, -1 for those it does not have."""
    assert grid.places is not None
    first = _in_blocks(grid.places, grid.levels, sizes)[:, 0]
    absent = -1 if grid.complete else int(grid.places.max())
    return np.where(first == absent, -1, first // math.prod(sizes))
