"""Draws pictures: `python docs/pictures/draw.py`.

They are those of docs/background/sparse-sweeps.md, and of
docs/guides/sparse-factors-and-butterflies.md.
"""

from collections.abc import Iterable
from itertools import product
from pathlib import Path

HERE = Path(__file__).parent
LEVEL = 3
CELL = 34  # pixels
EDGE = 64  # left of the squares, and above them
INK, GREY, PAPER = "#222222", "#666666", "#ffffff"
BLUE, ORANGE, GREEN, RED = "#3b6fb6", "#d9822b", "#3f8f4f", "#c23b3b"
DARK = "@media (prefers-color-scheme: dark) { svg { filter: invert(1) hue-rotate(180deg); } }"
Cell = tuple[int, int]


def level_of(index: int) -> int:
    """Return the level of a 1-D cell: 0 for cell 0, else l with 2^(l-1) ≤ index < 2^l."""
    return index.bit_length()


def in_grid(cell: Cell) -> bool:
    """Whether a cell is in the sparse grid of the pictures."""
    return sum(map(level_of, cell)) <= LEVEL


def text(x: float, y: float, words: str, **style: str) -> str:
    """Return a line of text, centred unless the style says otherwise."""
    given = {"text_anchor": "middle", "fill": INK, "font_size": "13", **style}
    attributes = " ".join(f'{name.replace("_", "-")}="{value}"' for name, value in given.items())
    return f'<text x="{x:g}" y="{y:g}" {attributes}>{words}</text>'


def box(x: float, y: float, width: float, height: float, fill: str, stroke: str = INK) -> str:
    """Return a rectangle with round corners."""
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="4" fill="{fill}" '
        f'stroke="{stroke}"/>'
    )


def arrow(start: tuple[float, float], end: tuple[float, float], colour: str, dash: str = "") -> str:
    """Return an arrow between two points."""
    (x, y), (to_x, to_y) = start, end
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    return (
        f'<line x1="{x:g}" y1="{y:g}" x2="{to_x:g}" y2="{to_y:g}" stroke="{colour}" '
        f'stroke-width="2.5"{dashes} '
        f'marker-end="url(#head-{colour[1:]})"/>'
    )


def picture(title: str, width: int, height: int, parts: Iterable[str]) -> str:
    """Return a whole SVG, its colours turned where the reader's page is dark."""
    heads = "".join(
        f'<marker id="head-{colour[1:]}" markerWidth="9" markerHeight="9" refX="8" refY="4" '
        f'markerUnits="userSpaceOnUse" orient="auto"><path d="M0,0 L9,4 L0,8 z" '
        f'fill="{colour}"/></marker>'
        for colour in (INK, BLUE, ORANGE, GREEN, RED)
    )
    lines = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" font-family="sans-serif">\n<title>{title}</title>\n'
        f"<style>{DARK}</style>\n<defs>{heads}</defs>\n"
        f'<rect width="{width}" height="{height}" fill="{PAPER}"/>\n{lines}\n</svg>\n'
    )


def corner(cell: Cell) -> tuple[float, float]:
    """Return the top left of a cell's square, mode 1 downward, with gaps between levels."""
    row, column = cell
    return (
        EDGE + CELL * column + 8 * level_of(column),
        EDGE + CELL * row + 8 * level_of(row),
    )


def centre(cell: Cell) -> tuple[float, float]:
    """Return the middle of a cell's square."""
    x, y = corner(cell)
    return x + CELL / 2 - 2, y + CELL / 2 - 2


def squares(colours: dict[Cell, str]) -> list[str]:
    """Return all squares of 8 × 8 cells: those of the grid filled, the others faint."""
    parts = []
    for row in range(2**LEVEL):
        for column in range(2**LEVEL):
            cell = (row, column)
            x, y = corner(cell)
            inside = in_grid(cell)
            fill = colours.get(cell, "#bfd2ec" if inside else PAPER)
            parts.append(box(x, y, CELL - 4, CELL - 4, fill, INK if inside else "#cccccc"))
    for index in range(2**LEVEL):
        x, y = centre((index, index))
        parts.append(text(EDGE - 12, y + 5, str(index)))
        parts.append(text(x, EDGE - 10, str(index)))
    for level in range(LEVEL + 1):
        first, last = (2 ** (level - 1), 2**level - 1) if level else (0, 0)
        middle = (centre((first, first))[0] + centre((last, last))[0]) / 2
        parts.append(text(middle, EDGE - 32, f"level {level}", fill=GREY, font_size="11"))
        parts.append(text(EDGE - 40, middle + 4, f"l = {level}", fill=GREY, font_size="11"))
    return parts


def between(start: Cell, end: Cell, colour: str, dash: str = "") -> str:
    """Return an arrow from one cell to another, clear of their letters."""
    (x, y), (to_x, to_y) = centre(start), centre(end)
    length = ((to_x - x) ** 2 + (to_y - y) ** 2) ** 0.5
    ahead, down = 12 * (to_x - x) / length, 12 * (to_y - y) / length
    return arrow((x + ahead, y + down), (to_x - ahead, to_y - down), colour, dash)


