"""Diffusion whose coefficient differs by 10⁴ between directions and places, and with advection."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .. import time
from ..pde import PDE
from ..statement.axis import Axis
from ..statement.boundary import Dirichlet
from ..statement.separable import Separable, SeparableSum
from ..statement.terms import div, laplacian
from .entry import GalleryEntry, step_of_second_order

__all__ = ["ENTRIES"]

_PI = float(np.pi)
_DIFFUSIVITY_Y = 1e-4  # diffusivity in y of the anisotropic problem
_KAPPA = 0.05  # diffusivity of the advection-diffusion problem
_VELOCITY = (1.0, 0.5)  # velocity (a, b) of the advection-diffusion problem


def _across(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Diffusivity in x, from 10⁻⁴ to 1."""
    return np.asarray(10.0 ** (4.0 * (x - 1.0)))


def _sine(s: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(np.sin(_PI * s))


def _cosine(s: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(np.cos(_PI * s))


def _anisotropic() -> PDE:
    x, y = Axis("x", 0.0, 1.0), Axis("y", 0.0, 1.0)
    return PDE(
        [x, y],
        [laplacian(x, _across), laplacian(y, _DIFFUSIVITY_Y)],
        boundary=Dirichlet(0.0),
        exact=Separable(x=_sine, y=_sine, t=time.exp(-1.0)),
        sources="from exact",
        name="diffusion-2d-anisotropic",
    )


def _advection_diffusion() -> PDE:
    """Return f_t + (a, b)·∇f = κ Δf, whose solution is a wave that moves and decays.

    cos(π(x - at)) cos(π(y - bt)) is a sum of four separable parts, by the addition theorem.
    """
    x, y = Axis("x", -1.0, 1.0), Axis("y", -1.0, 1.0)
    a, b = _VELOCITY
    decay = time.exp(-2.0 * _KAPPA * _PI**2)
    exact = SeparableSum(
        tuple(
            Separable(x=in_x, y=in_y, t=decay * along_x * along_y)
            for in_x, along_x in ((_cosine, time.cos(_PI * a)), (_sine, time.sin(_PI * a)))
            for in_y, along_y in ((_cosine, time.cos(_PI * b)), (_sine, time.sin(_PI * b)))
        )
    )
    return PDE(
        [x, y],
        [div(x, -a), div(y, -b), laplacian([x, y], _KAPPA)],
        boundary="periodic",
        exact=exact,
        name="advection-diffusion-2d",
    )


ENTRIES = (
    GalleryEntry(
        "diffusion-2d-anisotropic",
        "[0, 1]², f_t = ∂(k ∂f/∂x)/∂x + 10⁻⁴ ∂²f/∂y² + s, k = 10^(4x - 4), f = 0 at the edge",
        "exp(-t) sin(πx) sin(πy)",
        _anisotropic,
        level=5,
        degree=2,
        until=0.5,
        method="crank-nicolson",
        step=step_of_second_order,
    ),
    GalleryEntry(
        "advection-diffusion-2d",
        "[-1, 1]², periodic, f_t + (1, ½)·∇f = 0.05 Δf",
        "exp(-0.1 π² t) cos(π(x - t)) cos(π(y - t/2))",
        _advection_diffusion,
        level=5,
        degree=2,
        until=0.5,
        method="crank-nicolson",
        step=step_of_second_order,
    ),
)
