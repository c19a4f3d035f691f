"""Arguments of kernels: NumPy dtypes with the same layout as the C++ structs in ``csrc/cuda``."""

from __future__ import annotations

from typing import Any

import numpy as np


def struct(*parts: str | tuple[Any, ...]) -> np.dtype[Any]:
    """Return the layout of a C++ struct: names of its fields in turn, or fields as NumPy has them.

    ``*x`` is a pointer, ``n`` a signed integer of 64 bits, and ``n[3]`` an array of three.
    """
    fields: list[tuple[Any, ...]] = []
    for part in parts:
        if isinstance(part, tuple):
            fields.append(part)
            continue
        for word in part.split():
            name, _, count = word.rstrip("]").partition("[")
            kind = "u8" if name.startswith("*") else "i8"
            shape = ((int(count),),) if count else ()
            fields.append((name.lstrip("*"), kind, *shape))
    return np.dtype(fields, align=True)


FACTOR = struct("*data system matrix row column")
"""The C++ struct Factor<T>, the matrices of one mode: address of the first one, then the strides
from system to system, matrix to matrix, row to row and column to column, in elements."""
