"""Checks that an array can be a vector of a problem: its kind, dtype, shape and layout."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from batchkron.arrays import array_module

__all__ = ["check_content", "check_vector"]


def check_vector(
    name: str, vector: NDArray[np.float64], like: NDArray[np.float64], *, is_output: bool = False
) -> None:
    """Refuse an array that is not a float64 vector like another one, of NumPy or CuPy.

    An output has to be C-contiguous and writeable, too. ``name`` is for the texts.
    """
    module, came = array_module(like), type(vector)
    if not isinstance(vector, module.ndarray):
        raise TypeError(
            f"{name} is {came.__module__}.{came.__name__}; expected a {module.__name__} array of "
            f"shape {like.shape}, because that is where the problem is"
        )
    check_content(name, vector, like.shape)
    fresh = f"pass a fresh array, such as {module.__name__}.empty_like(u)"
    if is_output and not vector.flags.c_contiguous:
        raise ValueError(f"{name} is not C-contiguous; {fresh}")
    if is_output and not getattr(vector.flags, "writeable", True):
        raise ValueError(f"{name} is read-only; {fresh}")


def check_content(name: str, vector: NDArray[np.float64], shape: tuple[int, ...]) -> None:
    """Refuse an array, on the CPU or a device, of another dtype than float64 or another shape."""
    if getattr(vector, "dtype", None) != np.float64:
        kind = getattr(vector, "dtype", type(vector).__name__)
        raise TypeError(f"{name} is {kind}; expected a float64 array of shape {shape}")
    if vector.shape != shape:
        raise ValueError(
            f"{name} has shape {vector.shape}; expected {shape}, the problem's unknowns"
        )
