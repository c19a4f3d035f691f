"""Factorised Kronecker sums, for solves with many right-hand sides and shifts."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike

from batchkron.array_kinds import any_foreign, common_kind, in_kind
from batchkron.arrays import array_module, as_array
from batchkron.backends import TriangularSum, backend_on
from batchkron.operators import factor_by_factor as direct
from batchkron.operators.hermitian import is_hermitian
from batchkron.operators.kronecker_product import KroneckerProduct
from batchkron.operators.placement import on_device
from batchkron.spec.batch import batch_shape_of
from batchkron.spec.kron import Array, compute_dtype

__all__ = ["BatchedSumFactorisation", "SumFactorisation"]


class _Factorisation:
    """The sum A = A_1 ⊕ … ⊕ A_d of one system or many, diagonalised if the factors are Hermitian.

    ``is_hermitian``: whether all factors are Hermitian: then a solve, of all systems at once, is
      two Kronecker products and a division.
    """

    def __init__(self, factors: Sequence[Array], device: str) -> None:
        self._factors, self._device, self._shape = list(factors), device, batch_shape_of(factors)
        self._size = math.prod(factor.shape[-1] for factor in factors)
        self._module = array_module(on_device(np.empty(0), device))
        self._regular: set[complex] = set()  # shifts with which no eigenvalue is zero
        self.is_hermitian = all(is_hermitian(factor) for factor in factors)
        if self.is_hermitian:
            self._spectra, vectors = direct.hermitian_eigenpairs(factors)
            self._host = np.broadcast_to(
                direct.outer_sum(self._spectra), (*self._shape, self._size)
            )
            self._values = on_device(np.ascontiguousarray(self._host), device)
            self._transform_by(vectors)

    def _transform_by(self, vectors: Sequence[Array]) -> None:
        adjoint = KroneckerProduct([v.conj().swapaxes(-1, -2) for v in vectors])
        self._forward = adjoint.to(self._device)
        self._back = KroneckerProduct(vectors).to(self._device)

    def solve(self, b: ArrayLike, shift: complex = 0.0) -> Array:
        """Solve (A + shift · I) x = b, of each system.

        ``b`` (array_like, (N,) or (N, K); (..., *batch_shape, N) for many systems): on the device.

        Raises `ValueError` if b does not fit. `numpy.linalg.LinAlgError` if the shifted operator of
        a system is singular to working precision.
        """
        if any_foreign(b):
            return in_kind(self.solve, common_kind(b=b), b, shift=shift)  # type: ignore[no-any-return]
        result: Array = self.solve_shifted(b, [shift])[0]
        return result

    def solve_shifted(self, b: ArrayLike, shifts: Sequence[complex] | Array) -> Array:
        """Solve (A + shift · I) x = b for many shifts (S,); b is transformed only once.

        Returns an ndarray (S, *b.shape); b and what is raised are as for `solve`.
        """
        if any_foreign(b, shifts):
            kind = common_kind(b=b, shifts=shifts)
            return in_kind(self.solve_shifted, kind, b, shifts)  # type: ignore[no-any-return]
        return self._solutions(b, shifts)

    @abstractmethod
    def _solutions(self, b: ArrayLike, shifts: Sequence[complex] | Array) -> Array:
        """Return what `solve_shifted` returns, for arrays of the factors' kind."""

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
                which = f"system {index} of the Kronecker sums" if index else "the Kronecker sum"
                text = f" with the shift {shift}" if shift else ""
                raise np.linalg.LinAlgError(f"{which}{text} is singular to working precision")
            self._regular.add(shift.item())


