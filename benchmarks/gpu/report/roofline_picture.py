"""A roofline as an SVG file: rates over flops per byte, both logarithmic."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 960, 720
LEFT, RIGHT, TOP, BOTTOM = 64, 24, 40, 56
LETTER, LINE = 6.2, 11  # of labels: width of a letter, height
RADIUS = 4
NEAR = 14  # distance of a label from which a line leads to its mark
PASSES = (2, 3)  # over memory, whose roofs are drawn as well
SHAPES = {"float32": "circle", "float64": "square"}

STYLE = """
text { font: 12px sans-serif; fill: #1f2328; }
.back { fill: #ffffff; }
.grid { stroke: #d8dee4; }
.axis { stroke: #57606a; fill: none; }
.roof { stroke: #1f2328; stroke-width: 2; fill: none; }
.passes { stroke: #57606a; stroke-dasharray: 5 4; fill: none; }
.leader { stroke: #8c959f; }
.float32 { fill: #0969da; }
.float64 { fill: #bc4c00; }
text.float32, text.float64 { font-size: 11px; }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3; }
.back { fill: #0d1117; }
.grid { stroke: #30363d; }
.axis, .passes { stroke: #9198a1; }
.roof { stroke: #e6edf3; }
.leader { stroke: #6e7681; }
.float32 { fill: #58a6ff; }
.float64 { fill: #f0883e; }
}
"""


@dataclass(frozen=True)
class Mark:
    """A product: flops per byte, and 10^12 flops per second."""

    name: str
    dtype: str
    intensity: float
    rate: float


@dataclass(frozen=True)
class Roof:
    """What a chip can do: 10^12 bytes, and 10^12 flops per second."""

    bandwidth: float
    peak: float

    def at(self, intensity: float) -> float:
        """Return the most that a product can reach."""
        return min(self.peak, self.bandwidth * intensity)

    @property
    def ridge(self) -> float:
        """Flops per byte from which on arithmetic is what bounds."""
        return self.peak / self.bandwidth


@dataclass(frozen=True)
class Box:
    """A rectangle of the picture that something covers."""

    left: float
    top: float
    right: float
    bottom: float

    def overlap(self, other: Box) -> float:
        """Return the area that both cover."""
        across = min(self.right, other.right) - max(self.left, other.left)
        down = min(self.bottom, other.bottom) - max(self.top, other.top)
        return max(0.0, across) * max(0.0, down)


class Scale:
    """Places of numbers in the picture."""

    def __init__(self, marks: Sequence[Mark], roof: Roof) -> None:
        intensities, rates = [m.intensity for m in marks], [m.rate for m in marks]
        self.x = [math.floor(math.log2(min(intensities))), math.ceil(math.log2(max(intensities)))]
        self.x[1] = max(self.x[1], math.ceil(math.log2(2 * roof.ridge)))
        ticks = [step * 10.0**power for power in range(-6, 6) for step in (1, 2, 5)]
        low = max(tick for tick in ticks if tick <= min(rates))
        high = min(tick for tick in ticks if tick >= 1.2 * roof.peak)
        self.ticks = [tick for tick in ticks if low <= tick <= high]
        self.y = math.log10(low), math.log10(high)

    def across(self, intensity: float) -> float:
        """Return the place of flops per byte."""
        share = (math.log2(intensity) - self.x[0]) / (self.x[1] - self.x[0])
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def intensity(self, x: float) -> float:
        """Return the flops per byte at a place."""
        share = (x - LEFT) / (WIDTH - LEFT - RIGHT)
        return float(2 ** (self.x[0] + share * (self.x[1] - self.x[0])))

    def down(self, rate: float) -> float:
        """Return the place of a rate."""
        share = (math.log10(rate) - self.y[0]) / (self.y[1] - self.y[0])
        return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)


def around(x: float, y: float, width: float) -> Iterator[Box]:
    """Yield where a label may lie beside its mark, the nearest first."""
    for distance in range(NEAR - 3, 100, 7):
        for angle in range(0, 360, 15):
            turned = math.radians(angle)
            dx, dy = distance * math.cos(turned), -distance * math.sin(turned)
            dx += width / 2 * math.cos(turned)
            yield Box(x + dx - width / 2, y + dy - LINE / 2, x + dx + width / 2, y + dy + LINE / 2)


def covered_by_roofs(roof: Roof, scale: Scale) -> Iterator[Box]:
    """Yield small boxes along the lines of all roofs."""
    for passes in (1, *PASSES):
        lower = Roof(roof.bandwidth / passes, roof.peak)
        for x in range(LEFT, WIDTH - RIGHT, 4):
            y = scale.down(lower.at(scale.intensity(x)))
            yield Box(x - 2, y - 2, x + 2, y + 2)


def label_boxes(marks: Sequence[Mark], roof: Roof, scale: Scale) -> list[Box]:
    """Return where the name of each mark goes: near it, over as little as can be."""
    places = [(scale.across(mark.intensity), scale.down(mark.rate)) for mark in marks]
    taken = [Box(x - RADIUS, y - RADIUS, x + RADIUS, y + RADIUS) for x, y in places]
    taken += covered_by_roofs(roof, scale)
    inside = Box(LEFT, TOP, WIDTH - RIGHT, HEIGHT - BOTTOM)
    found = []
    for mark, (x, y) in zip(marks, places, strict=True):
        width, best = LETTER * len(mark.name), math.inf
        for box in around(x, y, width):
            covered = width * LINE - box.overlap(inside) + sum(map(box.overlap, taken))
            if covered < best - 1e-6:
                best, chosen = covered, box
            if covered < 1e-6:
                break
        found.append(chosen)
        taken.append(chosen)
    return found


def line(kind: str, x: float, y: float, to_x: float, to_y: float) -> str:
    """Return a straight line."""
    return f'<path class="{kind}" d="M{x:.1f} {y:.1f}L{to_x:.1f} {to_y:.1f}"/>'


def text(x: float, y: float, content: str, anchor: str = "middle", more: str = "") -> str:
    """Return a text."""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>{escape(content)}</text>'


def symbol_at(shape: str, kind: str, x: float, y: float, title: str = "") -> str:
    """Return a circle or a square."""
    if shape == "circle":
        return f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="{RADIUS}">{title}</circle>'
    side = 2 * RADIUS - 1
    corner = f'x="{x - side / 2:.1f}" y="{y - side / 2:.1f}"'
    return f'<rect class="{kind}" {corner} width="{side}" height="{side}">{title}</rect>'


def symbol(mark: Mark, scale: Scale) -> str:
    """Return the mark of a product, with its figures to point at."""
    said = f"{mark.name} {mark.dtype}: {mark.intensity:.3g} flops a byte, {mark.rate:.3g} TFLOP/s"
    place = scale.across(mark.intensity), scale.down(mark.rate)
    return symbol_at(SHAPES[mark.dtype], mark.dtype, *place, f"<title>{escape(said)}</title>")


def frame(scale: Scale) -> Iterator[str]:
    """Yield the axes with their numbers."""
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    for power in range(scale.x[0], scale.x[1] + 1):
        x = scale.across(2.0**power)
        yield line("grid", x, TOP, x, bottom)
        yield text(x, bottom + 18, f"{2.0**power:g}")
    for rate in scale.ticks:
        y = scale.down(rate)
        yield line("grid", LEFT, y, right, y)
        yield text(LEFT - 8, y + 4, f"{rate:g}", "end")
    yield f'<path class="axis" d="M{LEFT} {TOP}V{bottom}H{right}"/>'
    middle = (LEFT + right) / 2
    yield text(middle, HEIGHT - 14, "flops for each byte that one pass reads and writes")
    yield text(LEFT, 24, "TFLOP/s", "middle")


def roofs(roof: Roof, scale: Scale) -> Iterator[str]:
    """Yield the roof, and those of products that go over memory several times."""
    top, least = scale.down(roof.peak), 10 ** scale.y[0]
    shown = 0.55 * roof.peak  # where the texts begin
    for passes in (1, *PASSES):
        lower = Roof(roof.bandwidth / passes, roof.peak)
        first = max(2.0 ** scale.x[0], least / lower.bandwidth)
        corner = scale.across(lower.ridge)
        y = scale.down(lower.at(first))
        start = f"M{scale.across(first):.1f} {y:.1f}L{corner:.1f} {top:.1f}"
        if passes == 1:
            yield f'<path class="roof" d="{start}H{WIDTH - RIGHT}"/>'
        else:
            yield f'<path class="passes" d="{start}"/>'
        x, y = scale.across(shown / lower.bandwidth) - 4, scale.down(shown) - 4
        angle = math.degrees(math.atan2(top - y - 4, corner - x - 4))
        said = f"one pass at {roof.bandwidth:g} TB/s" if passes == 1 else f"{passes} passes"
        turned = f' transform="rotate({angle:.1f} {x:.1f} {y:.1f})"'
        yield text(x, y, said, "end" if passes == 1 else "start", turned)
    yield text(WIDTH - RIGHT - 4, top - 8, f"{roof.peak:g} TFLOP/s", "end")
    ridge = scale.across(roof.ridge)
    yield text(ridge, top - 8, f"{roof.ridge:.1f} flops a byte", "middle")


def label(mark: Mark, box: Box, scale: Scale) -> str:
    """Return the name of a mark, with a line to it where it is not near."""
    x, y = scale.across(mark.intensity), scale.down(mark.rate)
    near_x = min(max(x, box.left), box.right)
    near_y = min(max(y, box.top), box.bottom)
    leads = math.hypot(near_x - x, near_y - y) > NEAR
    leader = line("leader", x, y, near_x, near_y) if leads else ""
    middle = (box.left + box.right) / 2
    return leader + text(middle, box.bottom - 2, mark.name, more=f' class="{mark.dtype}"')


def legend() -> Iterator[str]:
    """Yield what the shapes of the marks mean."""
    for number, (dtype, shape) in enumerate(SHAPES.items()):
        x, y = WIDTH - RIGHT - 90, HEIGHT - BOTTOM - 40 + 20 * number
        yield symbol_at(shape, dtype, x, y) + text(x + 12, y + 4, dtype, "start")


def picture(marks: Sequence[Mark], roof: Roof) -> str:
    """Return the SVG file; each mark has its name."""
    scale = Scale(marks, roof)
    boxes = label_boxes(marks, roof, scale)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
        "<title>Kron-Matmuls under the roof of the chip</title>",
        f"<style>{STYLE}</style>",
        f'<rect class="back" width="{WIDTH}" height="{HEIGHT}"/>',
        *frame(scale),
        *roofs(roof, scale),
        *(label(mark, box, scale) for mark, box in zip(marks, boxes, strict=True)),
        *(symbol(mark, scale) for mark in marks),
        *legend(),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"
