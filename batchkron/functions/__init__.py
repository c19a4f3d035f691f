"""Public functions: Kron-Matmuls, explicit Kronecker products, segmented multiplies, sums."""
