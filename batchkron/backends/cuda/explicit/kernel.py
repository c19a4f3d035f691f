"""The layout of a product a ⊗ b, a kernel that writes it, and the base class of all such families.

Pure arithmetic on sizes, no device needed.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from batchkron.backends.cuda.kernel_family import KernelFamily, LaunchShape
from batchkron.backends.cuda.runtime.arguments import pointer_fields, size_fields
from batchkron.backends.cuda.runtime.hardware import DeviceLimits
from batchkron.backends.cuda.runtime.program import Program
from batchkron.spec.kron import Array

WORD_BYTES = 16  # bytes that a thread writes at once
# Once there are this many thread blocks on each multiprocessor, a thread takes more than one batch
# of bands, or more than one entry of a; chosen by hand.
BLOCKS_PER_MULTIPROCESSOR = 16
# Divisor n is passed as RECIPROCAL // n: the kernels divide by multiplying.
RECIPROCAL = 2**32 - 1


@dataclass(frozen=True, slots=True)
class DeviceMatrix:
    """A matrix on the device: address, shape, and the strides of rows and columns in elements."""

    data: int
    rows: int
    columns: int
    row: int
    column: int

    @property
    def reach(self) -> int:
        """Largest absolute offset of an element, in elements."""
        return (self.rows - 1) * abs(self.row) + (self.columns - 1) * abs(self.column)

    def times(self, inner: DeviceMatrix) -> tuple[int, int]:
        """Return rows and columns of the product with another matrix."""
        return self.rows * inner.rows, self.columns * inner.columns


NO_MATRIX = DeviceMatrix(0, 0, 0, 0, 0)  # where a product has no inner matrix


@dataclass(frozen=True, slots=True)
class ProductShape:
    """Two matrices, neither of them empty, and the address ``out`` of the result modulo 16.

    With ``a_inner`` the left matrix of the product is a ⊗ a_inner instead of a, with ``b_inner``
    the right one b ⊗ b_inner.
    """

    a: DeviceMatrix
    b: DeviceMatrix
    out: int
    dtype: np.dtype[np.generic]
    a_inner: DeviceMatrix | None = None
    b_inner: DeviceMatrix | None = None

    @property
    def left(self) -> tuple[int, int]:
        """Rows and columns of the left matrix."""
        a, inner = self.a, self.a_inner
        return (a.rows, a.columns) if inner is None else a.times(inner)

    @property
    def right(self) -> tuple[int, int]:
        """Rows and columns of the right matrix."""
        b, inner = self.b, self.b_inner
        return (b.rows, b.columns) if inner is None else b.times(inner)

    @property
    def simple(self) -> bool:
        """Whether neither matrix is a product."""
        return self.a_inner is None and self.b_inner is None

    @property
    def addresses(self) -> int:
        """Addresses that a launch takes: a, b, the result, and the inner matrices."""
        return 3 if self.simple else 5

    @property
    def row_bytes(self) -> int:
        """Bytes of a row of b."""
        return self.b.columns * self.dtype.itemsize

    def word(self) -> tuple[int, int]:
        """Return the elements of a word, and its alignment in bytes.

        Complex arrays may be aligned to half their element size only; then a word is one element.
        """
        itemsize = self.dtype.itemsize
        if self.out % itemsize == 0:
            return WORD_BYTES // itemsize, WORD_BYTES
        return 1, itemsize // 2


@dataclass(frozen=True, slots=True)
class ProductKernel:
    """A kernel that writes a ⊗ b: a variant of a family for two matrices.

    Attributes
    ----------
    family : ProductFamily
    shape : ProductShape
    variant : Any
        An instance of the family's ``variant_type``.
    tile : Any
        The family's tiling. Every one has ``kernel``, the template arguments, among them
        ``threads``, and ``grid``, the thread blocks along two axes.
    """

    family: ProductFamily
    shape: ProductShape
    variant: Any
    tile: Any

    def program(self) -> Program:
        """Return the program to compile."""
        return self.family.program(self)

    def launch(self, device: DeviceLimits) -> LaunchShape:
        """Return the launch: grid, threads and memory."""
        return self.family.launch(self, device)

    def arguments(self) -> Array:
        """Return the kernel's arguments, without the addresses."""
        return self.family.arguments(self)


class ProductFamily(KernelFamily[ProductShape, Any, ProductKernel]):
    """A `KernelFamily` that writes a ⊗ b.

    Estimates are no times: they only rank the families, the fastest first. Each family uses one
    variant; tests use others.
    """

    operation = "explicit"

    @abstractmethod
    def layout(self) -> np.dtype[Any]:
        """Return the layout of the kernel's arguments."""

    def launch(self, kernel: ProductKernel, device: DeviceLimits) -> LaunchShape:
        """Return the launch: grid, threads and memory."""
        across, down = kernel.tile.grid
        return LaunchShape(across, kernel.tile.kernel.threads, 1, 0, down=down)

    def arguments(self, kernel: ProductKernel) -> Array:
        """Return the kernel's arguments, without the addresses."""
        layout, cut = self.layout(), kernel.tile
        arguments = np.zeros(1, layout)
        for name in layout.names or ():
            if name == "out" or name.endswith("_data"):
                continue
            value = getattr(cut, name)
            if isinstance(value, DeviceMatrix):
                value = value.rows, value.columns, value.row, value.column
            arguments[name] = value
        return arguments

    def fastest(
        self, shape: ProductShape, device: DeviceLimits
    ) -> tuple[float, ProductKernel] | None:
        """Return the smallest estimate and its kernel, None if there is none."""
        if not self.accepts(shape, device):
            return None
        ways = ((self.estimate(shape, one, device), one) for one in self.variants(shape, device))
        estimate, variant = min(ways, key=lambda way: way[0])
        kernel = self.kernel(shape, variant, device)
        return None if kernel is None else (estimate, kernel)


LAYOUT = np.dtype(size_fields("rows", "columns", "row", "column"))
PRODUCT = [*pointer_fields("a_data", "b_data", "out"), ("a", LAYOUT), ("b", LAYOUT)]
