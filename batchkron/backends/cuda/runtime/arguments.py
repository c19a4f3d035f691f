"""Arguments of kernels: NumPy dtypes with the same layout as the C++ structs in ``csrc/cuda``."""

from __future__ import annotations

import numpy as np

# The C++ struct Factor<T>, the matrices of one mode: address of the first one, then the strides
# from system to system, matrix to matrix, row to row and column to column, in elements.
FACTOR = np.dtype(
    [("data", "u8"), ("system", "i8"), ("matrix", "i8"), ("row", "i8"), ("column", "i8")]
)


def pointer_fields(*names: str) -> list[tuple[str, str]]:
    """Return unsigned 64-bit fields of these names."""
    return [(name, "u8") for name in names]


def size_fields(*names: str) -> list[tuple[str, str]]:
    """Return signed 64-bit fields of these names."""
    return [(name, "i8") for name in names]
