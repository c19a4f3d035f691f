"""Runaway electrons in a plasma, in momentum p and z = cos(pitch angle).

The operator is the test-particle operator of Fokker-Planck equations: energy diffusion, drag, and
scattering of the pitch angle. Momentum is in units of m c, and the plasma's temperature is m c².
With the speed v = p/√(1+p²) in units of c:

    f_t = (1/p²) ∂(p² (C_A ∂f/∂p + C_F f))/∂p + ν ∂((1 - z²) ∂f/∂z)/∂z,
    C_A = 1/√(1+p²),    C_F = C_A v = p/(1+p²),    ν = 1/(1+p²).

Drag and diffusion cancel for exp(-√(1+p²)), the Maxwell-Jüttner equilibrium. Nothing flows through
the ends, so that ∫∫ f p² dp dz is conserved; on adaptive grids for degrees of at least 2, because
the polynomials of a cell then include p².

The problem with an electric field E has the collisions with a plasma of temperature δ² m c²/2 and
ions of charge Z, and units in which p = 1 is the thermal momentum. With γ = √(1 + δ²p²), v = p/γ
and ψ(v) = (erf v - v erf′ v)/(2v²):

    f_t = (1/p²) ∂(p² (C_A ∂f/∂p + C_F f))/∂p + (C_B/p²) ∂((1 - z²) ∂f/∂z)/∂z
          - E ((z/p²) ∂(p² f)/∂p + (1/p) ∂((1 - z²) f)/∂z) + radiation,
    C_A = ψ/v,    C_F = 2ψ,    C_B = ½ (Z + erf v - ψ + ½ δ⁴v²)/v.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import scipy  # which loads scipy.integrate and scipy.special on first use
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
# Momentum below which the scattering C_B/p² is that at this momentum. Its integral with p² does not
# exist, so that f does not depend on z at p = 0; here it is spread within 10⁻⁴ of a unit of time.
_MIN_MOMENTUM = 0.1
_MIN_SPEED = 1e-2  # speed below which ψ is computed by its series, which is exact to 10⁻¹³ there


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

    p is the momentum, with the volume element p², z the cosine of the pitch angle. The drag has
    NoFlux at the ends of p as its own condition, so that it conserves ∫ f whatever the PDE's
    conditions are.
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
        (Separable(p=_equilibrium), Separable(p=_equilibrium, z=_itself, t=time.exp(-1.0)))
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


def _speed(delta: float, p: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(p / _gamma(delta, p))


def _gamma(delta: float, p: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(np.sqrt(1.0 + (delta * p) ** 2))


def _psi_over_speed(v: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return ψ(v)/v, which is 2/(3√π) at v = 0."""
    series = (2.0 - 1.2 * v**2 + 3.0 / 7.0 * v**4) / (3.0 * np.sqrt(np.pi))
    large = np.maximum(v, _MIN_SPEED)
    slope = 2.0 / np.sqrt(np.pi) * np.exp(-(large**2))
    quotient = (scipy.special.erf(large) - large * slope) / (2.0 * large**3)
    return np.asarray(np.where(v < _MIN_SPEED, series, quotient))


def _energy_diffusion(delta: float, p: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return C_A."""
    return _psi_over_speed(_speed(delta, p))


def _friction(delta: float, p: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return C_F."""
    v = _speed(delta, p)
    return 2.0 * v * _psi_over_speed(v)


def _pitch_scattering(delta: float, charge: float, p: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return C_B/p², the constant of `_MIN_MOMENTUM` below that."""
    p = np.maximum(p, _MIN_MOMENTUM)
    v = _speed(delta, p)
    whole = charge + scipy.special.erf(v) - v * _psi_over_speed(v) + 0.5 * delta**4 * v**2
    return np.asarray(0.5 * whole / (v * p**2))


def _thermal(delta: float, norm: float, p: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return exp(-2(γ - 1)/δ²) / norm, with γ - 1 without cancellation."""
    energy = 2.0 * p**2 / (_gamma(delta, p) + 1.0)
    return np.asarray(np.exp(-energy) / norm)


def _inverse(p: NDArray[np.float64]) -> NDArray[np.float64]:
    return 1.0 / p


def _radiated(delta: float, p: NDArray[np.float64]) -> NDArray[np.float64]:
    return p * _gamma(delta, p)


def _turned(z: NDArray[np.float64]) -> NDArray[np.float64]:
    return z * (1.0 - z**2)


def _inverse_gamma(delta: float, p: NDArray[np.float64]) -> NDArray[np.float64]:
    return 1.0 / _gamma(delta, p)


def _runaway(*, field: float, delta: float, charge: float, radiation: float) -> PDE:
    """Return thermal electrons that a field accelerates; ∫∫ f p² dp dz = 1 is conserved.

    With the default parameters, and after 20 steps of 0.01 of backward Euler, f at z = ∓0.9 is
    0.94647, 0.94979 for p = 0.3; 0.61727, 0.65867 for 0.7; 0.17833, 0.22996 for 1.3; 0.02063,
    0.03220 for 2, to 10⁻⁴ on a sparse grid of level 5 and degree 3. ``radiation`` is 1/τ of the
    loss by synchrotron radiation, (1/τ) ((1/p²) ∂(p³γ(1 - z²) f)/∂p - (1/γ) ∂(z(1 - z²) f)/∂z).
    """
    p, z = Axis("p", 0.0, _MAX_MOMENTUM), Axis("z", -1.0, 1.0)
    terms = [
        div(p) @ mass(p, partial(_energy_diffusion, delta)) @ grad(p),
        div(p, partial(_friction, delta)),
        mass(p, partial(_pitch_scattering, delta, charge)) @ div(z) @ mass(z, _inside) @ grad(z),
        div(p, -field, others={z: _itself}),
        -field * div(z, _inside, others={p: _inverse}),
    ]
    if radiation:
        terms += [
            radiation * div(p, partial(_radiated, delta), others={z: _inside}),
            -radiation * div(z, _turned, others={p: partial(_inverse_gamma, delta)}),
        ]
    shape = partial(_thermal, delta, 1.0)
    norm, _ = scipy.integrate.quad(
        lambda s: 2.0 * s**2 * float(shape(np.array(s))), 0.0, _MAX_MOMENTUM
    )
    return PDE(
        [p, z],
        terms,
        boundary=NoFlux(),
        initial=Separable(p=partial(_thermal, delta, norm)),
        volume={p: _square},
        name="runaway",
    )


def _runaway_step(level: int, degree: int) -> float:
    return 0.01


ENTRIES = (
    GalleryEntry(
        "runaway",
        "p in [0, 10], z in [-1, 1], dV = p²; collisions, and acceleration by the field E; "
        "exp(-2√(1+δ²p²)/δ²) at t = 0",
        "not known; f = 0.61727, 0.65867 at p = 0.7, z = ∓0.9, t = 0.2; ∫∫ f p² dp dz = 1",
        _runaway,
        level=5,
        degree=3,
        until=0.2,
        method="backward-euler",
        step=_runaway_step,
        parameters={"field": 0.4, "delta": 0.3, "charge": 5.0, "radiation": 0.0},
        is_known=False,
        ranges={"delta": (0.0, 100.0), "charge": (0.0, 1e6), "radiation": (0.0, 1e6)},
    ),
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
