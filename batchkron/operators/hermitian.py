"""Matrices that are Hermitian but for rounding, and their Hermitian parts."""

from __future__ import annotations

from typing import Any

import numpy as np

from batchkron.operators.scaling import exponents_of, times_power_of_two
from batchkron.spec.kron import Array

__all__ = ["hermitian_part", "is_hermitian", "is_nearly_hermitian", "rounding_bound"]

# Largest ‖A - Aᴴ‖ / ‖A‖ that is regarded as rounding, by the precision of A: half of the digits.
# What is larger is more likely a term that is not symmetric, such as advection beside diffusion.
_MAX_DEFECT = {np.dtype("float32"): 3e-4, np.dtype("float64"): 1e-8}
# Largest entry of A - Aᴴ relative to the largest of its rows, likewise: [[1e9, 0, 0], [0, 1, 1],
# [0, -1, 1]] is not Hermitian, small as the norm of its skew part is. Inverses, roots and kernels
# scaled by 1e±6 from row to row have up to 7e-6, and 2e-3 in single precision.
_MAX_ROW_DEFECT = {np.dtype("float32"): 3e-2, np.dtype("float64"): 1e-4}
# Roundings of the largest entry in each entry of A - Aᴴ, if A is formed entry by entry.
_ENTRY_ROUNDINGS = 8


def is_hermitian(matrix: Array) -> bool:
    """Whether a matrix, or every one of a stack (..., n, n), is Hermitian to working precision.

    Then ‖A - Aᴴ‖ is at most n · eps · ‖A‖ or so, as far as LAPACK's eigenvalues are exact, and so
    are the entries of A - Aᴴ beside the sizes of their rows: in [[1, 5], [3, 1e20]] 2 is none.
    An entry whose mirror image is exactly 0 is none, either.
    It tells methods apart which both are right; `hermitian_part` allows for more, where there is
    only one.
    """
    if _equals_adjoint(matrix):
        return True
    scaled, defects = _defects(matrix)
    known = _is_rounding(matrix, scaled) | (defects <= _roundings(matrix))
    same_zeros = np.array_equal(matrix != 0, _adjoint(matrix) != 0)
    return bool(np.all(known) and same_zeros and _is_rounding_of_rows(matrix, scaled))


def hermitian_part(matrix: Array, refusal: str, advice: str = "") -> Array:
    """Return (A + Aᴴ) / 2 of a matrix, or a stack (..., n, n), that is Hermitian but for rounding.

    Rounding errors are those of inverses, square roots and kernels as well, which grow with the
    condition number: ‖A - Aᴴ‖ ≤ min(n · eps · condition, 1e-8) ‖A‖ in Frobenius norms, 3e-4 in the
    place of 1e-8 in single precision. No entry may be more than 1e-4 of its rows (3e-2). The result
    is in double precision, and equal to a matrix that equals its adjoint. The text of the
    ValueError for another one begins and ends with ``refusal`` and ``advice``.
    """
    if _equals_adjoint(matrix):
        return _doubled(matrix)
    scaled, defects = _defects(matrix)
    part = (scaled + _adjoint(scaled)) / 2
    bounds = _bounds(matrix, part, defects)
    accepted = _relative_to_rows(scaled) <= _MAX_ROW_DEFECT[np.finfo(matrix.dtype).dtype]
    accepted = _is_rounding(matrix, scaled) | (accepted & (defects <= bounds))
    if not np.all(accepted):
        worst = tuple(np.argwhere(~accepted)[0].tolist())
        raise ValueError(
            f"{refusal} (not symmetric, if real){_reason(worst, defects, bounds)}; if it should "
            f"be, pass its Hermitian part, {_formula(matrix)}{advice and f'; {advice}'}"
        )
    return np.asarray(times_power_of_two(part, exponents_of(matrix)[..., None, None]))


def is_nearly_hermitian(matrix: Array) -> bool:
    """Whether `hermitian_part` accepts a matrix, or a stack."""
    try:
        hermitian_part(matrix, "")
    except ValueError:
        return False
    return True


def rounding_bound(part: Array, dtype: np.dtype[Any]) -> Array:
    """Return min(n · eps · condition, 1e-8), or 3e-4, of Hermitian matrices (..., n, n).

    eps, and the choice of the two, are those of a dtype.
    """
    precision = np.finfo(dtype)
    sizes = np.abs(np.linalg.eigvalsh(part))
    smallest = np.maximum(sizes.min(axis=-1, initial=np.inf), np.finfo(np.float64).tiny)
    conditions = sizes.max(axis=-1, initial=0.0) / smallest
    least = part.shape[-1] * float(precision.eps)
    return np.asarray(np.minimum(least * conditions, _MAX_DEFECT[precision.dtype]))


