"""Draws structure.svg, the folders and who imports whom: `python docs/pictures/draw_structure.py`.

With an argument it writes there. The outermost folders come first, then those whose folders have an
order, each by itself, so that texts are as large as those of the page. Rows are layers: nothing
imports from a row above. An arrow stands for the imports of all files of one folder from another;
arrows that follow from two others are left out.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / ".ci"), str(Path(__file__).parent)]

from draw import DARK  # noqa: E402
from imports import csrc_includes, python_imports, python_modules, siblings  # noqa: E402

LETTER, HEIGHT = 7.5, 26  # pixels: a letter's mean width, a box without others in it
WIDTH = 830  # pixels of the picture, unless a row is wider
INNER = ("problems", "solvers", "distributed", "backends.cuda")  # drawn by themselves
TITLE, MARGIN, GAP, BETWEEN = 22, 10, 12, 24  # pixels; BETWEEN the rows of a box
LANE = 10  # pixels for an arrow that passes a row
SWEEPS = 8  # passes that put boxes near those that they are joined with
FILLS = {"a": "#ffffff", "b": "#eef2f8", "c": "#dbe5f2", "d": "#c8d7ec"}  # classes, by depth
NOTE = (
    "backends/cpu calls csrc/bindings; backends/cuda compiles csrc/cuda and csrc/krylov at run time"
)
Edge = tuple[str, str]
Point = tuple[float, float]


@dataclass
class Box:
    """A folder, its place in pixels from its parent's corner, and the rows of folders in it."""

    name: str
    width: float = 0.0
    height: float = HEIGHT
    x: float = 0.0
    y: float = 0.0
    rows: list[list[Box]] = field(default_factory=list)
    paths: list[list[Point]] = field(default_factory=list)

    @property
    def centre(self) -> float:
        """Where arrows end."""
        return self.x + self.width / 2


def reachable(start: str, edges: Iterable[Edge]) -> set[str]:
    """Return what edges lead to."""
    found: set[str] = set()
    new = {start}
    while new:
        new = {b for a, b in edges if a in new} - found
        found |= new
    return found


def reduced(edges: set[Edge]) -> set[Edge]:
    """Return the edges that do not follow from others: their transitive reduction."""
    return {(a, b) for a, b in edges if b not in reachable(a, edges - {(a, b)})}


def layers(names: Iterable[str], edges: set[Edge]) -> dict[str, int]:
    """Return each name's layer, above all that it imports.

    It is the lowest one, or the highest for what more import than it imports: arrows are short.
    """
    found: dict[str, int] = {}

    def layer(name: str) -> int:
        if name not in found:
            found[name] = 0  # where there is a circle, it is cut here
            found[name] = max((layer(b) + 1 for a, b in sorted(edges) if a == name), default=0)
        return found[name]

    for name in sorted(names):
        layer(name)
    for name in sorted(found, key=lambda name: -found[name]):
        above = [found[a] - 1 for a, b in edges if b == name]
        if len(above) > sum(a == name for a, _ in edges):
            found[name] = max(found[name], min(above))
    return found


def arranged(box: Box, inner: list[Box], edges: set[Edge]) -> None:
    """Put boxes into rows in a box, and arrows between them, which pass rows in lanes."""
    level = layers([b.name for b in inner], edges)
    edges = {(a, b) for a, b in edges if level[a] > level[b]}  # all, unless there is a circle
    rows: list[list[Box]] = [[] for _ in range(max(level.values()) + 1)]
    for other in sorted(inner, key=lambda b: b.name):
        rows[level[other.name]].append(other)
    chains = []
    for a, b in sorted(edges):
        ends = {other.name: other for other in inner}
        lanes = [Box("", LANE) for _ in range(level[b] + 1, level[a])]
        for height, lane in enumerate(lanes, level[b] + 1):
            rows[height].append(lane)
        chains.append([ends[b], *lanes, ends[a]])
    rows.reverse()
    _order(rows, chains)
    _place(box, rows)
    for chain in chains:
        lanes = chain[1:-1]
        if all(any(row[-1] is lane for row in rows) for lane in lanes):  # straight past all rows
            for lane in lanes:
                lane.x = max(other.x for other in lanes)
        path: list[Point] = []
        for here in reversed(chain):
            row = next(row for row in rows if any(b is here for b in row))
            tall = max(b.height for b in row)
            path += [(here.centre, here.y), (here.centre, here.y + tall)]
        path[0] = (chain[-1].centre, chain[-1].y + chain[-1].height)
        box.paths.append(path[:-1])
    box.rows = [[b for b in row if b.name] for row in rows]


def _order(rows: list[list[Box]], chains: list[list[Box]]) -> None:
    """Sort each row so that boxes are near those that they are joined with."""
    near: dict[int, list[Box]] = {}
    for chain in chains:
        for a, b in pairwise(chain):
            near.setdefault(id(a), []).append(b)
            near.setdefault(id(b), []).append(a)

    def wanted(box: Box) -> float:
        others = near.get(id(box), [box])
        return sum(other.centre for other in others) / len(others)

    for sweep in range(SWEEPS):
        for row in rows if sweep % 2 else reversed(rows):
            for other in rows:
                _spread(other)
            row.sort(key=wanted)


