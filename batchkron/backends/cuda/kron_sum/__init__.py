"""Kronecker sums of many small systems on a CUDA device."""
