"""The first step to try of a run that chooses its steps by their errors."""

from __future__ import annotations

import math

import numpy as np

from batchkron.errors import NotPhysicalError

from ...krylov.vectors.ranks import norm_over
from ...steppers.error_scale import ErrorScale
from ..start.arguments import Tolerances, initial_state
from ..start.integration import Integration

__all__ = ["initial_step", "with_size_of_rise"]

# Parts of the interval at which f says how fast a state that is 0 rises; chosen by hand, the others
# so that periods that divide the interval do not hide it.
_PROBES = (1e-3, 0.137, 0.618, 0.909)


def initial_step(integration: Integration, tolerances: Tolerances, order: int) -> float:
    """Return a first step for a tolerance, at most until - t0, from two evaluations of f.

    Notes
    -----
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
        scale = ErrorScale(tolerances.rtol, tolerances.atol)
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


def with_size_of_rise(integration: Integration, tolerances: Tolerances) -> Tolerances:
    """Return tolerances of a run: with an atol for one with rtol alone that begins at the state 0.

    It is rtol times what f(t, 0), the largest at four times, adds in a thousandth of the run: while
    a state rises from 0, errors relative to it would make steps short without end. 0 where f is 0.
    """
    if not (isinstance(tolerances.atol, float) and tolerances.atol == 0.0):
        return tolerances
    problem, ranks, length = (
        integration.problem,
        integration.ranks,
        integration.until - integration.t0,
    )
    start = integration.u if integration.resumed is None else initial_state(problem)
    if norm_over(ranks, start) > 0.0:
        return tolerances
    zero, slope, speed = np.zeros_like(integration.u), np.empty_like(integration.u), 0.0
    for part in _PROBES:
        try:
            problem.rhs(integration.t0 + part * length, zero, slope)
        except NotPhysicalError:
            continue
        found = norm_over(ranks, slope)
        speed = max(speed, found) if math.isfinite(found) else speed
    return Tolerances(tolerances.rtol, tolerances.rtol * speed * 1e-3 * abs(length))
