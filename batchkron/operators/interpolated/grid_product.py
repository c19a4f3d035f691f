"""The Kronecker product between two interpolations, with Toeplitz factors as FFT products."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy  # which loads scipy.fft on first use
import scipy.linalg

from batchkron.backends import Backend, Product, reserve
from batchkron.spec.kron import Array

__all__ = ["GridProduct", "as_matrix"]

# Rows of a Toeplitz matrix from which two transforms of twice its length take less time than its
# product as a dense matrix: between 256 and 512 on an AVX-512 Xeon, for 16 and 256 vectors.
MIN_FFT_ROWS = 512
# The same on a device. Not measured: at 60 TFLOP/s an element takes 70 ps for 2048 multiply-adds,
# as long as it takes at 3 TB/s to move the 200 bytes that two transforms move for it.
MIN_DEVICE_FFT_ROWS = 2048
# Elements that are transformed at a time: so many that transforms of them stay in the cache, and on
# a device that they take a fraction of its memory, at most some gigabytes.
_SLAB = 1 << 18
_DEVICE_SLAB = 1 << 26


class ToeplitzMode:
    """The product with a Toeplitz matrix along the middle axis, by transforms of a circulant one.

    ``column`` (ndarray, (P,)): the first column c; the first row is its conjugate, as for
      `scipy.linalg.toeplitz`.
    ``backend``: where vectors are. On a device transforms are those of CuPy.
    """

    def __init__(self, column: Array, backend: Backend) -> None:
        self._size, self._backend = len(column), backend
        real, module = column.dtype.kind == "f", backend.array_module
        self._length = scipy.fft.next_fast_len(2 * len(column) - 1, real=real)
        self._on_host = module is np
        fft: Any = scipy.fft if self._on_host else module.fft
        self._forward = fft.rfft if real else fft.fft
        self._back = fft.irfft if real else fft.ifft
        (self._spectrum,) = backend.place([self._transformed(column)])

    def _transformed(self, column: Array) -> Array:
        """Return the transform of the circulant matrix's first column, (length, 1)."""
        gap = np.zeros(self._length - 2 * len(column) + 1, column.dtype)
        circulant = np.concatenate([column, gap, column[:0:-1].conj()])
        real = column.dtype.kind == "f"
        found: Array = scipy.fft.rfft(circulant) if real else scipy.fft.fft(circulant)
        return found[:, None]

    def update(self, column: Array) -> None:
        """Take another column of the same length and dtype."""
        new = self._transformed(column)
        (self._spectrum,) = self._backend.place([new], [self._spectrum])

    def run(self, x: Array, y: Array, outer: int, inner: int) -> None:
        """Write the product of x (outer, P, inner) to y."""
        shape = (outer, self._size, inner)
        source, target = x.reshape(shape), y.reshape(shape)
        slab = _SLAB if self._on_host else _DEVICE_SLAB
        width = max(1, min(inner, slab // self._size))
        rows = 1 if self._on_host else max(1, min(outer, slab // (self._size * width)))
        for place in range(0, outer, rows):
            for begin in range(0, inner, width):
                part = np.s_[place : place + rows, :, begin : begin + width]
                transformed = self._forward(source[part], self._length, axis=1)
                transformed *= self._spectrum
                target[part] = self._back(transformed, self._length, axis=1)[:, : self._size]


class GridProduct:
    """The product with K_1 ⊗ … ⊗ K_N, whose factors are matrices or columns of Toeplitz ones.

    ``factors``: of one dtype, on the host.
    ``backend``: where vectors are.
    """

    def __init__(self, factors: Sequence[Array], backend: Backend) -> None:
        self._backend = backend
        self._sizes = [len(factor) for factor in factors]
        self._steps: list[tuple[int, int, Product | ToeplitzMode]] = []
        for begin, end, transformed in self._groups(factors):
            if transformed:
                self._steps.append((begin, end, ToeplitzMode(factors[begin], backend)))
                continue
            dense = [as_matrix(f) for f in factors[begin:end]]
            self._steps.append((begin, end, backend.kron_product(dense)))

    def _groups(self, factors: Sequence[Array]) -> list[tuple[int, int, bool]]:
        """Return (first mode, end, whether by transforms) of modes that are multiplied at once."""
        on_host = self._backend.array_module is np
        least = MIN_FFT_ROWS if on_host else MIN_DEVICE_FFT_ROWS
        groups: list[tuple[int, int, bool]] = []
        for k, factor in enumerate(factors):
            transformed = factor.ndim == 1 and len(factor) >= least
            if groups and not transformed and not groups[-1][2]:
                groups[-1] = groups[-1][0], k + 1, False
            else:
                groups.append((k, k + 1, transformed))
        return groups

    def with_factors(self, factors: Sequence[Array]) -> GridProduct:
        """Return the product with other factors of these sizes; it may be the same one."""
        known = [(begin, end, isinstance(one, ToeplitzMode)) for begin, end, one in self._steps]
        if self._groups(factors) != known:
            return GridProduct(factors, self._backend)
        for place, (begin, end, product) in enumerate(self._steps):
            if isinstance(product, ToeplitzMode):
                product.update(factors[begin])
                continue
            dense = [as_matrix(f) for f in factors[begin:end]]
            self._steps[place] = begin, end, self._backend.kron_product(dense, known=product)
        return self

    def reserve(self, vectors: int) -> None:
        """Allocate what `run` will need on a device."""
        for begin, end, product in self._steps:
            if not isinstance(product, ToeplitzMode):
                outer = math.prod(self._sizes[:begin])
                reserve(product, outer, math.prod(self._sizes[end:]) * vectors)

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
