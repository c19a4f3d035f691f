"""The heat equation in the unit cube, with Dirichlet data from the exact solution."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchkron.problems import time
from batchkron.problems.axis import Axis
from batchkron.problems.boundary import Dirichlet
from batchkron.problems.gallery.entry import GalleryEntry
from batchkron.problems.pde import PDE
from batchkron.problems.separable import Separable
from batchkron.problems.terms import laplacian

__all__ = ["ENTRIES"]


def _cosine(points: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(np.cos(np.pi * points))


def _diffusion(name: str, dimensions: int) -> Callable[[], PDE]:
    """Return the maker of f_t = Δf with f = exp(-d π² t) Π cos(π x_i)."""

    def build() -> PDE:
        axes = [Axis(axis, 0.0, 1.0) for axis in ("x", "y", "z")[:dimensions]]
        factors: dict[str, Any] = {axis.name: _cosine for axis in axes}
        decay = time.exp(-dimensions * float(np.pi) ** 2)
        return PDE(
            axes,
            laplacian(axes),
            boundary=Dirichlet("from exact"),
            exact=Separable(t=decay, **factors),
            name=name,
        )

    return build


def _entry(dimensions: int, domain: str, solution: str, level: int) -> GalleryEntry:
    """Return the entry of one dimension.

    The step is 0.5 h^((p + 1)/2) / (d (2p + 1)): the error in time, of order 2, falls with the
    error in space, of order p + 1.
    """
    name = f"diffusion-{dimensions}d"

    def step(finest: int, degree: int) -> float:
        width = 0.5**finest
        return float(0.5 * width ** ((degree + 1) / 2) / (dimensions * (2 * degree + 1)))

    return GalleryEntry(
        name,
        f"{domain}, f_t = Δf, Dirichlet data from the exact solution",
        solution,
        _diffusion(name, dimensions),
        level=level,
        degree=2,
        until=0.1,
        method="crank-nicolson",
        step=step,
    )


ENTRIES = (
    _entry(1, "[0, 1]", "exp(-π²t) cos(πx)", 5),
    _entry(2, "[0, 1]²", "exp(-2π²t) cos(πx) cos(πy)", 5),
    _entry(3, "[0, 1]³", "exp(-3π²t) cos(πx) cos(πy) cos(πz)", 4),
)
