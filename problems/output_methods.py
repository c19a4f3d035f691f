"""The methods of a problem that its output does: those that both kinds of problems have."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

__all__ = ["OutputMethods"]


class OutputMethods:
    """A problem with an `output`, by which states are compared, measured and drawn."""

    @property
    @abstractmethod
    def output(self) -> Any:
        """What is read off states, and shown of them."""

    def l2_error(self, u: Any, t: float) -> float:
        """Return the norm of u - f(t) with the exact solution f; see the output's method."""
        error: float = self.output.l2_error(u, t)
        return error

    def l2_norm_exact(self, t: float) -> float:
        """Return the norm of the exact solution f(t)."""
        norm: float = self.output.l2_norm_exact(t)
        return norm

    def relative_error(self, u: Any, t: float) -> float:
        """Return ‖u - f(t)‖ / ‖f(t)‖; infinite where f(t) is zero and u is not."""
        error: float = self.output.relative_error(u, t)
        return error

    def quantities(self, *names: str) -> dict[str, Any]:
        """Return quantities for ``evolve(problem, watch=…)``, all or those of these names.

        See the output's method for the names.
        """
        found: dict[str, Any] = self.output.quantities(*names)
        return found
