"""Chains of Kronecker-sparse matrices: patterns, fast transforms, factorisation, predicted times.

A pattern (a, b, c, d) stands for the support I_a ⊗ 1_{b×c} ⊗ I_d, a list of patterns for a chain
K_1 K_2 … K_L. `batchkron.KroneckerSparse` and `batchkron.KroneckerSparseChain` are the operators.
"""

from batchkron.kronecker_sparse.advice import Advice, advise
from batchkron.kronecker_sparse.enumeration import patterns
from batchkron.kronecker_sparse.factorisation import factorise
from batchkron.kronecker_sparse.known_patterns import (
    block_butterfly,
    deformable,
    dense,
    kaleidoscope,
    low_rank,
    monarch,
    square_dyadic,
)
from batchkron.kronecker_sparse.transforms import bit_reversal, dft, hadamard
from batchkron.spec.kron_sparse import Pattern

__all__ = [
    "Advice",
    "Pattern",
    "advise",
    "bit_reversal",
    "block_butterfly",
    "deformable",
    "dense",
    "dft",
    "factorise",
    "hadamard",
    "kaleidoscope",
    "low_rank",
    "monarch",
    "patterns",
    "square_dyadic",
]
