"""Factorised Kronecker sums of many systems, for solves with many right-hand sides."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from batchkron.array_kinds import any_foreign, common_kind, in_kind
from batchkron.arrays import array_module, as_array
from batchkron.operators import factor_by_factor as direct
from batchkron.operators.hermitian import is_hermitian
from batchkron.operators.kronecker_product import KroneckerProduct
from batchkron.operators.kronecker_sum.factorisation import SumFactorisation
from batchkron.operators.placement import on_device
from batchkron.spec.batch import batch_shape_of
from batchkron.spec.kron import Array, compute_dtype

__all__ = ["BatchedSumFactorisation"]


class BatchedSumFactorisation:
    """The factorised sums A_s = A_s1 ⊕ … ⊕ A_sd of many systems s; see `KroneckerSum.factorise`.

    Parameters
    ----------
    factors : sequence of ndarray, (..., n_k, n_k)
        The A_sk, of one dtype; leading axes broadcast to ``batch_shape``.
    device : {"cpu", "cuda"}
        Device of the right-hand sides.

    Attributes
    ----------
    is_hermitian : bool
        Whether all factors of all systems are Hermitian: then a solve of all systems is two
        Kronecker products and a division. Otherwise one system is solved after another, by Schur
        forms.

    Examples
    --------
    >>> import numpy as np, batchkron as bk
    >>> first = np.stack([np.diag([1.0, 2.0]), np.diag([3.0, 7.0])])
    >>> solver = bk.KroneckerSum([first, np.diag([0.0, 1.0])]).factorise()
    >>> solver.solve(np.ones((2, 4)), shift=1.0).round(3)
    array([[0.5  , 0.333, 0.333, 0.25 ],
           [0.25 , 0.2  , 0.125, 0.111]])
    """

    def __init__(self, factors: Sequence[Array], device: str = "cpu") -> None:
        self._factors, self._shape = list(factors), batch_shape_of(factors)
        self._size = math.prod(factor.shape[-1] for factor in factors)
        self.is_hermitian = all(is_hermitian(factor) for factor in factors)
        self._systems: list[SumFactorisation] = []
        self._regular: set[complex] = set()  # shifts with which no eigenvalue is zero
        self._module = array_module(on_device(np.empty(0), device))
        if self.is_hermitian:
            values, vectors = direct.hermitian_eigenpairs(factors)
            self._spectra = values
            self._host = np.broadcast_to(direct.outer_sum(values), (*self._shape, self._size))
            self._values = on_device(np.ascontiguousarray(self._host), device)
            adjoint = KroneckerProduct([v.conj().swapaxes(-1, -2) for v in vectors])
            self._forward, self._back = adjoint.to(device), KroneckerProduct(vectors).to(device)
            return
        spread = [np.broadcast_to(f, (*self._shape, *f.shape[-2:])) for f in factors]
        for index in np.ndindex(self._shape):
            self._systems.append(SumFactorisation([factor[index] for factor in spread], device))

    def solve(self, b: ArrayLike, shift: complex = 0.0) -> Array:
        """Solve (A_s + shift · I) x_s = b_s for all systems.

        Parameters
        ----------
        b : array_like, (..., *batch_shape, N)
            On the device.
        shift : scalar

        Returns
        -------
        ndarray, the shape of b

        Raises
        ------
        ValueError
            If b does not fit.
        numpy.linalg.LinAlgError
            If a shifted system is singular to working precision.
        """
        if any_foreign(b):
            return in_kind(self.solve, common_kind(b=b), b, shift=shift)  # type: ignore[no-any-return]
        result: Array = self.solve_shifted(b, [shift])[0]
        return result

    def solve_shifted(self, b: ArrayLike, shifts: Sequence[complex] | Array) -> Array:
        """Solve (A_s + shift · I) x_s = b_s for many shifts; b is transformed only once.

        Parameters
        ----------
        b : array_like, (..., *batch_shape, N)
            On the device.
        shifts : sequence of scalars, (S,)

        Returns
        -------
        ndarray, (S, ..., *batch_shape, N)

        Raises
        ------
        ValueError, numpy.linalg.LinAlgError
            As for `solve`.
        """
        if any_foreign(b, shifts):
            kind = common_kind(b=b, shifts=shifts)
            return in_kind(self.solve_shifted, kind, b, shifts)  # type: ignore[no-any-return]
        module = self._module
        rhs = as_array(b, "b", module)
        rhs = rhs.astype(compute_dtype(rhs), copy=False)
        wanted = (*self._shape, self._size)
        if rhs.shape[max(0, rhs.ndim - len(wanted)) :] != wanted:
            raise ValueError(f"b has shape {rhs.shape}; expected (..., {str(wanted)[1:]}")
        numbers = direct.checked_shifts(shifts)
        if not self.is_hermitian:
            return self._one_after_another(rhs, numbers)
        self._refuse_singular(numbers)
        coefficients = self._forward.apply(rhs)
        found = [self._back.apply(coefficients / (self._values + s.item())) for s in numbers]
        dtype = direct.solution_dtype(self._factors, rhs, numbers)
        return module.stack(found) if found else module.empty((0, *rhs.shape), dtype)  # type: ignore[no-any-return]

    def _one_after_another(self, rhs: Array, shifts: Array) -> Array:
        kind = direct.solution_dtype(self._factors, rhs, shifts)
        result: Array = self._module.empty((len(shifts), *rhs.shape), kind)
        if rhs.size == 0:
            return result
        rows = rhs.reshape(-1, len(self._systems), self._size)
        found = result.reshape(len(shifts), *rows.shape)
        for s, system in enumerate(self._systems):
            found[:, :, s] = system.solve_shifted(rows[:, s].T, shifts).swapaxes(1, 2)
        return result

    def _refuse_singular(self, shifts: Array) -> None:
        """Raise LinAlgError if an eigenvalue of a shifted system is zero up to rounding."""
        if not self._host.size:
            return
        for shift in shifts:
            if shift.item() in self._regular:
                continue
            singular = direct.is_singular_sum(self._factors, self._spectra, self._host, shift)
            if singular.any():
                index = tuple(map(int, np.argwhere(singular)[0]))
                text = f" with the shift {shift}" if shift else ""
                raise np.linalg.LinAlgError(
                    f"system {index} of the Kronecker sums{text} is singular to working precision"
                )
            self._regular.add(shift.item())
