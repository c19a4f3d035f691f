"""Fresh random operands of a shape, and what a result on them must be."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

import batchkron as bk
from benchmarks.core.checks import Array, Data, random_array
from benchmarks.shapes import Batch, Explicit, KronMatmul, Shape

CHECKED_ELEMENTS = 1 << 20  # of a result that are compared with the reference, at most
CHECKED_PRODUCTS = 1024  # of a batch list that the reference computes, at most


class KronMatmulData(Data):
    """x (rows, ΠP), the factors, and outputs (rows, ΠQ)."""

    def __init__(self, shape: KronMatmul, *given: Any) -> None:
        super().__init__(*given)
        self.shape, dtype, sets, rng = shape, self.dtype, self.sets, self.rng
        self.factors = [
            random_array(rng, (p, q), dtype) / dtype.type(p**0.5) for p, q in shape.factors
        ]
        read, written = shape.columns
        self.inputs = [random_array(rng, (shape.rows, read), dtype) for _ in range(sets)]
        self.outputs = [np.ones((shape.rows, written), dtype) for _ in range(sets)]

    @cached_property
    def scratch(self) -> tuple[Array, Array]:
        """Two buffers for intermediate results, shared by the contenders that bring none."""
        return np.ones(self.shape.largest, self.dtype), np.ones(self.shape.largest, self.dtype)

    @cached_property
    def reference(self) -> tuple[Array, Array, Array]:
        """Whole rows by the reference backend in double precision."""
        rows = self.picked(self.shape.rows, CHECKED_ELEMENTS // max(self.shape.columns))
        x = self.inputs[0][rows].astype(np.float64)
        factors = [factor.astype(np.float64) for factor in self.factors]
        with bk.backends.using("reference"):
            expected = bk.gemkm(x, factors)
            magnitude = bk.gemkm(np.abs(x), [np.abs(factor) for factor in factors])
        terms = sum(p + 2 for p, _ in self.shape.factors) + 2
        return rows, expected, self.epsilon(terms) * magnitude


class BatchData(Data):
    """A batch list, its pools, and blocks x and y (blocks, n^d)."""

    def __init__(self, shape: Batch, *given: Any) -> None:
        super().__init__(*given)
        self.shape, dtype, sets, rng = shape, self.dtype, self.sets, self.rng
        n, modes = shape.size, shape.modes
        self.pools = [
            random_array(rng, (shape.POOL, n, n), dtype) / dtype.type(n**0.5) for _ in range(modes)
        ]
        self.ids = rng.integers(0, shape.POOL, (shape.products, modes))
        if shape.only is not None:
            for mode in set(range(modes)) - {shape.only}:
                self.pools[mode][0] = np.eye(n)
                self.ids[:, mode] = 0
        self.sources = rng.integers(0, shape.blocks, shape.products)
        self.targets = np.repeat(np.arange(shape.blocks), shape.contributions)
        blocks = (shape.blocks, shape.block)
        self.inputs = [random_array(rng, blocks, dtype) for _ in range(sets)]
        self.outputs = [np.ones(blocks, dtype) for _ in range(sets)]

    @cached_property
    def reference(self) -> tuple[Array, Array, Array]:
        """Whole output blocks by the reference backend in double precision."""
        contributions = self.shape.contributions
        blocks = self.picked(self.shape.blocks, CHECKED_PRODUCTS // contributions)
        chosen = np.flatnonzero(np.isin(self.targets, blocks))
        targets = np.repeat(np.arange(len(blocks)), contributions)
        x = self.inputs[0].astype(np.float64)
        pools = [pool.astype(np.float64) for pool in self.pools]
        with bk.backends.using("reference"):
            results = [
                bk.BatchedKron(
                    matrices, self.ids[chosen], self.sources[chosen], targets, num_inputs=len(x)
                ).apply(vectors)
                for matrices, vectors in ((pools, x), ([np.abs(pool) for pool in pools], np.abs(x)))
            ]
        terms = self.shape.modes * (self.shape.size + 2) + contributions + 2
        return blocks, results[0], self.epsilon(terms) * results[1]


class ExplicitData(Data):
    """The factors, and matrices for their product."""

    def __init__(self, shape: Explicit, *given: Any) -> None:
        super().__init__(*given)
        self.shape, dtype, sets, rng = shape, self.dtype, self.sets, self.rng
        self.factors = [random_array(rng, size, dtype) for size in shape.factors]
        rows = int(np.prod([p for p, _ in shape.factors]))
        self.outputs = [np.ones((rows, shape.elements()[1] // rows), dtype) for _ in range(sets)]

    @cached_property
    def reference(self) -> tuple[Array, Array, Array]:
        """Rows of the product, each the product of one row of every factor."""
        rows, columns = self.outputs[0].shape
        picked = self.picked(rows, CHECKED_ELEMENTS // columns)
        indices: Sequence[Array] = np.unravel_index(picked, [p for p, _ in self.shape.factors])
        expected = np.ones((len(picked), 1))
        for factor, index in zip(self.factors, indices, strict=True):
            chosen = factor[index].astype(np.float64)
            expected = (expected[:, :, None] * chosen[:, None, :]).reshape(len(picked), -1)
        return picked, expected, self.epsilon(len(self.factors)) * np.abs(expected)


def make_data(
    shape: Shape, dtype: np.dtype[Any], sets: int, rng: np.random.Generator
) -> KronMatmulData | BatchData | ExplicitData:
    kinds = {KronMatmul: KronMatmulData, Batch: BatchData, Explicit: ExplicitData}
    return kinds[type(shape)](shape, dtype, sets, rng)  # type: ignore[arg-type]
