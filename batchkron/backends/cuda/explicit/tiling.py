"""Tilings of the explicit product a ⊗ b.

The result is divided into bands: groups of rows of a with all their rows of b. An element has the
same entry of b in every band, so a thread computes it once and goes down the bands. Where there are
few bands, the result may be divided into segments instead: one row of b times one entry of a.

A word is 16 bytes of the result, which a thread writes at once. Pure arithmetic on sizes, no device
needed; the kernels' contracts are in ``csrc/cuda/explicit``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from batchkron.backends.cuda.runtime.arguments import pointer_fields, size_fields
from batchkron.backends.cuda.runtime.hardware import MAX_GRID_YZ, DeviceLimits
from batchkron.backends.cuda.runtime.program import SCALARS, Program, flag, template_type

WORD_BYTES = 16  # bytes that a thread writes at once
RESULT_BYTES = 256  # alignment of intermediate results in bytes, the same as CuPy's of arrays
# Numbers below were chosen by hand where no source is given.
# Smallest number of chunks (words of one thread block) of a band, so that few threads of the last
# thread block are idle.
_MIN_BAND_CHUNKS = 8
# A thread takes more than one batch of bands once there are this many thread blocks on each
# multiprocessor.
_BLOCKS_PER_MULTIPROCESSOR = 16
_MIN_BANDS = 8  # bands of a slice; with fewer, other tilings are tried
_MIN_SEGMENT_BYTES = 512  # bytes of a row of b from which segments are used
_MAX_SEGMENT_ENTRIES = 64  # largest number of entries of a for which segments are used
_SEGMENT_THREADS = (128, 64, 256)  # threads of a thread block of segments, preferred first
# Divisor n is passed as (2^32 - 1) // n: the kernel divides by multiplying.
_RECIPROCAL = 2**32 - 1
_MAX_OFFSET = 2**31 - 1  # largest offset in elements that a 32-bit integer holds


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


@dataclass(frozen=True, slots=True)
class ExplicitKnobs:
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
    entries : int
        With segments, the largest number of entries of a that a thread loops over.
    streaming : bool
        Whether results are written by streaming stores, which do not displace cached data.
    segments : bool, optional
        Whether the result is divided into segments; by default where that is faster.
    """

    threads: int = 256
    words: int = 1
    batch: int = 4
    repeats: int = 16
    entries: int = 32
    streaming: bool = True
    segments: bool | None = None

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
        """Offset from one band of a to the next, in elements."""
        return self.band * self.a.row

    @property
    def out_band(self) -> int:
        """Offset from one band of the result to the next, in elements."""
        return self.words * self.kernel.elements

    @property
    def over_columns(self) -> int:
        """Factor by which the kernel divides by the result's number of columns."""
        return _RECIPROCAL // (self.a.columns * self.b.columns)

    @property
    def over_b_rows(self) -> int:
        """Factor by which the kernel divides by the number of rows of b."""
        return _RECIPROCAL // self.b.rows

    @property
    def over_b_columns(self) -> int:
        """Factor by which the kernel divides by the number of columns of b."""
        return _RECIPROCAL // self.b.columns

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


@dataclass(frozen=True, slots=True)
class SegmentKernel:
    """The template arguments of the kernel of segments, as in `ExplicitKernel`."""

    elements: int
    bytes: int
    threads: int
    streaming: bool


@dataclass(frozen=True, slots=True)
class SegmentCut:
    """The work of the kernel of segments.

    ``chunks`` thread blocks together hold a row of b in registers and multiply it by ``entries``
    entries of a, one after another; ``groups`` such sets of thread blocks cover all entries.
    """

    kernel: SegmentKernel
    a: DeviceMatrix
    b: DeviceMatrix
    chunks: int
    entries: int
    groups: int

    @property
    def grid(self) -> tuple[int, int]:
        """Thread blocks along b, and along the entries of a."""
        return self.chunks * self.b.rows, min(self.groups, MAX_GRID_YZ)


