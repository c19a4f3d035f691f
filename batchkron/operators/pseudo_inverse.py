"""Pseudo-inverses and triangular roots of Kronecker products, by their factors."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy.linalg

from batchkron.operators.factor_by_factor import singular_values, square_sizes
from batchkron.operators.hermitian import hermitian_part
from batchkron.operators.scaling import outer_product
from batchkron.spec.identities import is_identity
from batchkron.spec.kron import Array

__all__ = ["FactorValues", "LeastSquares", "cholesky_factors"]


class LeastSquares(NamedTuple):
    """What `KroneckerProduct.lstsq` returns, in the order of `numpy.linalg.lstsq`.

    ``x`` (ndarray, (N,) or (N, K)): the solution of least length.
    ``residuals`` (ndarray, (1,) or (K,); (0,) if A has not full column rank, or M ≤ N): ‖b - A x‖²
      of each column.
    ``rank``: singular values above the cutoff.
    ``s`` (ndarray, (Π min(P_k, Q_k),)): all singular values, descending.
    """

    x: Array
    residuals: Array
    rank: int
    s: Array


class FactorValues:
    """Singular value decompositions of the factors of a product of the shape (M, N).

    ``kept`` says which products of singular values, first factor slowest, are more than rcond times
    the largest; max(M, N) eps by default. ValueError if rcond is not a number in [0, 1).
    """

    def __init__(self, factors: Sequence[Array], rcond: float | None) -> None:
        self.left, self.values, self.right = zip(*map(singular_values, factors), strict=True)
        rows, columns = (math.prod(f.shape[k] for f in factors) for k in (0, 1))
        if rcond is None:
            rcond = min(max(rows, columns) * float(np.finfo(factors[0].dtype).eps), 0.5)
        if not 0.0 <= rcond < 1.0:
            raise ValueError(f"rcond is {rcond}; expected a number from 0 to 1, less than 1")
        largest = [values.max(initial=0) for values in self.values]
        shares = [v / (m if m > 0 else 1) for v, m in zip(self.values, largest, strict=True)]
        self.kept = np.asarray(outer_product([s.astype(np.float64) for s in shares]) > rcond)

    def check_range(self) -> None:
        """Drop products of values that are 0 in the dtype; LinAlgError for those it cannot hold."""
        with np.errstate(divide="ignore"):
            logarithms = [np.log2(v.astype(np.float64)) for v in self.values]
        sizes = functools.reduce(lambda a, b: np.add.outer(a, b).ravel(), logarithms)
        limits = np.finfo(self.values[0].dtype)
        if (sizes >= limits.maxexp).any():
            raise np.linalg.LinAlgError(
                f"singular values are beyond the range of {limits.dtype}; scale the factors"
            )
        self.kept &= sizes > math.log2(float(limits.tiny))

    def inverse_values(self) -> Array:
        """Return 1 / s of the values that are kept, and 0 for the others."""
        with np.errstate(divide="ignore"):
            inverse = outer_product([1 / np.where(v > 0, v, np.inf) for v in self.values])
        return np.where(self.kept, inverse, 0).astype(self.values[0].dtype)

    def inverse_factors(self) -> list[Array] | None:
        """Return factors of the pseudo-inverse, or None if it is no Kronecker product.

        It is one if what is kept is all products of values that are kept of each factor.
        """
        table = self.kept.reshape([len(v) for v in self.values])
        axes = range(table.ndim)
        kept = [table.any(axis=tuple(a for a in axes if a != k)) for k in axes]
        if math.prod(int(one.sum()) for one in kept) != int(table.sum()):
            return None
        parts = zip(self.left, self.values, self.right, kept, strict=True)
        return [
            right[k].conj().T @ (left[:, k].conj().T / values[k, None])
            for left, values, right, k in parts
        ]


def cholesky_factors(factors: Sequence[Array]) -> list[Array]:
    """Return L_k, lower triangular, with (⊗ L_k) (⊗ L_k)ᴴ = ⊗ A_k.

    The factors are positive definite, or an even number of them negative definite.
    """
    square_sizes(factors)
    found, sign = [], 1
    for k, factor in enumerate(factors):
        if is_identity(factor):
            found.append(factor)
            continue
        part = hermitian_part(factor, f"factors[{k}] is not Hermitian")
        own = -1 if part.size and part[0, 0].real < 0 else 1
        sign *= own
        try:
            root = scipy.linalg.cholesky(own * part, lower=True, check_finite=False)
        except np.linalg.LinAlgError:
            raise np.linalg.LinAlgError(
                f"factors[{k}], of shape {factor.shape}, is not definite, and so the Kronecker "
                "product is not positive definite"
            ) from None
        found.append(root.astype(factor.dtype))
    if sign < 0:
        raise np.linalg.LinAlgError("the Kronecker product is negative definite")
    return found