class SumFactorisation(_Factorisation):
    """The sum A = A_1 ⊕ … ⊕ A_d with its factors diagonalised, or as Schur forms.

    See `KroneckerSum.factorise`. With Schur forms a solve has a back substitution between the two
    Kronecker products.

    ``factors`` (sequence of ndarray, (n_k, n_k)): the A_k, of one dtype.
    ``device`` ({"cpu", "cuda"}): device of the right-hand sides.

    Examples
    --------
    >>> import numpy as np, batchkron as bk
    >>> solver = bk.KroneckerSum([np.diag([1.0, 2.0]), np.diag([0.0, 1.0])]).factorise()
    >>> solver.solve_shifted(np.ones(4), [1.0, 3.0]).round(3)
    array([[0.5  , 0.333, 0.333, 0.25 ],
           [0.25 , 0.2  , 0.2  , 0.167]])
    """

    def __init__(self, factors: Sequence[Array], device: str = "cpu") -> None:
        super().__init__(factors, device)
        self._real = all(factor.dtype.kind == "f" for factor in factors)
        self._solvers: dict[np.dtype[Any], TriangularSum | None] = {}  # by dtype of vectors
        if not self.is_hermitian:
            pairs = [scipy.linalg.schur(factor, output="complex") for factor in factors]
            self._triangles = [t for t, _ in pairs]
            self._spectra = [t.diagonal() for t in self._triangles]
            self._host = direct.outer_sum(self._spectra)
            self._transform_by([u for _, u in pairs])

    def _solutions(self, b: ArrayLike, shifts: Sequence[complex] | Array) -> Array:
        module = self._module
        rhs = direct.right_hand_side(b, self._size, module)
        numbers = direct.checked_shifts(shifts)
        self._refuse_singular(numbers)
        dtype = direct.solution_dtype(self._factors, rhs, numbers)
        if not (numbers.size and rhs.size):
            return module.zeros((len(numbers), *rhs.shape), dtype)  # type: ignore[no-any-return]
        columns = rhs if rhs.ndim == 2 else rhs[:, None]
        coefficients = self._forward.matmat(columns)
        found = [self._solved(coefficients, shift.item()) for shift in numbers]
        stack = module.stack(found).reshape(len(found), *rhs.shape)
        real = self._real and rhs.dtype.kind != "c" and numbers.dtype.kind != "c"
        return stack.real.copy() if real and stack.dtype.kind == "c" else stack  # type: ignore[no-any-return]

    def _solved(self, coefficients: Array, shift: complex) -> Array:
        """Return the solution for one shift from the transformed right-hand side."""
        if self.is_hermitian:
            return self._back.matmat(coefficients / (self._values + shift)[:, None])
        solver = self._solver(coefficients.dtype)
        if solver is not None:
            solution = coefficients.copy()
            solver.solve(solution, shift)
            return self._back.matmat(solution)
        kind = self._triangles[0].dtype
        first = self._triangles[0] + shift * np.eye(len(self._triangles[0]), dtype=kind)
        shifted = [first, *self._triangles[1:]]
        return self._back.matmat(direct.solve_triangular_sum(shifted, coefficients))

    def _solver(self, dtype: np.dtype[Any]) -> TriangularSum | None:
        """Return what solves with the triangles on the device, None on the CPU."""
        if dtype not in self._solvers:
            triangles = [one.astype(dtype, copy=False) for one in self._triangles]
            self._solvers[dtype] = backend_on(self._device).fast_path("triangular_sum")(triangles)
        return self._solvers[dtype]


class BatchedSumFactorisation(_Factorisation):
    """The factorised sums A_s = A_s1 ⊕ … ⊕ A_sd of many systems s; see `KroneckerSum.factorise`.

    Without Hermitian factors one system is solved after another, by Schur forms.

    ``factors`` (sequence of ndarray, (..., n_k, n_k)): the A_sk, of one dtype; leading axes
      broadcast to ``batch_shape``.
    ``device`` ({"cpu", "cuda"}): device of the right-hand sides.

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
        super().__init__(factors, device)
        self._systems: list[SumFactorisation] = []
        if not self.is_hermitian:
            spread = [np.broadcast_to(f, (*self._shape, *f.shape[-2:])) for f in factors]
            for index in np.ndindex(self._shape):
                self._systems.append(SumFactorisation([factor[index] for factor in spread], device))

    def _solutions(self, b: ArrayLike, shifts: Sequence[complex] | Array) -> Array:
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
