"""The matrix of an interpolated Kronecker product, for few points."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from batchkron.spec.interpolated import WEIGHTS, Windows
from batchkron.spec.kron import Array

__all__ = ["entrywise"]


def entrywise(windows: Windows, factors: Sequence[Array]) -> Array:
    """Return W (K_1 ⊗ … ⊗ K_N) W^T, (n, n), a product entry by entry of all W_k K_k W_k^T.

    The additions have a fixed order. A factor is a matrix (P_k, P_k), or the first column (P_k,) of
    a Hermitian Toeplitz matrix.
    """
    dtype, count = factors[0].dtype, len(windows.places)
    corners, weights = np.empty_like(windows.corners), np.empty_like(windows.weights)
    corners[windows.places], weights[windows.places] = windows.corners, windows.weights
    found = np.ones((count, count), dtype)
    for k, factor in enumerate(factors):
        first = corners[:, k]
        rows = np.zeros((count, len(factor)), dtype)  # of W_k K_k
        entries = np.zeros_like(found)
        for a in range(WEIGHTS):
            rows += weights[:, k, a, None] * _rows(factor, first + a)
        for b in range(WEIGHTS):
            entries += rows[:, first + b] * weights[:, k, b]
        found *= entries
    return found


def _rows(factor: Array, places: Array) -> Array:
    """Return some rows of a factor, (n, P_k)."""
    if factor.ndim == 2:
        return factor[places]
    size = len(factor)
    entries = np.concatenate([factor[:0:-1].conj(), factor])  # by the row less the column
    return entries[places[:, None] - np.arange(size) + size - 1]
