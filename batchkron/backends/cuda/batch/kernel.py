"""A batch list's sizes, and kernels that take single vectors and the list as records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from batchkron.backends.cuda.batch.records import register_batch_arguments
from batchkron.backends.cuda.kernel import Family, Kernel, record
from batchkron.backends.cuda.kernel_family import LaunchShape
from batchkron.backends.cuda.runtime.program import Program
from batchkron.backends.cuda.steps import Step

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
    """Whether kernels that take records can run a list.

    It needs single vectors, sums by output (``owner``) and numbers that fit in 32 bits.
    """
    sizes = shape.products, shape.num_outputs, shape.input_size, shape.output_size
    counted = max(shape.num_inputs, shape.products) <= _MAX_COUNT
    return shape.owner and shape.inner == 1 and 0 not in sizes and counted


def records_kernel(
    family: Family,
    shape: BatchShape,
    variant: Any,
    program: Program,
    threads: int,
    outputs: int,
    shared_bytes: int,
    resident: int,
    carveout: int,
    cluster: int = 1,
    slots: int = 0,
) -> Kernel:
    """Return a kernel that takes the list as records, for one vector of each system.

    ``cluster`` thread blocks share ``outputs`` outputs; a padded list has ``slots`` records for
    each output. ``resident`` and ``carveout`` are those of a `LaunchShape`.
    """
    blocks = -(-shape.num_outputs // outputs) * cluster
    launch = LaunchShape(blocks, threads, resident, shared_bytes, carveout=carveout)
    layout = register_batch_arguments(shape.dtype, len(shape.steps))
    arguments = record(layout, slots=slots, **shape.counts)
    return Kernel(family, shape, variant, program, launch, arguments)
