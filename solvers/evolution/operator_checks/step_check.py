"""What checks of a step before a run find: is it stable, and which step would be."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

__all__ = [
    "SAFE_FRACTION",
    "StepCheck",
    "UnstableStep",
    "UnstableStepError",
    "is_stable",
    "largest_stable",
]

# Log of the largest factor by which a component may grow in a run, relative to the solution; chosen
# by hand.
_MAX_LOG_GROWTH = math.log(2.0)
# Fraction of the estimated largest stable step from which a run is watched by step doubling;
# measured on the gallery.
SAFE_FRACTION = 0.8
_ROUNDING = 1e-10  # a value of log |R| per step up to this is a rounding error


@dataclass(frozen=True)
class UnstableStep:
    """A step for which a method is not stable.

    ``method``: the method's name.
    ``dt``: the step of the run.
    ``rate``: the rate λ with which the solution changes the component that is amplified most: an
      eigenvalue of A, as estimated.
    ``growth``: the factor by which a step multiplies that component.
    ``largest``: the estimated largest stable step; 0 if there is none.
    ``is_eigenvalue``: whether the growth follows from λ, as that of an explicit method.
    """

    method: str
    dt: float
    rate: complex
    growth: float
    largest: float
    is_eigenvalue: bool = True

    def text(self, override: str) -> str:
        """Return an error text; ``override`` is the option with which the run is done anyway."""
        value = self.rate
        shown = f"{value.real:.4g}" if value.imag == 0.0 else f"{value:.4g}"
        grown = math.exp(min(self.dt * max(value.real, 0.0), 700.0))
        solution = "does not grow" if grown <= 1.0 else f"grows by {grown:.4g}"
        way = f"take dt <= {_floor(self.largest)}, the largest stable step, or"
        found = (
            f"A has an eigenvalue of about {shown} (estimated by Arnoldi's method), whose "
            f"component each step multiplies by {self.growth:.4g}"
            if self.is_eigenvalue
            else f"each step multiplies a component by about {self.growth:.4g} (estimated by "
            "Arnoldi's method with the steps)"
        )
        return (
            f"dt is {self.dt:.4g}, and {self.method} is not stable with it: {found}, where that "
            f"of the solution {solution}; {way if self.largest > 0.0 else 'take'} an implicit "
            f"method, or pass {override} to run all the same."
        )


StepCheck: TypeAlias = tuple[UnstableStep | None, bool]
"""A description of a step if it is unstable, and whether it is below 0.8 times the estimated
largest stable one, False without an estimate: the run is then watched by step doubling."""


class UnstableStepError(ValueError):
    """A step that is not stable, refused before a run.

    ``unstable``: its description.
    """

    def __init__(self, unstable: UnstableStep) -> None:
        super().__init__(unstable.text("allow_unstable=True"))
        self.unstable = unstable

    def __reduce__(self) -> tuple[type[UnstableStepError], tuple[UnstableStep]]:
        return type(self), (self.unstable,)


def is_stable(excess: float, dt: float, length: float, rounding: float = _ROUNDING) -> bool:
    """Return whether a component grows by at most 2 in a run, relative to the solution.

    ``excess`` is the log of its growth in a step, minus that of the solution; up to ``rounding`` it
    counts as 0. ``length`` is that of the run.
    """
    return excess <= rounding or excess * length <= _MAX_LOG_GROWTH * dt


def largest_stable(stable: Callable[[float], bool], dt: float) -> float:
    """Return the largest stable step below ``dt``, which is not stable; 0 if there is none."""
    good, bad = 0.5 * dt, dt
    while not stable(good):
        good, bad = 0.5 * good, good
        if good <= 1e-15 * dt:
            return 0.0
    for _ in range(40):
        middle = 0.5 * (good + bad)
        good, bad = (middle, bad) if stable(middle) else (good, middle)
    return good


def _floor(value: float) -> str:
    """Return a number as text, rounded down to three digits."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 2)
    return f"{math.floor(value / unit) * unit:.3g}"
