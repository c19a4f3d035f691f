"""A_1 ⊗ I ⊗ … + … + I ⊗ … ⊗ A_d: the operator, its factorisation, its exponential."""
