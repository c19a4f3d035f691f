"""The first step to try of a run that chooses its steps by their errors."""

from __future__ import annotations

import math

import numpy as np

from batchkron.errors import NotPhysicalError

from ...products import norm_over
from ...steppers.error_scale import ErrorScale
from ..start.arguments import Tolerances
from ..start.integration import Integration

__all__ = ["initial_step"]


def initial_step(integration: Integration, tolerances: Tolerances, order: int) -> float:
    """Return a first step for a tolerance, at most until - t0, from two evaluations of f.

    Source: E. Hairer, S. P. Nørsett, G. Wanner, Solving Ordinary Differential Equations I,
    section II.4.
    """
    problem, t, u = integration.problem, integration.t0, integration.u
    longest = integration.until - t
    if longest <= 0.0:
        return 1.0
    slope, other = np.empty_like(u), np.empty_like(u)
    try:
        problem.rhs(t, u, slope)
    except NotPhysicalError:  # the first step will raise it again, and end the run
        return 1e-6 * longest
    ranks = integration.ranks
    size, speed = norm_over(ranks, u), norm_over(ranks, slope)
    if not math.isfinite(speed):
        return 1e-6 * longest
    # a state that is almost 0 says nothing about the time in which it changes
    reached = speed * longest * 1e-3
    if isinstance(tolerances.atol, float):
        allowed = tolerances.atol + tolerances.rtol * max(size, reached)
    else:  # as if it were the same for all elements
        scale = ErrorScale(tolerances.rtol, tolerances.atol, ranks)
        scale.set(u)
        allowed = speed / scale.size(slope) if speed > 0.0 else scale.smallest
    if allowed <= 0.0:
        return 1e-6 * longest
    d0, d1 = max(size, reached) / allowed, speed / allowed
    trial = 0.01 * d0 / d1 if d0 > 1e-5 and d1 > 1e-5 else 1e-6 * longest
    trial = min(trial, longest)
    try:
        problem.rhs(t + trial, u + trial * slope, other)
    except NotPhysicalError:
        return trial
    other -= slope
    d2 = norm_over(ranks, other) / allowed / trial
    steepest = max(d1, d2)
    if not math.isfinite(steepest):
        return trial
    if steepest <= 1e-15:
        return min(max(1e-6 * longest, 1e-3 * trial), longest)
    found = float((0.01 / steepest) ** (1.0 / (order + 1)))
    return min(100.0 * trial, found, longest)
