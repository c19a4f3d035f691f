"""The memory layout of a batch list and its matrices for kernels that take one vector at a time.

Pure arithmetic, no device needed.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from batchkron.backends.cuda.runtime.arguments import pointer_fields, size_fields
from batchkron.backends.cuda.runtime.hardware import round_up
from batchkron.spec.kron import Array

MAX_SHORT_ID = 65534  # largest factor id in a 16-bit id; 65535 means an identity
WORD = 16  # bytes that kernels copy at a time; the address of x must be a multiple


def matrix_bytes(elements: int, itemsize: int) -> int:
    """Return the bytes of a matrix or block in shared memory, a multiple of 16."""
    return round_up(elements * itemsize, 16)


def matrix_pitch(elements: int, itemsize: int) -> int:
    """Return the bytes from one matrix of a pool to the next, in whole sectors of 32 bytes.

    Small matrices of up to 16 bytes are not padded further.
    """
    size = matrix_bytes(elements, itemsize)
    return size if size <= 16 else round_up(size, 32)


def record_words(steps: int, short_ids: bool) -> int:
    """Return the 4-byte words of a list record: the input block and the factor ids.

    Records are padded to 8 bytes or to a multiple of 16, the sizes of the kernel's copies.
    """
    size = 4 + steps * (2 if short_ids else 4)
    return 2 if size <= 8 else round_up(size, 16) // 4


def list_records(ids: Array, inputs: Array, starts: Array, short_ids: bool, slots: int) -> Array:
    """Return the records of a list: each has an input block and the ids of its matrices.

    An identity's id has all bits set. With ``slots``, each output has that many records; those
    without a product have the input -1.
    """
    products, steps = ids.shape
    records = np.zeros((products, record_words(steps, short_ids)), np.int32)
    records[:, 0] = inputs
    if short_ids:
        records[:, 1:].view(np.uint16)[:, :steps] = ids & 0xFFFF
    else:
        records[:, 1 : 1 + steps] = ids
    if not slots:
        return records
    padded = np.zeros((len(starts) - 1, slots, records.shape[1]), np.int32)
    padded[:, :, 0] = -1
    counts = np.diff(starts)
    outputs = np.repeat(np.arange(len(counts)), counts)
    padded[outputs, np.arange(products) - starts[outputs]] = records
    return padded


@cache
def register_batch_arguments(dtype: np.dtype[Any], modes: int) -> np.dtype[Any]:
    """Return the layout of the C++ struct RegisterBatchArguments for ``modes`` factors."""
    pointers = pointer_fields("x", "y", "list", "starts", "weights", "unit_weights")
    pool = np.dtype([*pointer_fields("data"), *size_fields("system")])
    sizes = size_fields("outer", "systems", "num_inputs", "num_outputs", "slots", "weight_system")
    fixed = [*pointers, ("pools", pool, (modes,)), *sizes]
    return np.dtype([*fixed, *size_fields("accumulate"), ("alpha", dtype)], align=True)


@cache
def unsorted_arguments(dtype: np.dtype[Any], modes: int) -> np.dtype[Any]:
    """Return the layout of the C++ struct UnsortedArguments for ``modes`` factors."""
    pointers = pointer_fields("x", "y", "ids", "inputs", "outputs", "weights", "refused")
    names = "pool_systems", "limits", "columns"
    by_step = [("pools", "u8", (modes,)), *((name, "i8", (modes,)) for name in names)]
    sizes = size_fields("outer", "systems", "num_inputs", "num_outputs", "weight_system")
    scalars = [*size_fields("products"), ("alpha", dtype)]
    return np.dtype([*pointers, *by_step, *sizes, *scalars], align=True)
