"""How far products of less precise float32 may be off: the bounds of docs/background/precision.md.

``tf32_multiply`` computes one mode as a device's matrix units do, at worst: operands without their
last 13 bits; every sum of four products and the sum before is cut to 24 bits, and so is each
addend, by the largest one's exponent.
"""

import math

import numpy as np

from batchkron.backends.reference import multiply_modes

U = 2.0**-24  # unit roundoff of float32
T = 2.0**-11  # of TF32


def mode_bound(precision, terms):
    """Of a sum of ``terms`` products, relative to the sum of their magnitudes."""
    sums = 4 * (-(-terms // 8) * 8) * U
    return 10 * U + sums if precision == "tf32x3" else 2 * T + 4 * U + sums


def tf32_bound(precision, factors, x_abs, extra=4):
    """Entrywise, of a product with x (outer, N, inner); ``extra``: roundings of the result."""
    growth = math.prod(1 + mode_bound(precision, f.shape[1]) for f in factors) - 1
    magnitudes = [np.abs(np.asarray(f, float)) for f in factors]
    return (growth + extra * U) * multiply_modes(magnitudes, np.asarray(x_abs, float))


def nearest(x):
    """Float32 to the nearest of 11 bits, ties away from zero."""
    return ((x.view(np.uint32) + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)


def cut(x):
    """Float32 without its last 13 bits."""
    return (x.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)


def _toward_zero(sums):
    rounded = sums.astype(np.float32)
    away = np.abs(rounded.astype(float)) > np.abs(sums)
    return np.where(away, np.nextafter(rounded, np.float32(0)), rounded)


def _add(sums, a, b):
    """Sums (fibres, results) and four products a (fibres, 4) b (4, results), as the units add."""
    terms = np.concatenate([sums[None].astype(float), a.T[:, :, None] * b[:, None].astype(float)])
    largest = np.abs(terms).max(axis=0)
    unit = np.exp2(np.floor(np.log2(np.where(largest == 0, 1, largest))) - 23)
    return _toward_zero((np.trunc(terms / unit) * unit).sum(axis=0))


def tf32_multiply(x, factor, products):
    """Fibres x (fibres, C) times a factor (C, K), both float32, by ``products`` multiply-adds."""
    missing = -x.shape[1] % 8
    x, factor = np.pad(x, ((0, 0), (0, missing))), np.pad(factor, ((0, missing), (0, 0)))
    high, other = nearest(x), nearest(factor)
    low, other_low = cut(x - high), cut(factor - other)
    sums = np.zeros((len(x), factor.shape[1]), np.float32)
    small = sums.copy()
    for c in range(0, x.shape[1], 4):
        four = slice(c, c + 4)
        sums = _add(sums, high[:, four], other[four])
        if products > 1:
            small = _add(small, low[:, four], other[four])
        if products > 2:
            small = _add(small, high[:, four], other_low[four])
    return sums + small
