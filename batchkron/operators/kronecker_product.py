"""The Kronecker product of matrices as a linear operator."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from batchkron.backends import KronPlan, backend
from batchkron.kron import kron
from batchkron.operators.base import Operator, leading_count
from batchkron.spec import Array, KronSpec, as_host_array, compute_dtype, factor_list


class KroneckerProduct(Operator):
    """The operator A_1 ⊗ … ⊗ A_d.

    Parameters
    ----------
    factors : sequence of array_like, each (P_k, Q_k)
        The matrices, copied; A_1 belongs to the slowest index, as in `scipy.linalg.kron`.

    Raises
    ------
    ValueError
        If there is no factor or one is not a matrix.
    TypeError
        For dtypes without kernels.

    Examples
    --------
    >>> import numpy as np, batchkron as bk
    >>> op = bk.KroneckerProduct([[[1.0, 2.0], [3.0, 4.0]], np.eye(2)])
    >>> op @ np.ones(4)
    array([3., 3., 7., 7.])
    >>> op.trace()
    np.float64(10.0)
    """

    def __init__(self, factors: Sequence[ArrayLike]) -> None:
        given = factor_list(factors)
        dtype = compute_dtype(*given)
        self.factors = tuple(np.array(factor, dtype, order="C") for factor in given)
        for factor in self.factors:
            factor.flags.writeable = False
        self._outputs = tuple(factor.shape[0] for factor in self.factors)
        self._inputs = tuple(factor.shape[1] for factor in self.factors)
        self._backend = backend()
        self._plans: dict[tuple[int, int], KronPlan] = {}
        super().__init__((math.prod(self._outputs), math.prod(self._inputs)), dtype)

    def _plan(self, outer: int, inner: int) -> KronPlan:
        plan = self._plans.get((outer, inner))
        if plan is None:
            spec = KronSpec(self._inputs, self._outputs, outer, inner, self.dtype)
            plan = self._plans[outer, inner] = self._backend.kron_plan(spec)
        return plan

    def _run(self, x: Array, y: Array, outer: int, inner: int, accumulate: bool) -> None:
        previous = y if accumulate else None
        self._plan(outer, inner).run(self.factors, x, 1, int(accumulate), previous, y)

    def apply(self, x: ArrayLike, out: Array | None = None) -> Array:
        """Compute y[..., :] = A x[..., :].

        Parameters
        ----------
        x : array_like, (..., ΠQ)
            Vectors along the last axis.
        out : ndarray, (..., ΠP), optional
            Where the result is written; with it, nothing is allocated.

        Returns
        -------
        ndarray, (..., ΠP)

        Raises
        ------
        ValueError, TypeError
            As `Operator.matvec`.
        """
        vectors = as_host_array(x, "x")
        rows, columns = self.shape
        if vectors.ndim == 0 or vectors.shape[-1] != columns:
            raise ValueError(f"x has shape {vectors.shape}; expected (..., {columns})")
        shape = (*vectors.shape[:-1], rows)
        return self._dispatch(vectors, out, shape, leading_count(shape, 1), 1)

    def _build_transpose(self) -> KroneckerProduct:
        return KroneckerProduct([factor.T for factor in self.factors])

    def _build_conjugate(self) -> KroneckerProduct:
        return KroneckerProduct([factor.conj() for factor in self.factors])

    def _build_as(self, dtype: np.dtype[Any]) -> KroneckerProduct:
        return KroneckerProduct([factor.astype(dtype) for factor in self.factors])

    def to_dense(self) -> Array:
        """Return the matrix itself, (ΠP, ΠQ)."""
        return kron(*self.factors)

    def diagonal(self) -> Array:
        """Return the diagonal, (min(ΠP, ΠQ),)."""
        if self._outputs == self._inputs:
            return reduce(np.kron, [factor.diagonal() for factor in self.factors])
        index = np.arange(min(self.shape))
        rows = np.unravel_index(index, self._outputs)
        columns = np.unravel_index(index, self._inputs)
        entries = [f[i, j] for f, i, j in zip(self.factors, rows, columns, strict=True)]
        return np.asarray(math.prod(entries))

    def trace(self) -> Any:
        """Return the sum of the diagonal, from the factors' traces where these are square.

        Raises
        ------
        ValueError
            If the operator is not square.
        """
        if self._outputs == self._inputs:
            return math.prod(factor.trace() for factor in self.factors)
        return super().trace()

    def describe(self) -> str:
        """Return the factors' shapes and the work of one product."""
        shapes = " ⊗ ".join(f"{p}×{q}" for p, q in zip(self._outputs, self._inputs, strict=True))
        entries = sum(factor.size for factor in self.factors)
        return (
            f"KroneckerProduct {self.shape[0]}×{self.shape[1]} {self.dtype}: {shapes}\n"
            f"  {entries} stored entries instead of {self.shape[0] * self.shape[1]}"
        )
