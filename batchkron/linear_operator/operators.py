"""Kronecker products as linear operators of torch, and sums with them, by batchkron's kernels."""

from __future__ import annotations

from typing import Any

import linear_operator.operators as theirs
import torch
from linear_operator.operators import KroneckerProductDiagLinearOperator
from torch import Tensor

from batchkron.linear_operator.eigenvalues import Diagonalised, diagonalise
from batchkron.linear_operator.products import matmul, matrices_of, t_matmul

__all__ = [
    "KroneckerProductAddedDiagLinearOperator",
    "KroneckerProductLinearOperator",
    "SumKroneckerLinearOperator",
]


class KroneckerProductLinearOperator(theirs.KroneckerProductLinearOperator):
    """The operator K_1 ⊗ … ⊗ K_d of linear_operator, multiplied by batchkron's kernels.

    Parameters
    ----------
    *linear_ops : Tensor or LinearOperator, each (*batch, P_k, Q_k)
        As for `linear_operator.operators.KroneckerProductLinearOperator`, whose methods and
        gradients it has. float32 and float64; other dtypes and lazy factors are multiplied by
        linear_operator (see `batchkron.linear_operator.accelerate`).

    Notes
    -----
    Sums with a diagonal, or with another product, are operators of this module. They are solved by
    their factors, as are `logdet` and `inv_quad_logdet`.

    Examples
    --------
    >>> import torch
    >>> from batchkron.linear_operator import KroneckerProductLinearOperator
    >>> K = KroneckerProductLinearOperator(2 * torch.eye(2), torch.ones(2, 2))
    >>> (K @ torch.ones(4, 1)).mT
    tensor([[4., 4., 4., 4.]])
    >>> K.add_diagonal(torch.tensor(4.0)).solve(torch.ones(4, 1)).mT
    tensor([[0.1250, 0.1250, 0.1250, 0.1250]])
    """

    def _matmul(self, rhs: Tensor) -> Tensor:
        return matmul(self, rhs)

    def _t_matmul(self, rhs: Tensor) -> Tensor:
        return t_matmul(self, rhs)

    def __add__(self, other: Any) -> Any:
        return _ours(super().__add__(other))

    def add_diagonal(self, diag: Tensor) -> Any:
        """Return the sum with a diagonal: (), (1,) or (*batch, N)."""
        return _ours(super().add_diagonal(diag))

    def _symeig(self, eigenvectors: bool = False, return_evals_as_lazy: bool | None = False) -> Any:
        values, vectors = super()._symeig(eigenvectors, return_evals_as_lazy)
        return values, _ours(vectors)

    def _svd(self) -> Any:
        left, values, right = [], [], []
        for factor in self.linear_ops:
            u, s, vh = torch.linalg.svd(factor.to_dense(), full_matrices=False)
            left.append(u)
            values.append(theirs.DiagLinearOperator(s))
            right.append(vh.mH)
        product = KroneckerProductDiagLinearOperator(*values)
        kind = KroneckerProductLinearOperator
        return kind(*left), product._diagonal(), kind(*right)


class KroneckerProductAddedDiagLinearOperator(theirs.KroneckerProductAddedDiagLinearOperator):
    """The sum K_1 ⊗ … ⊗ K_d + D of linear_operator, D diagonal, by batchkron's kernels.

    Parameters
    ----------
    *linear_ops : LinearOperator, (*batch, N, N)
        A `KroneckerProductLinearOperator` of symmetric factors and a diagonal operator. Solves and
        log determinants are by factors if D is a multiple of the identity, or a
        `KroneckerProductDiagLinearOperator` of positive diagonals of the same sizes; for any other
        D linear_operator solves, by conjugate gradients or Cholesky's method.
    preconditioner_override : callable, optional
        As for the class of linear_operator.

    Examples
    --------
    >>> import torch
    >>> from batchkron.linear_operator import KroneckerProductLinearOperator
    >>> K = KroneckerProductLinearOperator(torch.diag(torch.tensor([1.0, 2.0])), torch.eye(2))
    >>> sum_ = K.add_diagonal(torch.tensor(1.0))  # diag(2, 2, 3, 3)
    >>> sum_.logdet().exp()
    tensor(36.)
    """

    def __init__(self, *linear_ops: Any, preconditioner_override: Any = None) -> None:
        converted = [_ours(one) for one in linear_ops]
        super().__init__(*converted, preconditioner_override=preconditioner_override)

    def _solve(self, rhs: Tensor, preconditioner: Any = None, num_tridiag: int | None = 0) -> Any:
        factorised = None if num_tridiag else self._factorised()
        if factorised is None:
            return super()._solve(rhs, preconditioner=preconditioner, num_tridiag=num_tridiag)
        return factorised.solve(rhs)

    def _logdet(self) -> Tensor:
        factorised = self._factorised()
        if factorised is None:
            return super()._logdet()
        return factorised.logdet().to(self.dtype)

    def _factorised(self) -> Diagonalised | None:
        """Return the sum by factors, if D is a product of diagonals of the factors' sizes."""
        if not isinstance(self.diag_tensor, KroneckerProductDiagLinearOperator):
            return None
        if not isinstance(self.linear_op, theirs.KroneckerProductLinearOperator):
            return None
        diagonals = self.diag_tensor.linear_ops
        return _diagonalised(self.linear_op, [one._diagonal().diag_embed() for one in diagonals])


