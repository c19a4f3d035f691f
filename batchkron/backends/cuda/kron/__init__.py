"""Kron-Matmuls (A_1 ⊗ … ⊗ A_d) x on a CUDA device."""
