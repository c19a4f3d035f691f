"""Collisions that drive the velocities of particles to a Maxwellian.

With n, u and θ, the density, mean velocity and temperature of f itself, and M the Maxwellian that
has them, the collisions are those of Lenard, Bernstein and Dougherty (LB) or of Bhatnagar, Gross
and Krook (BGK):

    C(f) = ν Σ_i ∂((v_i - u_i) f + θ ∂f/∂v_i)/∂v_i    or    C(f) = ν (M - f).

n, u and θ are conserved at every place, in the discretization to rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from ..pde import PDE
from ..statement.axis import Axis
from ..statement.bgk import bgk
from ..statement.boundary import NoFlux, Periodic
from ..statement.collisions import lenard_bernstein
from ..statement.separable import Separable, SeparableAt, SeparableSum
from ..statement.terms import div
from .entry import WAVENUMBERS, GalleryEntry
from .vlasov import maxwellian, vlasov_poisson, wave

__all__ = ["ENTRIES"]

_PI = float(np.pi)
_TEMPERATURE = 0.5  # of each of the Maxwellians of which the relaxation begins
_STEP = 5e-4  # time step of the relaxation for ν = 1000; it is proportional to 1/ν
_RATE = 1e3  # default ν of the relaxation

# Mean velocities of the Maxwellians of which the relaxation begins, by the number of velocities.
_CENTRES: dict[int, tuple[tuple[float, ...], ...]] = {
    1: ((-1.0,), (2.0,)),
    2: ((3.0, 0.0), (0.0, 3.0)),
    3: ((3.0, 0.0, 0.0), (0.0, 3.0, 0.0), (0.0, 0.0, 3.0)),
}


def _bell(mean: float, theta: float, v: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(np.exp(-((v - mean) ** 2) / (2.0 * theta)) / np.sqrt(2.0 * _PI * theta))


def _mixture_temperature(centres: Sequence[Sequence[float]]) -> float:
    """Return the temperature of the mixture, its variance along one velocity averaged over all."""
    return _TEMPERATURE + float(np.var(np.array(centres), axis=0).mean())


def _relaxing(
    centres: Sequence[Sequence[float]], nu: float, names: Sequence[str], t: float
) -> SeparableSum:
    """Return the solution at a time; ``names`` are those of the velocities.

    Each Maxwellian stays one: its mean velocity goes to u as exp(-νt), its temperature to θ as
    exp(-2νt).
    """
    decay, theta = np.exp(-nu * t), _mixture_temperature(centres)
    width = theta + (_TEMPERATURE - theta) * decay**2
    mean = np.mean(centres, axis=0)
    means = [mean + (np.array(centre) - mean) * decay for centre in centres]
    return _mixture(means, float(width), names)


def _mixture(
    centres: Sequence[Sequence[float] | NDArray[np.float64]], theta: float, names: Sequence[str]
) -> SeparableSum:
    """Return the mean of Maxwellians of one temperature, the same at every x."""
    parts = [
        Separable(
            coefficient=1.0 / len(centres),
            **{
                name: partial(_bell, float(u), theta) for name, u in zip(names, centre, strict=True)
            },  # type: ignore[arg-type]
        )
        for centre in centres
    ]
    return SeparableSum(tuple(parts))


def _relaxation(name: str, velocities: int, *, nu: float) -> PDE:
    """Return LB collisions of several Maxwellians of temperature ½, the same at every x.

    The L2 distance to the final Maxwellian, which has θ = 2.75 (2.5 for three velocities), on
    sparse grids of degree 2 and with steps of 5e-4 for ν = 1000 is 3.59e-5 for one velocity, level
    5 and 10 steps; 1.05e-3 for two, level 5 and 10 steps; 6.65e-3 for three, level 4 and 5 steps.
    """
    centres = _CENTRES[velocities]
    x = Axis("x", -0.5, 0.5)
    names = ["v"] if velocities == 1 else [f"v{i + 1}" for i in range(velocities)]
    axes = [Axis(own, -8.0, 12.0) for own in names]
    return PDE(
        [x, *axes],
        lenard_bernstein(axes, nu, conserve="exact"),
        boundary={x: Periodic()} | dict.fromkeys(axes, NoFlux()),
        initial=_mixture(centres, _TEMPERATURE, names),
        exact=SeparableAt(partial(_relaxing, centres, nu, names)),
        name=name,
    )


def _collisional_landau(name: str, *, k: float, nu: float, amplitude: float) -> PDE:
    """Return Landau damping with LB collisions, (1 + amplitude cos kx) M(v) at t = 0.

    For k = 0.5 the wave falls as exp(γt) cos(ωt) with γ, ω = -0.12431, 1.40125 for ν = 0.05;
    -0.10537, 1.38873 for 0.1; -0.07460 for 0.25; -0.03161, 1.33106 for 1; -0.00357 for 10. There is
    a second mode, which does not oscillate and falls at -0.1757, -0.0179 for ν = 1 and 10.
    """
    x, v = Axis("x", -_PI / k, _PI / k), Axis("v", -6.0, 6.0)
    shapes = {v: partial(maxwellian, 0.0)}
    collisions = lenard_bernstein(v, nu, conserve="exact")
    return vlasov_poisson(name, x, partial(wave, amplitude, k), shapes, collisions)


def _bgk(name: str, *, k: float, nu: float, amplitude: float) -> PDE:
    """Return BGK collisions of a gas without a field, (1 + amplitude cos kx) M(v) at t = 0.

    For k = π and small amplitudes the density's wave is cos(ωt) exp(γt) with γ, ω = -0.82400,
    5.58073 for ν = 10, beside modes that do not oscillate; for ν → ∞ it is sound, ω → √3 k.
    """
    x, v = Axis("x", -_PI / k, _PI / k), Axis("v", -6.0, 6.0)
    return PDE(
        [x, v],
        [div(x, -1.0, others={v: _coordinate}), *bgk(v, nu)],
        boundary={x: Periodic(), v: NoFlux()},
        initial=Separable(x=partial(wave, amplitude, k), v=partial(maxwellian, 0.0)),
        name=name,
    )


def _coordinate(v: NDArray[np.float64]) -> NDArray[np.float64]:
    return v


def _step(level: int, degree: int) -> float:
    return _STEP


def _relaxation_entry(velocities: int, level: int, steps: int) -> GalleryEntry:
    name = f"relaxation-1x{velocities}v"
    return GalleryEntry(
        name,
        "f_t = C(f), collisions with u, θ of f; Maxwellians of temperature ½ at t = 0, for all x",
        "each stays a Maxwellian, u_i → u as exp(-νt), θ_i → θ as exp(-2νt)",
        partial(_relaxation, name, velocities),
        level=level,
        degree=2,
        until=steps * _STEP,
        method="ark3",
        step=_step,
        parameters={"nu": _RATE},
    )


ENTRIES: tuple[GalleryEntry, ...] = (
    _relaxation_entry(1, 5, 10),
    _relaxation_entry(2, 5, 10),
    _relaxation_entry(3, 4, 5),
    GalleryEntry(
        "collisional-landau-1x1v",
        "f_t + v f_x + E f_v = C(f), E_x = n - mean(n); f = (1 + amplitude cos kx) M(v) at t = 0",
        "not known; ‖E‖ ~ exp(-0.03161 t) |cos(1.33106 t)| for k = 0.5, nu = 1, beside a mode "
        "that does not oscillate",
        partial(_collisional_landau, "collisional-landau-1x1v"),
        level=6,
        degree=2,
        until=20.0,
        method="ark3",
        parameters={"k": 0.5, "nu": 1.0, "amplitude": 1e-4},
        is_known=False,
        ranges={"k": WAVENUMBERS},
    ),
    GalleryEntry(
        "bgk-1x1v",
        "f_t + v f_x = ν (M - f) with density, velocity, temperature of f; f = (1 + amplitude "
        "cos kx) M(v) at t = 0",
        "not known; the density's wave ~ exp(-0.82400 t) cos(5.58073 t) for k = π, nu = 10",
        partial(_bgk, "bgk-1x1v"),
        level=5,
        degree=2,
        until=1.0,
        method="ark3",
        parameters={"k": _PI, "nu": 10.0, "amplitude": 1e-4},
        is_known=False,
        ranges={"k": WAVENUMBERS},
    ),
)
