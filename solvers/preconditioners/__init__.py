"""Preconditioners M ≈ A⁻¹ or (I - c A)⁻¹ from the Kronecker terms of A, for any solver."""

from .block_jacobi import block_jacobi
from .choice import NamedPreconditioner, PreconditionerWarning, make, names
from .combination import CombinationPreconditioner
from .fibre_inverse import FibreInverse
from .nearest import nearest_product, nearest_sum

__all__ = [
    "CombinationPreconditioner",
    "FibreInverse",
    "NamedPreconditioner",
    "PreconditionerWarning",
    "block_jacobi",
    "make",
    "names",
    "nearest_product",
    "nearest_sum",
]
