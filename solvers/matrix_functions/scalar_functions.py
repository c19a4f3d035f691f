"""Functions that have a name, of eigenvalues, and those of small matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

__all__ = ["NAMES", "first_column", "of_hermitian"]

_ROUNDING = 100  # roundings of the largest eigenvalue that one below 0 may be
_MAX_TESTED = 8  # rows of the small matrices for which it is tested that f(X) commutes with X
_COMMUTES = 1e-3  # relative commutator of f(X) and X that rounding may leave; chosen by hand


def _root(values: NDArray[Any]) -> NDArray[Any]:
    least = -_ROUNDING * np.finfo(np.float64).eps * np.abs(values).max(initial=0.0)
    negative = (values.imag == 0) & (values.real < 0)
    return np.sqrt(np.where(negative, np.where(values.real >= least, 0.0, np.nan), values))


def _inverse_root(values: NDArray[Any]) -> NDArray[Any]:
    undefined = (values.imag == 0) & (values.real <= 0)
    return 1.0 / np.sqrt(np.where(undefined, np.nan, values))


NAMES: dict[str, Callable[[NDArray[Any]], NDArray[Any]]] = {
    "exp": np.exp,
    "sqrt": _root,
    "inverse-sqrt": _inverse_root,
}


def of_hermitian(f: Any, t: complex, T: NDArray[np.float64]) -> NDArray[Any]:
    """Return f(t T) e_1 for a real symmetric T, NaN where f is not defined."""
    if callable(f):
        return first_column(f, t * T)
    values, vectors = np.linalg.eigh(T)
    return np.asarray(vectors @ (NAMES[f](t * values) * vectors[0]))


def first_column(f: Any, matrix: NDArray[Any]) -> NDArray[Any]:
    """Return f(matrix) e_1 of a function of matrices, or exp.

    ValueError if f returns another shape, or is one of numbers: f(X) does not commute with X then.
    """
    found = np.asarray(scipy.linalg.expm(matrix) if f == "exp" else f(matrix))
    if found.shape != matrix.shape:
        raise ValueError(
            f"f returned an array of shape {found.shape} for a matrix of shape {matrix.shape}; "
            "expected a function of matrices, such as scipy.linalg.logm"
        )
    if callable(f) and 1 < len(matrix) <= _MAX_TESTED and np.isfinite(found[:, 0]).all():
        moved = matrix - np.trace(matrix) / len(matrix) * np.eye(len(matrix))
        size = np.linalg.norm(found) * np.linalg.norm(moved)
        if not np.linalg.norm(found @ moved - moved @ found) <= _COMMUTES * size:
            raise ValueError(
                "f(X) X is not X f(X) for a small matrix X: f seems to be a function of numbers, "
                "element by element, such as numpy.exp; expected a function of matrices, such as "
                "scipy.linalg.expm, sqrtm, logm or a function by scipy.linalg.funm"
            )
    return found[:, 0]
