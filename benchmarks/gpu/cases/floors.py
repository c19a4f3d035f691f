"""The least time that an H200 allows, in µs."""

import math
from collections.abc import Sequence

import numpy as np

from benchmarks.gpu.cases.cases import BATCH_FLOPS, BatchCase
from benchmarks.shapes import KronMatmul

COPY = 4.29e12  # bytes per second through memory, half of them read and half written
WRITE = 4.65e12  # bytes per second into memory
FLOPS = 65e12  # per second: single precision on ordinary cores, double on matrix units
# per second, on matrix units: operands of 11 bits; three such products for one of float32
PRECISION_FLOPS = {"tf32": 318e12, "tf32x3": 106e12}
# bytes per second of blocks and factors of a batch list, gathered from the second-level cache
GATHER = 8.77e12
# atomic additions per second to random blocks that the second-level cache holds, at most
ATOMICS = {"float32": 890e9, "float64": 305e9}


def _itemsize(dtype: str) -> int:
    return np.dtype(dtype).itemsize


def kron_bytes(shape: KronMatmul, dtype: str) -> int:
    return sum(shape.elements()) * _itemsize(dtype)


def kron_floor(shape: KronMatmul, dtype: str) -> float:
    """Time to read x and write y once, or of the arithmetic, whichever is longer."""
    return 1e6 * max(kron_bytes(shape, dtype) / COPY, shape.flops / FLOPS)


def precision_floor(shape: KronMatmul, precision: str) -> float:
    """As `kron_floor`, in float32 on matrix units."""
    arithmetic = shape.flops / PRECISION_FLOPS[precision]
    return 1e6 * max(kron_bytes(shape, "float32") / COPY, arithmetic)


def batch_bytes(case: BatchCase, dtype: str) -> int:
    """Bytes of the blocks and factors of all products."""
    elements = case.block + case.modes * case.size**2
    return case.products * elements * _itemsize(dtype)


def batch_floor(case: BatchCase, dtype: str) -> float:
    """Time to gather blocks and factors, or of the arithmetic, whichever is longer."""
    return 1e6 * max(batch_bytes(case, dtype) / GATHER, case.flops / BATCH_FLOPS[dtype])


def atomic_floor(case: BatchCase, dtype: str) -> float:
    additions = 1e6 * case.products * case.block / ATOMICS[dtype]
    return max(batch_floor(case, dtype), additions)


def explicit_bytes(sizes: Sequence[int], dtype: str) -> int:
    return math.prod(sizes) ** 2 * _itemsize(dtype)


def explicit_traffic(sizes: Sequence[int], dtype: str) -> int:
    return explicit_bytes(sizes, dtype) + sum(n * n for n in sizes) * _itemsize(dtype)


def explicit_floor(sizes: Sequence[int], dtype: str) -> float:
    return 1e6 * explicit_traffic(sizes, dtype) / WRITE


def interpolation_bytes(
    sizes: Sequence[int], points: int, batch: int, dtype: str, kind: str
) -> int:
    """Bytes that an interpolation, or its transpose, reads and writes at least."""
    modes, itemsize = len(sizes), _itemsize(dtype)
    met = min(math.prod(sizes), points * 4**modes)
    written = math.prod(sizes) if kind == "W transposed" else met
    bins = math.prod(size - 3 for size in sizes) if kind == "W transposed" else 0
    numbers = 4 * modes * points + batch * (points + written)
    return itemsize * numbers + 12 * points + 4 * bins


def interpolation_flops(modes: int, points: int, batch: int, kind: str) -> int:
    """Additions and multiplications of windows that are contracted mode by mode, or written."""
    each = 4**modes if kind == "W transposed" else (4 ** (modes + 1) - 4) // 3
    return 2 * points * batch * each


def interpolation_floor(
    sizes: Sequence[int], points: int, batch: int, dtype: str, copy: float, kind: str
) -> float:
    """The longer one of memory's time, at ``copy`` bytes a second, and arithmetic's."""
    if kind == "W K":
        both = ("W", "W transposed")
        return sum(interpolation_floor(sizes, points, batch, dtype, copy, one) for one in both)
    moved = interpolation_bytes(sizes, points, batch, dtype, kind)
    flops = interpolation_flops(len(sizes), points, batch, kind)
    return 1e6 * max(moved / copy, flops / FLOPS)
