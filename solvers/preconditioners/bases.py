"""Bases in which the 1-D matrices of an operator's terms are diagonal, mode by mode."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from batchkron.operators import KroneckerTerm, KroneckerTerms
from batchkron.operators.hermitian import is_nearly_hermitian
from batchkron.operators.kronecker_terms import leading_part
from batchkron.operators.scaling import norm

Matrix = NDArray[Any]

# Largest condition number of eigenvectors; rounding errors are then about 1e-10.
_MAX_CONDITION = 1e6
NEGLIGIBLE = 1e-8  # a relative defect up to this is regarded as rounding error; chosen by hand


class MatrixSum:
    """Σ_i c_i A_i of 1-D matrices, given as pairs; leading parts are computed on request."""

    def __init__(self, parts: Sequence[tuple[Any, Any]]) -> None:
        self.parts = tuple(parts)

    def leading(self, rows: int) -> Matrix:
        """Return the first ``rows`` rows and columns as a new dense matrix."""
        total = np.zeros((rows, rows))
        for scalar, factor in self.parts:
            total = total + scalar * leading_part(factor, rows)
        return total


@dataclass(frozen=True, eq=False)
class ModeBasis:
    """V and F with F A_f V ≈ diag(values[f]) for all matrices A_f of one mode, and for I.

    ``vectors``, ``forward`` (ndarray, (rows, rows)): V and F. F is V⁻¹, or Vᴴ for a congruence.
    ``values`` (ndarray, (matrices, rows)): the diagonals of F A_f V.
    ``ones`` (ndarray, (rows,)): the diagonal of F I V.
    ``defect``: frobenius norm of the off-diagonal entries relative to that of the matrices. It is
      inf if the eigenvectors were too ill-conditioned, so that V is that of the Hermitian part
      instead.
    """

    vectors: Matrix
    forward: Matrix
    values: Matrix
    ones: Matrix
    defect: float

    @property
    def is_exact(self) -> bool:
        """Whether all matrices are diagonal in the basis, up to rounding."""
        return self.defect <= NEGLIGIBLE


class ModeBases:
    """The distinct 1-D matrices of an operator's terms, with a basis for each mode and level.

    Terms that differ in one mode only are merged first. The distinct matrices of a mode are called
    its family.

    ``terms``: the operator.
    ``numbers``: for each merged term and mode the index of its matrix in the mode's family, -1 for
      the identity.
    ``coefficients``: the coefficients of the merged terms.
    """

    def __init__(self, terms: KroneckerTerms) -> None:
        self.terms = terms
        self._families: list[list[MatrixSum]] = [[] for _ in terms.sizes]
        self.numbers: list[list[int]] = []
        self.coefficients: list[Any] = []
        self._bases: dict[tuple[int, int], ModeBasis] = {}
        self._congruences: dict[tuple[int, int], ModeBasis | None] = {}
        self._matrices: dict[tuple[int, int], list[Matrix]] = {}
        places: list[dict[Any, int]] = [{} for _ in terms.sizes]
        for coefficient, factors in _merged(terms.terms):
            self.coefficients.append(coefficient)
            numbers = []
            for mode, factor in enumerate(factors):
                if factor is None:
                    numbers.append(-1)
                    continue
                key = tuple((scalar, id(part)) for scalar, part in factor.parts)
                if key not in places[mode]:
                    places[mode][key] = len(self._families[mode])
                    self._families[mode].append(factor)
                numbers.append(places[mode][key])
            self.numbers.append(numbers)

    @property
    def is_sum(self) -> bool:
        """Whether every merged term acts on at most one mode."""
        return all(sum(n >= 0 for n in numbers) <= 1 for numbers in self.numbers)

    def matrices(self, mode: int, level: int) -> list[Matrix]:
        """Return the leading parts, up to a level, of a mode's family, (rows, rows) each."""
        key = (mode, level)
        if key not in self._matrices:
            rows = self.terms.rows(mode, level)
            self._matrices[key] = [matrix.leading(rows) for matrix in self._families[mode]]
        return self._matrices[key]

    def up_to(self, levels: Sequence[int]) -> list[ModeBasis]:
        """Return the basis of each mode up to its level."""
        return [self.basis(mode, level) for mode, level in enumerate(levels)]

    def basis(self, mode: int, level: int) -> ModeBasis:
        """Return the basis of a mode up to a level; it is cached, and shared by equal modes."""
        key = (mode, level)
        if key not in self._bases:
            matrices = self.matrices(mode, level)
            for other, height in self._bases:
                if height == level and _equal(self.matrices(other, level), matrices):
                    self._bases[key] = self._bases[other, level]
                    break
            else:
                self._bases[key] = joint_basis(matrices, self.terms.rows(mode, level))
        return self._bases[key]

    def are_exact(self, levels: Sequence[int], device: str) -> bool:
        """Return whether `FullGrid.inverse` is the inverse up to these levels, but for rounding."""
        exact = [basis.is_exact for basis in self.up_to(levels)]
        return exact.count(False) <= 1 or (self.is_sum and device == "cpu")

    def congruence(self, mode: int, level: int) -> ModeBasis | None:
        """Return the `congruence_basis` of a mode up to a level; it is cached."""
        key = (mode, level)
        if key not in self._congruences:
            self._congruences[key] = congruence_basis(self.matrices(mode, level))
        return self._congruences[key]


def _equal(first: Sequence[Matrix], second: Sequence[Matrix]) -> bool:
    """Whether two families have the same matrices in the same order."""
    if len(first) != len(second) or not first:
        return False
    return all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


