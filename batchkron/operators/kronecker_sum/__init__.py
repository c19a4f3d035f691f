"""Kronecker sums A_1 ⊗ I ⊗ … + … + I ⊗ … ⊗ A_d: operator, factorisation, exponential."""