class SumKroneckerLinearOperator(theirs.SumKroneckerLinearOperator):
    """The sum A_1 ⊗ … ⊗ A_d + B_1 ⊗ … ⊗ B_d of linear_operator, by batchkron's kernels.

    Parameters
    ----------
    *linear_ops : KroneckerProductLinearOperator, (*batch, N, N)
        Two products of symmetric factors. If those of one are positive definite, and the sizes of
        the factors are the same, solves and log determinants are by the factors' generalised
        eigenvalues.

    Notes
    -----
    Otherwise linear_operator solves.

    Examples
    --------
    >>> import torch
    >>> from batchkron.linear_operator import KroneckerProductLinearOperator
    >>> A = KroneckerProductLinearOperator(torch.eye(2), torch.diag(torch.tensor([1.0, 2.0])))
    >>> B = KroneckerProductLinearOperator(torch.eye(2), torch.eye(2))
    >>> (A + B).solve(torch.ones(4, 1)).mT  # A + B is diag(2, 3, 2, 3)
    tensor([[0.5000, 0.3333, 0.5000, 0.3333]])
    """

    def __init__(self, *linear_ops: Any, **options: Any) -> None:
        super().__init__(*[_ours(one) for one in linear_ops], **options)

    def _solve(self, rhs: Tensor, preconditioner: Any = None, num_tridiag: int | None = 0) -> Any:
        factorised = None if num_tridiag else self._factorised()
        if factorised is None:
            return super()._solve(rhs, preconditioner=preconditioner, num_tridiag=num_tridiag)
        return factorised.solve(rhs)

    def _logdet(self) -> Tensor:
        factorised = self._factorised()
        if factorised is None:
            return super()._logdet()
        return factorised.logdet().to(self.dtype)

    def _factorised(self) -> Diagonalised | None:
        first, second = self.linear_ops
        for a, b in ((first, second), (second, first)):
            matrices = matrices_of(b.linear_ops)
            found = None if matrices is None else _diagonalised(a, matrices)
            if found is not None:
                return found
        return None


def _diagonalised(
    product: theirs.KroneckerProductLinearOperator, others: list[Tensor]
) -> Diagonalised | None:
    """Return a product plus that of other factors, by factors, or None if that is not possible."""
    matrices = matrices_of(product.linear_ops)
    if matrices is None or len(matrices) != len(others):
        return None
    sizes = [matrix.shape[-2:] for matrix in matrices]
    square = all(rows == columns for rows, columns in sizes)
    if not square or sizes != [other.shape[-2:] for other in others]:
        return None
    return diagonalise(matrices, others)


_OURS = {
    theirs.KroneckerProductLinearOperator: KroneckerProductLinearOperator,
    theirs.KroneckerProductAddedDiagLinearOperator: KroneckerProductAddedDiagLinearOperator,
    theirs.SumKroneckerLinearOperator: SumKroneckerLinearOperator,
}


def _ours(operator: Any) -> Any:
    """Return an operator of linear_operator as one of this module, if it has such a class."""
    kind = _OURS.get(type(operator))
    return operator if kind is None else kind(*operator._args, **operator._kwargs)