def _merged(terms: Sequence[KroneckerTerm]) -> list[tuple[Any, list[MatrixSum | None]]]:
    """Merge the terms that differ in one mode only; those that act on one mode come first."""
    identity: Any = 0.0
    groups: dict[tuple[int, ...], tuple[KroneckerTerm, list[tuple[Any, Any]]]] = {}
    for term in terms:
        if not term.modes:
            identity = identity + term.coefficient
            continue
        keys = [_all_but(mode, term) for mode in term.modes]
        key = next((key for key in keys if key in groups), keys[-1])
        parts = groups.setdefault(key, (term, []))[1]
        parts.append((term.coefficient, term.factors[key[0]]))
    found: list[tuple[Any, list[MatrixSum | None]]] = []
    if identity != 0.0:
        found.append((identity, [None] * len(terms[0].factors)))
    ordered = sorted(groups.items(), key=lambda group: len(group[1][0].modes) > 1)
    for (mode, *_), (term, parts) in ordered:
        factors = [None if f is None else MatrixSum([(1.0, f)]) for f in term.factors]
        factors[mode] = MatrixSum(parts)
        found.append((1.0, factors))
    return found


def _all_but(mode: int, term: KroneckerTerm) -> tuple[int, ...]:
    """Return the mode, and what terms that differ in it only have in common."""
    return (mode, *(id(f) if k != mode else 0 for k, f in enumerate(term.factors)))


def joint_basis(matrices: Sequence[Matrix], rows: int) -> ModeBasis:
    """Return a basis in which all matrices, (rows, rows), are diagonal if they commute.

    Else they are approximately: it is the eigenvectors of one linear combination of the matrices.
    """
    if not matrices:
        return trivial_basis(rows)
    norms = [float(norm(matrix)) or 1.0 for matrix in matrices]
    mixed = sum(
        (0.6180339887498949**k / size) * matrix
        for k, (matrix, size) in enumerate(zip(matrices, norms, strict=True))
    )
    vectors, inverse, ill = _eigenvectors(np.asarray(mixed))
    images = [inverse @ matrix @ vectors for matrix in matrices]
    values = np.stack([image.diagonal() for image in images])
    left = [
        float(norm(image - np.diag(image.diagonal()))) / size
        for image, size in zip(images, norms, strict=True)
    ]
    return ModeBasis(vectors, inverse, values, np.ones(rows), np.inf if ill else max(left))


def congruence_basis(matrices: Sequence[Matrix]) -> ModeBasis | None:
    """Return V with Vᴴ A V and Vᴴ S V diagonal, for a Hermitian A and a definite S of a family.

    For operators with variable coefficients, A ⊗ S' + S ⊗ A' is diagonal in such bases, though A
    and S do not commute; of Vᴴ I V only the diagonal is used. S is the definite matrix with the
    smallest condition number, A the largest of the others; None if there are no two such.
    """
    alike = [_is_hermitian(matrix) or is_nearly_hermitian(matrix) for matrix in matrices]
    if len(matrices) < 2 or not all(alike):
        return None
    spectra = [np.linalg.eigvalsh(matrix) for matrix in matrices]
    conditions = [
        np.abs(w).max() / max(np.abs(w).min(), np.finfo(np.float64).tiny)
        if np.sign(w[0]) * np.sign(w[-1]) > 0
        else np.inf
        for w in spectra
    ]
    weight = int(np.argmin(conditions))
    if not conditions[weight] < _MAX_CONDITION:
        return None
    others = [k for k in range(len(matrices)) if k != weight]
    largest = max(others, key=lambda k: float(norm(matrices[k])))
    sign = np.sign(spectra[weight][0])
    vectors = scipy.linalg.eigh(matrices[largest], sign * matrices[weight])[1]
    forward = vectors.conj().T
    images = [forward @ matrix @ vectors for matrix in matrices]
    values = np.stack([image.diagonal() for image in images])
    ones = (np.abs(vectors) ** 2).sum(axis=0)
    return ModeBasis(vectors, forward, values, ones, 0.0)


def dtype_of_solves(dtype: Any, *arrays: Matrix) -> np.dtype[Any]:
    """Return ``dtype``, that of vectors, made complex if an array of a solve is."""
    is_complex = np.result_type(*arrays, dtype).kind == "c"
    return np.result_type(dtype, 1j) if is_complex else np.dtype(dtype)


def trivial_basis(rows: int) -> ModeBasis:
    """Return the identity as the basis of an empty family."""
    one = np.eye(rows)
    return ModeBasis(one, one, np.zeros((0, rows)), np.ones(rows), 0.0)


def _is_hermitian(matrix: Matrix) -> bool:
    difference = np.abs(matrix - matrix.conj().T).max(initial=0.0)
    return bool(difference <= 1e-12 * np.abs(matrix).max(initial=0.0))


def _eigenvectors(matrix: Matrix) -> tuple[Matrix, Matrix, bool]:
    """Return V, V⁻¹, and whether V is that of another matrix, as that of A is ill-conditioned.

    The other one is the Hermitian part.
    """
    adjoint = matrix.conj().T
    if _is_hermitian(matrix):
        vectors = np.linalg.eigh(0.5 * (matrix + adjoint))[1]
        return vectors, vectors.conj().T, False
    values, vectors = np.linalg.eig(matrix)
    if np.linalg.cond(vectors) <= _MAX_CONDITION:
        if not np.iscomplexobj(matrix) and not np.any(values.imag):
            vectors = vectors.real
        return vectors, np.linalg.inv(vectors), False
    vectors = np.linalg.eigh(0.5 * (matrix + adjoint))[1]
    return vectors, vectors.conj().T, not is_nearly_hermitian(matrix)
