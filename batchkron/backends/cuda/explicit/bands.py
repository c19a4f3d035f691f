"""The family of kernels that write a ⊗ b in bands.

A band is a group of rows of a with all their rows of b. An element has the same entry of b in every
band, so a thread computes it once and goes down the bands. A word is 16 bytes of the result, which
a thread writes at once. Pure arithmetic on sizes, no device needed; the kernel's contract is in
``csrc/cuda/explicit/bands.cuh``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from batchkron.backends.cuda.explicit.kernel import (
    BLOCKS_PER_MULTIPROCESSOR,
    PRODUCT,
    RECIPROCAL,
    WORD_BYTES,
    DeviceMatrix,
    ProductFamily,
    ProductKernel,
    ProductShape,
)
from batchkron.backends.cuda.runtime.arguments import size_fields
from batchkron.backends.cuda.runtime.hardware import LINE, MAX_GRID_YZ, DeviceLimits
from batchkron.backends.cuda.runtime.program import SCALARS, Program, flag, template_type

# Smallest number of chunks (words of one thread block) of a band, so that few threads of the last
# thread block are idle; chosen by hand.
_MIN_BAND_CHUNKS = 8
MIN_BANDS = 8  # bands of a slice; with fewer, other tilings are tried; chosen by hand
_MAX_OFFSET = 2**31 - 1  # largest offset in elements that a 32-bit integer holds


@dataclass(frozen=True, slots=True)
class BandVariant:
    """Parameters that change a kernel's speed, but not its result.

    Attributes
    ----------
    threads : int
        Threads of a thread block.
    words : int
        Words of each band that a thread computes.
    batch : int
        Bands for which a thread reads entries of a before it writes the first one.
    repeats : int
        Largest number of bands that a thread computes.
    streaming : bool
        Whether results are written by streaming stores, which do not displace cached data.
    lines : bool
        Whether bands are made of whole lines of the cache where enough of them are left.
    """

    threads: int = 256
    words: int = 1
    batch: int = 4
    repeats: int = 4  # the fastest of 4, 16, 64, or at most 2.5 % slower (H100, 2026-11)
    streaming: bool = True
    lines: bool = True

    @property
    def chunk(self) -> int:
        """Words of a band that one thread block computes."""
        return self.threads * self.words


@dataclass(frozen=True, slots=True)
class ExplicitKernel:
    """The template arguments of the kernel of bands.

    A word has ``elements`` elements and is aligned to ``bytes``; its elements are multiplied by up
    to ``entries`` different entries of a. Offsets have 64 bits if ``wide``, else 32.
    """

    elements: int
    bytes: int
    entries: int
    wide: bool
    threads: int
    words: int
    batch: int
    streaming: bool


@dataclass(frozen=True, slots=True)
class ExplicitCut:
    """The work of the kernel of bands: slices of the result, bands of a slice, words of a band.

    Attributes
    ----------
    kernel : ExplicitKernel
        The kernel's template arguments.
    a, b : DeviceMatrix
        The matrices of the first slice.
    slices : int
        Number of slices: 1, or the rows of the result if each row is a slice.
    b_slices, a_slice, b_slice : int
        The matrices of slice z begin ``z // b_slices * a_slice`` and ``z % b_slices * b_slice``
        elements after those of the first one.
    band : int
        Rows of a in a band.
    words : int
        Words of a complete band.
    whole, rest : int
        Complete bands of a slice, and elements of the incomplete one after them.
    repeats, groups : int
        Bands of a thread block, and thread blocks for all bands of a slice.
    alignment : int
        Bytes that the address of the first word is a multiple of.
    """

    kernel: ExplicitKernel
    a: DeviceMatrix
    b: DeviceMatrix
    slices: int
    b_slices: int
    a_slice: int
    b_slice: int
    band: int
    words: int
    whole: int
    rest: int
    repeats: int
    groups: int
    alignment: int

    @property
    def a_band(self) -> int:
        """Offset from one band of a to the next, in elements."""
        return self.band * self.a.row

    @property
    def out_band(self) -> int:
        """Offset from one band of the result to the next, in elements."""
        return self.words * self.kernel.elements

    @property
    def over_columns(self) -> int:
        """Factor by which the kernel divides by the result's number of columns."""
        return RECIPROCAL // (self.a.columns * self.b.columns)

    @property
    def over_b_rows(self) -> int:
        """Factor by which the kernel divides by the number of rows of b."""
        return RECIPROCAL // self.b.rows

    @property
    def over_b_columns(self) -> int:
        """Factor by which the kernel divides by the number of columns of b."""
        return RECIPROCAL // self.b.columns

    @property
    def total(self) -> int:
        """Elements of the result in a slice."""
        return self.whole * self.out_band + self.rest

    @property
    def parts(self) -> int:
        """Groups of bands, of all slices together."""
        return self.slices * self.groups

    @property
    def grid(self) -> tuple[int, int]:
        """Thread blocks along a band, and along groups of bands of all slices."""
        used = self.words if self.whole else -(-self.rest // self.kernel.elements)
        chunk = self.kernel.threads * self.kernel.words
        return -(-used // chunk), min(self.parts, MAX_GRID_YZ)


def rows_of_band(shape: ProductShape, variant: BandVariant) -> int:
    """Return the number of rows of a in a band."""
    elements, alignment = shape.word()
    block = shape.b.rows * shape.a.columns * shape.b.columns  # elements of a row of a

    def rows_for(unit: int) -> int:
        """Return the rows of a in a band that is a multiple of so many elements."""
        least = unit // math.gcd(block, unit)
        return least * max(1, -(-_MIN_BAND_CHUNKS * variant.chunk * elements // (least * block)))

    line = LINE // shape.dtype.itemsize
    if variant.lines and alignment == WORD_BYTES and MIN_BANDS * rows_for(line) <= shape.a.rows:
        return rows_for(line)
    return rows_for(elements)


def band_cut(shape: ProductShape, variant: BandVariant, limits: DeviceLimits) -> ExplicitCut:
    """Return the tiling of a ⊗ b by bands.

    With few bands, computing where an element comes from costs as much as writing it. If a has many
    columns, each row of the result is then a slice with bands of its own: the product of a row of
    a, taken as a column, and a row of b.
    """
    a, b = shape.a, shape.b
    whole = _cut(shape, variant, limits)
    bands = -(-a.rows // whole.band)
    long = a.columns * shape.row_bytes >= _MIN_BAND_CHUNKS * variant.chunk * WORD_BYTES
    if bands >= MIN_BANDS or not long:
        return whole
    row = replace(
        shape,
        a=DeviceMatrix(a.data, a.columns, 1, a.column, a.row),
        b=DeviceMatrix(b.data, 1, b.columns, b.row, b.column),
    )
    across = _cut(row, variant, limits, (a.rows * b.rows, b.rows, a.row, b.row))
    return across if -(-a.columns // across.band) >= 2 * bands else whole


def _cut(
    shape: ProductShape,
    variant: BandVariant,
    limits: DeviceLimits,
    slices: tuple[int, int, int, int] = (1, 1, 0, 0),
) -> ExplicitCut:
    """Return the tiling by bands of a product, or of each of several slices.

    ``slices`` are the attributes slices, b_slices, a_slice and b_slice of `ExplicitCut`.
    """
    a, b, out = shape.a, shape.b, shape.out
    elements, alignment = shape.word()
    block = b.rows * a.columns * b.columns  # elements of a row of a
    total = a.rows * block
    band = rows_of_band(shape, variant)
    words = band * block // elements
    whole, rest = divmod(total, band * block)
    bands = whole + (rest > 0)
    chunks = -(-min(words * elements, total) // (elements * variant.chunk))
    batch = min(variant.batch, bands)
    wanted = BLOCKS_PER_MULTIPROCESSOR * limits.multiprocessors
    repeats = min(variant.repeats, max(batch, chunks * bands * slices[0] // wanted), bands)
    repeats = -(-repeats // batch) * batch
    reach = max(
        b.reach,
        min(band, a.rows - 1) * abs(a.row) + (a.columns - 1) * abs(a.column),
        band * block + (variant.chunk + 2) * elements + LINE,
        bands + variant.repeats + variant.batch,
    )
    kernel = ExplicitKernel(
        elements,
        alignment,
        _entries(elements, a.columns * b.columns, b.columns, out, shape.dtype.itemsize, slices[0]),
        reach > _MAX_OFFSET,
        variant.threads,
        variant.words,
        batch,
        variant.streaming,
    )
    groups = -(-bands // repeats)
    lined = variant.lines and alignment == WORD_BYTES
    begin = LINE if lined else alignment
    return ExplicitCut(kernel, a, b, *slices, band, words, whole, rest, repeats, groups, begin)


def _entries(elements: int, columns: int, width: int, out: int, size: int, slices: int) -> int:
    """Return the largest number of entries of a that the elements of one word need."""
    begins = slices == 1 or columns % elements == 0  # all slices begin at the same place of a word
    if elements == 1 or (width % elements == 0 and begins and out % WORD_BYTES == 0):
        return 1
    if width >= elements - 1 or (width == 2 and out // size % 2 == 0):
        return 2
    return elements


def explicit_program(dtype: np.dtype[np.generic], kernel: ExplicitKernel) -> Program:
    """Return the kernel of the explicit product in bands."""
    word = kernel.elements, kernel.bytes, kernel.entries
    offset = "batchkron::Index" if kernel.wide else "unsigned"
    share = kernel.threads, kernel.words, kernel.batch, flag(kernel.streaming)
    return Program(
        "cuda/explicit/bands.cuh",
        template_type("explicit_kron", SCALARS[dtype], *word, offset, *share),
    )


class Bands(ProductFamily):
    """Kernels whose threads compute the same words of one band after another.

    The estimate is 2. `Tiles` has 1 where tiles were faster than bands, else 3.
    """

    name = "bands"
    variant_type = BandVariant

    def accepts(self, shape: ProductShape, device: DeviceLimits) -> bool:
        """Whether there is a kernel for these matrices: for any that are no products."""
        return shape.simple

    def variants(self, shape: ProductShape, device: DeviceLimits) -> tuple[BandVariant, ...]:
        """Return the only variant that is used."""
        return (BandVariant(),)

    def estimate(self, shape: ProductShape, variant: BandVariant, device: DeviceLimits) -> float:
        """Return 2, without a unit."""
        return 2.0

    def kernel(
        self, shape: ProductShape, variant: BandVariant, device: DeviceLimits
    ) -> ProductKernel:
        """Return the kernel of a variant."""
        return ProductKernel(self, shape, variant, band_cut(shape, variant, device))

    def program(self, kernel: ProductKernel) -> Program:
        """Return the program to compile."""
        return explicit_program(kernel.shape.dtype, kernel.tile.kernel)

    def layout(self) -> np.dtype[Any]:
        """Return the layout of the kernel's arguments."""
        return explicit_arguments()


@cache
def explicit_arguments() -> np.dtype[Any]:
    """Return the layout of the C++ struct ExplicitKronArguments."""
    sizes = size_fields("b_slices", "a_slice", "b_slice", "total", "words", "a_band", "out_band")
    sizes += size_fields("whole", "rest", "repeats", "groups", "parts", "alignment")
    reciprocals = [(f"over_{name}", "u4") for name in ("columns", "b_rows", "b_columns")]
    return np.dtype([*PRODUCT, *sizes, *reciprocals], align=True)
