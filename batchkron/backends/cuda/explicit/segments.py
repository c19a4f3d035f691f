"""The family of kernels that write a ⊗ b in segments: rows of b times entries of a.

Pure arithmetic on sizes, without any device: the kernel's contract is in
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

_MIN_SEGMENT_BYTES = 512  # of a row of b, from which the kernel of segments is taken
_MAX_SEGMENT_ENTRIES = 64  # of a, looped over while a row of b is in registers
_SEGMENT_THREADS = (128, 64, 256)


@dataclass(frozen=True, slots=True)
class SegmentVariant:
    """What decides how fast the kernel is, and not what it computes.

    Attributes
    ----------
    entries : int
        Most entries of a that a thread goes through.
    streaming : bool
        Whether results are stored as those that are not read again soon.
    """

    entries: int = 32
    streaming: bool = True


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


def segment_cut(shape: ProductShape, variant: SegmentVariant, limits: DeviceLimits) -> SegmentCut:
    """Return the cut into segments."""
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
    """Kernels whose threads hold a part of a row of b while all of a is gone through.

    The estimate is 1 where that was faster than bands, else 3: where rows of b are long and no
    whole words, so that they begin elsewhere in a word each time, and a has few entries, in so few
    bands that a thread that goes down these computes as many places as it writes words.
    """

    name = "segments"
    variant_type = SegmentVariant

    def accepts(self, shape: ProductShape, device: DeviceLimits) -> bool:
        """Whether rows of b have a whole word."""
        return shape.row_bytes >= WORD_BYTES

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
        """Return what is compiled."""
        return segments_program(kernel.shape.dtype, kernel.tile.kernel)

    def layout(self) -> np.dtype[Any]:
        """Return the type of the arguments."""
        return segments_arguments()


@cache
def segments_arguments() -> np.dtype[Any]:
    """Return ExplicitSegmentsArguments."""
    return np.dtype([*PRODUCT, *size_fields("chunks", "entries", "groups")])
