"""Vlasov-Poisson problems in one position: damping and growth of waves in a plasma.

Electrons on a uniform background of ions, in units of the Debye length and the plasma period:

    f_t + v f_x + E f_v = 0,    E_x = n - mean(n),    ∫ E dx = 0,    n = ∫ f dv.

x is periodic with one wavelength 2π/k, and nothing flows in at the ends of v. The solutions are not
known, but the rates at which small perturbations fall or grow are: ‖E‖ behaves as exp(γt) |cos ωt|
with a root ω + iγ of the dispersion relation. Damping ends at the recurrence time 2π/(k Δv) at the
latest, when a grid of cell width Δv no longer resolves f along v.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from ..pde import PDE
from ..statement.axis import Axis
from ..statement.boundary import Inflow
from ..statement.coefficients import Function
from ..statement.fields import Moment, Poisson
from ..statement.separable import Separable
from ..statement.terms import Term, div
from .entry import WAVENUMBERS, GalleryEntry

__all__ = ["ENTRIES", "maxwellian", "vlasov_poisson", "wave"]

_PI = float(np.pi)
_BEAM_TOP = 10.0  # largest speed of the axis of cold beams, beyond which no beam can drift


def _coordinate(v: NDArray[np.float64]) -> NDArray[np.float64]:
    return v


def wave(amplitude: float, k: float, x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return 1 + amplitude cos(kx)."""
    return np.asarray(1.0 + amplitude * np.cos(k * x))


