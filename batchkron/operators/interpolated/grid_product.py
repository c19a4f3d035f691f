"""The Kronecker product between two interpolations, with Toeplitz factors as FFT products."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.fft
import scipy.linalg

from batchkron.backends import Backend, Product
from batchkron.spec.kron import Array

__all__ = ["GridProduct", "as_matrix"]

# Rows of a Toeplitz matrix from which two transforms of twice its length take less time than its
# product as a dense matrix: between 256 and 512 on an AVX-512 Xeon, for 16 and 256 vectors.
MIN_FFT_ROWS = 512
# Elements that are transformed at a time, so that transforms of them stay in the cache.
_SLAB = 1 << 18


class ToeplitzMode:
    """The product with a Toeplitz matrix along the middle axis, by transforms of a circulant one.

    Parameters
    ----------
    column : ndarray, (P,)
        The first column c; the first row is its conjugate, as for `scipy.linalg.toeplitz`.
    """

    def __init__(self, column: Array) -> None:
        self._size = len(column)
        self._length = scipy.fft.next_fast_len(2 * len(column) - 1, real=column.dtype.kind == "f")
        gap = np.zeros(self._length - 2 * len(column) + 1, column.dtype)
        circulant = np.concatenate([column, gap, column[:0:-1].conj()])
        real = column.dtype.kind == "f"
        self._forward = scipy.fft.rfft if real else scipy.fft.fft
        self._back = scipy.fft.irfft if real else scipy.fft.ifft
        self._spectrum = self._forward(circulant)[:, None]

    def run(self, x: Array, y: Array, outer: int, inner: int) -> None:
        """Write the product of x (outer, P, inner) to y."""
        shape = (outer, self._size, inner)
        source, target = x.reshape(shape), y.reshape(shape)
        width = max(1, min(inner, _SLAB // self._size))
        for place in range(outer):
            for begin in range(0, inner, width):
                part = np.s_[place, :, begin : begin + width]
                transformed = self._forward(source[part], self._length, axis=0)
                transformed *= self._spectrum
                target[part] = self._back(transformed, self._length, axis=0)[: self._size]


class GridProduct:
    """The product with K_1 ⊗ … ⊗ K_N, whose factors are matrices or columns of Toeplitz ones.

    Parameters
    ----------
    factors : sequence of ndarray, each (P_k, P_k) or (P_k,)
        Of one dtype.
    backend : Backend
        That multiplies by dense factors.
    """

    def __init__(self, factors: Sequence[Array], backend: Backend) -> None:
        self._sizes = [len(factor) for factor in factors]
        self._steps: list[tuple[int, int, Product | ToeplitzMode]] = []
        begin = 0
        for end, factor in enumerate([*factors, None]):
            transformed = factor is not None and factor.ndim == 1 and len(factor) >= MIN_FFT_ROWS
            if factor is not None and not transformed:
                continue
            if begin < end:
                dense = [as_matrix(f) for f in factors[begin:end]]
                self._steps.append((begin, end, backend.kron_product(dense)))
            if factor is not None:
                self._steps.append((end, end + 1, ToeplitzMode(factor)))
            begin = end + 1

    @property
    def transforms(self) -> int:
        """How many factors are multiplied by transforms."""
        return sum(isinstance(product, ToeplitzMode) for _, _, product in self._steps)

    def run(self, x: Array, other: Array, vectors: int) -> Array:
        """Return K x, which overwrites ``other`` or x, for x (cells, vectors)."""
        for begin, end, product in self._steps:
            outer = math.prod(self._sizes[:begin])
            inner = math.prod(self._sizes[end:]) * vectors
            if isinstance(product, ToeplitzMode):
                product.run(x, other, outer, inner)
            else:
                product.run(x, other, outer, inner, 1, False)
            x, other = other, x
        return x


def as_matrix(factor: Array) -> Array:
    """Return a factor as a matrix: itself, or the Toeplitz matrix of its first column."""
    if factor.ndim == 2:
        return factor
    toeplitz: Any = scipy.linalg.toeplitz(factor)
    return np.ascontiguousarray(toeplitz, factor.dtype)
