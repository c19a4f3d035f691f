"""One mode's part of a map between states and values at points."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from batchkron.operators import Identity, KroneckerProduct, Operator, SparseGridOperator

__all__ = ["ModeSweep"]

Values = NDArray[np.float64]


class ModeSweep(NamedTuple):
    """The product of one mode of all blocks with a 1-D matrix.

    ``product``: the product, of square blocks.
    ``sizes``: functions of each mode of the product's blocks.
    ``given``, ``kept``: of the functions of the mode, as many are given, the others are zero; and
      as many are kept.
    ``adds``: whether the vector itself is added to the product; then all are given and kept.
    """

    product: SparseGridOperator
    sizes: tuple[int, ...]
    mode: int
    given: int
    kept: int
    adds: bool

    @property
    def size(self) -> int:
        """Elements of the product's vectors."""
        return int(self.product.shape[0])

    @property
    def kept_size(self) -> int:
        """Elements of the result."""
        return self.size // self.sizes[self.mode] * self.kept

    @property
    def operator(self) -> Operator:
        """The map as an operator of shape (kept_size, elements that are given)."""
        if self.adds:
            return Identity(self.size).to(self.product.device) + self.product
        found: Operator = self.product
        m, k = self.sizes[self.mode], self.mode
        before = self.product.num_inputs * math.prod(self.sizes[:k])
        ends = Identity(before), Identity(math.prod(self.sizes[k + 1 :]))
        if self.given < m:
            wider = KroneckerProduct([ends[0], np.eye(m, self.given), ends[1]])
            found = found @ wider.to(self.product.device)
        if self.kept < m:
            narrower = KroneckerProduct([ends[0], np.eye(self.kept, m), ends[1]])
            found = narrower.to(self.product.device) @ found
        return found

    def write(self, x: Values, out: Values, padded: Values, whole: Values) -> None:
        """Overwrite ``out`` (kept_size,) with the product; the last two are scratch (size,)."""
        shape = (self.product.num_inputs, math.prod(self.sizes))
        if self.adds:
            out[...] = x
            self.product.accumulate(x.reshape(shape), out.reshape(shape))
            return
        if self.given < self.sizes[self.mode]:
            wide = self._by_mode(padded)
            _copy(x.reshape(len(wide), self.given, -1), wide[:, : self.given])
            wide[:, self.given :] = 0.0
            x = padded
        target = out if self.kept == self.sizes[self.mode] else whole
        self.product.apply(x.reshape(shape), target.reshape(shape))
        if target is whole:
            wide = self._by_mode(whole)
            _copy(wide[:, : self.kept], out.reshape(len(wide), self.kept, -1))

    def _by_mode(self, vector: Values) -> Values:
        """Return a vector of the product as (…, functions of the mode, …)."""
        before = self.product.num_inputs * math.prod(self.sizes[: self.mode])
        return vector.reshape(before, self.sizes[self.mode], -1)


def _copy(source: Values, target: Values) -> None:
    """Copy (rows, functions, behind); NumPy takes long for many rows of few numbers."""
    if source.shape[2] > 1:
        target[...] = source
        return
    for k in range(source.shape[1]):
        target[:, k, 0] = source[:, k, 0]
