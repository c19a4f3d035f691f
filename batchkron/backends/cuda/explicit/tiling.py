"""How an explicit product is cut for a device.

Into bands of rows, which hold the same entries of b in the same places, or, where these are few,
into segments: rows of b times entries of a.

Pure arithmetic on sizes, without any device: the kernels' contracts are in
``csrc/cuda``.
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

WORD_BYTES = 16
RESULT_BYTES = 256  # results between begin at multiples, as memory of CuPy does
_MIN_BAND_CHUNKS = 8  # of a band, so that few threads of its last thread block are idle
# Thread blocks of a multiprocessor from which a thread takes more than one batch of bands.
_BLOCKS_PER_MULTIPROCESSOR = 16
_MIN_BANDS = 8  # of a slice; with fewer, other cuts of the work are tried
_MIN_SEGMENT_BYTES = 512  # of a row of b, from which the kernel of segments is taken
_MAX_SEGMENT_ENTRIES = 64  # of a, looped over while a row of b is in registers
_SEGMENT_THREADS = (128, 64, 256)
_RECIPROCAL = 2**32 - 1
_MAX_OFFSET = 2**31 - 1


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
class ExplicitKnobs:
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
    entries : int
        Most entries of a that a thread goes through in segments.
    streaming : bool
        Whether results are stored as those that are not read again soon.
    segments : bool, optional
        Whether the result is cut into segments; by default where that is faster.
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


@dataclass(frozen=True, slots=True)
class SegmentKernel:
    """What a specialisation of the kernel of segments is compiled for."""

    elements: int
    bytes: int
    threads: int
    streaming: bool


@dataclass(frozen=True, slots=True)
class SegmentCut:
    """The work of the kernel of segments.

    A row of b is held by ``chunks`` thread blocks, which go through ``entries`` of a; ``groups``
    of them go through all.
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
    """Return how a ⊗ b is written to the address ``out``; neither matrix is empty.

    A thread that goes down few bands computes as many places as it writes words. Then rows of b
    are held while all of a is gone through, if a is small and rows are long and no whole words:
    they begin elsewhere in a word each time. Where a has many columns, each row of the result is a
    slice: that of a row of a as a column, and of a row of b.
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
    """Return the elements of a word, and its alignment.

    Complex numbers may begin between their own multiples: then a word is one of them.
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
    """Return the cut into segments."""
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
    """Return the cut of one product, or of one slice of several."""
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
    """Return by how many entries of a the elements of a word are multiplied at most."""
    begins = slices == 1 or columns % elements == 0  # all slices begin at the same place of a word
    if elements == 1 or (width % elements == 0 and begins and out % WORD_BYTES == 0):
        return 1
    if width >= elements - 1 or (width == 2 and out // size % 2 == 0):
        return 2
    return elements


def balanced_split(sizes: Sequence[int]) -> int:
    """Return where to split factors of these sizes so that both parts' products are small."""
    return min(
        range(1, len(sizes)),
        key=lambda split: math.prod(sizes[:split]) + math.prod(sizes[split:]),
    )


@dataclass(frozen=True, slots=True)
class ExplicitStep:
    """A product of two matrices: factors, or results of earlier steps.

    ``left`` and ``right`` count the factors, then the results. The result (rows, columns) begins
    ``offset`` bytes after the workspace does, but for that of the last step.
    """

    left: int
    right: int
    rows: int
    columns: int
    offset: int


def explicit_steps(
    shapes: Sequence[tuple[int, int]], itemsize: int
) -> tuple[tuple[ExplicitStep, ...], int]:
    """Return the products of two that write that of all factors, and bytes of workspace.

    All but the last one are small: factors are split where both parts are.
    """
    steps: list[ExplicitStep] = []
    end = 0

    def product(first: int, last: int) -> tuple[int, tuple[int, int]]:
        """Append the steps for some factors; return the result's number and shape."""
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
    """Return ExplicitKronArguments."""
    sizes = size_fields("b_slices", "a_slice", "b_slice", "total", "words", "a_band", "out_band")
    sizes += size_fields("whole", "rest", "repeats", "groups", "parts")
    reciprocals = [(f"over_{name}", "u4") for name in ("columns", "b_rows", "b_columns")]
    return np.dtype([*_PRODUCT, *sizes, *reciprocals], align=True)


@cache
def segments_arguments() -> np.dtype[Any]:
    """Return ExplicitSegmentsArguments."""
    return np.dtype([*_PRODUCT, *size_fields("chunks", "entries", "groups")])
