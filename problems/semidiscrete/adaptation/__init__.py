"""Grids that follow the solution: which cells change, and states and operators on the next one."""
