"""Interpolation on a grid from windows of cells, and its transpose."""
