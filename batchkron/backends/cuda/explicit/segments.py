"""The family of kernels that write a ⊗ b in segments: one row of b times one entry of a.

Pure arithmetic on sizes, no device needed; the kernel's contract is in
``csrc/cuda/explicit/segments.cuh``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from batchkron.backends.cuda.explicit.bands import MIN_BANDS, BandVariant, rows_of_band
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

# Chosen by hand:
_MIN_SEGMENT_BYTES = 512  # bytes of a row of b from which segments are used
_MAX_SEGMENT_ENTRIES = 64  # largest number of entries of a for which segments are used
_SEGMENT_THREADS = (128, 64, 256)  # choices for the threads of a thread block, preferred first


@dataclass(frozen=True, slots=True)
class SegmentVariant:
    """Parameters that change a kernel's speed, but not its result.

    Attributes
    ----------
    entries : int
        Largest number of entries of a that a thread loops over.
    streaming : bool
        Whether results are written by streaming stores, which do not displace cached data.
    """

    entries: int = 32
    streaming: bool = True


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


def segment_cut(shape: ProductShape, variant: SegmentVariant, limits: DeviceLimits) -> SegmentCut:
    """Return the tiling by segments."""
    a, b = shape.a, shape.b
    elements, alignment = shape.word()
    words = -(-(b.columns + elements - 1) // elements)
    threads = min(_SEGMENT_THREADS, key=lambda count: -(-words // count) * count)
    chunks = -(-words // threads)
    every = a.rows * a.columns
    share = chunks * b.rows * every // (BLOCKS_PER_MULTIPROCESSOR * limits.multiprocessors)
    entries = min(variant.entries, max(1, share), every)
    kernel = SegmentKernel(elements, alignment, threads, variant.streaming)
    return SegmentCut(kernel, a, b, chunks, entries, -(-every // entries))


def segments_program(dtype: np.dtype[np.generic], kernel: SegmentKernel) -> Program:
    """Return the kernel of the explicit product in segments."""
    word = kernel.elements, kernel.bytes, kernel.threads, flag(kernel.streaming)
    return Program(
        "cuda/explicit/segments.cuh", template_type("explicit_segments", SCALARS[dtype], *word)
    )


class Segments(ProductFamily):
    """Kernels whose threads hold a part of a row of b and multiply it by one entry of a at a time.

    The estimate is 1 where that was faster than bands (estimate 2), else 3. It was faster if a is
    small, so that there are few bands, and the rows of b are long but no whole number of words, so
    that they begin at a different place of a word each time.
    """

    name = "segments"
    variant_type = SegmentVariant

    def accepts(self, shape: ProductShape, device: DeviceLimits) -> bool:
        """Whether a row of b has at least one word."""
        return shape.simple and shape.row_bytes >= WORD_BYTES

    def variants(self, shape: ProductShape, device: DeviceLimits) -> tuple[SegmentVariant, ...]:
        """Return the only variant that is used."""
        return (SegmentVariant(),)

    def estimate(self, shape: ProductShape, variant: SegmentVariant, device: DeviceLimits) -> float:
        """Return 1 where segments were faster than bands, else 3."""
        a, row_bytes = shape.a, shape.row_bytes
        bands = -(-a.rows // rows_of_band(shape, BandVariant()))
        few = bands < MIN_BANDS and 2 * bands <= a.rows * a.columns <= _MAX_SEGMENT_ENTRIES
        uneven = shape.dtype.itemsize < WORD_BYTES and row_bytes % WORD_BYTES > 0
        return 1.0 if few and uneven and row_bytes >= _MIN_SEGMENT_BYTES else 3.0

    def kernel(
        self, shape: ProductShape, variant: SegmentVariant, device: DeviceLimits
    ) -> ProductKernel | None:
        """Return the kernel of a variant, None if rows are too short."""
        if not self.accepts(shape, device):
            return None
        return ProductKernel(self, shape, variant, segment_cut(shape, variant, device))

    def program(self, kernel: ProductKernel) -> Program:
        """Return the program to compile."""
        return segments_program(kernel.shape.dtype, kernel.tile.kernel)

    def layout(self) -> np.dtype[Any]:
        """Return the layout of the kernel's arguments."""
        return segments_arguments()


@cache
def segments_arguments() -> np.dtype[Any]:
    """Return the layout of the C++ struct ExplicitSegmentsArguments."""
    return np.dtype([*PRODUCT, *size_fields("chunks", "entries", "groups")])
