"""Products of vectors along the first axis as products of vectors along the last one.

Vectors (outer, a c d) are transposed, multiplied, and the results (outer, a b d) are transposed
back, some vectors after others, so that the workspace stays small. This takes three times as many
bytes as a product needs, but kernels for vectors along the last axis read neighbouring vectors
where those for vectors along the first one find only the d entries of a row together.

The kernel of a transposition is ``csrc/cuda/kron_sparse/transpose.cuh``. No device is needed here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from batchkron.backends.cuda.costs import costs_for
from batchkron.backends.cuda.estimates import NANOSECOND
from batchkron.backends.cuda.kernel_family import LaunchShape
from batchkron.backends.cuda.kron_sparse.kernel import (
    WORD,
    SparseKernel,
    SparseShape,
    Stored,
    common_pack,
)
from batchkron.backends.cuda.kron_sparse.library import LibraryProduct
from batchkron.backends.cuda.runtime.arguments import pointer_fields, size_fields
from batchkron.backends.cuda.runtime.hardware import DeviceLimits, round_up
from batchkron.backends.cuda.runtime.program import Program, template_type
from batchkron.spec.kron import Array

# Numbers below were chosen by hand.
_SIDES = {2: 128, 4: 128, 8: 64}  # rows and columns of a tile by the bytes of an element
_THREADS = 512  # of a thread block
_BLOCKS = 8  # thread blocks for each multiprocessor; with more tiles, they take several turns
_ELEMENTS = {2: "unsigned short", 4: "unsigned int", 8: "unsigned long long"}  # C++ types by size
_VECTORS = 64  # vectors at a time are a multiple of so many, so that all begin at whole words
_WORKSPACE = 1 << 30  # bytes, at most, of the vectors and results that are transposed at a time


@dataclass(frozen=True, slots=True)
class Transposition:
    """A matrix (rows, columns) of elements of some bytes that is written as (columns, rows).

    ``read`` and ``write`` are the bytes that addresses of the matrix and of the transposed one are
    multiples of.
    """

    rows: int
    columns: int
    itemsize: int
    read: int
    write: int

    @property
    def bytes(self) -> int:
        """Bytes of the matrix."""
        return self.rows * self.columns * self.itemsize

    @property
    def row_bytes(self) -> int:
        """Bytes of a row of the matrix."""
        return self.columns * self.itemsize

    @property
    def column_bytes(self) -> int:
        """Bytes of a row of the transposed matrix."""
        return self.rows * self.itemsize

    @property
    def packs(self) -> tuple[int, int]:
        """Elements that are read together, and written together."""
        read = common_pack(max(1, self.read // self.itemsize), self.columns)
        return read, common_pack(max(1, self.write // self.itemsize), self.rows)

    def program(self) -> Program:
        """Return the program to compile."""
        side = _SIDES[self.itemsize]
        options = _ELEMENTS[self.itemsize], side, _THREADS, *self.packs
        header = "cuda/kron_sparse/transpose.cuh"
        return Program(header, template_type("kron_sparse_transpose", *options))

    def launch(self, device: DeviceLimits) -> LaunchShape:
        """Return the launch."""
        side = _SIDES[self.itemsize]
        tiles = -(-self.rows // side) * -(-self.columns // side)
        shared = side * (side + (2 if self.itemsize == 2 else 1)) * self.itemsize
        blocks = min(tiles, _BLOCKS * device.multiprocessors)
        return LaunchShape(blocks, _THREADS, 1, shared)

    def arguments(self) -> Array:
        """Return the kernel's arguments, without addresses."""
        arguments = np.zeros(1, transpose_arguments())
        arguments["rows"], arguments["columns"] = self.rows, self.columns
        return arguments


@cache
def transpose_arguments() -> np.dtype[Any]:
    """Return the layout of the C++ struct TransposeArguments."""
    sizes = size_fields("rows", "columns")
    return np.dtype([*pointer_fields("from", "to"), *sizes], align=True)


@dataclass(frozen=True, slots=True)
class TransposedPart:
    """Some vectors: transposing them, the product, transposing the results."""

    forward: Transposition
    product: SparseKernel | LibraryProduct
    back: Transposition

    @property
    def results(self) -> int:
        """Bytes of the workspace before the results."""
        return round_up(self.forward.bytes, WORD)

    @property
    def rest(self) -> int:
        """Bytes of the workspace before that of the product itself."""
        return self.results + round_up(self.back.bytes, WORD)

    @property
    def workspace(self) -> int:
        """Bytes of the workspace."""
        return self.rest + self.product.workspace


@dataclass(frozen=True, slots=True)
class TransposedProduct:
    """A product of vectors in parts, each transposed; it neither scales nor accumulates.

    ``seconds`` is the estimated time.
    """

    parts: tuple[TransposedPart, ...]
    seconds: float

    @property
    def workspace(self) -> int:
        """Bytes of the workspace, whole words."""
        return round_up(max(part.workspace for part in self.parts), WORD)

    @property
    def stored(self) -> Stored:
        """How the values must be stored."""
        return self.parts[0].product.stored

    def programs(self) -> list[Program]:
        """Return the programs to compile."""
        return [
            program
            for part in self.parts
            for program in (part.forward.program(), *part.product.programs(), part.back.program())
        ]


def part_sizes(shape: SparseShape) -> list[int]:
    """Return how many vectors are transposed at a time; nothing where they are too long for it."""
    each = shape.a * shape.d * (shape.b + shape.c) * shape.itemsize
    most = _WORKSPACE // each // _VECTORS * _VECTORS
    if most == 0:
        return []
    count = -(-shape.outer // most)
    size = round_up(-(-shape.outer // count), _VECTORS)
    return [min(size, shape.outer - first) for first in range(0, shape.outer, size)]


class TransposedVectors:
    """The way itself, which `kernel_family.without` switches off as it does families."""

    operation = "kron_sparse"
    name = "transposed"


TRANSPOSED = TransposedVectors()


def transposed_product(
    shape: SparseShape,
    product_for: Callable[[SparseShape], SparseKernel | LibraryProduct],
    device: DeviceLimits,
) -> TransposedProduct | None:
    """Return the product by transposed vectors, None where it is of no use or vectors are too long.

    Parameters
    ----------
    shape : SparseShape
    product_for : callable
        Returns the fastest product of vectors as they are for a shape.
    device : DeviceLimits
    """
    is_real = not shape.dtype.startswith("complex")
    if not is_real or shape.inner != 1 or shape.outer < _VECTORS:
        return None
    parts: list[TransposedPart] = []
    seconds = 0.0
    for vectors in part_sizes(shape):
        turned = replace(shape, outer=1, inner=vectors, alignment=WORD)
        columns, rows = shape.a * shape.c * shape.d, shape.a * shape.b * shape.d
        part = TransposedPart(
            Transposition(vectors, columns, shape.itemsize, shape.alignment, WORD),
            product_for(turned),
            Transposition(rows, vectors, shape.itemsize, WORD, shape.alignment),
        )
        parts.append(part)
        seconds += (
            part.product.seconds + _seconds(part.forward, device) + _seconds(part.back, device)
        )
    if len({part.product.stored for part in parts}) != 1:
        return None
    return TransposedProduct(tuple(parts), seconds)


def _seconds(one: Transposition, device: DeviceLimits) -> float:
    """Return the estimated time of a transposition."""
    costs = costs_for(device.name).families["kron_sparse"]["transposed"]
    return (costs["launch"] + 2 * one.bytes / costs["memory_rate"]) * NANOSECOND
