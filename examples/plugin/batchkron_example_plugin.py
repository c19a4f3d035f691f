"""A stepper, a preconditioner and a problem that batchkron finds by their entry points.

After `pip install ./examples/plugin` their names are as good as batchkron's own:

    batchkron run travelling-wave --stepper ralston3
"""

import numpy as np

import batchkron as bk
from batchkron.problems import PDE, Axis, Separable, div
from batchkron.problems.gallery import GalleryEntry
from batchkron.solvers.steppers import Tableau

RALSTON3 = Tableau(
    "ralston3",
    3,
    [2 / 9, 1 / 3, 4 / 9],
    explicit=[[0, 0, 0], [1 / 2, 0, 0], [0, 3 / 4, 0]],
    embedded=[0, 1, 0],
    embedded_order=2,
    source="A. Ralston, Math. Comput. 16 (1962)",
)


def inverse_diagonal(A, scale=None, dtype=None):
    """Return M ≈ (I - scale A)⁻¹, or A⁻¹ for the scale None, from the diagonal of A."""
    entries = A.diagonal() if scale is None else 1 - scale * A.diagonal()
    return bk.Diagonal((1 / entries).astype(dtype or A.dtype))


def travelling_wave(speed):
    """Return the PDE f_t = -speed f_x from a sine on a periodic axis."""
    x = Axis("x", 0.0, 1.0)
    wave = Separable(x=lambda s: np.sin(2 * np.pi * s))
    return PDE([x], [div("x", -speed)], boundary="periodic", initial=wave, name="travelling-wave")


TRAVELLING_WAVE = GalleryEntry(
    name="travelling-wave",
    equation="[0, 1], periodic, f_t + speed f_x = 0",
    solution="not given",
    build=travelling_wave,
    level=4,
    degree=2,
    until=1.0,
    method="rk4",
    parameters={"speed": 1.0},
    is_known=False,
)
