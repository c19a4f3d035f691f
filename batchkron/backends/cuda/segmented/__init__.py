"""Sums over the edges of a graph, and sweeps over sparse grids, on a CUDA device."""
