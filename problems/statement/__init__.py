"""The parts that a PDE is written with: axes, terms, boundary conditions, functions of time."""
