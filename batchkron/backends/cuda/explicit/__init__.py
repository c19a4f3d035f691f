"""The explicit Kronecker product A_1 ⊗ … ⊗ A_d as a matrix, on a CUDA device."""
