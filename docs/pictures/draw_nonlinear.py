"""Draws the picture of docs/guides/nonlinear.md: `python docs/pictures/draw_nonlinear.py`.

It runs Burgers' equation in two axes with the installed batchkron, which takes some seconds, and
needs Matplotlib.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np

mpl.use("Agg")
from matplotlib import pyplot as plt

from batchkron.problems import PDE, Axis, div, pointwise
from batchkron.solvers import evolve

HERE = Path(__file__).parent
UNTIL = 0.25  # the shock forms at 0.33


def main() -> None:
    """Draw the state at the beginning and shortly before the shock."""
    x, y = Axis("x", 0, 2 * np.pi), Axis("y", 0, 2 * np.pi)
    flux = pointwise(lambda f: f**2 / 2, speed=1.5)
    pde = PDE(
        [x, y],
        [-1 * div(x) @ flux, -1 * div(y) @ flux],
        boundary="periodic",
        initial=lambda x, y: np.sin(x + y) * (1 + 0.5 * np.cos(x - y)),
    )
    problem = pde.discretize(level=7, degree=2)
    result = evolve(problem, until=UNTIL)
    figure, axes = plt.subplots(1, 2, figsize=(7.2, 3.2), layout="constrained")
    for ax, u, t in zip(axes, (problem.initial, result.u), (0.0, UNTIL), strict=True):
        problem.plot(u, ax=ax, limits=(-1.5, 1.5))
        ax.set_title(f"f at t = {t:g}")
    figure.savefig(HERE / "nonlinear.png", dpi=90)


if __name__ == "__main__":
    main()
