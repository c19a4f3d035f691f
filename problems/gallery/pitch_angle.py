"""Acceleration of electrons by an electric field, and scattering by collisions.

The coordinate is z = cos(pitch angle). The operators are those of Fokker-Planck equations of
runaway electrons: acceleration (E) carries f towards z = 1, collisions (C) spread it evenly over
[-1, 1]. Their coefficient 1 - z² is zero at both ends, so that nothing flows there.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.polynomial.legendre import Legendre
from numpy.typing import NDArray

from .. import time
from ..pde import PDE
from ..statement.axis import Axis
from ..statement.boundary import NoFlux
from ..statement.separable import Separable, SeparableSum
from ..statement.terms import div, grad, mass
from .entry import GalleryEntry

__all__ = ["ENTRIES"]

Profile = Callable[[NDArray[np.float64]], NDArray[np.float64]]

_MODES = 20  # number of Legendre polynomials in the exact solution of the collisions
_AGE = 0.1  # the initial state of the collisions is a beam along z = 1 scattered for this time
_CENTRE, _WIDTH = -0.3, 0.1  # of the Gaussian profile exp(-((z - centre) / width)²)


def _inside(z: NDArray[np.float64]) -> NDArray[np.float64]:
    return 1.0 - z**2


def _even(z: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.ones_like(z)


def _gaussian(z: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(np.exp(-(((z - _CENTRE) / _WIDTH) ** 2)))


def _compressed(profile: Profile, z: NDArray[np.float64], t: float) -> NDArray[np.float64]:
    """Return the solution of the acceleration equation at time t that begins as ``profile``.

    A particle at z was at φ = tanh(atanh z - t) = (z - tanh t) / (1 - z tanh t) at time 0, and f
    has since grown by the factor (1 - φ²) / (1 - z²) = 1 / (cosh t - z sinh t)².
    """
    origin = (z - np.tanh(t)) / (1.0 - z * np.tanh(t))
    return np.asarray(profile(origin) / (np.cosh(t) - z * np.sinh(t)) ** 2)


def _acceleration(name: str, profile: Profile) -> Callable[[], PDE]:
    """Return a function that makes f_t = -∂((1 - z²) f)/∂z with f = profile(z) at t = 0."""

    def build() -> PDE:
        exact = partial(_compressed, profile)
        z = Axis("z", -1.0, 1.0)
        return PDE([z], -div(z, _inside), boundary=NoFlux(), exact=exact, name=name)

    return build


def _collisions() -> PDE:
    """Return f_t = ∂((1 - z²) ∂f/∂z)/∂z; the Legendre polynomial P_n decays as exp(-n(n+1)t).

    The operator is written as div @ mass @ grad, which is symmetric and has no positive eigenvalue
    on any grid.
    """
    z = Axis("z", -1.0, 1.0)
    exact = SeparableSum(
        tuple(
            Separable(
                z=Legendre.basis(mode),
                t=time.exp(-mode * (mode + 1)),
                coefficient=(mode + 0.5) * float(np.exp(-mode * (mode + 1) * _AGE)),
            )
            for mode in range(_MODES)
        )
    )
    return PDE(
        [z],
        div(z) @ mass(z, _inside) @ grad(z),
        boundary=NoFlux(),
        exact=exact,
        name="pitch-angle-c",
    )


def _step_of_collisions(level: int, degree: int) -> float:
    """Return the time step 0.25 h^((p + 1)/2) / (2p + 1) with the cell width h = 2^(1 - level).

    The error in time then falls as fast as the error in space.
    """
    return float(0.25 * 0.5 ** ((level - 1) * (degree + 1) / 2) / (2 * degree + 1))


def _acceleration_entry(name: str, start: str, profile: Profile, level: int) -> GalleryEntry:
    return GalleryEntry(
        name,
        f"[-1, 1], f_t = -∂((1 - z²) f)/∂z, acceleration by a field; f = {start} at t = 0",
        "f0(φ) / (cosh t - z sinh t)², φ = tanh(atanh z - t); a function, not saved in files",
        _acceleration(name, profile),
        level=level,
        degree=2,
        until=1.0,
        method="rk4",
    )


ENTRIES = (
    _acceleration_entry("pitch-angle-e", "1", _even, 5),
    _acceleration_entry("pitch-angle-e-gaussian", "exp(-((z + 0.3)/0.1)²)", _gaussian, 6),
    GalleryEntry(
        "pitch-angle-c",
        "[-1, 1], f_t = ∂((1 - z²) ∂f/∂z)/∂z, scattering by collisions; nothing flows at the ends",
        f"Σ (n + ½) exp(-n(n+1)(t + {_AGE})) P_n(z), n < {_MODES}: a beam along z = 1, scattered",
        _collisions,
        level=4,
        degree=2,
        until=0.5,
        method="crank-nicolson",
        step=_step_of_collisions,
    ),
)
