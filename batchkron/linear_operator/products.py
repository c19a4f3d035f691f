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
from batchkron.torch.interpolated import MIN_FFT_ROWS, multiply_on_grid

__all__ = [
    "as_columns",
    "from_columns",
    "matmul",
    "matrices_of",
    "multiply_matrices",
    "t_matmul",
    "tensors_of",
]

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
    """Return factors as matrices (*batch, P_k, Q_k), or None if they are not for dense kernels.

    Dense, triangular and short Toeplitz factors, and multiples of them, are matrices. Others
    (diagonal, lazy, long Toeplitz factors) are not, and dtypes without kernels have none.
    """
    found = tensors_of(factors)
    return None if found is None or any(one.dim() == 1 for one in found) else found


def tensors_of(factors: Sequence[LinearOperator]) -> list[Tensor] | None:
    """Return factors as matrices, and long Toeplitz ones as their first columns (P_k,).

    None if one is neither: see `matrices_of`. Long Toeplitz factors of a batch are left to
    linear_operator.
    """
    found = []
    for factor in factors:
        tensor = _tensor(factor)
        if tensor is None or tensor.dtype not in _DTYPES:
            return None
        found.append(tensor)
    return found


def _tensor(factor: LinearOperator) -> Tensor | None:
    if isinstance(factor, DenseLinearOperator):
        return factor.tensor
    if isinstance(factor, TriangularLinearOperator) and not isinstance(factor, DiagLinearOperator):
        return factor.to_dense()
    if isinstance(factor, ToeplitzLinearOperator):
        if factor.shape[-1] >= MIN_FFT_ROWS:
            return factor.column if factor.column.dim() == 1 else None
        places = torch.arange(factor.shape[-1], device=factor.device)
        return factor.column[..., (places[:, None] - places).abs()]
    if isinstance(factor, ConstantMulLinearOperator):
        tensor = _tensor(factor.base_linear_op)
        if tensor is None or tensor.dim() > 1:
            return None if tensor is None else tensor * factor.expanded_constant
        is_one = factor._constant.numel() == 1
        return tensor * factor._constant.reshape(()) if is_one else None
    return None


def _multiply(factors: Sequence[LinearOperator], rhs: Tensor, *, transposed: bool) -> Tensor | None:
    tensors = tensors_of(factors)
    if tensors is None or any(_differ(one, rhs) for one in tensors):
        return None
    if transposed:
        tensors = [one.mT if one.dim() > 1 else one for one in tensors]
    if any(one.dim() == 1 for one in tensors):
        return _multiply_with_transforms(tensors, rhs)
    if rhs.dim() == 1:
        return multiply_matrices(tensors, rhs[:, None])[..., 0]
    return multiply_matrices(tensors, rhs)


def _multiply_with_transforms(factors: Sequence[Tensor], rhs: Tensor) -> Tensor | None:
    """Return the product with columns of Toeplitz matrices among square factors; None with others.

    Vectors of a batch are columns of one matrix. linear_operator's complex transforms have twice
    the length less one, which may have large primes; ours are real, and powers of two.
    """
    if any(one.dim() > 1 and one.shape != (len(one), len(one)) for one in factors):
        return None
    return from_columns(multiply_on_grid(factors, as_columns(rhs)), rhs)


def as_columns(vectors: Tensor) -> Tensor:
    """Return vectors (..., n, C) or (n,) as the columns of one matrix."""
    return vectors[:, None] if vectors.dim() == 1 else vectors.movedim(-2, 0).flatten(1)


def from_columns(found: Tensor, like: Tensor) -> Tensor:
    """Return the columns of a matrix (n, columns) as vectors (..., n, C), shaped as others."""
    if like.dim() == 1:
        return found[:, 0]
    return found.reshape(len(found), *like.shape[:-2], like.shape[-1]).movedim(0, -2)


def _differ(matrix: Tensor, rhs: Tensor) -> bool:
    return matrix.dtype != rhs.dtype or matrix.device != rhs.device


def multiply_matrices(matrices: Sequence[Tensor], rhs: Tensor) -> Tensor:
    """Return (A_1 ⊗ … ⊗ A_d) rhs for batches of factors, one call of kernels for each of them.

    ``matrices`` (sequence of Tensor, each (*batch, P_k, Q_k)).
    ``rhs`` (Tensor, (*batch2, ΠQ, C)).

    Returns Tensor, (..., ΠP, C).
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
