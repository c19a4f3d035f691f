"""A batch list's sizes, a kernel for it, and the base class of all families of such kernels."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from batchkron.backends.cuda.kernel_family import KernelFamily, LaunchShape
from batchkron.backends.cuda.runtime.hardware import DeviceLimits
from batchkron.backends.cuda.runtime.program import Program
from batchkron.backends.cuda.steps import Step

# Largest number of inputs, and of products of one output: kernels count them in 32 bits.
_MAX_COUNT = 2**31 - 16


@dataclass(frozen=True, slots=True)
class BatchShape:
    """The sizes of a batch list, and how its results are added.

    Attributes
    ----------
    steps : tuple of Step
        Multiplies along one mode each, in the order of evaluation.
    dtype : dtype
    products : int
        Products of one system.
    systems : int
    num_inputs, num_outputs : int
        Blocks of one system.
    input_size, output_size : int
        Elements of a block.
    owner : bool
        Whether each output is summed by one group of threads, in a fixed order.
    inner : int
        Vectors in the innermost axis, side by side.
    max_products : int
        Largest number of products of one output.
    short_ids, identities : bool
        Whether ids have 16 bits; whether some factors are identities. These two and
        ``max_products`` are only used by kernels that take one vector at a time.
    """

    steps: tuple[Step, ...]
    dtype: np.dtype[Any]
    products: int
    systems: int
    num_inputs: int
    num_outputs: int
    input_size: int
    output_size: int
    owner: bool
    inner: int = 1
    max_products: int = 0
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


@dataclass(frozen=True, slots=True)
class BatchKernel:
    """A kernel for one batch list: a variant of a family.

    Attributes
    ----------
    family : BatchFamily
    shape : BatchShape
        The sizes of the list.
    variant : Any
        An instance of the family's ``variant_type``.
    tile : Any
        The family's tiling, from which template arguments and launch follow.
    """

    family: BatchFamily
    shape: BatchShape
    variant: Any
    tile: Any

    def program(self) -> Program:
        """Return the program to compile."""
        return self.family.program(self)

    def launch(self, device: DeviceLimits) -> LaunchShape:
        """Return the launch for one vector of each system."""
        return self.family.launch(self, device)

    def slots(self) -> int:
        """Return the records per output of a padded list, 0 if the list is not padded."""
        return self.family.slots(self)


class BatchFamily(KernelFamily[BatchShape, Any, BatchKernel]):
    """A `KernelFamily` for batch lists.

    Estimates compare the variants of one family, in a unit of its own. Between families the order
    of their table decides.

    Attributes
    ----------
    takes_single_vectors : bool
        Whether the kernels take one vector at a time.
    has_records : bool
        Whether they take the list as records (see `records`), sorted by output.
    is_tuned : bool
        Whether tuning searches the variants.
    """

    operation = "batch"
    takes_single_vectors = True
    has_records = True
    is_tuned = False

    @abstractmethod
    def launch(self, kernel: BatchKernel, device: DeviceLimits) -> LaunchShape:
        """Return the launch for one vector of each system."""

    def slots(self, kernel: BatchKernel) -> int:
        """Return the records per output of a padded list, 0 if the list is not padded."""
        return 0

    def fastest(self, shape: BatchShape, device: DeviceLimits) -> BatchKernel | None:
        """Return the kernel with the smallest estimate, None if it does not fit."""
        if not self.accepts(shape, device):
            return None
        variants = self.variants(shape, device)
        best = min(variants, key=lambda one: self.estimate(shape, one, device), default=None)
        return None if best is None else self.kernel(shape, best, device)

    def near(
        self, shape: BatchShape, centre: Any, changes: int, device: DeviceLimits
    ) -> Iterable[Any]:
        """Return variants with up to ``changes`` numbers other than ``centre``'s, nearest first.

        Only used for families that are tuned.
        """
        return self.variants(shape, device)


def can_have_records(shape: BatchShape) -> bool:
    """Whether kernels that take records can run a list.

    It needs single vectors, sums by output (``owner``) and numbers that fit in 32 bits.
    """
    sizes = shape.products, shape.num_outputs, shape.input_size, shape.output_size
    counted = max(shape.num_inputs, shape.products) <= _MAX_COUNT
    return shape.owner and shape.inner == 1 and 0 not in sizes and counted


def launch_of_tile(kernel: BatchKernel, resident: int, cluster: int = 1) -> LaunchShape:
    """Return the launch of a kernel where ``cluster`` thread blocks compute ``tile.outputs``."""
    tile = kernel.tile
    blocks = -(-kernel.shape.num_outputs // tile.outputs) * cluster
    memory = tile.shared_bytes
    return LaunchShape(blocks, tile.block, resident, memory, carveout=tile.carveout)
