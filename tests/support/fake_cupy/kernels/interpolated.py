"""Interpolation and its transpose: point by point, by segments of points, in pieces."""

import math

import numpy as np

from batchkron.backends.cuda.interpolated.kernel import interpolation_arguments
from batchkron.backends.cuda.interpolated.pieces import fold_arguments
from fake_cupy.memory import at


def fold_pieces(kernel, address):
    """Add the pieces of points."""
    (vectors,) = kernel.numbers
    given = at(address, (), fold_arguments(kernel.dtype))
    pieces, count, step = (int(given[name]) for name in ("pieces", "count", "point_step"))
    partial = at(given["partial"], (pieces, count, vectors), kernel.dtype)
    starts = given["vectors"][:vectors]
    points = at(given["points"], (count * step + int(starts.max()),), kernel.dtype)
    where = np.arange(count)[:, None] * step + starts
    sums = given["alpha"] * partial.sum(axis=0)
    points[where] = points[where] + sums if given["accumulate"] else sums


def interpolate(kernel, address):
    """What the kernels of interpolation do."""
    modes, vectors, *_ = kernel.numbers
    given = at(address, (), interpolation_arguments(kernel.dtype, modes))
    if kernel.kind in ("segments", "cells"):
        interpolate_by_segments(kernel.kind, given, kernel.dtype, modes, vectors)
        return
    count, step = int(given["count"]), int(given["cell_step"])
    weights = at(given["weights"], (count, modes, 4), kernel.dtype)
    cells = at(given["corners"], (count, 1), np.int64) * step
    entries = np.ones((count, 1), kernel.dtype)
    for k, apart in enumerate(given["steps"]):
        cells = (cells[:, :, None] + np.arange(4) * apart).reshape(count, 4 ** (k + 1))
        entries = (entries[:, :, None] * weights[:, k, None]).reshape(count, 4 ** (k + 1))
    places = at(given["places"], (count,), np.int32).astype(np.int64)
    all_cells = np.arange(math.prod(given["sizes"].tolist())) * step
    far = count * int(given["point_step"]) + int(given["vectors"].max())
    points = at(given["points"], (far,), kernel.dtype)
    grid = at(given["grid"], (all_cells.max() + vectors,), kernel.dtype)
    for r in range(vectors):
        where = places * given["point_step"] + given["vectors"][r]
        if kernel.kind == "gather":
            sums = given["alpha"] * (grid[cells + r] * entries).sum(axis=1)
            points[where] = points[where] + sums if given["accumulate"] else sums
            continue
        grid[all_cells + r] = 0
        np.add.at(grid, cells + r, entries * points[where][:, None])


def interpolate_by_segments(kind, given, dtype, modes, vectors):
    """Sum over the points of segments, or over the segments that meet a cell."""
    leads, segment_count = 4 ** (modes - 1), int(given["segment_count"])
    segments = at(given["segments"], (segment_count + 1, 4), np.int32).tolist()
    spans = sum(segment[1] for segment in segments)
    partial = at(given["partial"], (spans * leads * vectors,), dtype)
    blocks = [
        partial[base * leads * vectors :][: leads * span * vectors].reshape(leads, span, vectors)
        for base, span, _, _ in segments
    ]
    sizes = given["sizes"].tolist()
    if kind == "cells":
        rows = [size - 3 for size in sizes[:-1]]
        covers = at(given["covers"], (*rows, sizes[-1], 2), np.int32)
        far = (math.prod(sizes) - 1) * int(given["cell_step"]) + vectors
        grid = at(given["grid"], (far,), dtype)
        for cell, index in enumerate(np.ndindex(*sizes)):
            total = np.zeros(vectors, dtype)
            for lead, digits in enumerate(np.ndindex(*(4,) * (modes - 1))):
                row = [i - digit for i, digit in zip(index, digits, strict=False)]
                if all(0 <= r < n for r, n in zip(row, rows, strict=True)):
                    for s in range(*covers[(*row, index[-1])].tolist()):
                        total += blocks[s][lead, index[-1] - segments[s][2]]
            begin = cell * int(given["cell_step"])
            grid[begin : begin + vectors] = total
        return
    count, step = int(given["count"]), int(given["point_step"])
    weights = at(given["weights"], (count, modes, 4), dtype)
    entries = at(given["entries"], (count, 2), np.int32).tolist()
    apart = given["vectors"][:vectors]
    points = at(given["points"], (count * step + int(apart.max()),), dtype)
    for s, (block, (_, _, first, begin)) in enumerate(zip(blocks, segments, strict=True)):
        block[...] = 0
        for p in range(begin, segments[s + 1][3] if s < segment_count else begin):
            place, column = entries[p]
            window = np.ones(1, dtype)
            for k in range(modes - 1):
                window = np.kron(window, weights[p, k])
            values = points[place * step + apart]
            block[:, column - first :][:, :4] += (
                window[:, None, None] * weights[p, -1][:, None] * values
            )
