"""Ways to a product with a Kronecker-sparse matrix: kernels by their estimates, and cuBLAS.

Some are only parts: the transpositions of vectors along the first axis, and what may be between
them. Their times add up to those of a way.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import cupy
import numpy as np

from batchkron.backends.cuda.kernel import Kernel
from batchkron.backends.cuda.kernel_launch import launch_of
from batchkron.backends.cuda.kron_sparse import library
from batchkron.backends.cuda.kron_sparse.block_transposition import block_transposition
from batchkron.backends.cuda.kron_sparse.kernel import WORD, SparseShape
from batchkron.backends.cuda.kron_sparse.stored import stored_shape
from batchkron.backends.cuda.runtime.device import ready_stream
from batchkron.backends.cuda.runtime.hardware import DeviceLimits, round_up
from batchkron.backends.cuda.runtime.matrix_library import (
    WORKSPACE,
    LibraryMultiply,
    MatrixProducts,
)
from benchmarks.core.device_timing import Call, random_array
from benchmarks.gpu.measure_sparse import chosen_kernels

MAX_EXPANDED_BYTES = 1 << 30  # of values with zeros
Pairs = Sequence[tuple[Any, Any]]


@dataclass(frozen=True)
class WayPart:
    """A kernel or products by cuBLAS that are timed; ``sizes``: elements of x and y of a vector."""

    name: str
    work: Kernel | MatrixProducts
    stored: tuple[int, ...]  # the shape of the values, empty where none are read
    sizes: tuple[int, int]
    multiply_adds: int

    @property
    def estimate(self) -> float | None:
        """Estimated microseconds."""
        return 1e6 * self.work.seconds if isinstance(self.work, Kernel) else None


def parts_of(shape: SparseShape, limits: DeviceLimits, count: int) -> Iterator[WayPart]:
    """All parts; ``count``: kernels that multiply, of each order of the vectors' elements."""
    turned = replace(shape, a=shape.a * shape.d, d=1)
    yield from _kernels("kernel", shape, limits, count)
    if shape.inner == 1 and shape.d > 1:
        for size, to_long, name in ((shape.c, True, "forward"), (shape.b, False, "back")):
            matrices = shape.outer * shape.a
            how = size, shape.d, shape.itemsize, to_long, WORD
            kernel = block_transposition(matrices, *how, limits)
            if kernel is not None:
                elements = shape.a * shape.d * size
                yield WayPart(name, kernel, (), (elements, elements), 0)
        yield from _kernels("turned", turned, limits, count)
    if shape.dtype in ("float16", "float32", "float64"):
        yield from _library(shape, turned)


def _kernels(name: str, shape: SparseShape, limits: DeviceLimits, count: int) -> Iterator[WayPart]:
    values = shape.a, shape.b, shape.c, shape.d
    sizes = shape.a * shape.c * shape.d, shape.a * shape.b * shape.d
    for kernel in chosen_kernels(shape, limits, count)[:count]:
        stored = stored_shape(values, shape.itemsize, kernel.family.stored)
        yield WayPart(name, kernel, stored, sizes, shape.multiply_adds)


def _library(shape: SparseShape, turned: SparseShape) -> Iterator[WayPart]:
    a, b, c, d = shape.a, shape.b, shape.c, shape.d
    unit = max(1, WORD // shape.itemsize)
    row, blocks = round_up(c, unit), a * d

    def part(name: str, products: MatrixProducts, stored: tuple[int, ...], *sizes: int) -> WayPart:
        work = products.m * products.n * products.k * products.count * products.batches
        return WayPart(name, products, stored, (sizes[0], sizes[1]), work)

    along: Any = library._along_first_axis if shape.inner == 1 else library._along_last_axis
    if shape.inner == 1:
        yield part("blocks", along(turned, row), (blocks, b, row), blocks * c, blocks * b)
        after = round_up(b, unit)
        if (row, after) != (c, b):
            padded = along(replace(turned, c=row), row)
            steps, strides = (row, blocks * row, blocks * after), (b * row, row, after)
            padded = replace(padded, steps=steps, strides=strides)
            yield part("padded", padded, (blocks, b, row), blocks * row, blocks * after)
    else:
        yield part("blocks", along(shape, row), (blocks, b, row), blocks * c, blocks * b)
    for name, count in (("expanded", a), ("dense", 1)):
        rows, columns = blocks * b // count, blocks * c // count
        is_known = (name == "expanded" and d == 1) or (name == "dense" and a == 1)
        if not is_known and count * rows * columns * shape.itemsize <= MAX_EXPANDED_BYTES:
            products = along(replace(shape, a=count, b=rows, c=columns, d=1), columns)
            yield part(name, products, (count, rows, columns), count * columns, count * rows)


def calls_of(part: WayPart, dtype: str, batch: int, pairs: Pairs) -> list[Call]:
    """A call for each pair of vectors; other vectors take their place if the sizes differ."""
    device = cupy.cuda.Device().id
    if any(x.size != batch * part.sizes[0] or y.size != batch * part.sizes[1] for x, y in pairs):
        pairs = [
            tuple(_random(batch * size, dtype, seed) for size in part.sizes)
            for seed in range(len(pairs))
        ]
    more = [_random(math.prod(part.stored), dtype)] if part.stored else []
    launch: Any
    if isinstance(part.work, Kernel):
        scalars = "accumulate" if more else ""
        launch = launch_of(part.work, device, 2 + len(more), scalars)
    else:
        launch = LibraryMultiply(part.work, dtype, np.dtype(dtype).itemsize, device)
        more.append(cupy.empty(WORKSPACE, np.uint8))

    def call(x: Any, y: Any) -> None:
        addresses = tuple(one.data.ptr for one in (x, y, *more))
        launch(ready_stream(device), addresses, b"")

    return [partial(call, x, y) for x, y in pairs]


def _random(size: int, dtype: str, seed: int = 0) -> Any:
    drawn = random_array((size,), "float32" if dtype == "float16" else dtype, seed)
    return drawn.astype(dtype, copy=False)
