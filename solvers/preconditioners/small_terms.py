"""Terms of an operator that are too small to matter to a preconditioner."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from batchkron.operators import KroneckerTerm, KroneckerTerms
from batchkron.operators.kronecker_terms import Factor, leading_part
from batchkron.operators.scaling import norm

__all__ = ["without_small"]


def without_small(terms: KroneckerTerms, limit: float) -> KroneckerTerms:
    """Return the terms but for those that are smaller than ``limit`` times the largest one.

    They are to be so on the whole grid and on level 0. A derivative of low order is small beside
    one of high order on fine levels only, and matters on coarse ones.
    """
    levels = terms.levels.max(axis=0)
    kept = np.zeros(len(terms.terms), bool)
    for heights in (levels, np.zeros_like(levels)):
        rows = [terms.rows(mode, int(level)) for mode, level in enumerate(heights)]
        sizes = np.array([_size(term, rows) for term in terms.terms])
        kept |= sizes >= limit * sizes.max(initial=0.0)
    return replace(terms, terms=tuple(t for t, own in zip(terms.terms, kept, strict=True) if own))


def _size(term: KroneckerTerm, rows: list[int]) -> float:
    """Return |c| Π ‖A_k‖, with the root mean square of singular values as norm."""
    size = float(np.abs(term.coefficient))
    for factor, n in zip(term.factors, rows, strict=True):
        size *= _norm(factor, n) / np.sqrt(n)
    return size


def _norm(factor: Factor, rows: int) -> float:
    if factor is None:
        return float(np.sqrt(rows))
    return float(norm(leading_part(factor, rows)))
