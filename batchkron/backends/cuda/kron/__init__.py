"""Kron-Matmuls on a device: (A_1 ⊗ … ⊗ A_d) x."""
