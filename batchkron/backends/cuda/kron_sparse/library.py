"""Products with Kronecker-sparse matrices as products of dense ones, by cuBLAS.

Each block values[i, :, :, j] multiplies a matrix whose columns are all vectors. Where those lie
along the last axis, cuBLAS reads and writes the vectors as they are: the rows of that matrix are
equally far apart, and so are the matrices of all i or of all j. For large blocks of float16 this is
1.3 to 2.8 times as fast as our own kernels (docs/results/papers.md). Where vectors lie along the
first axis, that is so for d = 1; for a small d it may pay to multiply by the whole matrix of an i,
zeros included, which takes d times the operations. No device is needed here.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from batchkron.backends.cuda.costs import costs_for
from batchkron.backends.cuda.estimates import NANOSECOND, slowest
from batchkron.backends.cuda.kron_sparse.kernel import WORD, SparseShape, Stored, stored_row
from batchkron.backends.cuda.runtime.hardware import DeviceLimits, round_up
from batchkron.backends.cuda.runtime.matrix_library import DTYPES, MatrixProducts

_MAX_CALLS = 16  # of cuBLAS for a product; chosen by hand
_MAX_INTEGER = 2**31 - 1  # cuBLAS counts elements of a step in 32 bits
_TILE = 64  # rows and columns of a result that one multiprocessor computes, at least
# How much longer values with their zeros take in float32, and in float64 where columns of x have so
# many elements: from some ten shapes on an H100.
_EXPANDED, _LONG = 1.5, 512
_CACHE = 64 << 20  # bytes of vectors of which hardly any stay in the second-level cache
_MAX_EXPANDED = 1 << 28  # bytes of values with their zeros; chosen by hand


@dataclass(frozen=True, slots=True)
class LibraryProduct:
    """A product by cuBLAS, which may scale and accumulate.

    ``seconds`` is the estimated time.
    """

    shape: SparseShape
    products: MatrixProducts
    seconds: float = field(compare=False)

    @property
    def stored(self) -> Stored:
        """How the values must be stored."""
        return "expanded" if self.products.values_first and self.shape.d > 1 else "blocks"


LIBRARY = "kron_sparse.library"
"""The way itself, as `kernel_family.without` names it."""


def library_product(shape: SparseShape, device: DeviceLimits) -> LibraryProduct | None:
    """Return the product by cuBLAS, None where that cannot take the vectors as they are."""
    if not device.has_matrix_library or shape.dtype not in DTYPES or shape.products:
        return None
    products = _along_last_axis(shape) if shape.outer == 1 else _along_first_axis(shape)
    if products is None or shape.alignment < WORD or products.batches > _MAX_CALLS:
        return None
    if any(size * shape.itemsize % WORD for size in (*products.steps, *products.strides)):
        return None  # cuBLAS's kernels for rows that are not whole words are slow
    if max(*products.steps, products.m, products.n) > _MAX_INTEGER:
        return None
    return LibraryProduct(shape, products, _seconds(shape, products, device))


def _along_last_axis(shape: SparseShape) -> MatrixProducts:
    """Return the products y = x B of x and y stored as columns of ``inner`` elements."""
    a, b, c, d, inner = shape.a, shape.b, shape.c, shape.d, shape.inner
    block = b * stored_row(c, shape.itemsize)
    of_j = inner, block, inner
    of_i = c * d * inner, d * block, b * d * inner
    fewer, more = (a, d) if a <= d else (d, a)
    strides, jumps = (of_j, of_i) if a <= d else (of_i, of_j)
    steps = d * inner, block // b, d * inner
    return MatrixProducts(
        inner, b, c, more, fewer, steps, strides, jumps, (False, False), values_first=False
    )


def _along_first_axis(shape: SparseShape) -> MatrixProducts | None:
    """Return the products of values with x and y, whose columns are vectors."""
    rows, columns = shape.b * shape.d, shape.c * shape.d
    expanded = shape.a * rows * columns
    if shape.inner != 1 or (shape.d > 1 and expanded * shape.itemsize > _MAX_EXPANDED):
        return None
    return MatrixProducts(
        m=rows,
        n=shape.outer,
        k=columns,
        count=shape.a,
        batches=1,
        steps=(columns, shape.a * columns, shape.a * rows),
        strides=(rows * columns, columns, rows),
        jumps=(0, 0, 0),
        transposed=(True, False),
        values_first=True,
    )


def _seconds(shape: SparseShape, products: MatrixProducts, device: DeviceLimits) -> float:
    """Return the estimated time: of memory, or of sums whose first elements take their time.

    It is as short as those of our kernels are where both were measured, by about a tenth.
    """
    costs = costs_for(device.name).families["kron_sparse"]["library"]
    unit = {2: "half", 4: "core", 8: "float64"}[shape.itemsize]
    m, n = (round_up(size, _TILE) for size in (products.m, products.n))
    working = min(device.multiprocessors, products.count * m // _TILE * n // _TILE)
    rate = costs[unit] * working / (1 + costs[f"{unit}_depth"] / products.k)
    computed = float(products.batches * products.count * m * n * products.k)
    is_long = unit == "core" or (unit == "float64" and products.k >= _LONG)
    if products.values_first and shape.d > 1 and is_long:
        computed *= _EXPANDED
    in_cache = max(0.0, 1 - shape.bytes / _CACHE)  # share that earlier kernels left there
    moved = in_cache / costs["cache_rate"] + (1 - in_cache) / costs["memory_rate"]
    busy = slowest(costs["sharpness"], computed / rate, shape.bytes * moved)
    launches = costs["launch"] + costs["next"] * (products.batches - 1)
    return float(launches + busy) * NANOSECOND
