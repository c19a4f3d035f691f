"""Transport with constant velocity in periodic boxes, with a source: f_t + v·∇f = s."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import time
from ..pde import PDE
from ..statement.axis import Axis
from ..statement.coefficients import Function
from ..statement.separable import Separable
from ..statement.terms import div
from .entry import GalleryEntry

__all__ = ["ENTRIES"]

_NAMES = ("x", "y", "z", "u", "v", "w")


def _cosine(wavenumber: float) -> Function:
    return lambda points: np.cos(wavenumber * points)


def _sine(wavenumber: float) -> Function:
    return lambda points: np.sin(wavenumber * points)


def _continuity(
    name: str,
    half_widths: Sequence[float],
    velocities: Sequence[float],
    shapes: Sequence[Function],
    omega: float,
) -> Callable[[], PDE]:
    """Return a function that makes the PDE f_t + Σ v_i ∂f/∂x_i = s.

    Axis i is [-half_widths[i], half_widths[i]], and the solution Π shapes[i](x_i) · sin(omega t).
    """

    def build() -> PDE:
        axes = [
            Axis(axis, -half, half)
            for axis, half in zip(_NAMES[: len(half_widths)], half_widths, strict=True)
        ]
        factors: dict[str, Any] = {
            axis.name: shape for axis, shape in zip(axes, shapes, strict=True)
        }
        return PDE(
            axes,
            [div(axis, -speed) for axis, speed in zip(axes, velocities, strict=True)],
            boundary="periodic",
            exact=Separable(t=time.sin(omega), **factors),
            sources="from exact",
            name=name,
        )

    return build


_PI = float(np.pi)

ENTRIES = (
    GalleryEntry(
        "continuity-1d",
        "[-1, 1], periodic, f_t + f_x = s",
        "cos(2πx) sin(t)",
        _continuity("continuity-1d", [1], [1], [_cosine(2 * _PI)], 1.0),
        level=6,
        degree=2,
        until=1.0,
        method="ssp-rk3",
    ),
    GalleryEntry(
        "continuity-2d",
        "[-1, 1] × [-2, 2], periodic, f_t + f_x + f_y = s",
        "cos(πx) sin(2πy) sin(2t)",
        _continuity("continuity-2d", [1, 2], [1, 1], [_cosine(_PI), _sine(2 * _PI)], 2.0),
        level=6,
        degree=2,
        until=0.5,
        method="ssp-rk3",
    ),
    GalleryEntry(
        "continuity-3d",
        "[-1, 1] × [-2, 2] × [-3, 3], periodic, f_t + f_x + f_y + f_z = s",
        "cos(πx) sin(2πy) cos(2πz/3) sin(2t)",
        _continuity(
            "continuity-3d",
            [1, 2, 3],
            [1, 1, 1],
            [_cosine(_PI), _sine(2 * _PI), _cosine(2 * _PI / 3)],
            2.0,
        ),
        level=7,
        degree=2,
        until=0.5,
        method="ssp-rk3",
    ),
    GalleryEntry(
        "continuity-6d",
        "half-widths 1, 2, 3, 10, 20, 30, periodic, f_t + (1, 1, 3, 4, 3, 2)·∇f = s",
        "cos(πx) sin(πy/2) cos(πz/3) cos(πu/10) sin(πv/20) cos(πw/30) sin(2t)",
        _continuity(
            "continuity-6d",
            [1, 2, 3, 10, 20, 30],
            [1, 1, 3, 4, 3, 2],
            [
                _cosine(_PI),
                _sine(_PI / 2),
                _cosine(_PI / 3),
                _cosine(_PI / 10),
                _sine(_PI / 20),
                _cosine(_PI / 30),
            ],
            2.0,
        ),
        level=3,
        degree=2,
        until=0.1,
        method="ssp-rk3",
    ),
)
