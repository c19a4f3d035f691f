"""The family of kernels that write a ⊗ b in bands.

A band is a group of rows of a with all their rows of b. An element has the same entry of b in every
band, so a thread computes it once and goes down the bands. A word is 16 bytes of the result, which
a thread writes at once. The kernel's contract is in ``csrc/cuda/explicit/bands.cuh``.

Tiles would do for all products, 6 % slower in the mean of 18 and up to 29 % (3² ⊗ 2000²; H200,
docs/results/gpu.md).
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
    ProductShape,
)
from batchkron.backends.cuda.kernel import Family, Kernel, LaunchShape, record
from batchkron.backends.cuda.runtime.arguments import struct
from batchkron.backends.cuda.runtime.hardware import LINE, MAX_GRID_YZ, DeviceLimits
from batchkron.backends.cuda.runtime.program import device_program

# Smallest number of chunks (words of one thread block) of a band, so that few threads of the last
# thread block are idle; chosen by hand.
_MIN_BAND_CHUNKS = 8
MIN_BANDS = 8  # bands of a slice; with fewer, other kernels are tried; chosen by hand
_MAX_OFFSET = 2**31 - 1  # largest offset in elements that a 32-bit integer holds


@dataclass(frozen=True, slots=True)
class BandVariant:
    """Parameters that change a kernel's speed, but not its result."""

    threads: int = 256  # threads of a thread block
    words: int = 1  # words of each band that a thread computes
    batch: int = 4  # bands for which a thread reads entries of a before it writes the first one
    # largest number of bands that a thread computes
    repeats: int = 4  # the fastest of 4, 16, 64, or at most 2.5 % slower (H100, 2026-11)
    # whether results are written by streaming stores, which do not displace cached data
    streaming: bool = True
    # whether bands are made of whole lines of the cache where enough of them are left
    lines: bool = True

    @property
    def chunk(self) -> int:
        """Words of a band that one thread block computes."""
        return self.threads * self.words


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


def bands_kernel(
    shape: ProductShape, device: DeviceLimits, variant: BandVariant | None = None
) -> Kernel | None:
    """Return the kernel that writes a ⊗ b by bands, None where a or b is a product itself.

    With few bands, computing where an element comes from costs as much as writing it. If a has many
    columns, each row of the result is then a slice with bands of its own: the product of a row of
    a, taken as a column, and a row of b.
    """
    if not shape.simple:
        return None
    a, b, variant = shape.a, shape.b, variant or BandVariant()
    bands = -(-a.rows // rows_of_band(shape, variant))
    if bands < MIN_BANDS and (
        a.columns * shape.row_bytes >= _MIN_BAND_CHUNKS * variant.chunk * WORD_BYTES
    ):
        row = replace(
            shape,
            a=DeviceMatrix(a.data, a.columns, 1, a.column, a.row),
            b=DeviceMatrix(b.data, 1, b.columns, b.row, b.column),
        )
        if -(-a.columns // rows_of_band(row, variant)) >= 2 * bands:
            kernel = _kernel(row, variant, device, a.rows * b.rows, b.rows, a.row, b.row)
            return replace(kernel, work=shape)
    return _kernel(shape, variant, device)


def _kernel(
    shape: ProductShape,
    variant: BandVariant,
    device: DeviceLimits,
    slices: int = 1,
    b_slices: int = 1,
    a_slice: int = 0,
    b_slice: int = 0,
) -> Kernel:
    """Return the kernel of a product, or of each of several slices.

    The matrices of slice z begin ``z // b_slices * a_slice`` and ``z % b_slices * b_slice``
    elements after those of the first one, which ``shape`` has.
    """
    a, b = shape.a, shape.b
    elements, alignment = shape.word()
    columns = a.columns * b.columns
    block = b.rows * columns  # elements of a row of a
    total = a.rows * block
    band = rows_of_band(shape, variant)
    words = band * block // elements  # of a complete band
    whole, rest = divmod(total, band * block)
    bands = whole + (rest > 0)
    chunks = -(-min(words * elements, total) // (elements * variant.chunk))
    batch = min(variant.batch, bands)
    wanted = BLOCKS_PER_MULTIPROCESSOR * device.multiprocessors
    repeats = min(variant.repeats, max(batch, chunks * bands * slices // wanted), bands)
    repeats = -(-repeats // batch) * batch  # bands of a thread block
    groups = -(-bands // repeats)
    reach = max(
        b.reach,
        min(band, a.rows - 1) * abs(a.row) + (a.columns - 1) * abs(a.column),
        band * block + (variant.chunk + 2) * elements + LINE,
        bands + variant.repeats + variant.batch,
    )
    entries = _entries(elements, columns, b.columns, shape.out, shape.dtype.itemsize, slices)
    offset = "batchkron::Index" if reach > _MAX_OFFSET else "unsigned"
    share = variant.threads, variant.words, batch, variant.streaming
    word = elements, alignment, entries
    used = words if whole else -(-rest // elements)
    parts = slices * groups
    lined = variant.lines and alignment == WORD_BYTES
    arguments = record(
        explicit_arguments(),
        a=a.layout,
        b=b.layout,
        b_slices=b_slices,
        a_slice=a_slice,
        b_slice=b_slice,
        total=total,
        words=words,
        a_band=band * a.row,
        out_band=band * block,
        whole=whole,
        rest=rest,
        repeats=repeats,
        groups=groups,
        parts=parts,
        alignment=LINE if lined else alignment,
        over_columns=RECIPROCAL // columns,
        over_b_rows=RECIPROCAL // b.rows,
        over_b_columns=RECIPROCAL // b.columns,
    )
    launch = LaunchShape(
        -(-used // variant.chunk), variant.threads, 1, 0, down=min(parts, MAX_GRID_YZ)
    )
    program = device_program("explicit/bands", "explicit_kron", shape.dtype, *word, offset, *share)
    return Kernel(BANDS, shape, variant, program, launch, arguments)


def _entries(elements: int, columns: int, width: int, out: int, size: int, slices: int) -> int:
    """Return the largest number of entries of a that the elements of one word need."""
    begins = slices == 1 or columns % elements == 0  # all slices begin at the same place of a word
    if elements == 1 or (width % elements == 0 and begins and out % WORD_BYTES == 0):
        return 1
    if width >= elements - 1 or (width == 2 and out // size % 2 == 0):
        return 2
    return elements


@cache
def explicit_arguments() -> np.dtype[Any]:
    """Return the layout of the C++ struct ExplicitKronArguments."""
    sizes = "b_slices a_slice b_slice total words a_band out_band whole rest repeats groups parts"
    reciprocals = [(f"over_{name}", "u4") for name in ("columns", "b_rows", "b_columns")]
    return struct(*PRODUCT, sizes, "alignment", *reciprocals)


BANDS = Family("explicit", "bands", bands_kernel)
