"""Linear operators with Kronecker structure."""

from batchkron.operators.base import Operator
from batchkron.operators.batched_kron import BatchedKron
from batchkron.operators.kronecker_product import KroneckerProduct
from batchkron.operators.validation import ValidationReport

__all__ = ["BatchedKron", "KroneckerProduct", "Operator", "ValidationReport"]
