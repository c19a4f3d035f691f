"""Sums of Kronecker products on sparse grids, by sweeps along fibres."""
