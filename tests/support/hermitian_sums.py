"""Random Hermitian and positive definite factors, and dense sums of Kronecker products."""

import numpy as np
from dense_oracle import random_array


def hermitian(rng, n, dtype):
    matrix = random_array(rng, (n, n), dtype)
    return ((matrix + matrix.conj().T) / 2).astype(dtype)


def mass(rng, n, dtype):
    matrix = random_array(rng, (n, n), dtype)
    return (matrix @ matrix.conj().T + n * np.eye(n)).astype(dtype)


def dense(terms):
    """Σ c_t A_t1 ⊗ … by NumPy."""
    total = 0
    for coefficient, factors in terms:
        product = np.ones((1, 1))
        for factor in factors:
            product = np.kron(product, factor)
        total = total + coefficient * product
    return total
