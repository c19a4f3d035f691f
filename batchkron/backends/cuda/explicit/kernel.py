"""The steps of an explicit product, the layout of a product a ⊗ b, and its kernels' arguments."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from batchkron.backends.cuda.runtime.arguments import struct

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

    @property
    def layout(self) -> tuple[int, int, int, int]:
        """All but the address, as in `LAYOUT`."""
        return self.rows, self.columns, self.row, self.column

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


LAYOUT = struct("rows columns row column")
PRODUCT = "*a_data *b_data *out", ("a", LAYOUT), ("b", LAYOUT)


RESULT_BYTES = 256  # alignment of intermediate results in bytes, the same as CuPy's of arrays


def balanced_split(sizes: Sequence[int]) -> int:
    """Return the index at which to split factors so that the products of both parts are small."""
    return min(
        range(1, len(sizes)), key=lambda split: math.prod(sizes[:split]) + math.prod(sizes[split:])
    )


def explicit_steps(
    shapes: Sequence[tuple[int, int]], itemsize: int
) -> tuple[list[tuple[int, int]], list[int]]:
    """Return the products of two matrices that make that of all, and where results begin.

    The matrices of a product are indices into the list of factors followed by earlier results. The
    result of a product begins so many bytes into the workspace, but that of the last one is the
    output: its place is the end of the workspace.
    """
    steps: list[tuple[int, int]] = []
    offsets = [0]

    def product(first: int, last: int) -> int:
        """Append the steps for factors first to last; return the result's index."""
        sizes = [rows * columns for rows, columns in shapes[first:last]]
        if len(sizes) == 1:
            return first
        split = first + balanced_split(sizes)
        steps.append((product(first, split), product(split, last)))
        if len(sizes) < len(shapes):
            size = math.prod(sizes) * itemsize
            offsets.append(offsets[-1] + -(-size // RESULT_BYTES) * RESULT_BYTES)
        return len(shapes) + len(steps) - 1

    product(0, len(shapes))
    return steps, offsets
