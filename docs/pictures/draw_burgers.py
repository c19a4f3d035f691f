"""Draws the picture of docs/guides/kinetic.md on shocks: `python docs/pictures/draw_burgers.py`.

It runs Burgers' equation twice with the installed batchkron, which takes a second.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
from draw import BLUE, GREY, INK, RED, picture, text
from numpy.typing import NDArray

from batchkron.problems import PDE, Axis, Moment, Separable, ShockWarning, Term, div, penalty
from batchkron.solvers import evolve

HERE = Path(__file__).parent
WIDTH, HEIGHT = 620, 380
LEFT, RIGHT, TOP, BOTTOM = 60, 600, 20, 320  # pixels of the panel's edges
LARGEST = 3.3  # value of w at its upper edge, minus that at its lower edge
UNTIL, LEVEL = 1.5, 6
Z, D = Axis("z", 0, 2 * np.pi), Axis("d", 0, 1)

Values = NDArray[np.float64]


def waves(*terms: Term) -> tuple[Values, Values]:
    """Return the middles of the cells and the values of w there at the end, from w = sin z."""
    pde = PDE([Z, D], terms, boundary="periodic", initial=Separable(z=np.sin, d=1.0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ShockWarning)
        problem = pde.discretize((LEVEL, 0), 0, grid="full")
    result = evolve(problem, until=UNTIL)
    cells = 1 << LEVEL
    z = Z.length / cells * (np.arange(cells) + 0.5)
    return z, problem.moment(result.u, {D: 0}).evaluate(z)


def exact() -> tuple[Values, Values]:
    """Return places z and values w of the exact solution, from z = y + t sin y up to the shock."""
    y = np.linspace(0.0, np.pi, 400)
    z, w = y + UNTIL * np.sin(y), np.sin(y)
    left = z <= np.pi
    left &= np.maximum.accumulate(z) <= z  # before the characteristics that the shock has taken
    z, w = np.append(z[left], np.pi), np.append(w[left], w[left][-1])
    return np.concatenate([z, 2 * np.pi - z[::-1]]), np.concatenate([w, -w[::-1]])


def curve(z: Values, w: Values, colour: str, dashes: str = "") -> str:
    """Return a line through points."""
    x = LEFT + (RIGHT - LEFT) * z / Z.length
    y = (TOP + BOTTOM) / 2 - (BOTTOM - TOP) / 2 * w / LARGEST
    points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))
    style = f' stroke-dasharray="{dashes}"' if dashes else ""
    return f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.6"{style}/>'


def main() -> None:
    """Draw the panel."""
    carried = -0.5 * Moment(D)
    parts = [
        f'<rect x="{LEFT}" y="{TOP}" width="{RIGHT - LEFT}" height="{BOTTOM - TOP}" fill="none" '
        f'stroke="{INK}"/>',
        curve(np.array([0.0, Z.length]), np.zeros(2), GREY),
        curve(*exact(), INK, "6 4"),
        curve(*waves(div(Z, carried)), RED),
        curve(*waves(div(Z, carried, flux="central"), penalty(Z, 0.55)), BLUE),
        text(230, 60, "upwind", fill=RED),
        text(180, 100, "central, with penalty", fill=BLUE),
        text((LEFT + RIGHT) / 2, BOTTOM + 42, "z"),
        text(LEFT, BOTTOM + 20, "0"),
        text(RIGHT, BOTTOM + 20, "2π"),
    ]
    for value in (-3, -1, 1, 3):
        y = (TOP + BOTTOM) / 2 - (BOTTOM - TOP) / 2 * value / LARGEST
        parts.append(text(LEFT - 8, y + 4, f"{value}", text_anchor="end"))
    title = f"Burgers' equation at t = {UNTIL:g}, after the shock, by two fluxes"
    (HERE / "burgers.svg").write_text(picture(title, WIDTH, HEIGHT, parts), encoding="utf-8")


if __name__ == "__main__":
    main()
