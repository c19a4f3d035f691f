"""What a factorisation costs, counted from the pattern of coupled cells before it is done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, product

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from batchkron.operators.couplings import Ids

__all__ = [
    "MAX_CELLS",
    "MAX_SORTED",
    "Cost",
    "cost_of_elimination",
    "dissection",
    "lexicographic",
    "minimum_degree",
]

# Largest number of cells, or of 1-D indices, of one grid whose elimination is counted. Counting
# takes time and memory as their square; the matrix of 8192 cells of 3 × 3 functions has 74k rows.
MAX_CELLS = 8192
MAX_SORTED = 1024  # cells that are ordered by degree, in some 0.2 s


@dataclass(frozen=True)
class Cost:
    """Numbers that a factorisation stores, and the multiply-adds of computing it."""

    numbers: float = 0.0
    multiply_adds: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.numbers + other.numbers, self.multiply_adds + other.multiply_adds)


def cost_of_elimination(pattern: csr_matrix, order: Ids, block: int) -> Cost:
    """Return the cost of an LU decomposition without pivoting, whole blocks being pivots.

    ``pattern`` (csr_matrix, (cells, cells)): which cells are coupled, symmetric.
    ``order`` (ndarray of int64, (cells,)): the cells, those that are eliminated first at the
      beginning.
    ``block``: unknowns of a cell.

    The row structure of column i of L is that of A below i, and that of all columns whose first
    entry below the diagonal is in row i (A. George, J. W. H. Liu, Computer Solution of Large Sparse
    Positive Definite Systems, 1981). A structure is the set bits of one integer.
    """
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    ordered = pattern[order][:, order].tocsr()
    below = [0] * len(order)
    pairs, products = 0, 0
    for i in range(len(order)):
        own = below[i]
        for j in ordered.indices[ordered.indptr[i] : ordered.indptr[i + 1]]:
            if j > i:
                own |= 1 << int(j)
        count = own.bit_count()
        pairs += 1 + 2 * count
        products += count + count * count
        if own:
            first = own & -own
            below[first.bit_length() - 1] |= own ^ first
    own_products = len(order) * block**3 / 3
    return Cost(float(pairs * block**2), own_products + float(products) * block**3)


def minimum_degree(pattern: csr_matrix) -> Ids:
    """Return the cells so that each one, when it is eliminated, has the fewest neighbours left.

    Source: as of `cost_of_elimination`. Time grows with the square of the number of cells.
    """
    near = [
        sum(1 << int(j) for j in pattern.indices[start:stop] if j != i)
        for i, (start, stop) in enumerate(pairwise(pattern.indptr))
    ]
    degrees = [own.bit_count() for own in near]
    left, order = set(range(len(near))), []
    while left:
        cell = min(left, key=lambda i: (degrees[i], i))
        left.remove(cell)
        order.append(cell)
        joined = rest = near[cell]
        while rest:
            first = rest & -rest
            other = first.bit_length() - 1
            near[other] = (near[other] | joined) & ~(first | 1 << cell)
            degrees[other] = near[other].bit_count()
            rest ^= first
    return np.array(order, np.int64)


def lexicographic(widths: Sequence[int]) -> Ids:
    """Return the cells of a box in the order along its longest mode, the others within."""
    longest_first = np.argsort([-width for width in widths], kind="stable")
    numbers = np.arange(np.prod(widths, dtype=np.int64)).reshape(widths)
    return numbers.transpose(longest_first).ravel()


def dissection(widths: Sequence[int]) -> Ids:
    """Return the cells of a box by nested dissection: two halves, then the plane between them.

    Source: A. George, SIAM J. Numer. Anal. 10 (1973).
    """
    found: list[tuple[int, ...]] = []

    def visit(box: tuple[range, ...]) -> None:
        longest = max(range(len(box)), key=lambda k: len(box[k]))
        if len(box[longest]) <= 2:
            found.extend(product(*box))
            return
        middle = len(box[longest]) // 2
        for part in (slice(middle), slice(middle + 1, None), slice(middle, middle + 1)):
            visit((*box[:longest], box[longest][part], *box[longest + 1 :]))

    visit(tuple(range(width) for width in widths))
    numbers: NDArray[np.int64] = np.ravel_multi_index(tuple(np.array(found).T), tuple(widths))
    return numbers
