"""The products of a batch list on the cells of a grid: in which modes each one acts, and how."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from batchkron.operators.couplings import Ids
from batchkron.operators.distinct_matrices import distinct_matrices
from batchkron.spec.kron import Array, BatchSpec

__all__ = ["Products", "TermsNotFoundError", "has_other_multiples", "multiples"]


class TermsNotFoundError(TypeError):
    """Why a batch list is no sum of Kronecker terms on a grid: the end of a sentence."""


class Products:
    """The products of a list that are not zero, without the factors that are multiples of I.

    ``spec``: one system of square products, with finite values.
    ``cells`` (ndarray of int64, (num_blocks, modes)): the multi-index of each block.
    ``only_ones``: whether factors c I count as identities for c = 1 alone. If not, they do for any
      c but in modes of size 1, where everything is a multiple of I.
    ``pools`` (list of ndarray, (count_k, n_k, n_k)): the distinct matrices of each mode, at least
      in double precision.
    ``ids`` (list of ndarray of int64, (products,)): the matrix of each product, for each mode.
    ``outputs``, ``inputs`` (ndarray of int64, (products,)): the blocks.
    ``scalars`` (ndarray, (products,)): the weights times the multiples of the identities.
    ``acting`` (ndarray of bool, (products, modes)): whether a product acts on a mode: its factor is
      no multiple of I, or the 1-D cells differ.
    ``width``: more than the largest 1-D cell.
    ``rounding``: the unit roundoff of the list's numbers.
    """

    def __init__(self, spec: BatchSpec, cells: Ids, *, only_ones: bool) -> None:
        self.cells = cells
        self.width = int(cells.max(initial=0)) + 1
        self.rounding = float(np.finfo(spec.dtype).eps)
        dtype = np.result_type(spec.dtype, np.float64)
        self.pools: list[Array] = []
        kept = spec.weights[0] != 0
        distinct = []
        for pool, given in zip(spec.pools, spec.factor_ids.T, strict=True):
            matrices = pool[0].astype(dtype) + 0.0  # without negative zeros
            first, numbers = distinct_matrices(matrices)
            self.pools.append(matrices[first])
            distinct.append(numbers)
            kept &= matrices.any(axis=(1, 2))[given]
        chosen = np.flatnonzero(kept)
        self.outputs, self.inputs = spec.outputs[chosen], spec.inputs[chosen]
        self.scalars = spec.weights[0, chosen].astype(dtype)
        self.acting = np.ones((len(chosen), len(spec.pools)), bool)
        self.ids: list[Ids] = []
        for mode, (pool, numbers) in enumerate(zip(self.pools, distinct, strict=True)):
            own = numbers[spec.factor_ids[chosen, mode]]
            self.ids.append(own)
            factors = multiples(pool, only_ones=only_ones)[own]
            idle = cells[self.outputs, mode] == cells[self.inputs, mode]
            idle &= factors != 0
            self.scalars[idle] *= factors[idle]
            self.acting[idle, mode] = False

    def of_each_kind(self) -> list[tuple[tuple[int, ...], Ids]]:
        """Return the products that act on the same modes, with these modes."""
        kinds, numbers = np.unique(self.acting, axis=0, return_inverse=True)
        order = np.argsort(numbers.ravel(), kind="stable")
        stops = np.cumsum(np.bincount(numbers.ravel(), minlength=len(kinds)))[:-1]
        parts = np.split(order, stops) if len(kinds) else []
        return [
            (tuple(np.flatnonzero(kind).tolist()), part)
            for kind, part in zip(kinds, parts, strict=True)
        ]

    def entries(self, chosen: Ids, mode: int) -> tuple[Ids, Ids]:
        """Return the distinct pairs of 1-D cells of some products in a mode, and which each has.

        Pairs, (count,), are row * width + column, ascending.
        """
        rows = self.cells[self.outputs[chosen], mode]
        columns = self.cells[self.inputs[chosen], mode]
        keys, numbers = np.unique(rows * np.int64(self.width) + columns, return_inverse=True)
        return keys, numbers.ravel()

    def pairs(self, chosen: Ids) -> Ids:
        """Return a number for the pair of blocks of each product."""
        return self.outputs[chosen] * np.int64(len(self.cells)) + self.inputs[chosen]


def multiples(pool: Array, *, only_ones: bool) -> Array:
    """Return c for each matrix c I of a pool, (count,), and 0 for others."""
    size = pool.shape[-1]
    first = pool[:, 0, 0] if size else np.zeros(len(pool), pool.dtype)
    alike = (pool == first[:, None, None] * np.eye(size)).all(axis=(1, 2))
    if only_ones or size == 1:
        alike &= first == 1
    return np.where(alike, first, 0)


def has_other_multiples(pools: Sequence[Array]) -> bool:
    """Return whether a pool of matrices larger than 1 × 1 has a multiple c I with c ≠ 1."""
    found: list[NDArray[np.bool_]] = []
    for pool in pools:
        factors = multiples(pool, only_ones=False)
        found.append((factors != 0) & (factors != 1))
    return any(bool(own.any()) for own in found)
