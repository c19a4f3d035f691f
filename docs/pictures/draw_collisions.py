"""Draws the picture of docs/guides/collisions.md: `python docs/pictures/draw_collisions.py`.

It runs problems of the gallery with the installed batchkron, which takes about a minute.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from draw import BLUE, GREEN, GREY, INK, ORANGE, picture, text
from draw_landau import BOTTOM, HEIGHT, TOP, WIDTH, Curve, line, panel

from batchkron.problems import Moment, Poisson, make
from batchkron.solvers import EvolveState, evolve

HERE = Path(__file__).parent
LEFT, RIGHT = 60, 390  # pixels of the first panel's edges
COLOURS = (BLUE, GREEN, ORANGE)
TIMES = (0.0, 0.3, 1.0)  # of the relaxation, times the rate
VELOCITIES = (-6.0, 7.0)  # ends of the first panel
HIGHEST = 0.3  # value of f at its upper end
# Rates of the eigenproblem in Hermite functions, which tests/support/dispersion.py computes
DAMPING = {0.0: -0.15336, 0.25: -0.07460, 1.0: -0.03161}  # by the rate ν of collisions, k = 0.5


def place(v: float, f: float) -> tuple[float, float]:
    """Return the pixel of a point of the first panel."""
    low, high = VELOCITIES
    return (
        LEFT + (RIGHT - LEFT) * (v - low) / (high - low),
        BOTTOM - (BOTTOM - TOP) * f / HIGHEST,
    )


def polyline(v: np.ndarray, f: np.ndarray, colour: str, dashes: str = "") -> str:
    """Return a curve of the first panel."""
    points = " ".join("{:.0f},{:.1f}".format(*place(*own)) for own in zip(v, f, strict=True))
    style = f' stroke-dasharray="{dashes}"' if dashes else ""
    return f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.6"{style}/>'


def relaxation() -> list[str]:
    """Return the panel of f(v) at several times, and of the final Maxwellian."""
    problem = make("relaxation-1x1v", level=(0, 6), grid="full", nu=1.0)
    v = np.linspace(*VELOCITIES, 105)
    points = np.stack([np.zeros(v.size), v], axis=1)
    parts = [
        text((LEFT + RIGHT) / 2, TOP - 14, "Relaxation: f(v)", font_size="14"),
        f'<rect x="{LEFT}" y="{TOP}" width="{RIGHT - LEFT}" height="{BOTTOM - TOP}" '
        f'fill="none" stroke="{INK}"/>',
        text((LEFT + RIGHT) / 2, BOTTOM + 42, "v"),
    ]
    for at in range(-6, 8, 2):
        parts.append(text(place(at, 0.0)[0], BOTTOM + 20, f"{at}"))
    for f in (0.1, 0.2, 0.3):
        height = place(0.0, f)[1]
        parts.append(
            f'<line x1="{LEFT}" x2="{RIGHT}" y1="{height:g}" y2="{height:g}" stroke="{GREY}" '
            'stroke-width="0.5"/>'
        )
        parts.append(text(LEFT - 8, height + 4, f"{f:g}", text_anchor="end"))
    for time, colour in zip(TIMES, COLOURS, strict=True):
        u = problem.initial if time == 0.0 else evolve(problem, until=time, dt=0.02).u
        parts.append(polyline(v, problem.evaluate(u, points), colour))
    final = np.exp(-((v - 0.5) ** 2) / 5.5) / np.sqrt(5.5 * np.pi)
    parts.append(polyline(v, final, INK, "6 4"))
    parts += [
        text(146, 92, "t = 0", fill=BLUE),
        text(306, 168, "0.3 / ν", fill=GREEN),
        text(226, 96, "1 / ν", fill=ORANGE),
        text(336, 236, "- - t → ∞", fill=INK),
    ]
    return parts


def damped() -> list[Curve]:
    """Return the norms of the field for several rates of collisions, with the slopes."""
    curves = []
    for (nu, rate), colour in zip(DAMPING.items(), COLOURS, strict=True):
        problem = make("collisional-landau-1x1v", level=(3, 5), grid="full", nu=nu)
        x, v = problem.axes
        field = Poisson(x, Moment(v))
        times, norms = [0.0], [problem.field(problem.initial, field).norm()]

        def record(
            state: EvolveState,
            problem=problem,
            field=field,
            times=times,
            norms=norms,
        ) -> None:
            if state.step % 5:
                return
            times.append(state.t)
            norms.append(problem.field(state.u, field).norm())

        evolve(problem, until=20.0, dt=0.025, callback=record)
        tops = [
            j
            for j in range(1, len(norms) - 1)
            if norms[j - 1] < norms[j] > norms[j + 1] and times[j] > 8.0
        ]
        curves.append((times, norms, colour, ""))
        curves.append(line(rate, times[tops[0]], norms[tops[0]], [0.0, 20.0]))
    return curves


def main() -> None:
    """Draw both panels."""
    parts = relaxation()
    parts += panel(470, 752, 20.0, range(-6, -2), "A wave with collisions: ‖E‖", damped())
    parts += [
        text(786, 258, "ν = 0", fill=BLUE),
        text(786, 158, "ν = 0.25", fill=GREEN),
        text(786, 122, "ν = 1", fill=ORANGE),
    ]
    title = "Relaxation of two Maxwellians, and the damping of a wave for three rates of collisions"
    (HERE / "collisions.svg").write_text(picture(title, WIDTH, HEIGHT, parts), encoding="utf-8")


if __name__ == "__main__":
    main()
