"""Interpolation on a regular grid, and Kronecker products between two interpolations."""
