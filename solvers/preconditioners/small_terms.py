"""Terms of an operator that are too small to matter to a preconditioner."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchkron.operators import KroneckerTerm, KroneckerTerms
from batchkron.operators.kronecker_terms import Factor, leading_part
from batchkron.operators.scaling import norm

__all__ = ["without_small"]

# On a coarse grid the terms that are left out may change a solve by so much: then they take no more
# than an iteration or two.
_MAX_CHANGE = 0.1
_LONGER = 1e3  # it is to be so for scales so many times as large, too
_MAX_LEVEL, _MAX_UNKNOWNS = 2, 512  # of the coarse grid


def without_small(terms: KroneckerTerms, limit: float, scale: Any) -> KroneckerTerms:
    """Return the terms but for those that are smaller than ``limit`` times the largest one.

    All are returned if those matter to smooth functions: a term without derivatives is small
    beside derivatives on a fine grid, not on a coarse one. So (I - c A)⁻¹ c K is computed there,
    of the small terms K and a thousand times ``scale``, c, or A⁻¹ K if the scale is None.
    """
    rows = [terms.rows(mode, int(level)) for mode, level in enumerate(terms.levels.max(axis=0))]
    sizes = np.array([_size(term, rows) for term in terms.terms])
    small = sizes < limit * sizes.max(initial=0.0)
    if not small.any():
        return terms
    of_small, of_large = (
        replace(terms, terms=tuple(t for t, own in zip(terms.terms, chosen, strict=True) if own))
        for chosen in (small, ~small)
    )
    return of_large if _change(of_large, of_small, scale) <= _MAX_CHANGE else terms


def _size(term: KroneckerTerm, rows: Sequence[int]) -> float:
    """Return |c| Π ‖A_k‖, with the root mean square of singular values as norm."""
    sizes = (_norm(factor, n) / math.sqrt(n) for factor, n in zip(term.factors, rows, strict=True))
    return float(np.abs(term.coefficient)) * math.prod(sizes)


def _norm(factor: Factor, rows: int) -> float:
    return math.sqrt(rows) if factor is None else float(norm(leading_part(factor, rows)))


def _change(large: KroneckerTerms, small: KroneckerTerms, scale: Any) -> float:
    """Return ‖B⁻¹ K‖₂ on a coarse full grid, infinite if B is singular there or large."""
    for level in range(_MAX_LEVEL, -1, -1):
        levels = np.minimum(large.levels.max(axis=0), level)
        rows = [large.rows(mode, int(height)) for mode, height in enumerate(levels)]
        if math.prod(rows) <= _MAX_UNKNOWNS:
            break
    else:
        return math.inf
    A, K = (_dense(terms, levels) for terms in (large, small))
    c = None if scale is None else _LONGER * scale
    try:
        change = np.linalg.solve(A if c is None else np.eye(len(A)) - c * A, K)
    except np.linalg.LinAlgError:
        return math.inf
    return float(np.linalg.norm(change if c is None else c * change, 2))


def _dense(terms: KroneckerTerms, levels: NDArray[np.int64]) -> NDArray[Any]:
    products = (
        term.coefficient
        * reduce(np.kron, (terms.factor(t, mode, int(level)) for mode, level in enumerate(levels)))
        for t, term in enumerate(terms.terms)
    )
    total: NDArray[Any] = sum(products)
    return total
