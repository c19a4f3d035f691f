"""The family of kernels that write a ⊗ b in bands of rows.

Bands hold the same entries of b in the same places.

Pure arithmetic on sizes, without any device: the kernel's contract is in
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
    WORD_BYTES,
    DeviceMatrix,
    ProductFamily,
    ProductKernel,
    ProductShape,
)
from batchkron.backends.cuda.runtime.arguments import size_fields
from batchkron.backends.cuda.runtime.hardware import MAX_GRID_YZ, DeviceLimits
from batchkron.backends.cuda.runtime.program import SCALARS, Program, flag, template_type

_MIN_BAND_CHUNKS = 8  # of a band, so that few threads of its last thread block are idle
MIN_BANDS = 8  # of a slice; with fewer, other cuts of the work are tried
_RECIPROCAL = 2**32 - 1
_MAX_OFFSET = 2**31 - 1


@dataclass(frozen=True, slots=True)
class BandVariant:
    """What decides how fast the kernel is, and not what it computes.

    Attributes
    ----------
    threads : int
        Of a thread block.
    words : int
        That a thread holds.
    batch : int
        Bands that a thread reads before it writes them.
    repeats : int
        Most bands that a thread goes down.
    streaming : bool
        Whether results are stored as those that are not read again soon.
    """

    threads: int = 256
    words: int = 1
    batch: int = 4
    repeats: int = 16
    streaming: bool = True

    @property
    def chunk(self) -> int:
        """Words of a thread block."""
        return self.threads * self.words


@dataclass(frozen=True, slots=True)
class ExplicitKernel:
    """What a specialisation of the kernel is compiled for.

    ``elements`` make a word that is aligned to ``bytes``; each is multiplied by one of ``entries``
    of a. Offsets are of 32 bits where they are not ``wide``.
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
    """The work of a kernel: ``slices`` of out, bands of each, words of each band.

    Attributes
    ----------
    kernel : ExplicitKernel
    a, b : DeviceMatrix
        Of the first slice.
    slices : int
    b_slices, a_slice, b_slice : int
        The matrices of slice z begin ``z // b_slices * a_slice`` and ``z % b_slices * b_slice``
        elements after those of the first one.
    band : int
        Rows of a in a band.
    words : int
        Of a band that is not cut off.
    whole, rest : int
        Bands of a slice, and elements of the one that is cut off.
    repeats, groups : int
        Bands of a thread block, and thread blocks for all bands of a slice.
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

    @property
    def a_band(self) -> int:
        """Elements from a band of a to the next one."""
        return self.band * self.a.row

    @property
    def out_band(self) -> int:
        """Elements from a band of out to the next one."""
        return self.words * self.kernel.elements

    @property
    def over_columns(self) -> int:
        """Multiplier in place of a division by the columns of out."""
        return _RECIPROCAL // (self.a.columns * self.b.columns)

    @property
    def over_b_rows(self) -> int:
        """Multiplier in place of a division by the rows of b."""
        return _RECIPROCAL // self.b.rows

    @property
    def over_b_columns(self) -> int:
        """Multiplier in place of a division by the columns of b."""
        return _RECIPROCAL // self.b.columns

    @property
    def total(self) -> int:
        """Elements of out in a slice."""
        return self.whole * self.out_band + self.rest

    @property
    def parts(self) -> int:
        """Groups of bands of all slices."""
        return self.slices * self.groups

    @property
    def grid(self) -> tuple[int, int]:
        """Thread blocks across a band, and down the bands and slices."""
        used = self.words if self.whole else -(-self.rest // self.kernel.elements)
        chunk = self.kernel.threads * self.kernel.words
        return -(-used // chunk), min(self.parts, MAX_GRID_YZ)


def rows_of_band(shape: ProductShape, variant: BandVariant) -> int:
    """Return how many rows of a are in a band."""
    elements, _ = shape.word()
    block = shape.b.rows * shape.a.columns * shape.b.columns  # elements of a row of a
    minimum = elements // math.gcd(block, elements)
    return minimum * max(1, -(-_MIN_BAND_CHUNKS * variant.chunk * elements // (minimum * block)))


def band_cut(shape: ProductShape, variant: BandVariant, limits: DeviceLimits) -> ExplicitCut:
    """Return how a ⊗ b is cut into bands.

    A thread that goes down few bands computes as many places as it writes words. Where a has many
    columns then, each row of the result is a slice: that of a row of a as a column, and of a row
    of b.
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
    """Return the cut of one product, or of one slice of several."""
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
        band * block + (variant.chunk + 2) * elements,
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
    return ExplicitCut(kernel, a, b, *slices, band, words, whole, rest, repeats, groups)


def _entries(elements: int, columns: int, width: int, out: int, size: int, slices: int) -> int:
    """Return by how many entries of a the elements of a word are multiplied at most."""
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
    """Kernels whose threads hold words of b and go down the bands.

    The estimate is 2: between those of segments where these were faster, and where they were not.
    """

    name = "bands"
    variant_type = BandVariant

    def accepts(self, shape: ProductShape, device: DeviceLimits) -> bool:
        """Whether there is a kernel for these matrices at all: always."""
        return True

    def variants(self, shape: ProductShape, device: DeviceLimits) -> tuple[BandVariant, ...]:
        """Return the only variant that is used."""
        return (BandVariant(),)

    def estimate(self, shape: ProductShape, variant: BandVariant, device: DeviceLimits) -> float:
        """Return 2, in no unit."""
        return 2.0

    def kernel(
        self, shape: ProductShape, variant: BandVariant, device: DeviceLimits
    ) -> ProductKernel:
        """Return the kernel of a variant."""
        return ProductKernel(self, shape, variant, band_cut(shape, variant, device))

    def program(self, kernel: ProductKernel) -> Program:
        """Return what is compiled."""
        return explicit_program(kernel.shape.dtype, kernel.tile.kernel)

    def layout(self) -> np.dtype[Any]:
        """Return the type of the arguments."""
        return explicit_arguments()


@cache
def explicit_arguments() -> np.dtype[Any]:
    """Return ExplicitKronArguments."""
    sizes = size_fields("b_slices", "a_slice", "b_slice", "total", "words", "a_band", "out_band")
    sizes += size_fields("whole", "rest", "repeats", "groups", "parts")
    reciprocals = [(f"over_{name}", "u4") for name in ("columns", "b_rows", "b_columns")]
    return np.dtype([*PRODUCT, *sizes, *reciprocals], align=True)
