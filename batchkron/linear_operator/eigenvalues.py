"""Solves of sums of two Kronecker products, by eigenvalues and eigenvectors of their factors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from linear_operator.settings import _linalg_dtype_symeig
from torch import Tensor

from batchkron.linear_operator.products import multiply_matrices
from batchkron.torch.scaling import times_power_of_two, unit_exponents

__all__ = ["Diagonalised", "diagonalise"]


@dataclass(frozen=True)
class Diagonalised:
    """The sum A_1 ⊗ … ⊗ A_d + B_1 ⊗ … ⊗ B_d, V_kᵀ A_k V_k = diag(λ_k) and V_kᵀ B_k V_k = I.

    ``vectors`` (list of Tensor, each (*batch, n_k, n_k)): V_1, …, V_d.
    ``values`` (Tensor, (*batch, Πn)): the eigenvalues λ_1 ⊗ … ⊗ λ_d + 1.
    ``logdet_b`` (Tensor, (*batch)): log det (B_1 ⊗ … ⊗ B_d).
    """

    vectors: list[Tensor]
    values: Tensor
    logdet_b: Tensor

    def solve(self, rhs: Tensor) -> Tensor:
        """Return (V (λ + 1)⁻¹ Vᵀ) rhs for rhs (..., Πn, C), V the product of the V_k."""
        inner = multiply_matrices([vectors.mT for vectors in self.vectors], rhs.to(self.values))
        product = multiply_matrices(self.vectors, inner / self.values[..., None])
        return product.to(rhs.dtype)

    def logdet(self) -> Tensor:
        """Return Σ log(λ + 1) + log det B, of the shape (*batch)."""
        return self.values.log().sum(-1) + self.logdet_b


def diagonalise(A: Sequence[Tensor], B: Sequence[Tensor]) -> Diagonalised | None:
    """Return A_1 ⊗ … ⊗ A_d + B_1 ⊗ … ⊗ B_d by factors, or None if a B_k is not positive definite.

    ``A``, ``B`` (sequence of Tensor, each (*batch, n_k, n_k)): symmetric.

    Result: in the dtype that linear_operator diagonalises in, float64 if not set otherwise.

    With the Cholesky factor L of B_k and the eigenvectors Q of L⁻¹ A_k L⁻ᵀ, V_k = L⁻ᵀ Q: Golub and
    Van Loan, Matrix Computations, 4th edition, algorithm 8.7.1. Factors far from size 1 are scaled
    by powers of two, so that λ_1 ⊗ … ⊗ λ_d is in range where scales cancel.
    """
    dtype = _linalg_dtype_symeig.value()
    size = 1
    for factor in A:
        size *= factor.shape[-1]
    vectors: list[Tensor] = []
    values: Tensor | None = None
    logdet = A[0].new_zeros(A[0].shape[:-2], dtype=dtype)
    scale = torch.zeros((), dtype=torch.int32, device=A[0].device)
    for a, b in zip((a.to(dtype) for a in A), (b.to(dtype) for b in B), strict=True):
        # b = 4^root · L Lᵀ, so that V_k has the factor 2^-root
        unit, root = unit_exponents(a), torch.div(unit_exponents(b), 2, rounding_mode="floor")
        mass = times_power_of_two(b, -2 * root[..., None, None])
        lower, status = torch.linalg.cholesky_ex(mass)
        if bool(status.any()):
            return None
        scaled = times_power_of_two(a, -unit[..., None, None])
        half = torch.linalg.solve_triangular(lower, scaled, upper=False)
        whole = torch.linalg.solve_triangular(lower, half.mT, upper=False)
        eigenvalues, q = torch.linalg.eigh(whole)
        found = torch.linalg.solve_triangular(lower.mT, q, upper=True)
        vectors.append(times_power_of_two(found, -root[..., None, None]))
        scale = scale + unit - 2 * root
        if values is None:
            values = eigenvalues
        else:
            values = (values[..., :, None] * eigenvalues[..., None, :]).flatten(-2)
        diagonal = lower.diagonal(dim1=-2, dim2=-1)
        logdet = logdet + 2 * (size // a.shape[-1]) * diagonal.log().sum(-1)
        logdet = logdet + 2 * size * math.log(2.0) * root.to(dtype)
    assert values is not None
    return Diagonalised(vectors, times_power_of_two(values, scale[..., None]) + 1, logdet)
