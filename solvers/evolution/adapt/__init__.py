"""Grids that follow the solution: the rule, and when the grid of a run changes."""

from .adapt import Adapt, AdaptiveProblem
from .outcome import AdaptOutcome

__all__ = ["Adapt", "AdaptOutcome", "AdaptiveProblem"]
