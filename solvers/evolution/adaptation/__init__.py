"""Grids that follow the solution: the rule, and when the grid of a run changes."""
