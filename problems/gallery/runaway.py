"""Collisions of runaway electrons with a plasma, in momentum p and z = cos(pitch angle).

The operator is the test-particle operator of Fokker-Planck equations: energy diffusion, drag, and
scattering of the pitch angle. Momentum is in units of m c, and the plasma's temperature is m c².
With the speed v = p/√(1+p²) in units of c:

    f_t = (1/p²) ∂(p² (C_A ∂f/∂p + C_F f))/∂p + ν ∂((1 - z²) ∂f/∂z)/∂z,
    C_A = 1/√(1+p²),    C_F = C_A v = p/(1+p²),    ν = 1/(1+p²).

Drag and diffusion cancel for exp(-√(1+p²)), the Maxwell-Jüttner equilibrium. Nothing flows through
the ends, so that ∫∫ f p² dp dz is conserved; on adaptive grids for degrees of at least 2, because
the polynomials of a cell then include p².
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .. import time
from ..pde import PDE
from ..statement.axis import Axis
from ..statement.boundary import NoFlux
from ..statement.separable import Separable, SeparableSum
from ..statement.terms import Term, div, grad, mass
from .entry import GalleryEntry, step_of_second_order

__all__ = ["ENTRIES", "collision_terms"]

_MAX_MOMENTUM = 10.0  # upper end of the axis of momentum, in units of m c


def _diffusivity(p: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(1.0 / np.sqrt(1.0 + p**2))


def _drag(p: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(p / (1.0 + p**2))


def _scattering(p: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(1.0 / (1.0 + p**2))


def _inside(z: NDArray[np.float64]) -> NDArray[np.float64]:
    return 1.0 - z**2


def _square(p: NDArray[np.float64]) -> NDArray[np.float64]:
    return p**2


def _equilibrium(p: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(np.exp(-np.sqrt(1.0 + p**2)))


def _itself(z: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(z, dtype=np.float64)


def collision_terms(p: Axis, z: Axis) -> tuple[Term, ...]:
    """Return the terms of energy diffusion, drag and pitch-angle scattering.

    Parameters
    ----------
    p, z : Axis
        Momentum, with the volume element p², and the cosine of the pitch angle.

    Returns
    -------
    tuple of Term
        The drag has NoFlux at the ends of p as its own condition, so that it conserves ∫ f whatever
        the PDE's conditions are.
    """
    return (
        div(p) @ mass(p, _diffusivity) @ grad(p),
        div(p, _drag, boundary=NoFlux()),
        mass(p, _scattering) @ div(z) @ mass(z, _inside) @ grad(z),
    )


def _collisions() -> PDE:
    """Return the equation with a source that makes exp(-√(1+p²)) (1 + z exp(-t)) its solution."""
    p, z = Axis("p", 0.0, _MAX_MOMENTUM), Axis("z", -1.0, 1.0)
    exact = SeparableSum(
        (
            Separable(p=_equilibrium),
            Separable(p=_equilibrium, z=_itself, t=time.exp(-1.0)),
        )
    )
    return PDE(
        [p, z],
        collision_terms(p, z),
        boundary=NoFlux(),
        exact=exact,
        sources="from exact",
        volume={p: _square},
        name="runaway-collisions",
    )


ENTRIES = (
    GalleryEntry(
        "runaway-collisions",
        "p in [0, 10], z in [-1, 1], dV = p²; energy diffusion 1/√(1+p²), drag p/(1+p²), "
        "pitch-angle scattering 1/(1+p²), with a source",
        "exp(-√(1+p²)) (1 + z exp(-t))",
        _collisions,
        level=5,
        degree=2,
        until=0.5,
        method="crank-nicolson",
        step=step_of_second_order,
    ),
)
