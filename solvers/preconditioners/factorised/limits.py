"""How large a factorisation may be: its cost is estimated, and compared, before it is begun."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from batchkron.operators import KroneckerTerms
from batchkron.operators.kronecker_terms import Factor

from ..subgrids import Subgrid
from .elimination import Cost

__all__ = ["TooLargeError", "check_cost", "least_cost", "stored_numbers"]

_PER_NUMBER = 3  # numbers that may be stored for each one of the assembled operator
# Numbers that may be stored in any case: 64 MiB on the CPU. On a device dense inverses of 2 GiB are
# read in half a millisecond.
_MIN_NUMBERS = {"cpu": 1 << 23, "cuda": 1 << 28}
_MAX_MULTIPLY_ADDS = {
    "cpu": 1 << 34,
    "cuda": 1 << 40,
}  # some 10 s of one processor; 1 s of a device
_MAX_PAIRS = 1 << 22  # of cells that are looked at for an estimate


class TooLargeError(ValueError):
    """A factorisation would store too many numbers, or take too long."""


def check_cost(cost: Cost, terms: KroneckerTerms, device: str, most: int | None) -> None:
    """Raise `TooLargeError` if the numbers are more than ``most``, or there is too much work.

    ``most`` is three times the numbers of the assembled operator by default, at least 8 million.
    """
    least = _MIN_NUMBERS[device]
    if most is not None or cost.numbers > least:
        limit = most if most is not None else max(_PER_NUMBER * stored_numbers(terms), least)
        if cost.numbers > limit:
            raise TooLargeError(
                f"the full grids' factors would have {cost.numbers:.3g} numbers, more than "
                f"{limit:.3g}; take another way to solve on full grids, or a larger max_numbers"
            )
    if cost.multiply_adds > _MAX_MULTIPLY_ADDS[device]:
        raise TooLargeError(
            f"the factorisation would take {cost.multiply_adds:.3g} multiply-adds, more than "
            f"{_MAX_MULTIPLY_ADDS[device]:.3g}; take another way to solve on full grids"
        )


def least_cost(grids: Sequence[Subgrid], unknowns: int, block: int) -> Cost:
    """Return a bound below the cost of factors of full grids: that of their diagonal blocks.

    ``unknowns``: those of the vector.
    ``block``: those of a cell.
    """
    counts = (unknowns if g.places is None else int((g.places < unknowns).sum()) for g in grids)
    total = float(sum(counts))
    return Cost(total * block, total * block**2 / 3)


def stored_numbers(terms: KroneckerTerms) -> int:
    """Return about how many numbers the assembled operator has, whole blocks of coupled cells.

    Of many cells some rows are counted, evenly spaced. Without cells it is a bound.
    """
    if terms.cells is None:
        products = (
            math.prod(
                n if f is None else int(np.count_nonzero(f))
                for n, f in zip(terms.sizes, term.factors, strict=True)
            )
            for term in terms.terms
        )
        return sum(products)
    cells, count = terms.cells, len(terms.cells)
    rows = np.unique(np.linspace(0, count - 1, max(1, min(count, _MAX_PAIRS // count)), dtype=int))
    coupled = np.zeros((len(rows), count), bool)
    tables: dict[tuple[int, int], NDArray[np.bool_]] = {}
    for term in terms.terms:
        own = np.ones_like(coupled)
        for mode, factor in enumerate(term.factors):
            key = (mode, id(factor))
            if key not in tables:
                tables[key] = _pairs(factor, int(cells[:, mode].max()) + 1)
            own &= tables[key][np.ix_(cells[rows, mode], cells[:, mode])]
        coupled |= own
    share = count / len(rows)
    return int(np.count_nonzero(coupled) * share) * math.prod(terms.sizes) ** 2


def _pairs(factor: Factor, width: int) -> NDArray[np.bool_]:
    """Return which of the first 1-D cells a factor couples."""
    if factor is None:
        return np.eye(width, dtype=bool)
    found = np.zeros((width, width), bool)
    if isinstance(factor, np.ndarray):
        n = len(factor) // width
        found[...] = (factor.reshape(width, n, width, n) != 0).any(axis=(1, 3))
        return found
    kept = (factor.rows < width) & (factor.columns < width)
    found[factor.rows[kept], factor.columns[kept]] = True
    return found
