"""The product with a Kronecker product of linear_operator, by batchkron's kernels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from linear_operator.operators import (
    ConstantMulLinearOperator,
    DenseLinearOperator,
    DiagLinearOperator,
    LinearOperator,
    ToeplitzLinearOperator,
    TriangularLinearOperator,
)
from linear_operator.operators import KroneckerProductLinearOperator as TheirProduct
from torch import Tensor

from batchkron.torch import gekmm

__all__ = ["matmul", "matrices_of", "multiply_matrices", "t_matmul"]

# Rows of a Toeplitz factor from which linear_operator multiplies: it transforms, in O(P log P). The
# bound is the one of batchkron/operators/interpolated/grid_product.py, where it was measured.
MIN_FFT_ROWS = 512
_DTYPES = (torch.float32, torch.float64)

# The methods as linear_operator has them, also while others are in their place.
_their_matmul: Any = TheirProduct._matmul
_their_t_matmul: Any = TheirProduct._t_matmul


def matmul(product: TheirProduct, rhs: Tensor) -> Tensor:
    """Return (K_1 ⊗ … ⊗ K_d) rhs, in the place of the product's method ``_matmul``.

    Parameters
    ----------
    product : KroneckerProductLinearOperator, (*batch, ΠP, ΠQ)
    rhs : Tensor, (*batch2, ΠQ, C) or (ΠQ,)

    Returns
    -------
    Tensor, (..., ΠP, C) or (..., ΠP)
    """
    found = _multiply(product.linear_ops, rhs, transposed=False)
    return _their_matmul(product, rhs) if found is None else found


def t_matmul(product: TheirProduct, rhs: Tensor) -> Tensor:
    """Return (K_1 ⊗ … ⊗ K_d)ᵀ rhs, in the place of the product's method ``_t_matmul``."""
    found = _multiply(product.linear_ops, rhs, transposed=True)
    return _their_t_matmul(product, rhs) if found is None else found


def matrices_of(factors: Sequence[LinearOperator]) -> list[Tensor] | None:
    """Return factors as matrices (*batch, P_k, Q_k), or None if the product is not for kernels.

    Dense, triangular and short Toeplitz factors, and multiples of them, are matrices. Others
    (diagonal, lazy, long Toeplitz factors) are left to linear_operator, as are dtypes without
    kernels.
    """
    found = []
    for factor in factors:
        matrix = _matrix(factor)
        if matrix is None or matrix.dtype not in _DTYPES:
            return None
        found.append(matrix)
    return found


def _matrix(factor: LinearOperator) -> Tensor | None:
    if isinstance(factor, DenseLinearOperator):
        return factor.tensor
    if isinstance(factor, TriangularLinearOperator) and not isinstance(factor, DiagLinearOperator):
        return factor.to_dense()
    if isinstance(factor, ToeplitzLinearOperator) and factor.shape[-1] < MIN_FFT_ROWS:
        places = torch.arange(factor.shape[-1], device=factor.device)
        return factor.column[..., (places[:, None] - places).abs()]
    if isinstance(factor, ConstantMulLinearOperator):
        matrix = _matrix(factor.base_linear_op)
        return None if matrix is None else matrix * factor.expanded_constant
    return None


def _multiply(factors: Sequence[LinearOperator], rhs: Tensor, *, transposed: bool) -> Tensor | None:
    matrices = matrices_of(factors)
    if matrices is None or any(_differ(matrix, rhs) for matrix in matrices):
        return None
    if transposed:
        matrices = [matrix.mT for matrix in matrices]
    if rhs.dim() == 1:
        return multiply_matrices(matrices, rhs[:, None])[..., 0]
    return multiply_matrices(matrices, rhs)


def _differ(matrix: Tensor, rhs: Tensor) -> bool:
    return matrix.dtype != rhs.dtype or matrix.device != rhs.device


def multiply_matrices(matrices: Sequence[Tensor], rhs: Tensor) -> Tensor:
    """Return (A_1 ⊗ … ⊗ A_d) rhs for batches of factors, one call of kernels for each of them.

    Parameters
    ----------
    matrices : sequence of Tensor, each (*batch, P_k, Q_k)
    rhs : Tensor, (*batch2, ΠQ, C)

    Returns
    -------
    Tensor, (..., ΠP, C)
    """
    batch = torch.broadcast_shapes(*[matrix.shape[:-2] for matrix in matrices])
    if math.prod(batch) == 1:
        product = gekmm([matrix.reshape(matrix.shape[-2:]) for matrix in matrices], rhs)
        return product.expand(*torch.broadcast_shapes(batch, rhs.shape[:-2]), *product.shape[-2:])
    shape = torch.broadcast_shapes(batch, rhs.shape[:-2])
    count = math.prod(shape)
    rows = math.prod(matrix.shape[-2] for matrix in matrices)
    if count == 0:
        return rhs.new_zeros(*shape, rows, rhs.shape[-1])
    flat = [matrix.expand(*shape, -1, -1).reshape(count, *matrix.shape[-2:]) for matrix in matrices]
    vectors = rhs.expand(*shape, -1, -1).reshape(count, *rhs.shape[-2:])
    products = [gekmm([one[b] for one in flat], vectors[b]) for b in range(count)]
    return torch.stack(products).reshape(*shape, rows, rhs.shape[-1])
