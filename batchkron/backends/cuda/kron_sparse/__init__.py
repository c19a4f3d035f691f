"""Products with Kronecker-sparse matrices on a CUDA device."""
