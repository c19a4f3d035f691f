"""Equations of Sylvester and Lyapunov, by the names that SciPy has for them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from batchkron.array_kinds import any_foreign, common_kind, in_kind
from batchkron.arrays import array_module, as_array
from batchkron.operators import KroneckerSum

from .products import Vector

__all__ = ["solve_lyapunov", "solve_sylvester"]


def solve_sylvester(A: ArrayLike, B: ArrayLike, C: ArrayLike) -> Vector:
    """Solve A X + X B = C.

    Parameters
    ----------
    A : array_like, (m, m)
    B : array_like, (n, n)
    C : array_like, (m, n) or (..., m, n)
        One right-hand side, or many, which share the factorisation.

    Returns
    -------
    ndarray of C's shape
        X, where the arrays are; a tensor if these are.

    Raises
    ------
    ValueError
        If a matrix is not square, or shapes do not agree.
    TypeError
        If arrays are on different devices.
    numpy.linalg.LinAlgError
        If an eigenvalue of A and one of -B are equal to working precision.

    See Also
    --------
    KroneckerSum : Any number of factors, and `KroneckerSum.factorise` for many calls and shifts.

    Notes
    -----
    The rows of X one after the other are a vector x, for which A ⊗ I + I ⊗ Bᵀ = A ⊕ Bᵀ is in the
    place of X ↦ A X + X B. So this is ``KroneckerSum(A, B.T).solve(C.ravel())``: by eigenvectors
    where A and B are Hermitian, else the method of R. H. Bartels and G. W. Stewart, Commun. ACM 15
    (1972), by Schur forms.

    Examples
    --------
    >>> import numpy as np
    >>> from batchkron.solvers import solve_sylvester
    >>> A, B, C = np.array([[3.0, 1.0], [0.0, 2.0]]), np.array([[1.0]]), np.array([[5.0], [3.0]])
    >>> solve_sylvester(A, B, C).round(12)
    array([[1.],
           [1.]])
    """
    if any_foreign(A, B, C):
        kind = common_kind(A=A, B=B, C=C)
        return in_kind(solve_sylvester, kind, A, B, C)  # type: ignore[no-any-return]
    left, right, rhs = _matrices(A=A, B=B, C=C)
    if rhs.ndim < 2 or rhs.shape[-2:] != (len(left), len(right)):
        raise ValueError(f"C has shape {rhs.shape}; expected (..., {len(left)}, {len(right)})")
    return _solve(left, right.T, rhs)


def solve_lyapunov(A: ArrayLike, Q: ArrayLike) -> Vector:
    """Solve A X + X Aᴴ = Q, the continuous equation of Lyapunov.

    Parameters
    ----------
    A : array_like, (n, n)
    Q : array_like, (n, n) or (..., n, n)
        One right-hand side, or many, which share the factorisation.

    Returns
    -------
    ndarray of Q's shape
        X, Hermitian up to rounding if Q is; a tensor if the arrays are.

    Raises
    ------
    ValueError, TypeError
        As `solve_sylvester`.
    numpy.linalg.LinAlgError
        If two eigenvalues of A have λ + conj(μ) = 0 to working precision.

    Notes
    -----
    ``KroneckerSum(A, A.conj()).solve(Q.ravel())``, see `solve_sylvester`.

    Examples
    --------
    >>> import numpy as np
    >>> from batchkron.solvers import solve_lyapunov
    >>> solve_lyapunov([[1.0, 1.0], [0.0, 2.0]], 2.0 * np.eye(2)).round(6)
    array([[ 1.166667, -0.166667],
           [-0.166667,  0.5     ]])
    """
    if any_foreign(A, Q):
        kind = common_kind(A=A, Q=Q)
        return in_kind(solve_lyapunov, kind, A, Q)  # type: ignore[no-any-return]
    matrix, rhs = _matrices(A=A, Q=Q)
    if rhs.ndim < 2 or rhs.shape[-2:] != matrix.shape:
        raise ValueError(f"Q has shape {rhs.shape}; expected (..., {len(matrix)}, {len(matrix)})")
    return _solve(matrix, matrix.conj(), rhs)


def _matrices(**given: Any) -> list[Vector]:
    """Return arrays of one module, all but the last one square matrices."""
    module = next((m for m in map(array_module, given.values()) if m is not np), np)
    arrays = {name: as_array(value, name, module) for name, value in given.items()}
    for name, array in list(arrays.items())[:-1]:
        if array.ndim != 2 or array.shape[0] != array.shape[1]:
            raise ValueError(f"{name} has shape {array.shape}; expected a square matrix")
    return list(arrays.values())


def _solve(first: Vector, second: Vector, rhs: Vector) -> Vector:
    """Solve (first ⊕ second) x = b, b the rows of each matrix of rhs, one after the other."""
    module = array_module(rhs)
    columns = module.ascontiguousarray(rhs.reshape(-1, first.shape[0] * second.shape[0]).T)
    solution: Vector = KroneckerSum(first, second).solve(columns)
    return module.ascontiguousarray(solution.T).reshape(rhs.shape)  # type: ignore[no-any-return]
