"""What a PDE is stated with: axes, terms, boundary conditions, functions of time."""
