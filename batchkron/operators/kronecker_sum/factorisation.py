"""A factorised Kronecker sum, for solves with many right-hand sides and shifts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike

from batchkron.array_kinds import any_foreign, common_kind, in_kind
from batchkron.backends import TriangularSum, backend_on
from batchkron.operators import factor_by_factor as direct
from batchkron.operators.hermitian import is_hermitian
from batchkron.operators.kronecker_product import KroneckerProduct
from batchkron.operators.placement import on_device
from batchkron.spec.kron import Array

__all__ = ["SumFactorisation"]


class SumFactorisation:
    """The sum A = A_1 ⊕ … ⊕ A_d with its factors diagonalised, or as Schur forms.

    See `KroneckerSum.factorise`.

    Parameters
    ----------
    factors : sequence of ndarray, (n_k, n_k)
        The A_k, of one dtype.
    device : {"cpu", "cuda"}
        Device of the right-hand sides.

    Attributes
    ----------
    is_hermitian : bool
        Whether all factors are Hermitian: then a solve is two Kronecker products and a division.
        Else there is a back substitution between the products.

    Examples
    --------
    >>> import numpy as np, batchkron as bk
    >>> solver = bk.KroneckerSum([np.diag([1.0, 2.0]), np.diag([0.0, 1.0])]).factorise()
    >>> solver.solve_shifted(np.ones(4), [1.0, 3.0]).round(3)
    array([[0.5  , 0.333, 0.333, 0.25 ],
           [0.25 , 0.2  , 0.2  , 0.167]])
    """

    def __init__(self, factors: Sequence[Array], device: str = "cpu") -> None:
        self._factors, self._device = list(factors), device
        self.is_hermitian = all(is_hermitian(factor) for factor in factors)
        self._real = all(factor.dtype.kind == "f" for factor in factors)
        self._triangles: list[Array] = []
        self._solvers: dict[np.dtype[Any], TriangularSum | None] = {}  # by dtype of vectors
        self._regular: set[complex] = set()  # shifts with which no eigenvalue is zero
        if self.is_hermitian:
            values, vectors = direct.hermitian_eigenpairs(factors)
            self._spectra = values
            self._host = direct.outer_sum(values)
            self._values = on_device(self._host, device)
            self._forward = KroneckerProduct([v.conj().T for v in vectors]).to(device)
            self._back = KroneckerProduct(vectors).to(device)
            return
        pairs = [scipy.linalg.schur(factor, output="complex") for factor in factors]
        self._triangles = [t for t, _ in pairs]
        self._spectra = [t.diagonal() for t in self._triangles]
        self._host = direct.outer_sum(self._spectra)
        self._forward = KroneckerProduct([u.conj().T for _, u in pairs]).to(device)
        self._back = KroneckerProduct([u for _, u in pairs]).to(device)

    def solve(self, b: ArrayLike, shift: complex = 0.0) -> Array:
        """Solve (A + shift · I) x = b.

        Parameters
        ----------
        b : array_like, (N,) or (N, K)
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
            If the shifted operator is singular to working precision.
        """
        if any_foreign(b):
            return in_kind(self.solve, common_kind(b=b), b, shift=shift)  # type: ignore[no-any-return]
        result: Array = self.solve_shifted(b, [shift])[0]
        return result

    def solve_shifted(self, b: ArrayLike, shifts: Sequence[complex] | Array) -> Array:
        """Solve (A + shift · I) x = b for many shifts; b is transformed only once.

        Parameters
        ----------
        b : array_like, (N,) or (N, K)
            On the device.
        shifts : sequence of scalars, (S,)

        Returns
        -------
        ndarray, (S, N) or (S, N, K)

        Raises
        ------
        ValueError, numpy.linalg.LinAlgError
            As for `solve`.
        """
        if any_foreign(b, shifts):
            kind = common_kind(b=b, shifts=shifts)
            return in_kind(self.solve_shifted, kind, b, shifts)  # type: ignore[no-any-return]
        module = self._forward._arrays
        rhs = direct.right_hand_side(b, self._forward.shape[0], module)
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

    def _refuse_singular(self, shifts: Array) -> None:
        """Raise LinAlgError if an eigenvalue of a shifted sum is zero up to rounding."""
        if not self._host.size:
            return
        for shift in shifts:
            if shift.item() in self._regular:
                continue
            if direct.is_singular_sum(self._factors, self._spectra, self._host, shift):
                text = f" with the shift {shift}" if shift else ""
                raise np.linalg.LinAlgError(
                    f"the Kronecker sum{text} is singular to working precision"
                )
            self._regular.add(shift.item())
