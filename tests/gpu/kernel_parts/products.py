"""Products with one list of factors, and explicit ones."""

from math import prod

import cupy
import numpy as np
from kernel_parts.values import check, random_array
from plans import preferred

import batchkron as bk

TILE_BYTES = 227 << 10  # shared memory of a thread block, the largest tile
TILES = 3  # one is loaded, one multiplied, one stored
REGISTERS = [
    [(1, 1)],
    [(3, 2), (2, 4)],
    [(2, 2)] * 6,
    [(8, 8)] * 4,
    [(8, 8)] * 5,
    [(5, 5)] * 3,
    [(12, 9), (10, 11)],
]
FIBRES = [
    [(16, 16)] * 3,
    [(40, 33), (3, 2)],
    [(32, 32), (20, 24)],
    [(64, 64)],
    [(50, 52), (18, 5), (3, 3)],
    [(101, 103)],
    [(5, 5), (5, 5), (2, 2), (25, 25)],
    [(2, 3), (2, 2), (3, 2), (5, 4), (16, 17)],
]
PANELS = [
    [(130, 120), (3, 3)],
    [(129, 33), (70, 190)],
    [(200, 200)],
]
SLICES = {  # factors: columns
    ((8, 8),) * 5: 3,
    ((4, 4),) * 7: 3,
    ((2, 2),) * 14: 3,
    ((16, 16),) * 4: 3,
    ((8, 8),) * 4: 3,
    ((16, 16),) * 3: 24,
    ((8, 8),) * 3: 128,
}
MODES = [
    [(2, 20_000)],
    [(2, 2)] * 13,
]
EXPLICIT = [
    ((90, 7), (3, 3)),
    ((64, 8), (4, 64)),
    ((40, 41), (2, 2)),
    ((2, 20_000), (3, 3)),
    ((3, 3), (200, 331)),
    ((100, 9), (2, 1)),
]


def rows_of(shapes, dtype, small):
    """One row, and as many as make several tiles for every thread block."""
    if not small:
        return 1, 37, 300
    block = max(prod(p for p, _ in shapes), prod(q for _, q in shapes))
    return 1, -(-TILES * TILE_BYTES // (block * np.dtype(dtype).itemsize))


def kron_matmuls(rng, dtype, small, all_shapes, precision=None, columns=None):
    for shapes in all_shapes:
        host = [random_array(rng, shape, dtype) for shape in shapes]
        factors = [cupy.asarray(factor) for factor in host]
        product = bk.KroneckerProduct(host, precision=precision)
        on_device = product.to("cuda")
        for count in rows_of(shapes, dtype, small):
            x = random_array(rng, (count, prod(q for _, q in shapes)), dtype)
            y = random_array(rng, (count, prod(p for p, _ in shapes)), dtype)
            options = {"alpha": 2, "beta": -1, "transpose": True, "precision": precision}
            expected = bk.gemkm(x, host, y=y, **options)
            result = bk.gemkm(cupy.asarray(x), factors, y=cupy.asarray(y), **options)
            check(result, expected, (shapes, count))
            check(on_device.apply(cupy.asarray(x)), product.apply(x), (shapes, count))
        count = columns or (5 if small else 35)
        x = random_array(rng, (prod(q for _, q in shapes), count), dtype)
        result = bk.gekmm(factors, cupy.asarray(x), precision=precision)
        check(result, bk.gekmm(host, x), shapes)


def registers(rng, dtype, small):
    with preferred("registers"):
        kron_matmuls(rng, dtype, small, REGISTERS)


def fibres(rng, dtype, small):
    with preferred("fibres"):
        kron_matmuls(rng, dtype, small, FIBRES)
        if dtype == "float32":
            kron_matmuls(rng, dtype, small, FIBRES, "tf32x3")


def panels(rng, dtype, small):
    with preferred("panels"):
        kron_matmuls(rng, dtype, small, PANELS + (FIBRES if np.dtype(dtype).kind == "c" else []))


def slices(rng, dtype, small):
    with preferred("slices"):
        for shapes, columns in SLICES.items():
            kron_matmuls(rng, dtype, small, [shapes], columns=columns)


def modes(rng, dtype, small):
    with preferred("general"):
        kron_matmuls(rng, dtype, small, MODES)


def explicit(rng, dtype, small):
    a, b = random_array(rng, (7, 5), dtype), random_array(rng, (3, 300), dtype)
    c = random_array(rng, (2, 2), dtype)
    check(bk.kron(*map(cupy.asarray, (c, a, b))), bk.kron(c, a, b), "kron")
    four = [random_array(rng, (3, 9), dtype) for _ in range(4)]
    check(bk.kron(*map(cupy.asarray, four)), bk.kron(*four), "four factors")
    for first, second in EXPLICIT:
        a, b = random_array(rng, first, dtype), random_array(rng, second, dtype)
        check(bk.kron(cupy.asarray(a), cupy.asarray(b)), bk.kron(a, b), (first, second))
