"""What kernels' arguments are made of: NumPy structures, laid out as those of ``csrc/cuda``."""

from __future__ import annotations

import numpy as np

# Factor<T>: the matrices of one mode.
FACTOR = np.dtype(
    [("data", "u8"), ("system", "i8"), ("matrix", "i8"), ("row", "i8"), ("column", "i8")]
)


def pointer_fields(*names: str) -> list[tuple[str, str]]:
    """Return the fields of pointers."""
    return [(name, "u8") for name in names]


def size_fields(*names: str) -> list[tuple[str, str]]:
    """Return the fields of sizes and strides."""
    return [(name, "i8") for name in names]
