"""Preconditioners that are compared by a few steps of Arnoldi's method."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchkron.arrays import array_module
from batchkron.attributes import attribute
from batchkron.operators import on_device

from ..products import as_product, dot, norm

__all__ = ["STEPS", "convergence_rate", "fastest"]

Vector = NDArray[Any]
# A random vector is reduced by each preconditioner in its first steps; what is left after four
# tells them apart. Rates of steps 5 and 6 choose the fastest, or one that takes as many iterations,
# in 9 of 10 cases (five equations, full and sparse grids); residuals after four steps in 6.
STEPS, _FIRST = 6, 4


def fastest(
    makers: Mapping[str, Callable[[], Any]], operator: Any, scale: Any, most: int
) -> tuple[Any, dict[str, float]]:
    """Return the preconditioner with the smallest `convergence_rate`, and the rates of all.

    ``makers`` are functions that make them, in the order of preference; those beyond ``most``
    products with A in all are not tried. One that cannot be made does not count. A rate is the
    factor by which residuals are reduced for each product with A.
    """
    best: Any = None
    rates: dict[str, float] = {}
    for name, make in makers.items():
        try:
            M = make()
        except (ValueError, np.linalg.LinAlgError):
            continue
        per_step = 1 + products_of(M)
        if per_step * STEPS > most and best is not None:
            continue
        most -= per_step * STEPS
        rate = convergence_rate(operator, scale, M) ** (1 / per_step)
        if best is None or rate < min(rates.values()):
            best = M
        rates[name] = rate
    return best, rates


def products_of(M: Any) -> int:
    """Return the products with A in one with M."""
    return max(0, len(attribute(M, "order", ())) - 1)


def convergence_rate(operator: Any, scale: Any, M: Any) -> float:
    """Return the mean reduction of GMRES's residual in steps 5 and 6 for B M and a random vector.

    B is I - scale · A, or A. The vector is the same in all calls. Infinite where numbers overflow.
    """
    kind, device = np.dtype(M.dtype), str(attribute(operator, "device", "cpu"))
    start = np.random.default_rng(0).standard_normal(M.shape[0]).astype(kind)
    v = on_device(start / np.linalg.norm(start), device)
    multiply = as_product(operator, "operator", v)
    basis, H = [v], np.zeros((STEPS + 1, STEPS), kind)
    for step in range(STEPS):
        y = M.matvec(basis[step])
        w = array_module(y).empty_like(y)
        multiply(y, w)
        if scale is not None:
            w = y - scale * w
        for k, own in enumerate(basis):
            H[k, step] = dot(own, w) if kind.kind == "c" else dot(own, w).real
            w = w - H[k, step] * own
        size = norm(w)
        if not math.isfinite(size):
            return math.inf
        H[step + 1, step] = size
        if size <= np.finfo(kind).eps * np.linalg.norm(H[: step + 1, step]):
            return 0.0
        basis.append(w / size)
    first, last = (_residual(H[: steps + 1, :steps]) for steps in (_FIRST, STEPS))
    return float((last / first) ** (1 / (STEPS - _FIRST))) if first else 0.0


def _residual(H: Vector) -> float:
    """Return min ‖e_1 - H y‖."""
    first = np.zeros(len(H), H.dtype)
    first[0] = 1.0
    y = np.linalg.lstsq(H, first, rcond=None)[0]
    return float(np.linalg.norm(first - H @ y))
