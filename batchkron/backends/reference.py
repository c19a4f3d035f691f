"""The reference backend in plain NumPy, which all other backends are tested against.

Plans implement their protocols (protocol.py) literally, one product after another. Kronecker sums
are evaluated by these plans (kron_sum.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchkron.backends.host import HostBackend
from batchkron.spec.identities import sizes_of
from batchkron.spec.interpolated import WEIGHTS, Windows
from batchkron.spec.kron import Array, BatchSpec, KronSpec, Precision
from batchkron.spec.segmented import SegmentedSpec
from batchkron.spec.sweeps import SweepList


def multiply_modes(factors: Sequence[Array | int], x: Array) -> Array:
    """Apply one factor after another to x of shape (outer, product of columns, inner).

    An int among the factors is the size of an identity.
    """
    outer, _, inner = x.shape
    before = outer
    all_rows, all_columns = sizes_of(factors)
    for mode, (factor, rows) in enumerate(zip(factors, all_rows, strict=True)):
        after = inner * math.prod(all_columns[mode + 1 :])
        if not isinstance(factor, int):
            x = np.einsum("kc,lcr->lkr", factor, x.reshape(before, all_columns[mode], after))
        before *= rows
    return x.reshape(outer, math.prod(all_rows), inner)


class KronPlan:
    """y = alpha (A_1 ⊗ … ⊗ A_d) x + beta y."""

    def __init__(self, spec: KronSpec) -> None:
        self.spec = spec

    def run(
        self,
        factors: Sequence[Array | int],
        x: Array,
        alpha: complex,
        beta: complex,
        y: Array | None,
        out: Array,
    ) -> None:
        """Write the result to ``out``; y may be ``out`` itself."""
        spec = self.spec
        blocks = x.reshape(spec.outer, math.prod(spec.inputs), spec.inner)
        result = (alpha * multiply_modes(factors, blocks)).reshape(out.shape)
        out[...] = result if beta == 0 or y is None else result + beta * y


class KronProduct:
    """y = alpha (A_1 ⊗ … ⊗ A_d) x, or added to y."""

    def __init__(
        self, factors: Sequence[Array | int], precision: Precision | None = None, known: Any = None
    ) -> None:
        self.factors = [one if isinstance(one, int) else one.copy() for one in factors]

    def run(
        self, x: Array, y: Array, outer: int, inner: int, alpha: complex, accumulate: bool
    ) -> None:
        """Add to y, or overwrite it."""
        blocks = x.reshape(outer, math.prod(sizes_of(self.factors)[1]), inner)
        result = (alpha * multiply_modes(self.factors, blocks)).reshape(y.shape)
        y[...] = y + result if accumulate else result


class BatchPlan:
    """y[outputs[b]] += alpha * weights[b] * (kron of factors) x[inputs[b]] for each b.

    Each system has its own pools and weights; vector e of ``outer`` belongs to system e mod
    systems.
    """

    def __init__(self, spec: BatchSpec) -> None:
        self.spec = spec
        self.set_values(spec.pools, spec.weights)

    def set_values(self, pools: Sequence[Array], weights: Array) -> None:
        """Copy new pools and weights."""
        self.pools = [pool.copy() for pool in pools]
        self.weights = weights.copy()

    def run(
        self, x: Array, y: Array, outer: int, inner: int, alpha: complex, accumulate: bool
    ) -> None:
        """Add to y, or overwrite it."""
        spec = self.spec
        source = x.reshape(outer, spec.num_inputs, spec.input_size, inner)
        target = y.reshape(outer, spec.num_outputs, spec.output_size, inner)
        if not accumulate:
            target[...] = 0
        for e in range(outer):
            pools = [pool[e % len(pool)] for pool in self.pools]
            weights = self.weights[e % len(self.weights)]
            for b, ids in enumerate(spec.factor_ids):
                factors = [pool[id_] for pool, id_ in zip(pools, ids, strict=True)]
                block = source[e, spec.inputs[b]][None]
                product = multiply_modes(factors, block)[0]
                target[e, spec.outputs[b]] += (alpha * weights[b]) * product


class SegmentedPlan:
    """y[node] += alpha * (matrix of the edge) on the middle axis of x[child] for each edge."""

    def __init__(self, spec: SegmentedSpec) -> None:
        self.spec = spec
        self.set_values(spec.matrices)

    def set_values(self, matrices: Array) -> None:
        """Copy new matrices."""
        self.matrices = matrices.copy()

    def run(self, x: Array, y: Array, alpha: complex, accumulate: bool) -> None:
        """Add to y, or overwrite it."""
        spec = self.spec
        _, rows, columns = self.matrices.shape
        source = x.reshape(spec.num_inputs, spec.before, columns, spec.behind)
        target = y.reshape(len(spec.starts) - 1, spec.before, rows, spec.behind)
        if not accumulate:
            target[...] = 0
        for node, begin in enumerate(spec.starts[:-1]):
            for edge in range(begin, spec.starts[node + 1]):
                matrix, block = self.matrices[spec.factor_ids[edge]], source[spec.children[edge]]
                target[node] += alpha * np.einsum("pq,lqr->lpr", matrix, block)


class SweepPlan:
    """Step by step, target[node] += (matrix of the edge) on one mode of source[child].

    A step has several parts, each with a mode, a source vector and edges. Vector 0 is x, vector 1
    is y, the others are intermediate; alpha scales the result.
    """

    def __init__(self, sweeps: SweepList, matrices: Sequence[Array]) -> None:
        self.sweeps = sweeps
        self.set_values(matrices)

    def set_values(self, matrices: Sequence[Array]) -> None:
        """Copy new matrices."""
        self.matrices = [array.copy() for array in matrices]

    def link(self, parts: Sequence[tuple[int, NDArray[np.int64], complex]], count: int) -> Array:
        """Return the vector that `gather` reads."""
        self.parts, self.values = parts, np.zeros(count, self.sweeps.dtype)
        return self.values

    def gather(self) -> None:
        """Copy matrices from the vector."""
        matrices = list(self.matrices)
        for number, places, scale in self.parts:
            matrices[number] = self.values[places] * scale
        self.matrices = matrices

    def run(
        self, x: Array, y: Array, outer: int, inner: int, alpha: complex, accumulate: bool
    ) -> None:
        """Add to y, or overwrite it."""
        shape = self.sweeps.block_size, inner
        counts = [vector.blocks for vector in self.sweeps.vectors]
        result: Array = np.zeros((outer, counts[1], *shape), y.dtype)
        for place in range(outer):
            source = x.reshape(outer, counts[0], self.sweeps.input_block_size, inner)[place]
            vectors = [source, result[place]]
            vectors += [np.empty((count, *shape), y.dtype) for count in counts[2:]]
            self._take_steps(vectors, inner)
        product: Array = (alpha * result).reshape(y.shape)
        y[...] = y + product if accumulate else product

    def _take_steps(self, vectors: list[Array], inner: int) -> None:
        sizes, given_sizes = self.sweeps.sizes, self.sweeps.given
        matrices = iter(self.matrices)
        for step in self.sweeps.steps:
            target = vectors[step.target]
            if not step.adds:
                target[...] = 0
            if step.adds_x:
                target += vectors[0]
            for part in step.parts:
                before, behind = sizes[: part.mode], sizes[part.mode + 1 :]
                shapes = (
                    (-1, math.prod(before), own[part.mode], math.prod(behind) * inner)
                    for own in (given_sizes, sizes)
                )
                shape, target_shape = shapes
                given = vectors[part.source].reshape(shape)[part.children]
                nodes = np.repeat(np.arange(len(target)), np.diff(part.starts))
                products = np.einsum("epq,elqr->elpr", next(matrices)[part.ids], given)
                np.add.at(target.reshape(target_shape), nodes, products)


class KronSparseProduct:
    """y[o, i, k, j, r] = alpha Σ_l values[i, k, l, j] x[o, i, l, j, r], or added to y."""

    def __init__(self, values: Array, precision: Precision | None = None) -> None:
        self.set_values(values)

    def set_values(self, values: Array) -> None:
        """Take new values."""
        self.values = values

    def run(
        self, x: Array, y: Array, outer: int, inner: int, alpha: complex, accumulate: bool
    ) -> None:
        """Add to y, or overwrite it."""
        a, _, c, d = self.values.shape
        blocks = x.reshape(outer, a, c, d, inner)
        result = (alpha * np.einsum("oiljr,iklj->oikjr", blocks, self.values)).reshape(y.shape)
        y[...] = y + result if accumulate else result


class InterpolationPlan:
    """Interpolation from windows of a grid: each is contracted with its weights mode by mode."""

    def __init__(self, windows: Windows, known: Any = None) -> None:
        self.windows = windows

    def scatter(
        self,
        points: Array,
        point_step: int,
        vectors: Sequence[int],
        grid: Array,
        cell_step: int,
        column: int,
    ) -> None:
        """Add the outer products of values and weights, point by point, to cells of zeros."""
        cells = self._cells(grid, cell_step, column, len(vectors))
        cells[...] = 0
        for window, weights, place in self._visits():
            product = points.reshape(-1)[place * point_step + np.asarray(vectors)]
            for row in reversed(weights):
                product = np.multiply.outer(row, product)
            cells[window] += product

    def gather(
        self,
        grid: Array,
        cell_step: int,
        column: int,
        points: Array,
        point_step: int,
        vectors: Sequence[int],
        alpha: float,
        accumulate: bool,
    ) -> None:
        """Add to the points, or overwrite them."""
        cells = self._cells(grid, cell_step, column, len(vectors))
        values = points.reshape(-1)
        for window, weights, place in self._visits():
            sums = cells[window]
            for row in weights:
                sums = np.tensordot(row, sums, axes=1)
            where = place * point_step + np.asarray(vectors)
            values[where] = alpha * sums + (values[where] if accumulate else 0)

    def _cells(self, grid: Array, cell_step: int, column: int, count: int) -> Array:
        return grid.reshape(*self.windows.sizes, cell_step)[..., column : column + count]

    def _visits(self) -> Iterator[tuple[tuple[slice, ...], Array, int]]:
        given = self.windows
        for corner, weights, place in zip(given.corners, given.weights, given.places, strict=True):
            yield tuple(slice(c, c + WEIGHTS) for c in corner), weights, place


class ReferenceBackend(HostBackend):
    """All products one after another, for any shape, in full precision."""

    name = "reference"

    kron_plan = staticmethod(KronPlan)
    kron_product = staticmethod(KronProduct)
    batch_plan = staticmethod(BatchPlan)
    segmented_plan = staticmethod(SegmentedPlan)
    sweep_plan = staticmethod(SweepPlan)
    kron_sparse_product = staticmethod(KronSparseProduct)
    interpolation_plan = staticmethod(InterpolationPlan)

    def multiply_kron_sparse(
        self,
        values: Array,
        x: Array,
        y: Array,
        outer: int,
        inner: int,
        precision: Precision | None = None,
    ) -> None:
        """Write the product with a Kronecker-sparse matrix to y."""
        KronSparseProduct(values).run(x, y, outer, inner, 1, False)

    def write_kron(self, factors: Sequence[Array], out: Array) -> None:
        """Write the explicit Kronecker product of matrices of one dtype to ``out``."""
        product = factors[0]
        for factor in factors[1:]:
            rows, columns = product.shape[0] * factor.shape[0], product.shape[1] * factor.shape[1]
            product = np.einsum("ij,kl->ikjl", product, factor).reshape(rows, columns)
        out[...] = product

    def sum_vectors(self, factors: Sequence[float], vectors: Sequence[Array], out: Array) -> None:
        """Write Σ factors[k] vectors[k] to ``out``."""
        out[...] = sum(a * vector for a, vector in zip(factors, vectors, strict=True))

    def inner_product(self, x: Array, y: Array) -> complex:
        """Return Σ conj(x_i) y_i."""
        return complex(np.vdot(x, y))

    def batched_gemm(
        self,
        a: Array,
        b: Array,
        c: Array,
        alpha: complex,
        transpose_b: bool,
        ids: tuple[Array, Array, Array],
    ) -> None:
        """Add alpha * a[i] b[j] to c[k] for all (i, j, k) of ``ids``; c holds beta * c on entry."""
        for i, j, k in zip(*ids, strict=True):
            c[k] += alpha * (a[i] @ (b[j].T if transpose_b else b[j]))