def _doubled(matrix: Array) -> Array:
    return matrix.astype(np.result_type(matrix.dtype, np.float64), copy=False)


def _adjoint(matrix: Array) -> Array:
    return matrix.conj().swapaxes(-1, -2)


def _equals_adjoint(matrix: Array) -> bool:
    return np.array_equal(matrix, _adjoint(matrix))


def _defects(matrix: Array) -> tuple[Array, Array]:
    """Return the matrices in double precision, scaled to size 1, and their ‖A - Aᴴ‖ / ‖A‖."""
    exponents = exponents_of(matrix)[..., None, None]
    scaled = np.asarray(times_power_of_two(_doubled(matrix), -exponents))
    with np.errstate(invalid="ignore", over="ignore"):  # NaN of entries that are not finite
        differences = np.linalg.norm(scaled - _adjoint(scaled), axis=(-2, -1))
        sizes = np.linalg.norm(scaled, axis=(-2, -1))
        return scaled, np.asarray(differences / np.where(sizes == 0, 1.0, sizes))


def _roundings(matrix: Array) -> float:
    size: int = matrix.shape[-1]
    return size * float(np.finfo(matrix.dtype).eps)


def _is_rounding(matrix: Array, scaled: Array) -> Array:
    """Whether no entry of A - Aᴴ is larger than some roundings of the largest entry of A."""
    with np.errstate(invalid="ignore"):
        differences = np.abs(scaled - _adjoint(scaled)).max(axis=(-2, -1))
    bound = _ENTRY_ROUNDINGS * np.finfo(matrix.dtype).eps
    return np.asarray(differences <= bound * np.abs(scaled).max(axis=(-2, -1)))


def _is_rounding_of_rows(matrix: Array, scaled: Array) -> bool:
    """Whether each entry of A - Aᴴ is some roundings of the geometric mean of its rows' sizes."""
    bound = max(_ENTRY_ROUNDINGS * float(np.finfo(matrix.dtype).eps), _roundings(matrix))
    return bool(np.all(_relative_to_rows(scaled) <= bound))


def _relative_to_rows(scaled: Array) -> Array:
    """Return the largest |A - Aᴴ|_ij / (|A_i| |A_j|)^½, |A_i| the largest entry of row, column i.

    For matrices (..., n, n); it is NaN where entries are not finite.
    """
    with np.errstate(invalid="ignore"):
        adjoint = _adjoint(scaled)
        sizes = np.sqrt(np.maximum(np.abs(scaled), np.abs(adjoint)).max(axis=-1))
        units = np.where(sizes == 0.0, 1.0, sizes)
        return np.asarray(
            (np.abs(scaled - adjoint) / units[..., :, None] / units[..., None, :]).max(
                axis=(-2, -1), initial=0.0
            )
        )


def _bounds(matrix: Array, part: Array, defects: Array) -> Array:
    """Return the largest defects that rounding explains; condition numbers if they matter."""
    least, most = _roundings(matrix), _MAX_DEFECT[np.finfo(matrix.dtype).dtype]
    if np.all(defects <= least):
        return np.full(defects.shape, least)
    if not np.all(defects <= most):
        return np.full(defects.shape, most)
    return rounding_bound(part, matrix.dtype)


def _reason(worst: tuple[int, ...], defects: Array, bounds: Array) -> str:
    system = f"of system {worst} " if worst else ""
    if not np.isfinite(defects[worst]):
        return f": {system}it has entries that are infinite or NaN"
    if defects[worst] <= bounds[worst]:
        return f": {system}entries of A - Aᴴ are of the size of their rows, though small beside ‖A‖"
    return (
        f": {system}‖A - Aᴴ‖ is {defects[worst]:.2g} ‖A‖, more than the {bounds[worst]:.2g} ‖A‖ "
        "that rounding explains"
    )


def _formula(matrix: Array) -> str:
    transpose = "T" if matrix.ndim == 2 else "mT"
    adjoint: Any = f"A.conj().{transpose}" if matrix.dtype.kind == "c" else f"A.{transpose}"
    return f"(A + {adjoint}) / 2"
