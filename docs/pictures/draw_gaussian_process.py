"""Draws the picture of docs/guides/gaussian-processes.md.

`python docs/pictures/draw_gaussian_process.py` fits two parameters with the installed batchkron,
which takes a second.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from draw import BLUE, GREY, INK, ORANGE, picture, text
from numpy.typing import NDArray
from scipy.optimize import minimize

import batchkron as bk
from batchkron.solvers import cg, logdet_slq

HERE = Path(__file__).parent
WIDTH, HEIGHT = 760, 400
LEFT, RIGHT, TOP, BOTTOM = 64, 740, 30, 330  # pixels of the frame
LOWEST, HIGHEST = -2.2, 2.6  # of the frame
Numbers = NDArray[np.float64]


def truth(x: Numbers) -> Numbers:
    """Return the function that the points are taken from."""
    return np.asarray(np.sin(9 * x) + 0.8 * x)


def fitted(points: Numbers, y: Numbers, at: Numbers) -> tuple[Numbers, Numbers]:
    """Return the mean and the standard deviation of the process at other points."""
    grid = bk.RegularGrid(0.0, 1.0, sizes=[100])
    square = (grid.axes[0] - grid.axes[0][0]) ** 2
    operator = bk.InterpolatedKronecker(points[:, None], grid, [square])

    def objective(parameters: Any) -> float:
        length, noise = np.exp(parameters)
        operator.update(factors=[np.exp(-square / (2 * length**2))], noise=noise)
        found = cg(operator, y, rtol=1e-8)
        return float(y @ found.x + logdet_slq(operator, probes=20).logdet) / 2

    best = minimize(objective, np.log([0.3, 0.1]), method="Nelder-Mead").x
    objective(best)  # sets the parameters
    cross = operator.cross(at[:, None])
    columns = cross.T @ np.eye(len(at))
    solved = cg(operator, columns, rtol=1e-8, batched="columns").x
    variance = 1.0 - (columns * solved).sum(axis=0)
    return cross @ cg(operator, y, rtol=1e-8).x, np.sqrt(np.maximum(variance, 0.0))


def path(x: Numbers, y: Numbers) -> str:
    """Return the places of a curve in the picture."""
    across = LEFT + (RIGHT - LEFT) * x
    down = BOTTOM - (BOTTOM - TOP) * (y - LOWEST) / (HIGHEST - LOWEST)
    return " ".join(f"{a:.0f},{b:.0f}" for a, b in zip(across, down, strict=True))


def main() -> None:
    """Draw points, the fit with twice its standard deviation, and the function."""
    rng = np.random.default_rng(3)
    points = np.concatenate([rng.uniform(0.0, 0.45, 25), rng.uniform(0.65, 1.0, 20)])
    y = truth(points) + 0.2 * rng.standard_normal(len(points))
    at = np.linspace(0.0, 1.0, 121)
    mean, deviation = fitted(points, y, at)
    upper, lower = mean + 2 * deviation, mean - 2 * deviation
    band = path(np.concatenate([at, at[::-1]]), np.concatenate([upper, lower[::-1]]))
    parts = [
        f'<rect x="{LEFT}" y="{TOP}" width="{RIGHT - LEFT}" height="{BOTTOM - TOP}" fill="none" '
        f'stroke="{INK}"/>',
        f'<polygon points="{band}" fill="{BLUE}" fill-opacity="0.2"/>',
        f'<polyline points="{path(at, truth(at))}" fill="none" stroke="{GREY}" '
        f'stroke-dasharray="6 4"/>',
        f'<polyline points="{path(at, mean)}" fill="none" stroke="{BLUE}" stroke-width="1.8"/>',
    ]
    for place in path(points, y).split():
        across, down = place.split(",")
        parts.append(f'<circle cx="{across}" cy="{down}" r="3" fill="{ORANGE}"/>')
    for value in (-2, -1, 0, 1, 2):
        down = BOTTOM - (BOTTOM - TOP) * (value - LOWEST) / (HIGHEST - LOWEST)
        parts.append(text(LEFT - 10, down + 4, f"{value:g}".replace("-", "−"), text_anchor="end"))
    for value in (0, 0.5, 1):
        parts.append(text(LEFT + (RIGHT - LEFT) * value, BOTTOM + 20, f"{value:g}"))
    parts.append(text((LEFT + RIGHT) / 2, BOTTOM + 38, "x, where the process is observed"))
    turned = {"transform": f"rotate(-90 14 {(TOP + BOTTOM) // 2})"}
    parts.append(text(14, (TOP + BOTTOM) / 2 + 4, "y, its value", **turned))
    parts.append(text(LEFT + 90, BOTTOM + 62, "points", fill=ORANGE))
    parts.append(text(LEFT + 290, BOTTOM + 62, "mean ± 2 standard deviations", fill=BLUE))
    parts.append(text(LEFT + 520, BOTTOM + 62, "the function", fill=GREY))
    title = "Noisy points, and the mean and the deviation of a Gaussian process fitted to them"
    (HERE / "gaussian-process.svg").write_text(picture(title, WIDTH, HEIGHT, parts), "utf-8")


if __name__ == "__main__":
    main()
