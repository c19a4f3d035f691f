"""Draws the picture of docs/guides/adapt-the-grid.md: `python docs/pictures/draw_adapted_grid.py`.

It needs an installed batchkron, and runs the example of that page for some seconds.
"""

import sys
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path

import numpy as np

from batchkron.problems import PDE, Axis, Problem, Separable, SparseGrid, div
from batchkron.solvers import Adapt, EvolveState, evolve

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from draw import BLUE, EDGE, GREY, INK, box, picture, text  # noqa: E402

RASTER = 32  # squares of a picture of a grid along each axis
SIDE = 8  # pixels of a square
SHADES = ("#f4f4f4", "#dfe8f4", "#bcd0ea", "#8fb2dd", "#5c8cc6", "#35609c", "#1f3c66")
COARSEST = 4  # largest sum of levels that has the lightest shade
UNTIL = 1.0


def pulse(s: np.ndarray) -> np.ndarray:
    """Return a narrow periodic pulse."""
    return np.exp(-40 * (1 - np.cos(np.pi * s)))


def run() -> tuple[dict[float, SparseGrid], list[tuple[float, int]], int]:
    """Return the grids at the beginning and the end, the unknowns, and those of all cells."""
    x, y = Axis("x", -1, 1), Axis("y", -1, 1)
    terms = [div(x, -1), div(y, -0.5)]
    start = Separable(x=pulse, y=pulse)
    pde = PDE([x, y], terms, boundary="periodic", initial=start)
    seen: list[tuple[float, Problem]] = []

    def look(state: EvolveState) -> None:
        while seen and seen[-1][0] >= state.t:  # steps that are repeated
            seen.pop()
        seen.append((state.t, state.problem))

    rule = Adapt(1e-3, every=10, max_level=6)
    evolve(pde.discretize(3, 2), until=UNTIL, method="rk4", dt=0.002, adapt=rule, callback=look)
    grids = {0.0: seen[0][1].grid, UNTIL: seen[-1][1].grid}
    counts = [(t, problem.unknowns) for t, problem in seen]
    return grids, counts, pde.discretize(6, 2, "full").unknowns


def finest(grid: SparseGrid) -> np.ndarray:
    """Return the largest sum of levels of the cells over each square (x, y) of the raster."""
    found = np.zeros((RASTER, RASTER), dtype=int)
    for cell, levels in zip(grid.cells.tolist(), grid.cell_levels.tolist(), strict=True):
        ranges = []
        for index, level in zip(cell, levels, strict=True):
            count = 1 << max(level - 1, 0)
            first = index - count if level else 0
            ranges.append(slice(first * RASTER // count, -(-(first + 1) * RASTER // count)))
        part = found[tuple(ranges)]
        np.maximum(part, sum(levels), out=part)
    return found


def shade_of(levels: int) -> int:
    """Return the number of the shade for a sum of levels."""
    return min(max(levels - COARSEST, 0), len(SHADES) - 1)


def map_of(grid: SparseGrid, left: float, words: str) -> Iterator[str]:
    """Draw a grid: the darker a square, the finer the cells over it."""
    yield text(left + RASTER * SIDE / 2, EDGE - 16, words)
    strips: dict[int, str] = {}  # the squares of each shade, as parts of a path
    for row, levels in enumerate(finest(grid).T[::-1]):
        begin = 0
        for shade, same in groupby(map(shade_of, levels.tolist())):
            length = len(list(same))
            strip = f"M{begin} {row}h{length}v1h-{length}z"
            strips[shade] = strips.get(shade, "") + strip
            begin += length
    yield f'<g transform="translate({left:g} {EDGE}) scale({SIDE})" shape-rendering="crispEdges">'
    yield from (f'<path d="{path}" fill="{SHADES[shade]}"/>' for shade, path in strips.items())
    yield "</g>"
    size = RASTER * SIDE
    yield box(left, EDGE, size, size, "none", GREY)
    yield text(left + size / 2, EDGE + size + 20, "x")
    yield text(left - 12, EDGE + size / 2, "y")


def curve(counts: list[tuple[float, int]], most: int, left: float) -> Iterable[str]:
    """Draw the number of unknowns against time."""
    width, height = 280, RASTER * SIDE
    top = 1000 * -(-max(n for _, n in counts) // 1000)

    def place(t: float, n: float) -> str:
        return f"{left + width * t / UNTIL:.1f},{EDGE + height * (1 - n / top):.1f}"

    steps, last = [], 0
    for t, n in counts:
        if n != last:
            steps += [place(t, last or n), place(t, n)]
            last = n
    steps.append(place(UNTIL, last))
    yield text(left + width / 2, EDGE - 16, f"unknowns; all cells of level 6: {most:,}")
    yield f'<polyline points="{" ".join(steps)}" fill="none" stroke="{BLUE}" stroke-width="2"/>'
    yield box(left, EDGE, width, height, "none", GREY)
    for n in range(0, top + 1, 1000):
        y = EDGE + height * (1 - n / top)
        yield f'<line x1="{left - 5:g}" y1="{y:g}" x2="{left:g}" y2="{y:g}" stroke="{INK}"/>'
        yield text(left - 8, y + 4, f"{n:,}", text_anchor="end")
    for t in (0.0, 0.5, 1.0):
        yield text(left + width * t / UNTIL, EDGE + height + 20, f"{t:g}")
    yield text(left + width * 0.75, EDGE + height + 20, "time")


def main() -> None:
    """Write the picture beside this file."""
    grids, counts, most = run()
    first, last = grids.values()
    parts = [
        *map_of(first, 40, "cells at t = 0"),
        *map_of(last, 340, f"cells at t = {UNTIL:g}"),
        *curve(counts, most, 670),
    ]
    drawn = picture("A grid that follows a pulse, and its unknowns in time", 980, 356, parts)
    (HERE / "adapted-grid.svg").write_text(drawn)


if __name__ == "__main__":
    main()
