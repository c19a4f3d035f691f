"""Grids that follow the solution: the rule, and when the grid of a run changes."""

from .adapt import Adapt, AdaptiveProblem

__all__ = ["Adapt", "AdaptiveProblem"]