def maxwellian(drift: float, v: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return exp(-(v - drift)²/2)/√(2π)."""
    return np.asarray(np.exp(-0.5 * (v - drift) ** 2) / np.sqrt(2.0 * _PI))


def _two_beams(drift: float, v: NDArray[np.float64]) -> NDArray[np.float64]:
    return 0.5 * (maxwellian(drift, v) + maxwellian(-drift, v))


def _two_humps(v: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(v**2 * np.exp(-(v**2)) / np.sqrt(_PI))


def _warm_humps(v: NDArray[np.float64]) -> NDArray[np.float64]:
    return v**2 * maxwellian(0.0, v)


def _bump(v: NDArray[np.float64]) -> NDArray[np.float64]:
    return 2.0 / 7.0 * (1.0 + 5.0 * v**2) * maxwellian(0.0, v)


def vlasov_poisson(
    name: str,
    x: Axis,
    shape_x: Function,
    velocities: Mapping[Axis, Function],
    collisions: Sequence[Term] = (),
) -> PDE:
    """Return the Vlasov-Poisson problem with f = shape_x(x) Π shape_i(v_i) at t = 0.

    The first of the velocities, which come with their factors, is along x; ``collisions`` are
    further terms.
    """
    axes = list(velocities)
    v = axes[0]
    field = Poisson(x, Moment(axes))
    terms: list[Term] = [
        div(x, -1.0, others={v: _coordinate}),
        div(v, -1.0, others={x: field}),
        *collisions,
    ]
    factors = {x.name: shape_x} | {axis.name: shape for axis, shape in velocities.items()}
    boundary: dict[Axis, str | Inflow] = {x: "periodic", **dict.fromkeys(axes, Inflow())}
    return PDE(
        [x, *axes],
        terms,
        boundary=boundary,
        initial=Separable(**factors),  # type: ignore[arg-type]
        name=name,
    )


def _build(
    name: str,
    shape: Function,
    *,
    k: float,
    amplitude: float,
    top: float = 6.0,
    left: float = 0.0,
    others: int = 0,
) -> PDE:
    """Return the problem with f = (1 + amplitude cos kx) shape(v), times Maxwellians in others.

    ``top`` is the largest speed, ``left`` the lower end of x, and ``others`` the number of further
    velocities.
    """
    x = Axis("x", left, left + 2.0 * _PI / k)
    names = [f"v{i}" for i in range(1, others + 2)] if others else ["v"]
    shapes = [shape, *[partial(maxwellian, 0.0)] * others]
    velocities = {Axis(own, -top, top): f for own, f in zip(names, shapes, strict=True)}
    return vlasov_poisson(name, x, partial(wave, amplitude, k), velocities)


def _landau(name: str, others: int = 0, *, k: float, amplitude: float) -> PDE:
    """Return Landau damping: a wave of a plasma at rest, which electrons of its speed damp.

    With small amplitudes ‖E‖ falls as exp(γt) |cos ωt| with γ, ω = -0.15336, 1.41566 for k = 0.5;
    -0.06613, 1.28506 for k = 0.4; -0.01262, 1.15985 for k = 0.3, from t = 6 on. With amplitude 0.5
    ("strong") it falls at -0.28 … -0.30 first, and grows at 0.07 … 0.09 for t in [20, 40].
    """
    return _build(name, partial(maxwellian, 0.0), k=k, amplitude=amplitude, others=others)


def _two_stream_linear(name: str, *, k: float, amplitude: float, drift: float) -> PDE:
    """Return two cold beams, ½(M(v - drift) + M(v + drift)), of which small waves grow.

    For k = 0.2 ‖E‖ grows as exp(γt) with γ = 0.28451 for drift = 3, on t in [20, 30]; 0.22584 for
    2.4 and 0.16201 for 2, on t in [30, 40]. Earlier there are waves, later the growth saturates.
    """
    return _build(name, partial(_two_beams, drift), k=k, amplitude=amplitude, top=_BEAM_TOP)


def _two_stream(name: str, *, k: float, amplitude: float) -> PDE:
    """Return the two humps v² exp(-v²)/√π of mean density ½ on [-π/k, π/k] × [-2π, 2π].

    With k = ½ and amplitude -½ it is ASGarD's problem: mass, momentum and energy are conserved.
    With k = ½ and amplitude 10⁻³ ‖E‖ grows as exp(0.18332 t).
    """
    return _build(name, _two_humps, k=k, amplitude=amplitude, top=2.0 * _PI, left=-_PI / k)


def _warm(name: str, *, k: float, amplitude: float) -> PDE:
    """Return the warmer humps v² exp(-v²/2)/√(2π).

    For k = ½ and small amplitudes ‖E‖ grows as exp(0.25925 t).
    """
    return _build(name, _warm_humps, k=k, amplitude=amplitude, top=8.0)


def _bump_on_tail(name: str, *, k: float, amplitude: float) -> PDE:
    """Return 2/7 (1 + 5v²) M(v), of density 12/7.

    For k = ½ and small amplitudes ‖E‖ grows as exp(0.23307 t).
    """
    return _build(name, _bump, k=k, amplitude=amplitude, top=8.0)


def _entry(
    name: str,
    state: str,
    rate: str,
    build: Callable[..., PDE],
    until: float,
    *,
    level: int = 6,
    **parameters: float,
) -> GalleryEntry:
    """Return an entry; ``state`` is f at t = 0, and ``rate`` what is known of the solution."""
    return GalleryEntry(
        name,
        f"f_t + v f_x + E f_v = 0, E_x = n - mean(n); f = {state} at t = 0",
        f"not known; {rate}",
        partial(build, name),
        level=level,
        degree=2,
        until=until,
        method="rk4",
        parameters=parameters,
        is_known=False,
        ranges={"k": WAVENUMBERS, "drift": (-_BEAM_TOP, _BEAM_TOP)},
    )


_LANDAU_RATE = "‖E‖ ~ exp(-0.15336 t) |cos(1.41566 t)| for k = 0.5, exp(-0.06613 t) for 0.4"

ENTRIES = (
    _entry(
        "landau-1x1v",
        "(1 + amplitude cos kx) M(v)",
        _LANDAU_RATE,
        _landau,
        20.0,
        k=0.5,
        amplitude=1e-4,
    ),
    _entry(
        "landau-strong",
        "(1 + amplitude cos kx) M(v), a large wave",
        "‖E‖ ~ exp(-0.29 t), then exp(0.08 t) for t in [20, 40]",
        _landau,
        40.0,
        level=7,
        k=0.5,
        amplitude=0.5,
    ),
    _entry(
        "two-stream-linear",
        "(1 + amplitude cos kx) ½(M(v - drift) + M(v + drift))",
        "‖E‖ ~ exp(0.28451 t) for drift = 3, exp(0.22584 t) for 2.4, exp(0.16201 t) for 2",
        _two_stream_linear,
        30.0,
        k=0.2,
        amplitude=1e-5,
        drift=3.0,
    ),
    _entry(
        "two-stream",
        "(1 + amplitude cos kx) v² exp(-v²)/√π on [-π/k, π/k] × [-2π, 2π]",
        "‖E‖ ~ exp(0.18332 t) for k = 0.5 and small amplitudes",
        _two_stream,
        20.0,
        k=0.5,
        amplitude=-0.5,
    ),
    _entry(
        "two-stream-warm",
        "(1 + amplitude cos kx) v² exp(-v²/2)/√(2π)",
        "‖E‖ ~ exp(0.25925 t) for k = 0.5 and small amplitudes",
        _warm,
        20.0,
        k=0.5,
        amplitude=1e-3,
    ),
    _entry(
        "bump-on-tail",
        "(1 + amplitude cos kx) (2/7)(1 + 5v²) exp(-v²/2)/√(2π)",
        "‖E‖ ~ exp(0.23307 t) for k = 0.5 and small amplitudes",
        _bump_on_tail,
        20.0,
        k=0.5,
        amplitude=1e-3,
    ),
    _entry(
        "landau-1x2v",
        "(1 + amplitude cos kx) M(v1) M(v2)",
        _LANDAU_RATE,
        partial(_landau, others=1),
        20.0,
        k=0.5,
        amplitude=1e-4,
    ),
    _entry(
        "landau-1x3v",
        "(1 + amplitude cos kx) M(v1) M(v2) M(v3)",
        _LANDAU_RATE,
        partial(_landau, others=2),
        20.0,
        k=0.5,
        amplitude=1e-4,
    ),
)
