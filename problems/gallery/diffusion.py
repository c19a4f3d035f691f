"""The heat equation in the unit cube, with Dirichlet or Neumann conditions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import time
from ..pde import PDE
from ..statement.axis import Axis
from ..statement.boundary import Dirichlet, Neumann
from ..statement.coefficients import Function
from ..statement.separable import Separable
from ..statement.terms import laplacian
from .entry import GalleryEntry

__all__ = ["ENTRIES"]


def _cosine(points: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(np.cos(np.pi * points))


def _shifted_cosine(points: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(np.cos(np.pi * (points - 0.25)))


def _diffusion(
    name: str, dimensions: int, shape: Function, condition: Dirichlet | Neumann
) -> Callable[[], PDE]:
    """Return a function that makes the PDE f_t = Δf with solution exp(-d π² t) Π shape(x_i)."""

    def build() -> PDE:
        axes = [Axis(axis, 0.0, 1.0) for axis in ("x", "y", "z")[:dimensions]]
        factors: dict[str, Any] = {axis.name: shape for axis in axes}
        decay = time.exp(-dimensions * float(np.pi) ** 2)
        return PDE(
            axes,
            laplacian(axes),
            boundary=condition,
            exact=Separable(t=decay, **factors),
            name=name,
        )

    return build


def _step(dimensions: int) -> Callable[[int, int], float]:
    """Return the function (level, degree p) → time step 0.5 h^((p + 1)/2) / (d (2p + 1)).

    h is the width of a finest cell. The error in time, of order 2 in the step, then falls as fast
    as the error in space, of order p + 1 in h.
    """

    def step(finest: int, degree: int) -> float:
        width = 0.5**finest
        return float(0.5 * width ** ((degree + 1) / 2) / (dimensions * (2 * degree + 1)))

    return step


def _entries(dimensions: int, level: int) -> tuple[GalleryEntry, GalleryEntry]:
    """Return the two entries of a number of dimensions: with Dirichlet and with Neumann data."""
    names = ("x", "y", "z")[:dimensions]
    domain = "[0, 1]" + ("", "²", "³")[dimensions - 1]
    decay = f"exp(-{dimensions if dimensions > 1 else ''}π²t)"
    made = []
    for suffix, word, shape, formula, condition in (
        ("", "Dirichlet", _cosine, "cos(π{})", Dirichlet("from exact")),
        ("-neumann", "Neumann", _shifted_cosine, "cos(π({} - ¼))", Neumann("from exact")),
    ):
        name = f"diffusion-{dimensions}d{suffix}"
        made.append(
            GalleryEntry(
                name,
                f"{domain}, f_t = Δf, {word} data from the exact solution",
                " ".join([decay, *(formula.format(axis) for axis in names)]),
                _diffusion(name, dimensions, shape, condition),
                level=level,
                degree=2,
                until=0.1,
                method="crank-nicolson",
                step=_step(dimensions),
            )
        )
    return made[0], made[1]


ENTRIES = (*_entries(1, 5), *_entries(2, 5), *_entries(3, 4))
