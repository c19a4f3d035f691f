"""Sparse and full grids of hierarchical cells."""
