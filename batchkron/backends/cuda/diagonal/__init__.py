"""Products with diagonal matrices on a CUDA device."""
