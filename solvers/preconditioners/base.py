"""What preconditioners of I - scale · A, or of A, have in common."""

from __future__ import annotations

import cmath
import math
from abc import ABC, abstractmethod
from numbers import Complex
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchkron.arrays import array_module

__all__ = ["Preconditioner", "check_scale", "dtype_with_scale", "round_scale"]


class Preconditioner(ABC):
    """M ≈ B⁻¹, B = I - scale · A or A itself: the argument ``M`` of any solver, also of SciPy's.

    Attributes
    ----------
    shape : tuple of int, (N, N)
    dtype : numpy.dtype
    device : str
    scale : scalar or None
    """

    shape: tuple[int, int]
    dtype: np.dtype[Any]
    device: str
    scale: Any

    @property
    @abstractmethod
    def capturable(self) -> bool:
        """Whether products on a device may be captured in CUDA graphs."""

    @abstractmethod
    def shifted(self, scale: Any) -> Preconditioner:
        """Return the preconditioner for another scale; what does not depend on it is reused."""

    @abstractmethod
    def rescale(self, scale: Any) -> None:
        """Become the preconditioner for another scale, in place.

        Graphs on a device that contain products with this one contain those with the new one, as
        far as it is ``capturable``.
        """

    @abstractmethod
    def matvec(self, x: NDArray[Any], out: NDArray[Any] | None = None) -> NDArray[Any]:
        """Return M x.

        Parameters
        ----------
        x : ndarray, (N,) or (N, 1)
            A vector on the preconditioner's device.
        out : ndarray of x's shape, optional
            Where the result is written; it must not overlap x.

        Returns
        -------
        ndarray of x's shape
        """

    def matmat(self, X: NDArray[Any]) -> NDArray[Any]:
        """Return M X for the columns of X, (N, K), on the preconditioner's device.

        Raises
        ------
        ValueError
            If X has another shape.
        """
        if np.ndim(X) != 2 or len(X) != self.shape[1]:
            raise ValueError(
                f"X has shape {np.shape(X)}; expected ({self.shape[1]}, K), because the "
                f"preconditioner has shape {self.shape}"
            )
        module = array_module(X)
        images = module.empty(X.shape[::-1], self.dtype)
        for x, image in zip(module.ascontiguousarray(X.T), images, strict=True):
            self.matvec(x, image)
        return images.T  # type: ignore[no-any-return]

    def __matmul__(self, x: NDArray[Any]) -> NDArray[Any]:
        return self.matvec(x) if np.ndim(x) == 1 else self.matmat(x)

    def describe(self) -> str:
        """Return a few lines of text about what M is an inverse of, and by which solves."""
        c = 0j if self.scale is None else complex(self.scale)
        B = "A" if self.scale is None else f"(I - {f'({c:.6g})' if c.imag else f'{c.real:.6g}'} A)"
        return f"{type(self).__name__} {self.shape[0]}×{self.shape[1]} {self.dtype}: {B}⁻¹"


def check_scale(scale: Any, dtype: np.dtype[Any] | None) -> None:
    """Raise TypeError or ValueError if a scale is not a finite number, or complex for real vectors.

    ``dtype`` is the vectors', None if it follows the scale.
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

    It is ``dtype`` if that is given, which TypeError refuses if it is not of floating-point
    numbers; else the dtype of the operator's terms, made complex for a complex scale.
    """
    own: np.dtype[Any] | None = None if dtype is None else np.dtype(dtype)
    check_scale(scale, own)
    if own is None:
        usual: np.dtype[Any] = np.dtype(np.result_type(terms, 1j))
        return usual if np.iscomplexobj(scale) else terms
    if own.kind not in "fc":
        raise TypeError(f"dtype is {own}; expected float32, float64, complex64 or complex128")
    return own


def round_scale(scale: Any) -> Any:
    """Return the power of two next to a real scale; another scale is returned as it is.

    What is computed once for several scales is computed for this one: so it depends on the present
    scale only, and resumed runs have the same.
    """
    if scale is None or not scale or complex(scale).imag:
        return scale
    return math.copysign(2.0 ** round(math.log2(abs(scale))), scale)
