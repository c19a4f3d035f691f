"""The functions: Kron-Matmuls, explicit products, segmented multiplies, sums of vectors."""
