"""Transport with inflow and outflow."""

from __future__ import annotations

import numpy as np

from ..pde import PDE
from ..statement.axis import Axis
from ..statement.boundary import Inflow
from ..statement.separable import Separable
from ..statement.terms import div
from .entry import GalleryEntry

__all__ = ["ENTRIES"]


def _advection() -> PDE:
    """Return f_t = -2 f_x - 2 sin x on [0, π], where f = 1 flows in at 0, and f flows out at π."""
    x = Axis("x", 0.0, float(np.pi))
    return PDE(
        [x],
        div(x, -2.0),
        boundary=Inflow(1.0),
        exact=Separable(x=np.cos),
        sources=Separable(x=np.sin, coefficient=-2.0),
        name="advection-1d",
    )


ENTRIES = (
    GalleryEntry(
        "advection-1d",
        "[0, π], f_t = -2 f_x - 2 sin x; inflow f = 1 at 0, outflow at π",
        "cos(x), steady",
        _advection,
        level=5,
        degree=2,
        until=1.0,
        method="ssp-rk3",
    ),
)