def frame(first: Cell, last: Cell, colour: str) -> str:
    """Return a frame around the cells from one to another."""
    (x, y), (to_x, to_y) = corner(first), corner(last)
    width, height = to_x - x + CELL + 4, to_y - y + CELL + 4
    return (
        f'<rect x="{x - 4:g}" y="{y - 4:g}" width="{width:g}" height="{height:g}" rx="8" '
        f'fill="none" stroke="{colour}" stroke-width="3"/>'
    )


def fibres() -> str:
    """Draw the cells of a sparse grid and three of its fibres."""
    side = EDGE + 2**LEVEL * CELL + 40
    parts = squares({})
    parts.append(frame((0, 0), (0, 7), BLUE))
    parts.append(frame((2, 0), (2, 1), BLUE))
    parts.append(frame((0, 1), (3, 1), ORANGE))
    words = side + 8
    lines = [
        ("cells (i, j) of the grid: l(i) + l(j) ≤ 3", INK),
        ("fibres along mode 2: i = 0 with 8 cells,", BLUE),
        ("i = 2 with 2 cells", BLUE),
        ("a fibre along mode 1: j = 1 with 4 cells", ORANGE),
        ("fibres with the same levels in the other", GREY),
        ("mode are alike: i = 2 and i = 3", GREY),
    ]
    for number, (line, colour) in enumerate(lines):
        parts.append(text(words, 110 + 26 * number, line, fill=colour, text_anchor="start"))
    return picture("A sparse grid and three of its fibres", side + 300, side, parts)


def order() -> str:
    """Draw one entry on its way: up first stays in the grid, down first leaves it."""
    side = EDGE + 2**LEVEL * CELL + 40
    start, end, middle, outside = (6, 0), (1, 3), (1, 0), (6, 3)
    parts = squares({start: "#efb879", end: "#9fd0aa", middle: "#8fb0dc", outside: "#eda7a7"})
    parts.append(between(start, middle, BLUE))
    parts.append(between(middle, end, GREEN))
    parts.append(between(start, outside, RED, "5,4"))
    parts.append(between(outside, end, RED, "5,4"))
    for cell, name in ((start, "c"), (end, "r"), (outside, "✗")):
        x, y = centre(cell)
        parts.append(text(x, y + 5, name, font_weight="bold"))
    words = side + 8
    lines = [
        ("from c = (6, 0) to r = (1, 3): in mode 1 to a", INK),
        ("coarser cell, in mode 2 to a finer one", INK),
        ("U of mode 1 first: through (1, 0), which is", BLUE),
        ("no finer than either: it is in the grid;", BLUE),
        ("then L of mode 2", GREEN),
        ("L of mode 2 first would go through (6, 3),", RED),
        ("levels 3 + 2: not in the grid, and lost", RED),
    ]
    for number, (line, colour) in enumerate(lines):
        parts.append(text(words, 110 + 26 * number, line, fill=colour, text_anchor="start"))
    return picture("Up first stays in the grid", side + 310, side, parts)


def vector(x: float, y: float, name: str, fill: str) -> str:
    """Return a vector of the recursion."""
    return box(x - 26, y - 15, 52, 30, fill) + text(x, y + 5, name, font_style="italic")


def sweep(start: tuple[float, float], end: tuple[float, float], name: str, colour: str) -> str:
    """Return an arrow between two vectors with the sweep's name."""
    (x, y), (to_x, to_y) = start, end
    middle = 0.6 * x + 0.4 * to_x, 0.6 * y + 0.4 * to_y - 7  # where lines are still apart
    ahead = arrow((x + 28, y), (to_x - 26, to_y), colour)
    return ahead + text(*middle, name, fill=colour, font_size="12")


def recursion() -> str:
    """Draw the ten sweeps of a term of three modes."""
    rows = {"UU": 60, "UL": 148, "LU": 210, "LL": 280}
    x, y = (60, 170), (720, 170)
    parts = [vector(*x, "x", "#efb879"), vector(*y, "y", "#9fd0aa")]
    u = (200, 95)
    parts += [vector(*u, "U₁x", "#8fb0dc"), sweep(x, u, "U₁", BLUE)]
    uu, ul = (350, rows["UU"]), (490, rows["UL"])
    parts += [vector(*uu, "U₂U₁x", "#8fb0dc"), sweep(u, uu, "U₂", BLUE), sweep(uu, y, "F", INK)]
    parts += [vector(*ul, "F U₁x", "#cddcf0"), sweep(u, ul, "F", INK), sweep(ul, y, "L₂", GREEN)]
    lu, low = (350, rows["LL"]), (580, 245)
    parts += [vector(*lu, "U₂x", "#8fb0dc"), sweep(x, lu, "U₂", BLUE)]
    ll = (350, rows["LU"])
    parts += [vector(*ll, "F x", "#cddcf0"), sweep(x, ll, "F", INK)]
    parts += [vector(*low, "f₂(x)", "#cddcf0"), sweep(lu, low, "F", INK)]
    parts += [sweep(ll, low, "L₂", GREEN), sweep(low, y, "L₁", GREEN)]
    legend = "U up, to coarser cells or the same · L down, to finer ones · F not split"
    parts.append(text(390, 335, legend, fill=GREY))
    return picture("The ten sweeps of a term of three modes", 790, 350, parts)


