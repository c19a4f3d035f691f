"""Equations with functions of the solution, and with conditions and coefficients like theirs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from .. import time
from ..pde import PDE
from ..statement.axis import Axis
from ..statement.boundary import Robin
from ..statement.pointwise import pointwise
from ..statement.separable import Separable
from ..statement.terms import div, grad, laplacian, mass
from .entry import GalleryEntry, step_of_second_order

__all__ = ["ENTRIES"]

Values = NDArray[np.float64]

_TURN = 2 * np.pi
_ITERATIONS = 20  # of Newton's method for the value on a characteristic, before the shock


def _carried(s: Values, t: float) -> Values:
    """Return the solution of u_t + (u²/2)_s = 0 from sin s before the shock at t = 1."""
    u = np.sin(s)
    for _ in range(_ITERATIONS):
        u = u - (u - np.sin(s - t * u)) / (1 + t * np.cos(s - t * u))
    return u


def _carried_in_two(x: Values, y: Values, t: float) -> Values:
    return _carried(x + y, 2 * t)


def _burgers_1d() -> PDE:
    x = Axis("x", 0.0, _TURN)
    term = -1 * div(x) @ pointwise("f**2 / 2", speed=1.0)
    return PDE([x], term, boundary="periodic", initial="sin(x)", exact=_carried, name="burgers-1d")


def _burgers_2d() -> PDE:
    x, y = Axis("x", 0.0, _TURN), Axis("y", 0.0, _TURN)
    flux = pointwise("f**2 / 2", speed=1.0)
    return PDE(
        [x, y],
        [-1 * div(x) @ flux, -1 * div(y) @ flux],
        boundary="periodic",
        initial="sin(x + y)",
        exact=_carried_in_two,
        name="burgers-2d",
    )


def _fisher() -> PDE:
    x = Axis("x", -12.0, 14.0)
    return PDE(
        [x],
        [laplacian(x), pointwise("f * (1 - f)")],
        boundary="no-flux",
        initial="(1 + exp(x / sqrt(6)))**(-2)",
        name="fisher",
    )


def _allen_cahn(epsilon: float) -> PDE:
    x, y = Axis("x", 0.0, _TURN), Axis("y", 0.0, _TURN)
    return PDE(
        [x, y],
        [epsilon**2 * div(axis) @ grad(axis) for axis in (x, y)] + [pointwise("f - f**3")],
        boundary="periodic",
        initial="0.3 * sin(x) * cos(y) + 0.2 * cos(x + 2 * y)",
        name="allen-cahn",
    )


def _barenblatt(x: Values, t: float) -> Values:
    """Return the solution that begins as (1 - x²/12)₊ at t = 0."""
    age = 1.0 + t
    return np.asarray(age ** (-1 / 3) * np.maximum(1 - x**2 / (12 * age ** (2 / 3)), 0.0))


def _porous_medium() -> PDE:
    x = Axis("x", -8.0, 8.0)
    positive = "((f + sqrt(f**2)) / 2)**2"  # max(f, 0)², as formulas of files have it
    return PDE(
        [x],
        div(x) @ grad(x) @ pointwise(positive),
        boundary="no-flux",
        exact=_barenblatt,
        name="porous-medium",
    )


def _cooling(k: float) -> PDE:
    x = Axis("x", 0.0, 1.0)
    mode = Separable(x=lambda s: np.cos(k * (s - 0.5)), t=time.exp(-(k**2)))
    return PDE(
        [x],
        laplacian(x),
        boundary=Robin(k * np.tan(k / 2)),
        exact=mode,
        name="cooling-1d",
    )


def _diffusivity_2d() -> PDE:
    x, y = Axis("x", 0.0, _TURN), Axis("y", 0.0, _TURN)
    k = pointwise("(2 + sin(x) * cos(y)) * f", linear=True)
    source = (
        "sin(x + 2*y) * (1 + 5 * (2 + sin(x) * cos(y))) - cos(x) * cos(y) * cos(x + 2*y) "
        "+ 2 * sin(x) * sin(y) * cos(x + 2*y)"
    )
    return PDE(
        [x, y],
        [*(div(axis) @ k @ grad(axis) for axis in (x, y)), mass(x, -1.0)],
        boundary="periodic",
        sources=source,
        exact="sin(x + 2*y)",
        name="diffusivity-2d",
    )


def _hundredth(level: int, degree: int) -> float:
    return 0.01


def _entry(
    name: str, equation: str, solution: str, build: Callable[..., PDE], **settings: object
) -> GalleryEntry:
    known = {"level": 6, "degree": 2, "until": 0.5, "method": "ssp-rk3", **settings}
    return GalleryEntry(name, equation, solution, build, **known)  # type: ignore[arg-type]


ENTRIES = (
    _entry(
        "burgers-1d",
        "[0, 2π], periodic, f_t + (f²/2)_x = 0; f = sin x at t = 0",
        "f = sin(x - t f), before the shock at t = 1",
        _burgers_1d,
    ),
    _entry(
        "burgers-2d",
        "[0, 2π]², periodic, f_t + (f²/2)_x + (f²/2)_y = 0; f = sin(x + y) at t = 0",
        "f = sin(x + y - 2 t f), before the shock at t = ½",
        _burgers_2d,
        until=0.1,
    ),
    _entry(
        "fisher",
        "[-12, 14], f_t = f_xx + f (1 - f), nothing flows at the ends; a front at t = 0",
        "not known; far from the ends the front (1 + exp((x - 5t/√6)/√6))⁻²",
        _fisher,
        until=1.0,
        method="ark3",
        step=_hundredth,
        is_known=False,
    ),
    _entry(
        "allen-cahn",
        "[0, 2π]², periodic, f_t = epsilon² Δf + f - f³; a smooth f at t = 0",
        "not known; the energy ∫ ½ epsilon² |∇f|² + ¼ (1 - f²)² falls",
        _allen_cahn,
        level=5,
        until=0.8,
        method="ark3",
        step=_hundredth,
        parameters={"epsilon": 0.3},
        ranges={"epsilon": (1e-3, 1e3)},
        is_known=False,
    ),
    _entry(
        "porous-medium",
        "[-8, 8], f_t = (f²)_xx, nothing flows at the ends; (1 - x²/12)₊ at t = 0",
        "Barenblatt's (1 + t)^(-1/3) (1 - x²/(12 (1 + t)^(2/3)))₊",
        _porous_medium,
        degree=1,
        until=1.0,
    ),
    _entry(
        "cooling-1d",
        "[0, 1], f_t = f_xx, ∂f/∂n + r f = 0 with r = k tan(k/2)",
        "exp(-k² t) cos(k (x - ½))",
        _cooling,
        until=0.1,
        method="crank-nicolson",
        step=step_of_second_order,
        parameters={"k": 2.0},
        ranges={"k": (0.1, 3.0)},
    ),
    _entry(
        "diffusivity-2d",
        "[0, 2π]², periodic, f_t = ∇·(k ∇f) - f + s, k = 2 + sin x cos y",
        "sin(x + 2 y), which does not change",
        _diffusivity_2d,
        level=5,
        until=0.1,
        method="crank-nicolson",
        step=_hundredth,
    ),
)
