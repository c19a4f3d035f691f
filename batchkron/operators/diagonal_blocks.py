"""The diagonal blocks of an operator, as sums of small Kronecker products; for block Jacobi."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchkron.operators.couplings import Ids
from batchkron.operators.kronecker_terms import Factor, KroneckerTerms
from batchkron.spec.kron import Array, BatchSpec

__all__ = ["DiagonalBlocks", "blocks_of_list", "blocks_of_terms"]

_MAX_NUMBERS = 1 << 24  # of the matrices of a diagonal that is no product; chosen by hand
_CHUNK = 1 << 22  # entries of the matrices of one mode that are stacked at once


@dataclass(frozen=True, eq=False)
class DiagonalBlocks:
    """The block-diagonal operator ⊕_i Σ_b weights[b] (A_1b ⊗ … ⊗ A_db), b over i's products.

    `Operator.diagonal_blocks` returns it. It is all that block Jacobi knows of an operator.

    ``count``: the number of blocks.
    ``pools`` (tuple of ndarray, (count_k, n_k, n_k)): matrices of each mode.
    ``ids`` (ndarray of int64, (products, modes)): product b has the matrices
      ``pools[k][ids[b, k]]``.
    ``blocks`` (ndarray of int64, (products,)): the block that each product belongs to.
    ``weights`` (ndarray, (products,)).
    ``interleaved``: d: elements of a block are d places apart, and d blocks are interleaved; 1 for
      blocks of consecutive elements.
    """

    count: int
    pools: tuple[Array, ...]
    ids: Ids
    blocks: Ids
    weights: Array
    interleaved: int = 1

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes n_k of the matrices of each mode."""
        return tuple(pool.shape[-1] for pool in self.pools)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The common dtype of all matrices and weights, at least float64."""
        return np.result_type(np.float64, self.weights, *self.pools)

    def identity(self) -> DiagonalBlocks:
        """Return the identity on the same blocks."""
        numbers = np.arange(self.count)
        pools = tuple(np.eye(n)[None] for n in self.sizes)
        ids = np.zeros((self.count, len(pools)), np.int64)
        return replace(self, pools=pools, ids=ids, blocks=numbers, weights=np.ones(self.count))

    def scaled(self, scalar: Any) -> DiagonalBlocks:
        """Return the blocks of scalar · A."""
        return replace(self, weights=scalar * self.weights)

    def plus(self, other: DiagonalBlocks) -> DiagonalBlocks:
        """Return the blocks of the sum of two operators with blocks of equal sizes and number."""
        layouts = [(one.count, one.sizes, one.interleaved) for one in (self, other)]
        if layouts[0] != layouts[1]:
            raise TypeError(
                f"{self.count} diagonal blocks of sizes {self.sizes} and {other.count} of "
                f"{other.sizes} are of different structures, so their sum has no common blocks"
            )
        starts = np.array([len(pool) for pool in self.pools])
        return replace(
            self,
            pools=tuple(map(_joined, self.pools, other.pools)),
            ids=np.concatenate([self.ids, other.ids + starts]),
            blocks=np.concatenate([self.blocks, other.blocks]),
            weights=np.concatenate([self.weights, other.weights]),
        )

    def shifted(self, scale: Any) -> DiagonalBlocks:
        """Return the blocks of I - scale · A."""
        return self.identity().plus(self.scaled(-scale))

    def plus_diagonal(self, entries: Array) -> DiagonalBlocks:
        """Return the blocks of the sum with a diagonal matrix.

        ``entries`` (ndarray, (count · Π n_k,)): its diagonal. Where the entries of a block are a
          product of one function for each mode (up to rounding), this adds one product to the
          block, else several.

        Raises `TypeError` if the diagonal has another length, such as a rank's part, or if the
        matrices of these products would have more than 2²⁴ numbers, and 64 times as many as it has.
        """
        if entries.shape != (self.count * math.prod(self.sizes),):
            raise TypeError(
                f"the diagonal has shape {entries.shape}; expected the "
                f"{self.count * math.prod(self.sizes)} numbers of all blocks"
            )
        place = self.count // self.interleaved, math.prod(self.sizes), self.interleaved
        values = entries.reshape(place).swapaxes(1, 2).reshape(self.count, *self.sizes)
        values = values.astype(np.result_type(values, np.float64))
        factors, is_product = _as_products(values)
        alone = np.flatnonzero(is_product & values.reshape(self.count, -1).any(axis=1))
        others = np.flatnonzero(~is_product)
        numbers = len(others) * math.prod(self.sizes) * max(self.sizes)
        allowed = max(_MAX_NUMBERS, 64 * values.size)
        if len(others) and max(numbers, max(self.sizes) ** 3) > allowed:
            raise TypeError(
                f"a diagonal that is no Kronecker product has {len(others)} diagonal blocks of "
                f"{self.sizes}, too large to be written as sums of products"
            )
        pools, ids, blocks = _expanded(values, others)
        starts = np.array([len(pool) for pool in pools])
        found = replace(
            self,
            pools=tuple(
                _joined(pool, _diagonals(own[alone]))
                for pool, own in zip(pools, factors, strict=True)
            ),
            ids=np.concatenate([ids, np.arange(len(alone))[:, None] + starts]),
            blocks=np.concatenate([blocks, alone]),
            weights=np.ones(len(blocks) + len(alone)),
        )
        return self.plus(found)

    def stacks(self) -> Iterator[tuple[Ids, list[Array]]]:
        """Yield some blocks at a time, and the matrices (m, T, n_k, n_k) of their products.

        There is one stack per mode. Weights are multiplied into the first one, and blocks of fewer
        products than others have zeros.
        """
        order = np.argsort(self.blocks, kind="stable")
        counts = np.bincount(self.blocks, minlength=self.count)
        starts = np.cumsum(counts) - counts
        by_count = np.argsort(-counts, kind="stable")
        first = 0
        while first < self.count:
            most = max(1, int(counts[by_count[first]]))
            size = max(1, _CHUNK // (most * max(n * n for n in self.sizes)))
            numbers = np.sort(by_count[first : first + size])
            first += size
            place = starts[numbers, None] + np.arange(most)
            is_own = np.arange(most) < counts[numbers, None]
            product = order[np.where(is_own, place, 0)] if len(order) else np.zeros_like(place)
            yield numbers, self._stacked(product, is_own)

    def _stacked(self, products: Ids, is_own: NDArray[np.bool_]) -> list[Array]:
        shape = (*products.shape, 1, 1)
        if not len(self.blocks):
            return [np.zeros((*products.shape, n, n)) for n in self.sizes]
        found = [pool[self.ids[products, k]] for k, pool in enumerate(self.pools)]
        for matrices in found:
            matrices[~is_own] = 0
        with np.errstate(over="ignore", invalid="ignore"):
            found[0] = found[0] * np.where(is_own, self.weights[products], 0).reshape(shape)
        return found


def _as_products(values: Array) -> tuple[list[Array], NDArray[np.bool_]]:
    """Return vectors v_k with values[i] ≈ v_1[i] ⊗ … ⊗ v_d[i], (count, n_k), and whether it holds.

    They are the lines through the largest element of each block. It does not hold for blocks with
    elements that are not finite.
    """
    count, sizes = len(values), values.shape[1:]
    every = np.arange(count)
    flat = values.reshape(count, -1)
    peaks = np.argmax(np.abs(flat), axis=1)
    top = flat[every, peaks]
    place = np.unravel_index(peaks, sizes)
    divisor = np.where(top == 0, 1, top)
    vectors, product = [], np.ones((count, 1), values.dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        for k, n in enumerate(sizes):
            index = [own[:, None] for own in place]
            index[k] = np.arange(n)[None]
            line = values[(every[:, None], *index)]
            vectors.append(line / divisor[:, None] if k else line)
            product = (product[:, :, None] * vectors[k][:, None]).reshape(count, -1)
        allowed = 8 * len(sizes) * np.finfo(values.dtype).eps * np.abs(top)
        is_product = (np.abs(product - flat) <= allowed[:, None]).all(axis=1)
    return vectors, is_product & np.isfinite(top)


def _expanded(values: Array, chosen: Ids) -> tuple[list[Array], Ids, Ids]:
    """Return diagonal matrices for some blocks as sums: pools, ids, and the block of each product.

    A product has a whole line of the block in the longest mode, and one place in all other modes.
    """
    sizes = values.shape[1:]
    longest = int(np.argmax(sizes))
    lines = np.moveaxis(values[chosen], longest + 1, -1)
    kept = np.nonzero(lines.any(axis=-1))
    ids = np.stack([*kept[1 : longest + 1], np.arange(len(kept[0])), *kept[longest + 1 :]], axis=1)
    pools = [_diagonals(np.eye(n)) for n in sizes]
    pools[longest] = _diagonals(lines[kept])
    return pools, ids, chosen[kept[0]]


def _diagonals(rows: Array) -> Array:
    """Return diagonal matrices (m, n, n) of their diagonals (m, n)."""
    found = np.zeros((*rows.shape, rows.shape[1]), rows.dtype)
    place = np.arange(rows.shape[1])
    found[:, place, place] = rows
    return found


def _joined(first: Array, second: Array) -> Array:
    return np.concatenate([first, second])


def blocks_of_list(spec: BatchSpec) -> DiagonalBlocks:
    """Return the diagonal blocks of a batch list.

    Raises `TypeError` if its products are not square, its inputs not its outputs, or it has several
    systems.
    """
    is_square = all(pool.shape[2] == pool.shape[3] > 0 for pool in spec.pools)
    if spec.batch_shape or not is_square or spec.num_inputs != spec.num_outputs:
        raise TypeError(
            "the batch list has no diagonal blocks: its products are not square, its inputs not "
            "its outputs, or it has several systems"
        )
    chosen = np.flatnonzero(spec.inputs == spec.outputs)
    return DiagonalBlocks(
        spec.num_outputs,
        tuple(pool[0] for pool in spec.pools),
        spec.factor_ids[chosen],
        spec.outputs[chosen],
        spec.weights[0, chosen],
    )


def blocks_of_terms(terms: KroneckerTerms) -> DiagonalBlocks:
    """Return the diagonal blocks of the cells of a grid, or of a whole tensor product as one."""
    count = 1 if terms.cells is None else len(terms.cells)
    pools, ids = [], []
    for mode, n in enumerate(terms.sizes):
        parts, numbers, start = [np.zeros((0, n, n))], [], 0
        for term in terms.terms:
            part, own = _blocks(term.factors[mode], terms, mode)
            parts.append(part)
            numbers.append(start + own)
            start += len(part)
        pools.append(np.concatenate(parts))
        ids.append(np.stack(numbers, axis=1).ravel() if numbers else np.zeros(0, np.int64))
    coefficients = np.array([term.coefficient for term in terms.terms])
    return DiagonalBlocks(
        count,
        tuple(pools),
        np.stack(ids, axis=1),
        np.repeat(np.arange(count), len(terms.terms)),
        np.tile(coefficients, count),
    )


def _blocks(factor: Factor, terms: KroneckerTerms, mode: int) -> tuple[Array, Ids]:
    """Return diagonal blocks of one factor, (…, n, n), and the number of each cell's block."""
    n = terms.sizes[mode]
    if factor is None:
        return np.eye(n)[None], np.zeros(1 if terms.cells is None else len(terms.cells), np.int64)
    if terms.cells is None:
        return np.asarray(factor)[None], np.zeros(1, np.int64)
    own = terms.cells[:, mode]
    if isinstance(factor, np.ndarray):
        count = len(factor) // n
        every = np.arange(count)
        return factor.reshape(count, n, count, n)[every, :, every, :], own
    blocks = np.zeros((int(own.max(initial=0)) + 1, n, n), factor.blocks.dtype)
    kept = (factor.rows == factor.columns) & (factor.rows < len(blocks))
    blocks[factor.rows[kept]] = factor.blocks[kept]
    return blocks, own