def _spread(row: list[Box]) -> float:
    """Put the boxes of a row side by side around 0; return their width."""
    width = sum(b.width for b in row) + GAP * (len(row) - 1)
    x = -width / 2
    for b in row:
        b.x = x
        x += b.width + GAP
    return width


def _place(box: Box, rows: list[list[Box]]) -> None:
    """Set the places of the boxes of all rows, and the size of the box around them."""
    widths = [_spread(row) for row in rows]
    box.width = max(box.width, max(widths) + 2 * MARGIN)
    y = TITLE + 4.0
    for row in rows:
        tall = max(b.height for b in row)
        for b in row:
            b.x += box.width / 2
            b.y = y
        y += tall + BETWEEN
    box.height = y - BETWEEN + MARGIN


def box_of(
    folder: str, imports: dict[str, set[str]], beside: Iterable[str] = (), depth: int = 0
) -> Box:
    """Return a folder's box with those in it to a depth, and of the files ``beside`` them."""
    name = folder.rpartition(".")[2]
    box = Box(name, LETTER * len(name) + 2 * MARGIN)
    below = [m[len(folder) + 1 :] for m in imports if m.startswith(f"{folder}.")]
    names = {m.partition(".")[0] for m in below if "." in m} | set(below).intersection(beside)
    if names and depth:
        edges = {e for e in siblings(folder, imports) if names.issuperset(e)}
        inner = [box_of(f"{folder}.{name}", imports, (), depth - 1) for name in sorted(names)]
        arranged(box, inner, reduced(edges))
    return box


def drawn(box: Box, x: float, y: float, depth: int = 0) -> Iterable[str]:
    """Yield a box, the arrows in it and the boxes in it, its parent's corner being at (x, y)."""
    x, y = x + box.x, y + box.y
    size = f'width="{box.width:.0f}" height="{box.height:.0f}"'
    yield f'<rect x="{x:.0f}" y="{y:.0f}" {size} class="{[*FILLS][min(depth, len(FILLS) - 1)]}"/>'
    weight = ' class="t"' if box.rows else ""
    yield f'<text x="{x + box.width / 2:.0f}" y="{y + 17:.0f}"{weight}>{box.name}</text>'
    for path in box.paths:
        (a, b), *rest = [(round(x + a), round(y + b)) for a, b in path]
        d, level = f"M{a} {b}", b  # level: how far down the path is drawn
        for k, (c, e) in enumerate(rest):
            if k % 2 and c != a:  # between two rows
                d += f"V{b}" if level < b else ""
                middle = (e - b) // 2
                d += f"c0 {middle} {c - a} {middle} {c - a} {e - b}"
                level = e
            a, b = c, e  # else straight down: through a row, or below a box smaller than others
        d += f"V{b}" if level < b else ""
        yield f'<path d="{d}"/>'
    for row in box.rows:
        for inner in row:
            yield from drawn(inner, x, y, depth + 1)


def structure(root: Path = ROOT) -> str:
    """Return the picture of a tree."""
    imports = python_imports(python_modules(root))
    whole = box_of("batchkron", imports, {"arrays", "errors"}, depth=1)
    inside = {name: box_of(f"batchkron.{name}", imports, depth=2) for name in INNER}
    rows = [
        [whole, box_of("csrc", csrc_includes(root), depth=1)],
        [inside["problems"], inside["solvers"]],
        [inside["distributed"]],
        [inside["backends.cuda"]],
    ]
    notes = [NOTE, "and what is inside of some folders:", "", ""]
    width = max(WIDTH, *(_spread(row) + 2 * MARGIN for row in rows))
    height, parts = 0.0, []
    for row, note in zip(rows, notes, strict=True):
        height += 2 * BETWEEN if note else BETWEEN
        if note:
            parts.append(f'<text x="{width / 2:.0f}" y="{height - 14:.0f}">{note}</text>')
        for box in row:
            parts += drawn(box, width / 2, height)
        height += max(box.height for box in row)
    height += MARGIN
    style = (
        f"{DARK} rect{{stroke:#222;rx:4px}} text{{text-anchor:middle;fill:#222}} "
        f"{' '.join(f'.{name}{{fill:{fill}}}' for name, fill in FILLS.items())} "
        ".t{font-weight:bold} path{fill:none;stroke:#3b6fb6;stroke-width:1.5;marker-end:url(#h)}"
    )
    lines = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}" font-family="sans-serif" font-size="13">\n'
        f"<title>The folders of batchkron, and which import from which</title>\n"
        f"<style>{style}</style>\n"
        '<defs><marker id="h" markerWidth="7" markerHeight="7" refX="6" refY="3" '
        'markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0L7 3L0 6z" '
        'style="fill:#3b6fb6;stroke:none;marker-end:none"/></marker></defs>\n'
        f'<rect width="{width:.0f}" height="{height:.0f}" fill="#fff" style="stroke:none"/>\n'
        f"{lines}\n</svg>\n"
    )


if __name__ == "__main__":
    written = sys.argv[1] if sys.argv[1:] else Path(__file__).with_name("structure.svg")
    Path(written).write_text(structure())
