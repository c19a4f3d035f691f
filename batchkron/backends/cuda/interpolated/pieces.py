"""Windows in pieces: each cell of a window's first modes becomes a point with a shorter window.

A window of N modes has 4^c pieces along its first c ones. In these modes a piece has one cell, so
that they and the next mode are one mode of a smaller grid, where pieces have windows of N - c
modes. Their weights in the first of them include those of the modes that were cut. What pieces gain
has not been measured by itself; with them, the transpose is 2.1 to 4.6 times as fast as a CSR
matrix in four to six modes (H200, docs/results/frameworks.md).
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np

from batchkron.arrays import array_module
from batchkron.backends.cuda.interpolated.kernel import MAX_VECTORS, RESIDENT_THREADS, gather_lanes
from batchkron.backends.cuda.runtime.arguments import struct
from batchkron.backends.cuda.runtime.hardware import DeviceLimits
from batchkron.spec.interpolated import WEIGHTS, Windows, cell_numbers

_MAX_PIECES = 1 << 23  # of all points; chosen by hand
_POINT_COST = 16  # of a piece that is scattered, in visits of a cell; chosen by hand


def in_pieces(windows: Windows, cut: int, *, shared: bool) -> Windows:
    """Return the pieces of windows, whose first ``cut`` modes are cut.

    ``cut``: less than the number of modes; ``shared``: whether the 4^c pieces of a point have its
    place; else piece s has the place s n + p. The result is where
    the given ones are, which are not waited for.
    """
    if cut == 0:
        return windows
    module = array_module(windows.corners)
    count, weights = len(windows.places), windows.weights
    leads, factors = module.zeros((count, 1), np.int64), module.ones((count, 1), weights.dtype)
    for k in range(cut):
        cells = windows.corners[:, k, None] + module.arange(WEIGHTS)
        shape = count, WEIGHTS ** (k + 1)
        leads = (leads[:, :, None] * windows.sizes[k] + cells[:, None]).reshape(shape)
        factors = (factors[:, :, None] * weights[:, k, None]).reshape(shape)
    pieces = WEIGHTS**cut
    corners = module.repeat(windows.corners[:, None, cut:], pieces, axis=1)
    corners[:, :, 0] += leads * windows.sizes[cut]
    values = module.repeat(weights[:, None, cut:], pieces, axis=1)
    values[:, :, 0] *= factors[:, :, None]
    places = module.repeat(windows.places[:, None], pieces, axis=1)
    if not shared:
        places = places + count * module.arange(pieces)
    sizes = math.prod(windows.sizes[: cut + 1]), *windows.sizes[cut + 1 :]
    modes = len(sizes)
    corners = corners.reshape(-1, modes)
    order = module.argsort(cell_numbers(corners, sizes), kind="stable")
    values = values.reshape(-1, modes, WEIGHTS)
    return Windows(sizes, corners[order], values[order], places.reshape(-1)[order])


def gather_cut(modes: int, count: int, device: DeviceLimits) -> int:
    """Return how many modes are cut where values are gathered: as many as threads are missing."""
    wanted = RESIDENT_THREADS * device.multiprocessors
    cut = 0
    while cut < modes - 1 and count * WEIGHTS**cut * gather_lanes(modes - cut, 1) < wanted:
        cut += 1
    return cut


def scatter_cut_modes(sizes: tuple[int, ...], count: int) -> int:
    """Return how many modes are cut for the transpose.

    Each cell visits the 4^(N - c - 1) leads of a piece, whether they have points or not; so a few
    points in many modes are cut to short pieces.
    """
    modes, cells = len(sizes), math.prod(sizes)

    def cost(cut: int) -> int:
        leads, pieces = 1 << 2 * (modes - cut - 1), 1 << 2 * cut
        return cells * leads + _POINT_COST * count * pieces

    allowed = [c for c in range(modes) if c == 0 or count * WEIGHTS**c <= _MAX_PIECES]
    return min(allowed, key=cost)


@cache
def fold_arguments(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the layout of the C++ struct FoldArguments."""
    sizes = f"count pieces point_step vectors[{MAX_VECTORS}] accumulate"
    return struct("*points *partial", sizes, ("alpha", dtype))
