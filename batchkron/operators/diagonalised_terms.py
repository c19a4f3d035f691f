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
from batchkron.operators.hermitian import hermitian_part, rounding_bound
from batchkron.operators.kronecker_terms import KroneckerTerms
from batchkron.operators.memory import refuse_without_memory
from batchkron.operators.placement import on_device
from batchkron.operators.scaling import (
    exponent_of,
    outer_product,
    times_power_of_two,
    unit_exponent,
)
from batchkron.spec.kron import Array

__all__ = ["DiagonalisedTerms"]

_ADVICE = "a Krylov method of batchkron.solvers, such as cg or gmres, solves with any operator"


class DiagonalisedTerms:
    """The operator A = Σ_t c_t A_t1 ⊗ … ⊗ A_td with X^H A X = D diagonal, X = X_1 ⊗ … ⊗ X_d.

    In each mode, X_k^H A_tk X_k is diagonal for all terms t: the factors of a mode are Hermitian
    and commute, or become so by the Cholesky factor of one of them that is positive definite. So
    c K + σ I, M ⊗ K + K ⊗ M and a Kronecker sum with mass matrices are of this kind.

    ``terms``: on a whole tensor product.
    ``dtype``: of the operator, and of right-hand sides.
    ``device`` ({"cpu", "cuda"}): device of the right-hand sides. Factors are diagonalised on the
      host, and placed there once for each dtype of right-hand sides.
    ``values`` (ndarray, (N,)): the diagonal of D, on the device; infinite or 0 where it is out of
      range, which solves and determinants are not concerned with.
    ``vectors`` (list of ndarray, each (n_k, n_k)): the X_k, in double precision, on the host.
    ``unitary``: whether X is unitary, so that ``values`` are eigenvalues.

    Raises `ValueError` if the factors of a mode are not diagonalised together, or the terms are on
    a sparse grid.

    Factors are taken as Hermitian, and as commuting, if ‖A - Aᴴ‖, or what lies beside the diagonal,
    is at most min(n · eps · condition, 1e-8) ‖A‖ (3e-4 in single precision): inverses and kernels
    have such errors. Their Hermitian parts are diagonalised. The scales of factors are powers of
    two whose exponents are added, so that they may be anywhere in the dtype's range.

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
        refuse_without_memory(terms.unknowns, 3, 8, "eigenvalues of the sum")
        self._dtype, self._device = dtype, device
        self._arrays = backend_on(device).array_module
        self.vectors: list[Array] = []
        self._placed: dict[np.dtype[Any], tuple[list[Array], list[Array]]] = {}
        diagonals: list[list[Array]] = []  # of each mode, one for each term
        exponents = [0] * len(terms.terms)  # terms are diagonals times these powers of two
        self.unitary = True
        log_square = 0.0  # 2 log |det X|
        for mode, size in enumerate(terms.sizes):
            factors = [terms.factor(t, mode) for t in range(len(terms.terms))]
            units = [unit_exponent(factor) for factor in factors]
            exponents = [known + unit for known, unit in zip(exponents, units, strict=True)]
            pairs = zip(factors, units, strict=True)
            scaled = [times_power_of_two(factor, -unit) for factor, unit in pairs]
            vectors, found, mass = _diagonalise(scaled, mode)
            self.vectors.append(vectors)
            diagonals.append(found)
            if mass is not None:
                self.unitary = False
                log_square -= terms.unknowns / max(size, 1) * np.linalg.slogdet(mass)[1]
        values, sizes, self._exponent = _diagonal(terms, diagonals, exponents, dtype)
        least = np.abs(values).min(initial=np.inf)
        precision = float(np.finfo(dtype).eps) * len(terms.sizes)
        self._singular = bool(least <= precision * sizes.max(initial=0.0))
        log_scale = terms.unknowns * self._exponent * math.log(2.0)
        self._slogdet = self._sign_and_logarithm(values, log_scale - log_square)
        self.values = self._mantissas = on_device(values, device)  # D / 2^exponent
        if self._exponent:
            self.values = on_device(times_power_of_two(values, self._exponent), device)

    def solve(self, b: ArrayLike) -> Array:
        """Solve A x = b, b (N,) or (N, K), by two Kronecker products and a division.

        Raises LinAlgError if A is singular to working precision.
        """
        if any_foreign(b):
            return in_kind(self.solve, common_kind(b=b), b)  # type: ignore[no-any-return]
        rhs = direct.right_hand_side(b, len(self.values), self._arrays)
        if self._singular:
            raise np.linalg.LinAlgError("the sum is singular to working precision")
        return _times_power_of_two(self._scaled(rhs, 1 / self._mantissas), -self._exponent)

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

    def _sign_and_logarithm(self, values: Array, log_scale: float) -> tuple[Any, Any]:
        kind = np.result_type(values, self._dtype.type(0)).type
        if self._singular:
            return kind(0), np.float64(-np.inf)
        sizes = np.abs(values)
        logarithm = np.log(sizes).sum(dtype=np.float64) + log_scale
        return kind(np.prod(values / sizes)), logarithm


def _diagonal(
    terms: KroneckerTerms,
    diagonals: Sequence[Sequence[Array]],
    exponents: Sequence[int],
    dtype: np.dtype[Any],
) -> tuple[Array, Array, int]:
    """Return D / 2^e, the sum of its terms' moduli, and e, which is 0 if D is well in range.

    The terms are Kronecker products of the modes' diagonals, times 2^exponents[t].
    """
    coefficients = [np.asarray(term.coefficient) for term in terms.terms]
    by_term = list(zip(*diagonals, strict=True))
    sizes_of_terms = [
        exponent + exponent_of(coefficient) + sum(exponent_of(one) for one in found)
        for coefficient, found, exponent in zip(coefficients, by_term, exponents, strict=True)
        if coefficient and all(np.any(one) for one in found)
    ]
    common = max(sizes_of_terms, default=0)
    if abs(common) <= np.finfo(dtype).maxexp // 2:  # then 1 / D is in the range of the dtype, too
        common = 0
    values, sizes = np.zeros(terms.unknowns), np.zeros(terms.unknowns)
    for coefficient, found, exponent in zip(coefficients, by_term, exponents, strict=True):
        own = exponent_of(coefficient)
        product = outer_product(found, exponent + own - common)
        entries = times_power_of_two(coefficient, -own) * product
        values = values + entries
        sizes += np.abs(entries)
    return values, sizes, common


def _times_power_of_two(x: Array, exponent: int) -> Array:
    """Return 2^exponent · x on any device, by powers that are in the range of the dtype."""
    while exponent:
        step = max(-64, min(64, exponent))
        x, exponent = x * 2.0**step, exponent - step
    return x


def _diagonalise(factors: Sequence[Array], mode: int) -> tuple[Array, list[Array], Array | None]:
    """Return X, the diagonals of all X^H A X, and the matrix M with X^H M X = 1, None for 1 itself.

    Raises `ValueError` if there is no such X.
    """
    distinct: list[Array] = []
    for factor in factors:
        if not any(np.array_equal(factor, known) for known in distinct):
            distinct.append(factor)
    refusal = f"the factors of mode {mode} are not all Hermitian"
    advice = f"without that they are not diagonalised together: {_ADVICE}"
    exact = [hermitian_part(factor, refusal, advice) for factor in distinct]
    kind = max((factor.dtype for factor in factors), key=lambda dtype: np.finfo(dtype).eps)
    one = np.eye(len(factors[0]))
    roots = [(mass, root) for mass in [one, *exact] if (root := _cholesky(mass)) is not None]
    # What commutes to working precision must not be diagonalised in a less precise way.
    for fits in (_commute, _nearly_commute):
        for mass, root in roots:
            is_one = [mass is factor and fits is _nearly_commute for factor in exact]
            congruent = [
                one if known else _congruent(root, factor)
                for known, factor in zip(is_one, exact, strict=True)
            ]
            vectors = _likely_vectors(congruent)
            if not fits(root, vectors, congruent, exact, kind):
                continue
            found = np.asarray(scipy.linalg.solve_triangular(root.conj().T, vectors))
            images = [_doubled(factor) @ found for factor in factors]
            diagonals = [np.einsum("ij,ij->j", found.conj(), image).real for image in images]
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


def _likely_vectors(matrices: Sequence[Array]) -> Array:
    """Return orthonormal vectors that are eigenvectors of all Hermitian matrices if any are.

    They are those of a sum with weights that are unlikely to cancel: eigenvalues of the sum that
    are equal belong, for almost all weights, to vectors that are eigenvectors of all.
    """
    norms = [np.linalg.norm(matrix) for matrix in matrices]
    weights = [math.cos(1.0 + 0.7 * k) / (norm or 1.0) for k, norm in enumerate(norms)]
    total = sum(weight * matrix for weight, matrix in zip(weights, matrices, strict=True))
    vectors: Array = np.linalg.eigh(total)[1]
    return vectors


def _commute(
    root: Array,
    vectors: Array,
    congruent: Sequence[Array],
    matrices: Sequence[Array],
    kind: np.dtype[Any],
) -> bool:
    """Whether vectors Q diagonalise all L⁻¹ A L⁻ᴴ to working precision."""
    # rounding of eigh and of the products, and of a commutator that is 0 in exact arithmetic
    bound = 100 * len(root) * float(np.finfo(kind).eps)
    for matrix in congruent:
        rotated = vectors.conj().T @ matrix @ vectors
        beside = np.linalg.norm(rotated - np.diag(rotated.diagonal()))
        if not beside <= bound * np.linalg.norm(matrix):
            return False
    return True


def _nearly_commute(
    root: Array,
    vectors: Array,
    congruent: Sequence[Array],
    matrices: Sequence[Array],
    kind: np.dtype[Any],
) -> bool:
    """Whether A = L Q diag(Qᴴ L⁻¹ A L⁻ᴴ Q) Qᴴ Lᴴ but for rounding errors that the A have."""
    bound = max(float(rounding_bound(matrix, kind)) for matrix in matrices)
    for matrix, one in zip(matrices, congruent, strict=True):
        diagonal = np.einsum("ij,ij->j", vectors.conj(), one @ vectors)
        back = root @ vectors
        left = np.linalg.norm(matrix - (back * diagonal) @ back.conj().T)
        if not left <= bound * np.linalg.norm(matrix):
            return False
    return True
