"""Arrays of the CPU and of CUDA devices, told apart without importing CuPy."""

from __future__ import annotations

import sys
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse


def array_module(*operands: object) -> Any:
    """Return CuPy if an operand is one of its arrays, else NumPy."""
    cupy = sys.modules.get("cupy")
    if cupy is not None and any(isinstance(operand, cupy.ndarray) for operand in operands):
        return cupy
    return np


def as_array(value: ArrayLike, name: str, module: Any = np) -> NDArray[Any]:
    """Return ``value`` as an array of ``module``, refusing arrays that live elsewhere.

    Raises
    ------
    TypeError
        If the array is on another device than the other operands.
    """
    if isinstance(value, module.ndarray):
        return cast(NDArray[Any], value)
    if module is not np and isinstance(value, np.ndarray):
        raise TypeError(
            f"{name} is an array on the CPU, but the other operands are on a CUDA device; copy it "
            f"with cupy.asarray first, or the operator with to('cpu')"
        )
    if hasattr(value, "__cuda_array_interface__"):
        raise TypeError(
            f"{name} is an array on a CUDA device, but the other operands are on the CPU; copy it "
            f"with .get() first, or the operator with to('cuda')"
            if module is np
            else f"{name} is a {type(value).__name__}; expected a CuPy array, as cupy.asarray makes"
        )
    if issparse(value):
        raise TypeError(f"{name} is a sparse matrix; convert it with toarray() first")
    return module.asarray(value)  # type: ignore[no-any-return]


def to_host(value: ArrayLike, name: str) -> NDArray[Any]:
    """Return ``value`` as a NumPy array; a CuPy array is copied, and waited for.

    Raises
    ------
    TypeError
        If it is another library's array on a device, or a sparse matrix of SciPy.
    """
    module = array_module(value)
    return as_array(value if module is np else module.asnumpy(value), name)


def is_aligned(array: NDArray[Any]) -> bool:
    """Whether the elements are where the processor wants them; on a device they always are."""
    return not isinstance(array, np.ndarray) or bool(array.flags.aligned)


def is_plain(array: NDArray[Any]) -> bool:
    """Whether the kernels may write to the array: C-contiguous and aligned."""
    return bool(array.flags.c_contiguous) and is_aligned(array)
