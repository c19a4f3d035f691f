"""Draws the picture of docs/guides/kinetic.md: `python docs/pictures/draw_landau.py`.

It runs two problems of the gallery with the installed batchkron, which takes some seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from draw import BLUE, GREEN, GREY, INK, ORANGE, picture, text

from batchkron.problems import Moment, Poisson, make
from batchkron.solvers import EvolveState, evolve

HERE = Path(__file__).parent
WIDTH, HEIGHT = 820, 360
TOP, BOTTOM = 56, 300  # pixels of the panels' edges
# Rates of the dispersion relation, which tests/support/dispersion.py computes
DAMPING = {0.5: -0.15336, 0.4: -0.06613}  # by the wave number k
GROWTH = 0.28451  # of two beams of drift 3, k = 0.2

Curve = tuple[Sequence[float], Sequence[float], str, str]  # times, norms, colour, dashes
Place = Callable[[float], float]


def norms_of(
    name: str, until: float, every: int, **parameters: float
) -> tuple[list[float], list[float]]:
    """Return times and norms of the electric field in a run, after every so many steps."""
    problem = make(name, level=(3, 6), grid="full", **parameters)
    x, v = problem.axes
    field = Poisson(x, Moment(v))
    times, norms = [0.0], [problem.field(problem.initial, field).norm()]

    def record(state: EvolveState) -> None:
        if state.step % every == 0:
            times.append(state.t)
            norms.append(problem.field(state.u, field).norm())

    evolve(problem, until=until, dt=0.05, callback=record)
    return times, norms


def axis_marks(left: float, right: float, last: float, decades: range, y: Place) -> list[str]:
    """Return the frame of a panel with the marks of time and of powers of ten."""
    parts = [
        f'<rect x="{left:g}" y="{TOP}" width="{right - left:g}" height="{BOTTOM - TOP}" '
        f'fill="none" stroke="{INK}"/>'
    ]
    for time in np.arange(0.0, last + 1.0, 10.0):
        x = left + (right - left) * time / last
        parts.append(text(x, BOTTOM + 20, f"{time:g}"))
    for decade in decades:
        parts.append(
            f'<line x1="{left:g}" x2="{right:g}" y1="{y(decade):g}" y2="{y(decade):g}" '
            f'stroke="{GREY}" stroke-width="0.5"/>'
        )
        parts.append(text(left - 8, y(decade) + 4, f"10{superscript(decade)}", text_anchor="end"))
    parts.append(text((left + right) / 2, BOTTOM + 42, "t"))
    return parts


def superscript(number: int) -> str:
    """Return an integer in superscript digits."""
    return str(number).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def panel(
    left: float, right: float, last: float, decades: range, title: str, curves: Sequence[Curve]
) -> list[str]:
    """Return a panel with curves of log₁₀ ‖E‖ against t."""

    def y(decade: float) -> float:
        share = (decade - decades[0]) / (decades[-1] - decades[0])
        return BOTTOM - (BOTTOM - TOP) * share

    parts = [text((left + right) / 2, TOP - 14, title, font_size="14")]
    parts += axis_marks(left, right, last, decades, y)
    for times, norms, colour, dashes in curves:
        points = " ".join(
            f"{left + (right - left) * t / last:.0f},{y(np.log10(norm)):.1f}"
            for t, norm in zip(times, norms, strict=True)
            if decades[0] <= np.log10(norm) <= decades[-1]
        )
        style = f'stroke-dasharray="{dashes}"' if dashes else ""
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.6" '
            f"{style}/>"
        )
    return parts


def line(rate: float, at: float, height: float, times: Sequence[float]) -> Curve:
    """Return the straight line of a rate through a point."""
    return times, [height * float(np.exp(rate * (t - at))) for t in times], INK, "6 4"


def damped() -> list[Curve]:
    """Return Landau damping for two wave numbers, and the lines of its theory."""
    curves = []
    for (k, rate), colour in zip(DAMPING.items(), (BLUE, ORANGE), strict=True):
        times, norms = norms_of("landau-1x1v", 30.0, 2, k=k)
        first = max(
            j
            for j in range(1, len(norms) - 1)
            if norms[j - 1] < norms[j] > norms[j + 1] and times[j] < 10.0
        )
        curves.append((times, norms, colour, ""))
        curves.append(line(rate, times[first], norms[first], [0.0, 30.0]))
    return curves


def growing() -> list[Curve]:
    """Return the instability of two beams, and the line of its theory."""
    times, norms = norms_of("two-stream-linear", 50.0, 8)
    middle = times.index(min(times, key=lambda t: abs(t - 25.0)))
    return [(times, norms, GREEN, ""), line(GROWTH, times[middle], norms[middle], [8.0, 46.0])]


def main() -> None:
    """Draw both panels."""
    parts = panel(76, 390, 30.0, range(-7, -2), "Landau damping: ‖E‖", damped())
    parts += [
        text(330, 98, "k = 0.4", fill=ORANGE),
        text(150, 256, "k = 0.5", fill=BLUE),
    ]
    parts += panel(488, 802, 50.0, range(-5, 3), "Two beams: ‖E‖", growing())
    title = "The norm of the electric field against time, and the slopes of the theory"
    (HERE / "landau.svg").write_text(picture(title, WIDTH, HEIGHT, parts), encoding="utf-8")


if __name__ == "__main__":
    main()
