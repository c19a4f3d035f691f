"""Kernels that multiply by panels, as in a matrix product, on matrix units where there are some."""