def explicit_cut(
    a: DeviceMatrix,
    b: DeviceMatrix,
    out: int,
    dtype: np.dtype[np.generic],
    limits: DeviceLimits,
    knobs: ExplicitKnobs | None = None,
) -> ExplicitCut | SegmentCut:
    """Return the tiling for a ⊗ b, written to the address ``out``; neither matrix is empty.

    With few bands, computing where an element comes from costs as much as writing it. Two other
    tilings are then considered:

    - segments, if a is small and the rows of b are long but no whole number of words, so that they
      begin at a different place of a word each time;
    - one slice for each row of the result, which is the product of a row of a, taken as a column,
      and a row of b, if a has many columns.
    """
    knobs = ExplicitKnobs() if knobs is None else knobs
    whole = _cut(a, b, out, dtype, limits, knobs)
    bands = -(-a.rows // whole.band)
    row_bytes = b.columns * dtype.itemsize
    few = bands < _MIN_BANDS and 2 * bands <= a.rows * a.columns <= _MAX_SEGMENT_ENTRIES
    if knobs.segments is None:
        uneven = dtype.itemsize < WORD_BYTES and row_bytes % WORD_BYTES > 0
        segments = few and uneven and row_bytes >= _MIN_SEGMENT_BYTES
    else:
        segments = knobs.segments and row_bytes >= WORD_BYTES
    if segments:
        return _segment_cut(a, b, out, dtype, limits, knobs)
    long = a.columns * b.columns * dtype.itemsize >= _MIN_BAND_CHUNKS * knobs.chunk * WORD_BYTES
    if bands >= _MIN_BANDS or not long:
        return whole
    across = _cut(
        DeviceMatrix(a.data, a.columns, 1, a.column, a.row),
        DeviceMatrix(b.data, 1, b.columns, b.row, b.column),
        out,
        dtype,
        limits,
        knobs,
        (a.rows * b.rows, b.rows, a.row, b.row),
    )
    return across if -(-a.columns // across.band) >= 2 * bands else whole


def _word(out: int, dtype: np.dtype[np.generic]) -> tuple[int, int]:
    """Return the elements of a word, and its alignment in bytes.

    Complex arrays may be aligned to half their element size only; then a word is one element.
    """
    if out % dtype.itemsize == 0:
        return WORD_BYTES // dtype.itemsize, WORD_BYTES
    return 1, dtype.itemsize // 2


def _segment_cut(
    a: DeviceMatrix,
    b: DeviceMatrix,
    out: int,
    dtype: np.dtype[np.generic],
    limits: DeviceLimits,
    knobs: ExplicitKnobs,
) -> SegmentCut:
    """Return the tiling by segments."""
    elements, alignment = _word(out, dtype)
    words = -(-(b.columns + elements - 1) // elements)
    threads = min(_SEGMENT_THREADS, key=lambda count: -(-words // count) * count)
    chunks = -(-words // threads)
    every = a.rows * a.columns
    share = chunks * b.rows * every // (_BLOCKS_PER_MULTIPROCESSOR * limits.multiprocessors)
    entries = min(knobs.entries, max(1, share), every)
    kernel = SegmentKernel(elements, alignment, threads, knobs.streaming)
    return SegmentCut(kernel, a, b, chunks, entries, -(-every // entries))


def _cut(
    a: DeviceMatrix,
    b: DeviceMatrix,
    out: int,
    dtype: np.dtype[np.generic],
    limits: DeviceLimits,
    knobs: ExplicitKnobs,
    slices: tuple[int, int, int, int] = (1, 1, 0, 0),
) -> ExplicitCut:
    """Return the tiling by bands of a product, or of each of several slices.

    ``slices`` are the attributes slices, b_slices, a_slice and b_slice of `ExplicitCut`.
    """
    size = dtype.itemsize
    elements, alignment = _word(out, dtype)
    block = b.rows * a.columns * b.columns  # elements of a row of a
    total = a.rows * block
    minimum = elements // math.gcd(block, elements)
    band = minimum * max(1, -(-_MIN_BAND_CHUNKS * knobs.chunk * elements // (minimum * block)))
    words = band * block // elements
    whole, rest = divmod(total, band * block)
    bands = whole + (rest > 0)
    chunks = -(-min(words * elements, total) // (elements * knobs.chunk))
    batch = min(knobs.batch, bands)
    wanted = _BLOCKS_PER_MULTIPROCESSOR * limits.multiprocessors
    repeats = min(knobs.repeats, max(batch, chunks * bands * slices[0] // wanted), bands)
    repeats = -(-repeats // batch) * batch
    reach = max(
        b.reach,
        min(band, a.rows - 1) * abs(a.row) + (a.columns - 1) * abs(a.column),
        band * block + (knobs.chunk + 2) * elements,
        bands + knobs.repeats + knobs.batch,
    )
    kernel = ExplicitKernel(
        elements,
        alignment,
        _entries(elements, a.columns * b.columns, b.columns, out, size, slices[0]),
        reach > _MAX_OFFSET,
        knobs.threads,
        knobs.words,
        batch,
        knobs.streaming,
    )
    groups = -(-bands // repeats)
    return ExplicitCut(kernel, a, b, *slices, band, words, whole, rest, repeats, groups)


def _entries(elements: int, columns: int, width: int, out: int, size: int, slices: int) -> int:
    """Return the largest number of entries of a that the elements of one word need."""
    begins = slices == 1 or columns % elements == 0  # all slices begin at the same place of a word
    if elements == 1 or (width % elements == 0 and begins and out % WORD_BYTES == 0):
        return 1
    if width >= elements - 1 or (width == 2 and out // size % 2 == 0):
        return 2
    return elements


def balanced_split(sizes: Sequence[int]) -> int:
    """Return the index at which to split factors so that the products of both parts are small."""
    return min(
        range(1, len(sizes)),
        key=lambda split: math.prod(sizes[:split]) + math.prod(sizes[split:]),
    )


@dataclass(frozen=True, slots=True)
class ExplicitStep:
    """A product of two matrices, each a factor or the result of an earlier step.

    ``left`` and ``right`` are indices into the list of factors followed by the steps' results. The
    result (rows, columns) begins ``offset`` bytes into the workspace; the last step writes to the
    output instead.
    """

    left: int
    right: int
    rows: int
    columns: int
    offset: int


def explicit_steps(
    shapes: Sequence[tuple[int, int]], itemsize: int
) -> tuple[tuple[ExplicitStep, ...], int]:
    """Return the products of two matrices that make the product of all, and bytes of workspace.

    Factors are split so that both parts are small; only the last product is as large as the result.
    """
    steps: list[ExplicitStep] = []
    end = 0

    def product(first: int, last: int) -> tuple[int, tuple[int, int]]:
        """Append the steps for factors first to last; return the result's index and shape."""
        nonlocal end
        if last - first == 1:
            return first, shapes[first]
        split = first + balanced_split([rows * columns for rows, columns in shapes[first:last]])
        left, (a_rows, a_columns) = product(first, split)
        right, (b_rows, b_columns) = product(split, last)
        rows, columns = a_rows * b_rows, a_columns * b_columns
        steps.append(ExplicitStep(left, right, rows, columns, end))
        if last - first < len(shapes):
            end += -(-rows * columns * itemsize // RESULT_BYTES) * RESULT_BYTES
        return len(shapes) + len(steps) - 1, (rows, columns)

    product(0, len(shapes))
    return tuple(steps), end


def explicit_program(dtype: np.dtype[np.generic], kernel: ExplicitKernel) -> Program:
    """Return the kernel of the explicit product in bands."""
    word = kernel.elements, kernel.bytes, kernel.entries
    offset = "batchkron::Index" if kernel.wide else "unsigned"
    share = kernel.threads, kernel.words, kernel.batch, flag(kernel.streaming)
    return Program(
        "cuda/explicit/bands.cuh",
        template_type("explicit_kron", SCALARS[dtype], *word, offset, *share),
    )


def segments_program(dtype: np.dtype[np.generic], kernel: SegmentKernel) -> Program:
    """Return the kernel of the explicit product in segments."""
    word = kernel.elements, kernel.bytes, kernel.threads, flag(kernel.streaming)
    return Program(
        "cuda/explicit/segments.cuh", template_type("explicit_segments", SCALARS[dtype], *word)
    )


_LAYOUT = np.dtype(size_fields("rows", "columns", "row", "column"))
_PRODUCT = [*pointer_fields("a_data", "b_data", "out"), ("a", _LAYOUT), ("b", _LAYOUT)]


@cache
def explicit_arguments() -> np.dtype[Any]:
    """Return the layout of the C++ struct ExplicitKronArguments."""
    sizes = size_fields("b_slices", "a_slice", "b_slice", "total", "words", "a_band", "out_band")
    sizes += size_fields("whole", "rest", "repeats", "groups", "parts")
    reciprocals = [(f"over_{name}", "u4") for name in ("columns", "b_rows", "b_columns")]
    return np.dtype([*_PRODUCT, *sizes, *reciprocals], align=True)


@cache
def segments_arguments() -> np.dtype[Any]:
    """Return the layout of the C++ struct ExplicitSegmentsArguments."""
    return np.dtype([*_PRODUCT, *size_fields("chunks", "entries", "groups")])
