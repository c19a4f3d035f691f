"""Products with Kronecker-sparse matrices as products of dense ones, by cuBLAS.

Each block values[i, :, :, j] multiplies a matrix whose columns are all vectors. Where those lie
along the last axis, cuBLAS reads and writes the vectors as they are: the rows of that matrix are
equally far apart, and so are the matrices of all i or of all j. Where vectors lie along the first
axis, that is so for d = 1. In either layout it may pay to multiply by the dense matrix of an i, or
of all i, zeros included: that reads and writes whole rows, and cuBLAS divides the sums of a single
product among multiprocessors, but not those of several.

The estimated time of products (m, n, k) is

    launches + slowest(multiply-adds / rate, bytes / memory rate)

where rates are lower if sizes are no whole words of 16 bytes. A multiprocessor computes a tile of a
result or, of a single product, a piece of its sums.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from batchkron.backends.cuda.costs import costs_for
from batchkron.backends.cuda.estimates import NANOSECOND, ceil_div, slowest
from batchkron.backends.cuda.kron_sparse.kernel import WORD, SparseShape, Stored, stored_row
from batchkron.backends.cuda.runtime.hardware import DeviceLimits, round_up
from batchkron.backends.cuda.runtime.matrix_library import DTYPES, MatrixProducts

_MAX_CALLS = 16  # of cuBLAS for a product; chosen by hand
_MAX_INTEGER = 2**31 - 1  # cuBLAS counts elements of a step in 32 bits
_SUM_TILE = 64  # rows and columns of a result that a multiprocessor computes
# Units that rows and columns are rounded up to, and a single one, which has other kernels; from 450
# products on an H200.
_ROUNDED, _OF_VECTORS = 32, 8
_CACHE = 64 << 20  # bytes of vectors of which hardly any stay in the second-level cache
_CACHE_GAIN = 0.2  # of its rate over that of memory
# Time that several blocks in float64 take by these counts, and kernels that keep values for rows
# (`tiles`) 1.05: of 24 patterns on an H200 the chosen way took 1.06 of the fastest one's time, and
# takes 1.02; of random ones 1.06, as before.
_BLOCKS_FLOAT64 = 0.84
_UNITS = {2: "half", 4: "core", 8: "float64"}
_MAX_EXPANDED = 1 << 28  # bytes of values with their zeros; chosen by hand


@dataclass(frozen=True, slots=True)
class LibraryProduct:
    """A product by cuBLAS, which may scale and accumulate, and its estimated seconds."""

    shape: SparseShape
    products: MatrixProducts
    stored: Stored
    seconds: float = field(compare=False)


LIBRARY = "kron_sparse.library"
"""The way itself, as `kernel_family.without` names it."""


def library_product(
    shape: SparseShape, device: DeviceLimits, zeros: bool = True
) -> LibraryProduct | None:
    """Return the fastest product by cuBLAS, of values with zeros if these may be; None if none."""
    ways = [one for one in library_products(shape, device) if zeros or one.stored == "blocks"]
    return min(ways, key=lambda one: one.seconds, default=None)


def library_products(shape: SparseShape, device: DeviceLimits) -> Iterator[LibraryProduct]:
    """Yield the products by cuBLAS, at most one for each way in which values are stored."""
    if not device.has_matrix_library or shape.dtype not in DTYPES or shape.products:
        return
    for products, stored in _products(shape):
        largest = max(*products.steps, products.m, products.n)
        if products.batches <= _MAX_CALLS and largest <= _MAX_INTEGER:
            seconds = _seconds(shape, products, device)
            if stored == "blocks" and shape.dtype == "float64" and shape.a * shape.d > 1:
                seconds *= _BLOCKS_FLOAT64
            yield LibraryProduct(shape, products, stored, seconds)


def _products(shape: SparseShape) -> Iterator[tuple[MatrixProducts, Stored]]:
    """Yield the products of blocks, of dense matrices, and of one, with how values are stored."""
    is_last = shape.outer == 1
    if not is_last and shape.inner > 1:
        return
    if is_last:
        yield _along_last_axis(shape), "blocks"
    elif shape.d == 1:
        yield _along_first_axis(shape, stored_row(shape.c, shape.itemsize)), "blocks"
    rows, columns = shape.b * shape.d, shape.c * shape.d
    dense: list[tuple[SparseShape, Stored]] = []
    if shape.d > 1:
        dense.append((replace(shape, b=rows, c=columns, d=1), "expanded"))
    if shape.a > 1:
        dense.append((replace(shape, a=1, b=shape.a * rows, c=shape.a * columns, d=1), "whole"))
    for one, stored in dense:
        if one.a * one.b * one.c * one.itemsize <= _MAX_EXPANDED:
            along = _along_last_axis if is_last else _along_first_axis
            yield along(one, one.c), stored


def _along_last_axis(shape: SparseShape, row: int = 0) -> MatrixProducts:
    """Return the products y = x B; ``row``: elements of a row of values, if not of "blocks"."""
    a, b, c, d, inner = shape.a, shape.b, shape.c, shape.d, shape.inner
    row = row or stored_row(c, shape.itemsize)
    of_j = inner, b * row, inner
    of_i = c * d * inner, d * b * row, b * d * inner
    fewer, more = (a, d) if a <= d else (d, a)
    strides, jumps = (of_j, of_i) if a <= d else (of_i, of_j)
    steps = d * inner, row, d * inner
    return MatrixProducts(
        inner, b, c, more, fewer, steps, strides, jumps, (False, False), values_first=False
    )


def _along_first_axis(shape: SparseShape, row: int) -> MatrixProducts:
    """Return the products of values with x and y, whose columns are vectors, for d = 1."""
    a, b, c = shape.a, shape.b, shape.c
    steps, strides = (row, a * c, a * b), (b * row, c, b)
    return MatrixProducts(
        b, shape.outer, c, a, 1, steps, strides, (0, 0, 0), (True, False), values_first=True
    )


def _seconds(shape: SparseShape, products: MatrixProducts, device: DeviceLimits) -> float:
    """Return the estimated time."""
    costs, size = costs_for(device.name).families["kron_sparse"]["library"], shape.itemsize
    unit, one = _UNITS[size], products
    apart = one.strides if one.count > 1 else ()
    word = math.gcd(*(size * number for number in (*one.steps, *apart, one.m, one.k)))
    kind = f"{unit}_{max(size, math.gcd(word, shape.alignment, WORD))}"
    m, n = (_OF_VECTORS if n == 1 else round_up(n, _ROUNDED) for n in (one.m, one.n))
    count = one.count * one.batches
    tiles = one.count * ceil_div(one.m, _SUM_TILE) * ceil_div(one.n, _SUM_TILE)
    pieces = max(1.0, one.k / costs[f"{unit}_piece"]) if count == 1 else 1.0
    working = min(device.multiprocessors, tiles * pieces)
    adds = count * m * n * (one.k + costs[f"{unit}_depth"])
    moved = size * count * (one.n * one.k + one.m * one.k + one.m * one.n)
    in_cache = max(0.0, 1 - moved / _CACHE)  # share that earlier kernels left there
    moving = moved / costs[f"{kind}_memory"] / (1 + _CACHE_GAIN * in_cache)
    launches = costs["launch"] + costs["next"] * (one.batches - 1)
    busy = slowest(costs["sharpness"], adds / (costs[kind] * working), moving)
    return float(launches + busy) * NANOSECOND