Pattern = tuple[int, int, int, int]


def support(
    pattern: Pattern, x: float, y: float, cell: float, colours: tuple[str, ...]
) -> list[str]:
    """Return the matrix of a Kronecker-sparse pattern, its d dense matrices in these colours."""
    a, b, c, d = pattern
    squares: dict[str, list[str]] = {}
    for i, k, col, j in product(range(a), range(b), range(c), range(d)):
        row, column = (i * b + k) * d + j, (i * c + col) * d + j
        place = f"M{x + column * cell:g} {y + row * cell:g}h{cell:g}v{cell:g}h-{cell:g}z"
        squares.setdefault(colours[j % len(colours)], []).append(place)
    width, height = a * c * d * cell, a * b * d * cell
    frame = f'fill="none" stroke="{INK}"'
    parts = [f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" {frame}/>']
    parts += [
        f'<path d="{"".join(places)}" fill="{colour}" stroke="{PAPER}" stroke-width="0.8"/>'
        for colour, places in squares.items()
    ]
    return parts


def span(start: tuple[float, float], end: tuple[float, float], words: str) -> str:
    """Return a line between two points with ticks at its ends, and words beside it."""
    (x, y), (to_x, to_y) = start, end
    across = y == to_y
    tick = "v8" if across else "h8"
    back = -4 if across else 0, 0 if across else -4
    marks = "".join(
        f"M{px + back[1]:g} {py + back[0]:g}{tick}" for px, py in ((x, y), (to_x, to_y))
    )
    line = f'<path d="M{x:g} {y:g}L{to_x:g} {to_y:g}{marks}" fill="none" stroke="{INK}"/>'
    if across:
        return line + text((x + to_x) / 2, y - 9, words)
    return line + text(x - 10, (y + to_y) / 2 + 5, words, text_anchor="end")


def sparse_factors() -> str:
    """Draw one pattern with its four numbers, and the factors of a butterfly of 16 elements."""
    cell, x, y = 11, 170, 80
    a, b, c, d = pattern = (2, 3, 2, 4)
    width, height = a * c * d * cell, a * b * d * cell
    parts = [text(x + width / 2, 26, "(a, b, c, d) = (2, 3, 2, 4)", font_weight="bold")]
    parts += support(pattern, x, y, cell, (BLUE, ORANGE, GREEN, RED))
    parts.append(span((x, y - 14), (x + c * d * cell, y - 14), "c = 2 columns of diagonals"))
    parts.append(span((x - 14, y), (x - 14, y + b * d * cell), "b = 3 rows of them"))
    parts.append(
        span((x - 14, y + b * d * cell), (x - 14, y + (b + 1) * d * cell), "d = 4 entries each")
    )
    corner_x = x + (c + 1) * d * cell
    parts.append(text(corner_x, y + d * cell, "a = 2 blocks", fill=GREY))
    words = "in a block each colour is a dense 3 × 2 matrix"
    parts.append(text(x + width / 2, y + height + 26, words))
    small, left, top = 7, x + width + 60, 74
    side, step = 16 * small, 16 * small + 44
    middle = left + (side + step) / 2
    parts.append(text(middle, 26, "a butterfly of 16 elements", font_weight="bold"))
    for level in range(4):
        at_x, at_y = left + level % 2 * step, top + level // 2 * (side + 62)
        one = (2**level, 2, 2, 2 ** (3 - level))
        parts += support(one, at_x, at_y, small, (BLUE,))
        parts.append(text(at_x + side / 2, at_y + side + 20, str(one)))
        parts.append(text(at_x + side / 2, at_y - 10, f"K{'₁₂₃₄'[level]}", font_style="italic"))
    words = "K₁ K₂ K₃ K₄ is a dense matrix:", "128 entries instead of 256"
    for number, line in enumerate(words):
        parts.append(text(middle, top + 2 * side + 112 + 20 * number, line))
    return picture("Kronecker-sparse matrices", int(left + side + step + 40), 440, parts)


PICTURES = {
    "kronecker-sparse.svg": sparse_factors,
    "sweeps-fibres.svg": fibres,
    "sweeps-order.svg": order,
    "sweeps-recursion.svg": recursion,
}


def main() -> None:
    """Write all pictures beside this file."""
    for name, draw in PICTURES.items():
        (HERE / name).write_text(draw(), encoding="utf-8")


if __name__ == "__main__":
    main()
