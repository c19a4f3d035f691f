"""Equal steps between two times."""

from __future__ import annotations

import math

import numpy as np

__all__ = ["fewest_steps", "is_step_of", "last_step_of", "time_grid"]

# If (until - t0) / dt exceeds an integer by less than this, relatively, that integer is taken.
_ROUNDING = 1e-10


def time_grid(t0: float, until: float, dt: float) -> tuple[int, float]:
    """Return (steps, step): the fewest equal steps ≤ dt that lead from t0 exactly to until.

    ``t0``, ``until``: the first and the last time, until ≥ t0.
    ``dt``: the longest step; exceeded by at most 1e-10 of itself.

    Returns ``steps``: number of steps, 0 if until = t0; ``step``: length of a step, (until - t0) /
    steps. Raises `ValueError` if the steps are so short that their times would be equal in float64.

    Examples
    --------
    >>> time_grid(0.0, 1.0, 0.3)
    (4, 0.25)
    """
    resolution = float(np.spacing(max(abs(t0), abs(until))))
    if until > t0 and dt <= 4.0 * resolution:
        raise ValueError(
            f"dt is {dt}, too small for times between {t0} and {until}, which float64 resolves to "
            f"{resolution:.1e}. Take a larger dt."
        )
    return fewest_steps(t0, until, dt)


def fewest_steps(t0: float, until: float, dt: float) -> tuple[int, float]:
    """Return the steps of `time_grid`, also where float64 does not resolve their times."""
    if until == t0:
        return 0, dt
    steps = max(1, math.ceil((until - t0) / dt * (1.0 - _ROUNDING)))
    return steps, (until - t0) / steps


def is_step_of(step: float, t0: float, until: float, dt: float) -> bool:
    """Return whether ``dt`` is a grid's step, or a longest step that leads to the same grid."""
    return math.isclose(dt, step, rel_tol=_ROUNDING) or time_grid(t0, until, dt)[1] == step


def last_step_of(step: float, t0: float, until: float, done: int) -> int:
    """Return the number of steps of a resumed run from t0 to a last time that may have changed.

    ``step`` and ``done`` are the length and the number of the checkpoint's steps.

    Raises `ValueError` if ``until`` is not reached by a whole number of steps, or by fewer than are
    done.
    """
    ratio = (until - t0) / step
    steps = round(ratio)
    if abs(ratio - steps) > 10.0 * _ROUNDING * max(1.0, ratio):
        below = t0 + math.floor(ratio) * step
        raise ValueError(
            f"until is {until}, which no whole number of the checkpoint's steps (dt = {step}) "
            f"reaches from t0 = {t0}; the nearest times are {below} and {below + step}."
        )
    if steps < done:
        raise ValueError(
            f"until is {until}, before the checkpoint's time {t0 + done * step}; "
            "expected that or a later one."
        )
    return steps
