"""Gains: what is added to f_t and is computed from the whole state, but is no operator."""

from __future__ import annotations

from dataclasses import dataclass

from .axis import Axis

__all__ = ["MaxwellianGain"]


@dataclass(frozen=True)
class MaxwellianGain:
    """The gain ν M(x, v), with the Maxwellian of the density, mean velocity, temperature of f.

    ``position``, ``velocity``: x and v, all axes of the problem.
    ``nu``: the rate ν.
    """

    position: Axis
    velocity: Axis
    nu: float

    def __repr__(self) -> str:
        return f"<{self.text()}>"

    def text(self) -> str:
        """Return the gain as one line."""
        return f"{self.nu:.6g} * Maxwellian({self.position.name}, {self.velocity.name})"
