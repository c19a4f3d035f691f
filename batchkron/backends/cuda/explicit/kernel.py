"""One kernel that writes a ⊗ b, and what all families of such kernels share.

Pure arithmetic on sizes, without any device.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from batchkron.backends.cuda.kernel_family import LaunchShape
from batchkron.backends.cuda.runtime.arguments import pointer_fields, size_fields
from batchkron.backends.cuda.runtime.hardware import DeviceLimits
from batchkron.backends.cuda.runtime.program import Program
from batchkron.spec.kron import Array

WORD_BYTES = 16
# Thread blocks of a multiprocessor from which a thread takes more than one batch of bands.
BLOCKS_PER_MULTIPROCESSOR = 16
ADDRESSES = 3  # of the matrices and of the result


@dataclass(frozen=True, slots=True)
class DeviceMatrix:
    """A matrix of any strides on the device, strides in elements."""

    data: int
    rows: int
    columns: int
    row: int
    column: int

    @property
    def reach(self) -> int:
        """The largest offset of an element, of either sign."""
        return (self.rows - 1) * abs(self.row) + (self.columns - 1) * abs(self.column)


@dataclass(frozen=True, slots=True)
class ProductShape:
    """Two matrices, neither of them empty, and the address where the product is written.

    Of addresses it only matters where in a word they are.
    """

    a: DeviceMatrix
    b: DeviceMatrix
    out: int
    dtype: np.dtype[np.generic]

    @property
    def row_bytes(self) -> int:
        """Bytes of a row of b."""
        return self.b.columns * self.dtype.itemsize

    def word(self) -> tuple[int, int]:
        """Return the elements of a word, and its alignment.

        Complex numbers may begin between their own multiples: then a word is one of them.
        """
        itemsize = self.dtype.itemsize
        if self.out % itemsize == 0:
            return WORD_BYTES // itemsize, WORD_BYTES
        return 1, itemsize // 2


@dataclass(frozen=True, slots=True)
class ProductKernel:
    """One kernel that writes a ⊗ b: a family's variant for two matrices.

    Attributes
    ----------
    family : ProductFamily
    shape : ProductShape
        What it is given.
    variant : Any
        The way to do it, of the family's ``variant_type``.
    tile : Any
        The cut of the work, in the family's own terms. All have ``kernel``, what is compiled, of
        ``threads``, and ``grid``, the thread blocks along two axes.
    """

    family: ProductFamily
    shape: ProductShape
    variant: Any
    tile: Any

    def program(self) -> Program:
        """Return what is compiled."""
        return self.family.program(self)

    def launch(self, device: DeviceLimits) -> LaunchShape:
        """Return how it is launched."""
        return self.family.launch(self, device)

    def arguments(self) -> Array:
        """Return the arguments but for addresses."""
        return self.family.arguments(self)


class ProductFamily(ABC):
    """A `KernelFamily` whose work is to write a ⊗ b.

    There is no model of the time: estimates are ordinals, the least that of the family that was
    faster. Of the variants only the first is used; others are for tests.
    """

    operation = "explicit"
    name: str
    variant_type: type[Any]

    @abstractmethod
    def accepts(self, shape: ProductShape, device: DeviceLimits) -> bool:
        """Whether there is a kernel for these matrices at all."""

    @abstractmethod
    def variants(self, shape: ProductShape, device: DeviceLimits) -> Iterable[Any]:
        """Return the ways that are worth comparing by their estimates."""

    @abstractmethod
    def estimate(self, shape: ProductShape, variant: Any, device: DeviceLimits) -> float:
        """Return a number that is less where the family was faster than others."""

    @abstractmethod
    def kernel(
        self, shape: ProductShape, variant: Any, device: DeviceLimits
    ) -> ProductKernel | None:
        """Return the kernel of a variant, None if it does not fit."""

    @abstractmethod
    def program(self, kernel: ProductKernel) -> Program:
        """Return what is compiled."""

    @abstractmethod
    def layout(self) -> np.dtype[Any]:
        """Return the type of the arguments."""

    def launch(self, kernel: ProductKernel, device: DeviceLimits) -> LaunchShape:
        """Return how it is launched."""
        across, down = kernel.tile.grid
        return LaunchShape(across, kernel.tile.kernel.threads, 1, 0, down=down)

    def arguments(self, kernel: ProductKernel) -> Array:
        """Return the arguments but for addresses."""
        layout, cut = self.layout(), kernel.tile
        arguments = np.zeros(1, layout)
        for key, matrix in (("a", cut.a), ("b", cut.b)):
            arguments[key] = matrix.rows, matrix.columns, matrix.row, matrix.column
        for name in (layout.names or ())[ADDRESSES:]:
            if name not in ("a", "b"):
                arguments[name] = getattr(cut, name)
        return arguments

    def fastest(
        self, shape: ProductShape, device: DeviceLimits
    ) -> tuple[float, ProductKernel] | None:
        """Return the kernel of the least estimate, and that; None where there is none."""
        if not self.accepts(shape, device):
            return None
        ways = ((self.estimate(shape, one, device), one) for one in self.variants(shape, device))
        estimate, variant = min(ways, key=lambda way: way[0])
        kernel = self.kernel(shape, variant, device)
        return None if kernel is None else (estimate, kernel)


_LAYOUT = np.dtype(size_fields("rows", "columns", "row", "column"))
PRODUCT = [*pointer_fields("a_data", "b_data", "out"), ("a", _LAYOUT), ("b", _LAYOUT)]
