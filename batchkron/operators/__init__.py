"""Linear operators with Kronecker structure."""

from batchkron.operators.algebra import Identity, Operator
from batchkron.operators.batched_kron import BatchedKron
from batchkron.operators.diagonal import Diagonal
from batchkron.operators.eigenpairs import eigh, eigvalsh
from batchkron.operators.interpolated.interpolation import Interpolation
from batchkron.operators.interpolated.operator import InterpolatedKronecker
from batchkron.operators.kronecker_product import KroneckerProduct
from batchkron.operators.kronecker_sparse.chain import KroneckerSparseChain
from batchkron.operators.kronecker_sparse.operator import KroneckerSparse
from batchkron.operators.kronecker_sum.operator import KroneckerSum
from batchkron.operators.kronecker_terms import KroneckerTerm, KroneckerTerms
from batchkron.operators.placement import on_device
from batchkron.operators.sparse_grid.operator import SparseGridOperator
from batchkron.operators.validation import ValidationReport

__all__ = [
    "BatchedKron",
    "Diagonal",
    "Identity",
    "InterpolatedKronecker",
    "Interpolation",
    "KroneckerProduct",
    "KroneckerSparse",
    "KroneckerSparseChain",
    "KroneckerSum",
    "KroneckerTerm",
    "KroneckerTerms",
    "Operator",
    "SparseGridOperator",
    "ValidationReport",
    "eigh",
    "eigvalsh",
    "on_device",
]
