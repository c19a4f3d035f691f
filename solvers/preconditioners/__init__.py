"""Preconditioners M ≈ A⁻¹, or (I - c A)⁻¹, from the Kronecker terms of A: any solver takes them."""

from batchkron.solvers.preconditioners.block_jacobi import block_jacobi
from batchkron.solvers.preconditioners.choice import NamedPreconditioner, make, names
from batchkron.solvers.preconditioners.combination import CombinationPreconditioner
from batchkron.solvers.preconditioners.nearest import nearest_product, nearest_sum

__all__ = [
    "CombinationPreconditioner",
    "NamedPreconditioner",
    "block_jacobi",
    "make",
    "names",
    "nearest_product",
    "nearest_sum",
]
