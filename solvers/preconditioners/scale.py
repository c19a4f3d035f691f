"""The argument scale of preconditioners: the number in I - scale · A."""

from __future__ import annotations

import cmath
from numbers import Complex
from typing import Any

import numpy as np

__all__ = ["check_scale", "dtype_with_scale"]


def check_scale(scale: Any, dtype: np.dtype[Any] | None) -> None:
    """Refuse what is not a finite number, or complex for vectors that are real.

    Parameters
    ----------
    scale : scalar or None
        The number, if there is one.
    dtype : numpy.dtype or None
        The vectors' dtype; None if it follows the scale.

    Raises
    ------
    TypeError
        If the scale is not a number, or is complex and ``dtype`` is real.
    ValueError
        If it is infinite or NaN.
    """
    if scale is None:
        return
    if not isinstance(scale, Complex):
        raise TypeError(f"scale is {type(scale).__name__}; expected a number")
    if not cmath.isfinite(complex(scale)):
        raise ValueError(f"scale is {scale}; expected a finite number")
    if dtype is not None and np.iscomplexobj(np.asarray(scale)) and dtype.kind != "c":
        raise TypeError(f"scale is complex, but the vectors are {dtype}; give a complex dtype")


def dtype_with_scale(scale: Any, terms: np.dtype[Any], dtype: Any) -> np.dtype[Any]:
    """Return the dtype of a preconditioner's vectors, after `check_scale`.

    It is ``dtype`` if that is given, else the dtype of the operator's terms, made complex for a
    complex scale.

    Raises
    ------
    TypeError
        If ``dtype`` is given and not that of floating-point numbers.
    """
    own: np.dtype[Any] | None = None if dtype is None else np.dtype(dtype)
    check_scale(scale, own)
    if own is None:
        usual: np.dtype[Any] = np.dtype(np.result_type(terms, 1j))
        return usual if np.iscomplexobj(scale) else terms
    if own.kind not in "fc":
        raise TypeError(f"dtype is {own}; expected float32, float64, complex64 or complex128")
    return own
