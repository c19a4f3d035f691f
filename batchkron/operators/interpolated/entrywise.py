"""The matrix of an interpolated Kronecker product, for few points."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from batchkron.spec.interpolated import WEIGHTS, Windows
from batchkron.spec.kron import Array

__all__ = ["entrywise"]


def entrywise(windows: Windows, factors: Sequence[Array]) -> Array:
    """Return W (K_1 ⊗ … ⊗ K_N) W^T, (n, n), a product entry by entry of all W_k K_k W_k^T.

    Parameters
    ----------
    windows : Windows
        Of the n points.
    factors : sequence of ndarray, each (P_k, P_k)
        Of one dtype.
    """
    dtype, count = factors[0].dtype, len(windows.places)
    found = np.ones((count, count), dtype)
    for k, factor in enumerate(factors):
        weights = np.zeros((count, len(factor)), dtype)
        cells = windows.corners[:, k, None] + np.arange(WEIGHTS)
        weights[windows.places[:, None], cells] = windows.weights[:, k]
        found *= weights @ factor @ weights.T
    return found
