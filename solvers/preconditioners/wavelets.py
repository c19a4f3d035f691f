"""The transform between the nodal and the hierarchical functions of one mode, by its filters."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import bsr_matrix, csr_matrix

from batchkron.operators.couplings import Ids

__all__ = ["sum_of_blocks", "wavelet_blocks", "wavelets"]

Matrix = NDArray[Any]


def sum_of_blocks(keys: Ids, blocks: Matrix, count: int) -> csr_matrix:
    """Return the matrix of ``count``² blocks, their sums at the keys row · count + column."""
    order = np.argsort(keys, kind="stable")
    places, starts = np.unique(keys[order], return_index=True)
    sums = np.add.reduceat(blocks[order], starts, axis=0)
    starts_of_rows = np.searchsorted(places, np.arange(count + 1) * count)
    size = count * blocks.shape[1]
    found = bsr_matrix((sums, places % count, starts_of_rows), shape=(size, size)).tocsr()
    found.eliminate_zeros()
    return found


def wavelets(level: int, filters: Matrix) -> csr_matrix:
    """Return the transform W of `wavelet_blocks` as a sparse matrix."""
    return _wavelets(level, filters.tobytes(), filters.shape[1])


@cache
def _wavelets(level: int, filters: bytes, n: int) -> csr_matrix:
    rows, columns, blocks = wavelet_blocks(level, np.frombuffer(filters).reshape(4, n, n))
    return sum_of_blocks(rows * (1 << level) + columns, blocks, 1 << level)


def wavelet_blocks(level: int, filters: Matrix) -> tuple[Ids, Ids, Matrix]:
    """Return the orthogonal transform W from nodal to hierarchical coefficients, by blocks.

    Returns ``rows, columns`` (ndarray of int64, (count,)): the hierarchical cell, and the finest
    cell; ``blocks`` (ndarray, (count, n, n)): every hierarchical cell has a block for each finest
    cell inside it.
    """
    # own functions of a cell of each height by those of the finest cells inside it, in turn
    own, found = np.eye(filters.shape[1])[None], []
    for height in range(level - 1, -1, -1):
        wavelets = np.concatenate([filters[2] @ own, filters[3] @ own])
        cells = ((1 << height) + np.arange(1 << height)).repeat(len(wavelets))
        found.append((cells, np.arange(1 << level), np.tile(wavelets, (1 << height, 1, 1))))
        own = np.concatenate([filters[0] @ own, filters[1] @ own])
    found.append((np.zeros(len(own), np.int64), np.arange(len(own)), own))
    rows, columns, blocks = zip(*found, strict=True)
    return np.concatenate(rows), np.concatenate(columns), np.concatenate(blocks)
