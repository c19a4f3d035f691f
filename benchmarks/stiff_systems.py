"""Systems of a few equations that implicit methods are judged by: a part of `steppers`.

Evaluations of f that `bdf` and SciPy's BDF take at the same tolerances, and the order of one-step
methods where the data of a stiff equation change in time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.integrate import solve_ivp

from batchkron.solvers import evolve

__all__ = ["METHODS", "SYSTEMS", "Calls", "System", "calls_of", "observed_order"]

Vector = NDArray[np.float64]
RTOL = 1e-6
METHODS = ("sdirk3", "esdirk3", "wso-sdirk3")  # whose order is observed
_RATE, _UNTIL, _STEPS = -1e6, 9.0, (80, 160)


class System(NamedTuple):
    """u' = f(t, u) from t = 0, and the tolerance of each element."""

    name: str
    f: Callable[[float, Vector], Vector]
    u0: tuple[float, ...]
    until: float
    atol: tuple[float, ...]


def _robertson(t: float, u: Vector) -> Vector:
    slow, fast = 0.04 * u[0] - 1e4 * u[1] * u[2], 3e7 * u[1] ** 2
    return np.array([-slow, slow - fast, fast])


def _van_der_pol(t: float, u: Vector) -> Vector:
    return np.array([u[1], 1000.0 * (1.0 - u[0] ** 2) * u[1] - u[0]])


SYSTEMS = (
    System("Robertson to 1e4", _robertson, (1.0, 0.0, 0.0), 1e4, (1e-8, 1e-12, 1e-8)),
    System("Van der Pol, 1000, to 2000", _van_der_pol, (2.0, 0.0), 2000.0, (1e-9, 1e-9)),
)


class Calls(NamedTuple):
    """Evaluations of f, those for Jacobians included, and the relative error of the last state."""

    bdf: int
    bdf_error: float
    scipy: int
    scipy_error: float


def calls_of(system: System) -> Calls:
    """Return what both methods take; errors are against SciPy's Radau with rtol 1e-11."""
    count, span, u0 = [0], (0.0, system.until), np.array(system.u0)

    def counted(t: float, u: Vector) -> Vector:
        count[0] += 1
        return system.f(t, u)

    tight = np.array(system.atol) * 1e-5
    reference = solve_ivp(system.f, span, u0, "Radau", rtol=1e-11, atol=tight).y[:, -1]

    def error(u: Vector) -> float:
        return float(np.linalg.norm(u - reference) / np.linalg.norm(reference))

    options: dict[str, Any] = {"rtol": RTOL, "atol": np.array(system.atol)}
    ours = evolve(
        counted, u0=u0, until=system.until, method="bdf", raise_on_failure=True, **options
    )
    taken, count[0] = count[0], 0
    theirs = solve_ivp(counted, span, u0, "BDF", **options)
    return Calls(taken, error(ours.u), count[0], error(theirs.y[:, -1]))


class _ProtheroRobinson:
    """u' = λ (u - cos t) - sin t, whose solution is cos t."""

    def __init__(self) -> None:
        self.initial, self.operator = np.ones(1), np.array([[_RATE]])

    def rhs(self, t: float, u: Vector, out: Vector) -> None:
        out[...] = _RATE * (u - math.cos(t)) - math.sin(t)


def observed_order(method: str) -> float:
    """Return log2 of the ratio of two errors, the second with steps of half the length."""
    problem, errors = _ProtheroRobinson(), []
    for steps in _STEPS:
        u = evolve(problem, until=_UNTIL, method=method, dt=_UNTIL / steps).u
        errors.append(abs(float(u[0]) - math.cos(_UNTIL)))
    return math.log2(errors[0] / errors[1])
