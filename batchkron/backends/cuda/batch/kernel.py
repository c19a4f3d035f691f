"""One kernel of a batch list, and what all families of such kernels share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from batchkron.backends.cuda.kernel_family import LaunchShape
from batchkron.backends.cuda.runtime.hardware import DeviceLimits
from batchkron.backends.cuda.runtime.program import Program
from batchkron.backends.cuda.steps import Step

_MAX_COUNT = 2**31 - 16  # inputs, and products of an output, that kernels count in 32 bits


@dataclass(frozen=True, slots=True)
class BatchShape:
    """The sizes of a batch list, and how its results are added.

    Attributes
    ----------
    steps : tuple of Step
    dtype : dtype
    products : int
        Of one system.
    systems : int
    num_inputs, num_outputs : int
        Blocks of one system.
    input_size, output_size : int
        Elements of a block.
    owner : bool
        Whether one team of threads adds all products of an output, in their order.
    inner : int
        Vectors that lie side by side.
    max_products : int
        Products of the output that has the most.
    short_ids, identities : bool
        Whether ids have 16 bits; whether some factors are identities. These two and
        ``max_products`` are looked up for kernels of single vectors only.
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
    """One kernel of a batch list: a family's variant for it.

    Attributes
    ----------
    family : BatchFamily
    shape : BatchShape
        What it is given.
    variant : Any
        The way to do it, of the family's ``variant_type``.
    tile : Any
        What the kernel is compiled for, in the family's own terms.
    """

    family: BatchFamily
    shape: BatchShape
    variant: Any
    tile: Any

    def program(self) -> Program:
        """Return what is compiled."""
        return self.family.program(self)

    def launch(self, device: DeviceLimits) -> LaunchShape:
        """Return how it is launched for one vector of each system."""
        return self.family.launch(self, device)

    def slots(self) -> int:
        """Return the records of each output, 0 where it has those of its products only."""
        return self.family.slots(self)


class BatchFamily(ABC):
    """A `KernelFamily` whose work is a batch list.

    There is no model of the time that tells families apart: the order of their table does, and
    estimates compare the variants of one family, in a unit of its own.

    Attributes
    ----------
    has_records : bool
        Whether kernels take single vectors, and the list as records (``records``).
    is_tuned : bool
        Whether tuning searches the variants.
    """

    operation = "batch"
    name: str
    variant_type: type[Any]
    has_records = True
    is_tuned = False

    @abstractmethod
    def accepts(self, shape: BatchShape, device: DeviceLimits) -> bool:
        """Whether there is a kernel for this list at all."""

    @abstractmethod
    def variants(self, shape: BatchShape, device: DeviceLimits) -> Iterable[Any]:
        """Return the ways that are worth comparing by their estimates."""

    @abstractmethod
    def estimate(self, shape: BatchShape, variant: Any, device: DeviceLimits) -> float:
        """Return how long a product takes, in a unit of the family's; infinite if none fits."""

    @abstractmethod
    def kernel(self, shape: BatchShape, variant: Any, device: DeviceLimits) -> BatchKernel | None:
        """Return the kernel of a variant, None if it does not fit."""

    @abstractmethod
    def program(self, kernel: BatchKernel) -> Program:
        """Return what is compiled."""

    @abstractmethod
    def launch(self, kernel: BatchKernel, device: DeviceLimits) -> LaunchShape:
        """Return how it is launched for one vector of each system."""

    def slots(self, kernel: BatchKernel) -> int:
        """Return the records of each output, 0 where it has those of its products only."""
        return 0

    def fastest(self, shape: BatchShape, device: DeviceLimits) -> BatchKernel | None:
        """Return the kernel of the least estimate, None where it does not fit."""
        if not self.accepts(shape, device):
            return None
        variants = self.variants(shape, device)
        best = min(variants, key=lambda one: self.estimate(shape, one, device), default=None)
        return None if best is None else self.kernel(shape, best, device)

    def near(
        self, shape: BatchShape, centre: Any, changes: int, device: DeviceLimits
    ) -> Iterable[Any]:
        """Return variants that differ from one in at most ``changes`` numbers, the nearest first.

        Only families that are tuned need it.
        """
        return self.variants(shape, device)


def can_have_records(shape: BatchShape) -> bool:
    """Whether a list may have records: of single vectors, by outputs, all numbers in 32 bits."""
    sizes = shape.products, shape.num_outputs, shape.input_size, shape.output_size
    counted = max(shape.num_inputs, shape.products) <= _MAX_COUNT
    return shape.owner and shape.inner == 1 and 0 not in sizes and counted


def launch_of_tile(kernel: BatchKernel, resident: int, cluster: int = 1) -> LaunchShape:
    """Return the launch of a tile that says how many outputs a cluster of thread blocks makes."""
    tile = kernel.tile
    blocks = -(-kernel.shape.num_outputs // tile.outputs) * cluster
    memory = tile.shared_bytes
    return LaunchShape(blocks, tile.block, resident, memory, carveout=tile.carveout)
