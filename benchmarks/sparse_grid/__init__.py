"""Right-hand sides and steps of PDEs on sparse grids, next to ASGarD."""
