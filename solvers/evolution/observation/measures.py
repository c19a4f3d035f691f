"""Measures of quantities that belong to the grid of a problem: moments."""

from __future__ import annotations

from typing import Any

__all__ = ["MomentWeights"]


class MomentWeights:
    """The weights w of a moment, ∫ v_1^k_1 v_2^k_2 … f dV = Σ w_i u_i.

    Parameters
    ----------
    problem : object
        With ``moment_weights(powers)``.
    powers : object
        The powers, as the problem's method takes them.

    Attributes
    ----------
    weights : ndarray, shape (N,)
        w on the problem's grid.
    """

    def __init__(self, problem: Any, powers: Any) -> None:
        self._problem, self._powers = problem, powers
        self.weights = problem.moment_weights(powers)

    def for_problem(self, problem: Any) -> MomentWeights:
        """Return the weights for the same problem on another grid; these, if it has no moments."""
        own = _untimed(problem)
        if own is self._problem or not hasattr(own, "moment_weights"):
            return self
        return MomentWeights(own, self._powers)


def _untimed(problem: Any) -> Any:
    """Return a problem without the clock of the command line."""
    return getattr(problem, "untimed", problem)
