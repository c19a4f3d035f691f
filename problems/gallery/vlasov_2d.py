"""Vlasov-Poisson problems in two positions: waves in a plasma along both.

Electrons on a uniform background of ions, in units of the Debye length and the plasma period:

    f_t + v1 f_x + v2 f_y + E · ∇_v f = 0,    E = -∇φ,    -Δφ = n - mean(n),    n = ∫ f dv.

x and y are periodic with one wavelength 2π/k each, and nothing flows in at the ends of velocities.
A small wave along each position behaves as in one position (`vlasov`).
"""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from ..pde import PDE
from ..statement.axis import Axis
from ..statement.boundary import Inflow
from ..statement.electric import Electric
from ..statement.fields import Moment
from ..statement.separable import Separable
from ..statement.terms import div
from .entry import WAVENUMBERS, GalleryEntry
from .vlasov import maxwellian

__all__ = ["ENTRIES"]

_TOP = 6.0  # largest speed


def _coordinate(v: NDArray[np.float64]) -> NDArray[np.float64]:
    return v


def _cosine(k: float, x: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(np.cos(k * x))


def _landau(name: str, *, k: float, amplitude: float) -> PDE:
    """Return Landau damping of a wave along x and one along y; the rates are those of one."""
    length = 2.0 * np.pi / k
    x, y = positions = Axis("x", 0.0, length), Axis("y", 0.0, length)
    velocities = Axis("v1", -_TOP, _TOP), Axis("v2", -_TOP, _TOP)
    E = Electric(positions, Moment(velocities))
    pairs = list(zip(positions, velocities, strict=True))
    both: tuple[Axis, ...] = (x, y)
    bells = {v.name: partial(maxwellian, 0.0) for v in velocities}
    initial = Separable(**bells)  # type: ignore[arg-type]
    for axis in positions:
        waves = {axis.name: partial(_cosine, k), **bells}
        initial = initial + Separable(coefficient=amplitude, **waves)  # type: ignore[assignment, arg-type]
    return PDE(
        [*positions, *velocities],
        [
            *(div(axis, -1.0, others={v: _coordinate}) for axis, v in pairs),
            *(div(v, -1.0, others={both: E[axis]}) for axis, v in pairs),
        ],
        boundary={x: "periodic", y: "periodic", **dict.fromkeys(velocities, Inflow())},
        initial=initial,
        name=name,
    )


ENTRIES = (
    GalleryEntry(
        "landau-2x2v",
        "f_t + v1 f_x + v2 f_y + E · ∇_v f = 0, div E = n - mean(n); f = "
        "(1 + amplitude (cos kx + cos ky)) M(v1) M(v2) at t = 0",
        "not known; ‖E‖ ~ exp(-0.15336 t) |cos(1.41566 t)| for k = 0.5, exp(-0.06613 t) for 0.4",
        partial(_landau, "landau-2x2v"),
        level=5,
        degree=2,
        until=20.0,
        method="rk4",
        parameters={"k": 0.5, "amplitude": 1e-4},
        is_known=False,
        ranges={"k": WAVENUMBERS},
    ),
)
