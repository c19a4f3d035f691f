"""Draws exchange.svg of docs/guides/many-machines.md: `python docs/pictures/draw_exchange.py`.

With an argument it writes there. Who sends what is taken from the plan that batchkron makes.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent)]

from draw import BLUE, DARK, GREEN, ORANGE, RED  # noqa: E402

from batchkron.distributed.exchanges.exchange import Exchange  # noqa: E402
from batchkron.distributed.products.product_plan import make_plan  # noqa: E402

RANKS, SHAPES = 4, [(2, 2)] * 4
COLOURS = (BLUE, ORANGE, GREEN, RED)  # of the ranks
CELL, SPACE, LEFT = 34, 22, 150  # pixels: a cell, between ranks, left of the cells
MULTIPLY, SEND = 58, 100  # pixels from row to row: a local multiply, an exchange
STYLE = (
    f"{DARK} text{{text-anchor:middle;fill:#222}} .l{{text-anchor:end}} "
    "path{fill:none;stroke-width:1.8} .s{stroke-dasharray:3 4} .m{stroke:#222;stroke-width:2}"
    + "".join(
        f" rect.r{rank}{{fill:{colour};fill-opacity:.25;stroke:{colour}}} "
        f"path.r{rank}{{stroke:{colour}}} text.r{rank}{{fill:{colour};font-size:15px}}"
        for rank, colour in enumerate(COLOURS)
    )
)


class Drawing:
    """The picture from its top down; ``part`` elements are on each rank."""

    def __init__(self, size: int) -> None:
        self.size, self.part = size, size // RANKS
        self.y = 46
        self.parts: list[str] = []
        for rank in range(RANKS):
            self.write(self.middle(rank), 28, f"rank {rank}", f"r{rank}")

    def x(self, place: int) -> int:
        """Return the middle of a cell."""
        return LEFT + CELL * place + SPACE * (place // self.part) + CELL // 2

    def middle(self, rank: int) -> int:
        """Return the middle of a rank's cells."""
        first, last = self.part * rank, self.part * (rank + 1) - 1
        return (self.x(first) + self.x(last)) // 2

    def write(self, x: int, y: int, words: str, style: str = "") -> None:
        """Add a line of text."""
        given = f' class="{style}"' if style else ""
        self.parts.append(f'<text x="{x}" y="{y}"{given}>{words}</text>')

    def row(self, name: str, numbers: Iterable[int], ranks: Iterable[int]) -> None:
        """Add the cells of all ranks, coloured by rank, with the elements' numbers in them."""
        self.write(LEFT - 16, self.y + 19, name, "l")
        for place, (number, rank) in enumerate(zip(numbers, ranks, strict=True)):
            x = self.x(place) - CELL // 2 + 2
            self.parts.append(
                f'<rect x="{x}" y="{self.y}" width="30" height="28" rx="4" class="r{rank}"/>'
            )
            self.write(self.x(place), self.y + 19, str(number))

    def multiply(self, words: str) -> None:
        """Add an arrow on each rank, and go down."""
        self.write(LEFT - 16, self.y + 47, words, "l")
        for rank in range(RANKS):
            x = self.middle(rank)
            self.parts.append(
                f'<path class="m" d="M{x} {self.y + 32}v18" marker-end="url(#head)"/>'
            )
        self.y += MULTIPLY

    def send(self, exchange: Exchange) -> None:
        """Add a line for each element, dashed where it stays on its rank, and go down."""
        self.write(LEFT - 16, self.y + 68, "exchange", "l")
        for source in range(RANKS):
            for target in range(RANKS):
                stays = " s" if source == target else ""
                for before, after in moves(exchange, source, target):
                    x, to, y = self.x(before), self.x(after), self.y + 28
                    self.parts.append(
                        f'<path class="r{source}{stays}" '
                        f'd="M{x} {y}C{x} {y + 40} {to} {y + 30} {to} {y + 72}"/>'
                    )
        self.y += SEND

    def __str__(self) -> str:
        width, height = self.x(self.size - 1) + CELL, self.y + 76
        lines = "\n".join(self.parts)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" font-family="sans-serif" font-size="13">\n'
            "<title>A product with four 2 × 2 factors on four ranks</title>\n"
            f"<style>{STYLE}</style>\n"
            '<defs><marker id="head" markerWidth="9" markerHeight="9" refX="5" refY="4" '
            'markerUnits="userSpaceOnUse" orient="auto"><path d="M0,0L9,4L0,8z" '
            'style="fill:#222"/></marker></defs>\n'
            f'<rect width="{width}" height="{height}" fill="#fff"/>\n{lines}\n</svg>\n'
        )


def moves(exchange: Exchange, source: int, target: int) -> Iterator[tuple[int, int]]:
    """Yield the places of the elements that go from one rank to another, before and after."""
    for _, (s0, s1, l0, l1) in exchange.pieces(source, target):
        for s in range(s0, s1):
            for other in range(l0, l1):
                yield other * exchange.moved + s, s * exchange.others + other


def drawn() -> str:
    """Return the picture of a product with four 2 × 2 factors on four ranks."""
    plan = make_plan(SHAPES, RANKS, "group", redistribute=True)
    size = 2 ** len(SHAPES)
    picture = Drawing(size)
    places, owners = range(size), [place // picture.part for place in range(size)]
    picture.row("x", places, owners)
    for number, each in enumerate(plan.rounds):
        (product,), exchange = each.products, each.exchange
        factors = range(product.last, product.first - 1, -1)
        picture.multiply("local: " + ", ".join(f"A{k + 1}" for k in factors))
        after = {b: a for r in range(RANKS) for t in range(RANKS) for b, a in moves(exchange, r, t)}
        picture.row("", [after[place] for place in places], owners)
        picture.send(exchange)
        senders = [bisect_right(exchange.sources, place % exchange.others) - 1 for place in places]
        picture.row("y" if number == len(plan.rounds) - 1 else "", places, senders)
    sent = sum(sum(each.exchange.sent) for each in plan.rounds)
    note = f"{sent} elements change their rank; colours show the rank that an element comes from"
    picture.write((picture.x(0) + picture.x(size - 1)) // 2, picture.y + 58, note)
    return str(picture)


if __name__ == "__main__":
    written = sys.argv[1] if sys.argv[1:] else Path(__file__).with_name("exchange.svg")
    Path(written).write_text(drawn())
