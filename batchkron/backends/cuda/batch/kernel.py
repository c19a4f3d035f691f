"""Sizes of a batch list, its layout in memory, and kernels that take it as records.

The layouts are those for kernels that take one vector at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from batchkron.backends.cuda.kernel import Family, Kernel, LaunchShape, record
from batchkron.backends.cuda.runtime.arguments import struct
from batchkron.backends.cuda.runtime.hardware import round_up
from batchkron.backends.cuda.runtime.program import Program
from batchkron.backends.cuda.steps import Step
from batchkron.spec.kron import Array

MAX_SHORT_ID = 65534  # largest factor id in a 16-bit id; 65535 means an identity
WORD = 16  # bytes that kernels copy at a time; the address of x must be a multiple


def matrix_bytes(elements: int, itemsize: int) -> int:
    """Return the bytes of a matrix or block in shared memory, a multiple of 16."""
    return round_up(elements * itemsize, 16)


def matrix_pitch(elements: int, itemsize: int) -> int:
    """Return the bytes from one matrix of a pool to the next: up to 16, or whole sectors of 32."""
    size = matrix_bytes(elements, itemsize)
    return size if size <= 16 else round_up(size, 32)


def record_words(steps: int, short_ids: bool) -> int:
    """Return the 4-byte words of a list record (input block, factor ids): 2, or 16-byte words."""
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


def list_starts(outputs: Array, count: int) -> Array:
    """Return the index of each output's first product, in a list that is sorted by output."""
    return np.searchsorted(outputs, np.arange(count + 1)).astype(np.int64)


@cache
def register_batch_arguments(dtype: np.dtype[Any], modes: int) -> np.dtype[Any]:
    """Return the layout of the C++ struct RegisterBatchArguments for ``modes`` factors."""
    pools = "pools", struct("*data system"), (modes,)
    sizes = "outer systems num_inputs num_outputs slots weight_system accumulate"
    pointers = "*x *y *list *starts *weights *unit_weights"
    return struct(pointers, pools, sizes, ("alpha", dtype))


@cache
def unsorted_arguments(dtype: np.dtype[Any], modes: int) -> np.dtype[Any]:
    """Return the layout of the C++ struct UnsortedArguments for ``modes`` factors."""
    pointers = "*x *y *ids *inputs *outputs *weights *refused"
    by_step = f"*pools[{modes}] pool_systems[{modes}] limits[{modes}] columns[{modes}]"
    sizes = "outer systems num_inputs num_outputs weight_system products"
    return struct(pointers, by_step, sizes, ("alpha", dtype))


# Largest number of inputs, and of products of one output: kernels count them in 32 bits.
_MAX_COUNT = 2**31 - 16


@dataclass(frozen=True, slots=True)
class BatchShape:
    """The sizes of a batch list, and how its results are added."""

    steps: tuple[Step, ...]  # multiplies along one mode each, in the order of evaluation
    dtype: np.dtype[Any]
    products: int  # products of one system
    systems: int
    # num_inputs, num_outputs: blocks of one system
    num_inputs: int
    num_outputs: int
    # input_size, output_size: elements of a block
    input_size: int
    output_size: int
    owner: bool  # whether each output is summed by one group of threads, in a fixed order
    inner: int = 1  # vectors in the innermost axis, side by side
    max_products: int = 0  # largest number of products of one output
    # short_ids, identities: whether ids have 16 bits; whether some factors are identities. These
    # two and ``max_products`` are only used by kernels that take one vector at a time.
    short_ids: bool = False
    identities: bool = False

    @property
    def all_outputs(self) -> int:
        """Outputs of all systems."""
        return self.systems * self.num_outputs

    @property
    def all_products(self) -> int:
        """Products of all systems."""
        return self.systems * self.products

    @property
    def counts(self) -> dict[str, int]:
        """The counts that all kernels have as arguments, by name."""
        names = "systems", "num_inputs", "num_outputs"
        return {name: getattr(self, name) for name in names}


def can_have_records(shape: BatchShape) -> bool:
    """Whether kernels that take records can run a list: single vectors, sums by output."""
    sizes = shape.products, shape.num_outputs, shape.input_size, shape.output_size
    counted = max(shape.num_inputs, shape.products) <= _MAX_COUNT
    return shape.owner and shape.inner == 1 and 0 not in sizes and counted


def records_kernel(
    family: Family,
    shape: BatchShape,
    variant: Any,
    program: Program,
    launch: LaunchShape,
    slots: int = 0,
) -> Kernel:
    """Return a kernel for records of one vector, ``slots`` for each output if they are padded."""
    layout = register_batch_arguments(shape.dtype, len(shape.steps))
    arguments = record(layout, slots=slots, **shape.counts)
    return Kernel(family, shape, variant, program, launch, arguments)
