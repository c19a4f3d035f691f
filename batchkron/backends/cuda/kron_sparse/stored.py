"""Values of Kronecker-sparse matrices as kernels read them, and the kernel that copies them there.

The kernel is ``csrc/cuda/kron_sparse/store.cuh``.
"""

from __future__ import annotations

from functools import cache
from math import prod
from typing import Any

import numpy as np

from batchkron.backends.cuda.kernel import Family, Kernel, LaunchShape, record
from batchkron.backends.cuda.kron_sparse.kernel import SPARSE_SCALARS, Stored, stored_row
from batchkron.backends.cuda.runtime.arguments import struct
from batchkron.backends.cuda.runtime.hardware import WARP, DeviceLimits
from batchkron.backends.cuda.runtime.program import device_program
from batchkron.spec.kron import Array

_AXES: dict[Stored, tuple[int, int, int, int]] = {
    "given": (0, 1, 2, 3),
    "blocks": (0, 3, 1, 2),
    "expanded": (0, 1, 3, 2),
    "whole": (0, 1, 3, 2),
}
_WITH_ZEROS = ("expanded", "whole")
_THREADS = 256  # of a thread block; chosen by hand
_BLOCKS = 16  # thread blocks for each multiprocessor; with more, they take several turns


def stored_shape(shape: tuple[int, ...], itemsize: int, stored: Stored) -> tuple[int, ...]:
    """Return the shape of values (a, b, c, d) as they are stored."""
    a, b, c, d = shape
    if stored == "given":
        return shape
    if stored == "blocks":
        return a, d, b, stored_row(c, itemsize)
    return a, b, d, c * d * (a if stored == "whole" else 1)


def stored_values(values: Array, stored: Stored) -> Array:
    """Return values (a, b, c, d) of the host as they are stored. What is between is zero."""
    target = np.zeros(stored_shape(values.shape, values.dtype.itemsize, stored), values.dtype)
    if stored in _WITH_ZEROS:
        a, _, c, d = values.shape
        for i, j in np.ndindex(a, d):
            first = i * c * d + j if stored == "whole" else j
            target[i, :, j, first : first + c * d - j : d] = values[i, ..., j]
    else:
        target[..., : values.shape[_AXES[stored][3]]] = values.transpose(_AXES[stored])
    return target


def are_stored(
    shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int, stored: Stored
) -> bool:
    """Whether values (a, b, c, d) with these strides, in bytes, lie as they are stored."""
    if stored_shape(shape, itemsize, stored)[3] != shape[_AXES[stored][3]]:
        return False
    contiguous = itemsize
    for axis in reversed(_AXES[stored]):
        if shape[axis] > 1 and strides[axis] != contiguous:
            return False
        contiguous *= shape[axis]
    return True


@cache
def store_arguments() -> np.dtype[Any]:
    """Return the layout of the C++ struct StoreArguments."""
    return struct("*values *stored sizes[4] strides[4] row spread shift")


def store_kernel(
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    itemsize: int,
    dtype: str,
    stored: Stored,
    device: DeviceLimits,
) -> Kernel:
    """Return the kernel that copies values (a, b, c, d), none of which is zero.

    Strides are in bytes, multiples of ``itemsize``. The variant is how many neighbours of a row are
    copied at a time.
    """
    target = stored_shape(shape, itemsize, stored)
    lanes = 1
    while lanes < min(WARP, target[3]):
        lanes *= 2
    arguments = record(
        store_arguments(),
        sizes=[shape[axis] for axis in _AXES[stored]],
        strides=[strides[axis] // itemsize for axis in _AXES[stored]],
        row=target[3],
        spread=shape[3] if stored in _WITH_ZEROS else 1,
        shift=shape[2] * shape[3] if stored == "whole" else 0,
    )
    tiles = prod(target[:2]) * -(-target[2] // (_THREADS // lanes)) * -(-target[3] // lanes)
    blocks = min(tiles, _BLOCKS * device.multiprocessors)
    launch = LaunchShape(blocks, _THREADS, 1, 0)
    program = device_program(
        "kron_sparse/store", "kron_sparse_store", SPARSE_SCALARS[dtype], lanes, _THREADS
    )
    return Kernel(STORE, dtype, lanes, program, launch, arguments)


STORE = Family("kron_sparse", "store", store_kernel)
