"""Sums of Kronecker products whose factors are diagonalised together, mode by mode."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike

from batchkron.array_kinds import any_foreign, common_kind, in_kind
from batchkron.backends import backend_on
from batchkron.functions.kron import gekmm
from batchkron.operators import factor_by_factor as direct
from batchkron.operators.kronecker_terms import KroneckerTerms
from batchkron.operators.placement import on_device
from batchkron.spec.kron import Array

__all__ = ["DiagonalisedTerms"]

_ADVICE = "a Krylov method of batchkron.solvers, such as cg or gmres, solves with any operator"


class DiagonalisedTerms:
    """The operator A = Σ_t c_t A_t1 ⊗ … ⊗ A_td with X^H A X = D diagonal, X = X_1 ⊗ … ⊗ X_d.

    In each mode, X_k^H A_tk X_k is diagonal for all terms t: the factors of a mode are Hermitian
    and commute, or become so by the Cholesky factor of one of them that is positive definite. So
    c K + σ I, M ⊗ K + K ⊗ M and a Kronecker sum with mass matrices are of this kind.

    Parameters
    ----------
    terms : KroneckerTerms
        On a whole tensor product.
    dtype : dtype
        Of the operator, and of right-hand sides.
    device : {"cpu", "cuda"}
        Device of the right-hand sides. Factors are diagonalised on the host, and placed there once
        for each dtype of right-hand sides.

    Attributes
    ----------
    values : ndarray, (N,)
        The diagonal of D, on the device.
    vectors : list of ndarray, each (n_k, n_k)
        The X_k, in double precision, on the host.
    unitary : bool
        Whether X is unitary, so that ``values`` are eigenvalues.

    Raises
    ------
    ValueError
        If the factors of a mode are not diagonalised together, or the terms are on a sparse grid.

    Notes
    -----
    The fast diagonalisation of R. E. Lynch, J. R. Rice and D. H. Thomas, Direct solution of partial
    difference equations by tensor product methods, Numer. Math. 6 (1964), for pencils as in
    G. H. Golub and C. F. Van Loan, Matrix Computations, section 8.7.2.

    Examples
    --------
    >>> import numpy as np, batchkron as bk
    >>> M, K = np.array([[2.0, 1.0], [1.0, 2.0]]), np.array([[1.0, -1.0], [-1.0, 1.0]])
    >>> A = bk.KroneckerProduct(M, K) + bk.KroneckerProduct(K, M) + bk.KroneckerProduct(M, M)
    >>> (A @ A.solve(np.ones(4))).round(12)
    array([1., 1., 1., 1.])
    """

    def __init__(self, terms: KroneckerTerms, dtype: np.dtype[Any], device: str = "cpu") -> None:
        if terms.cells is not None:
            raise ValueError(f"terms on a sparse grid are not diagonalised by factors; {_ADVICE}")
        self._dtype, self._device = dtype, device
        self._arrays = backend_on(device).array_module
        self.vectors: list[Array] = []
        self._placed: dict[np.dtype[Any], tuple[list[Array], list[Array]]] = {}
        diagonals: list[list[Array]] = []  # of each mode, one for each term
        self.unitary = True
        log_square = 0.0  # 2 log |det X|
        for mode, size in enumerate(terms.sizes):
            factors = [terms.factor(t, mode) for t in range(len(terms.terms))]
            vectors, found, mass = _diagonalise(factors, mode)
            self.vectors.append(vectors)
            diagonals.append(found)
            if mass is not None:
                self.unitary = False
                log_square -= terms.unknowns / max(size, 1) * np.linalg.slogdet(mass)[1]
        values, sizes = np.zeros(terms.unknowns), np.zeros(terms.unknowns)
        for t, term in enumerate(terms.terms):
            entries = term.coefficient * _outer_product([found[t] for found in diagonals])
            values = values + entries
            sizes += np.abs(entries)
        least = np.abs(values).min(initial=np.inf)
        precision = float(np.finfo(dtype).eps) * len(terms.sizes)
        self._singular = bool(least <= precision * sizes.max(initial=0.0))
        self._slogdet = self._sign_and_logarithm(values, log_square)
        self.values = on_device(values, device)

    def solve(self, b: ArrayLike) -> Array:
        """Solve A x = b by two Kronecker products and a division.

        Parameters
        ----------
        b : array_like, (N,) or (N, K)
            On the device.

        Returns
        -------
        ndarray, the shape of b

        Raises
        ------
        ValueError
            If b does not fit.
        numpy.linalg.LinAlgError
            If A is singular to working precision.
        """
        if any_foreign(b):
            return in_kind(self.solve, common_kind(b=b), b)  # type: ignore[no-any-return]
        rhs = direct.right_hand_side(b, len(self.values), self._arrays)
        if self._singular:
            raise np.linalg.LinAlgError("the sum is singular to working precision")
        return self._scaled(rhs, 1 / self.values)

    def exponential(self, x: ArrayLike, t: complex) -> Array:
        """Compute X exp(t D) X^H x, which is exp(t A) x if X is unitary."""
        if any_foreign(x):
            return in_kind(self.exponential, common_kind(x=x), x, t)  # type: ignore[no-any-return]
        rhs = direct.right_hand_side(x, len(self.values), self._arrays)
        return self._scaled(rhs, self._arrays.exp(t * self.values))

    def _scaled(self, x: Array, values: Array) -> Array:
        kind = np.result_type(self._dtype, x.dtype)
        if values.dtype.kind == "c":
            kind = np.result_type(kind, np.complex64)
        real = kind.type(0).real.dtype
        vectors, adjoints = self._vectors_as(kind)
        columns = (x if x.ndim == 2 else x[:, None]).astype(kind, copy=False)
        coefficients = gekmm(adjoints, columns)
        coefficients *= values.astype(kind if values.dtype.kind == "c" else real)[:, None]
        return gekmm(vectors, coefficients).reshape(x.shape)

    def _vectors_as(self, kind: np.dtype[Any]) -> tuple[list[Array], list[Array]]:
        """Return the X_k and X_k^H on the device, in the precision of a dtype."""
        known = self._placed.get(kind)
        if known is None:
            real = kind.type(0).real.dtype
            vectors = [v.astype(kind if v.dtype.kind == "c" else real) for v in self.vectors]
            adjoints = [v.conj().T for v in vectors]
            if self._device != "cpu":  # contiguous, as fast calls take them
                adjoints = [on_device(np.ascontiguousarray(v), self._device) for v in adjoints]
                vectors = [on_device(np.ascontiguousarray(v), self._device) for v in vectors]
            known = self._placed[kind] = vectors, adjoints
        return known

    def slogdet(self) -> tuple[Any, Any]:
        """Return the sign, or phase, of det A and the logarithm of its modulus.

        0 and -inf if A is singular to working precision.
        """
        return self._slogdet

    def _sign_and_logarithm(self, values: Array, log_square: float) -> tuple[Any, Any]:
        kind = np.result_type(values, self._dtype.type(0)).type
        if self._singular:
            return kind(0), np.float64(-np.inf)
        sizes = np.abs(values)
        logarithm = np.log(sizes).sum(dtype=np.float64) - log_square
        return kind(np.prod(values / sizes)), logarithm


def _outer_product(entries: Sequence[Array]) -> Array:
    """Return all products with one entry of each array (n_k,), the first slowest."""
    product = np.ones(1)
    for one in entries:
        product = np.multiply.outer(product, one).reshape(-1)
    return product


def _diagonalise(factors: Sequence[Array], mode: int) -> tuple[Array, list[Array], Array | None]:
    """Return X, the diagonals of all X^H A X, and the matrix M with X^H M X = 1, None for 1 itself.

    Raises
    ------
    ValueError
        If there is no such X.
    """
    distinct: list[Array] = []
    for factor in factors:
        if not any(np.array_equal(factor, known) for known in distinct):
            distinct.append(factor)
    for factor in distinct:
        if not direct.is_hermitian(factor):
            raise ValueError(
                f"the factors of mode {mode} are not all Hermitian (not symmetric, if real), so "
                f"they are not diagonalised together; {_ADVICE}"
            )
    precision = max(float(np.finfo(factor.dtype).eps) for factor in factors)
    exact = [(f + f.conj().T) / 2 for f in (_doubled(factor) for factor in distinct)]
    one = np.eye(len(factors[0]))
    for mass in [one, *exact]:
        root = _cholesky(mass)
        if root is None:
            continue
        vectors = _common_vectors([_congruent(root, factor) for factor in exact], precision)
        if vectors is None:
            continue
        found = np.asarray(scipy.linalg.solve_triangular(root.conj().T, vectors))
        diagonals = [np.einsum("ij,ij->j", found.conj(), _doubled(f) @ found).real for f in factors]
        return found, diagonals, None if mass is one else mass
    raise ValueError(
        f"the factors of mode {mode} neither commute nor become diagonal by the Cholesky factor of "
        f"one of them; {_ADVICE}"
    )


def _doubled(matrix: Array) -> Array:
    """Return a matrix in double precision."""
    return matrix.astype(np.result_type(matrix.dtype, np.float64), copy=False)


def _cholesky(matrix: Array) -> Array | None:
    """Return L of a positive definite matrix L L^H, else None."""
    try:
        return np.asarray(scipy.linalg.cholesky(matrix, lower=True))
    except np.linalg.LinAlgError:
        return None


def _congruent(root: Array, matrix: Array) -> Array:
    """Return L⁻¹ A L⁻ᴴ."""
    half = scipy.linalg.solve_triangular(root, matrix, lower=True)
    return np.asarray(scipy.linalg.solve_triangular(root, half.conj().T, lower=True)).conj().T


def _common_vectors(matrices: Sequence[Array], precision: float) -> Array | None:
    """Return common orthonormal eigenvectors of Hermitian matrices of a precision, or None.

    They are those of a sum with weights that are unlikely to cancel: eigenvalues of the sum that
    are equal belong, for almost all weights, to vectors that are eigenvectors of all.
    """
    norms = [np.linalg.norm(matrix) for matrix in matrices]
    weights = [math.cos(1.0 + 0.7 * k) / (norm or 1.0) for k, norm in enumerate(norms)]
    total = sum(weight * matrix for weight, matrix in zip(weights, matrices, strict=True))
    vectors: Array = np.linalg.eigh(total)[1]
    for matrix, norm in zip(matrices, norms, strict=True):
        rotated = vectors.conj().T @ matrix @ vectors
        beside = np.linalg.norm(rotated - np.diag(rotated.diagonal()))
        # rounding of eigh and of the products, and of a commutator that is 0 in exact arithmetic
        if beside > 100 * len(matrix) * precision * norm:
            return None
    return vectors
