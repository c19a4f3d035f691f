"""Products of neighbouring factors of a chain, multiplied out where that is faster.

Factors of few entries, such as those of butterflies, take as long as reading and writing the
vectors between them. Neighbours (a, b, c, d) and (a', b', c', d') with a' = a p and d = d' q, where
p divides c, have a product of the pattern (a, b q, p c', d'). With r = c / p its values are

    M[i, k q + u, s c' + l, j] = sum over t < r of
        K[i, k, s r + t, u d' + j] K'[i p + s, t q + u, l, j].

Two factors of 2 x 2 matrices make one of 4 x 4 matrices with as many entries as both.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np

from batchkron.backends import building_on
from batchkron.operators.kronecker_sparse.operator import KroneckerSparse
from batchkron.spec.kron import Array
from batchkron.spec.kron_sparse import Pattern

_MIN_GAIN = 1.05  # predicted, below which factors stay apart


def merged_pattern(left: Pattern, right: Pattern) -> Pattern | None:
    """Return the pattern of the product of two neighbours, None if it is no dense one."""
    if 0 in (*left, *right) or right.a % left.a or left.d % right.d:
        return None
    p, q = right.a // left.a, left.d // right.d
    return None if left.c % p else Pattern(left.a, left.b * q, p * right.c, right.d)


def merged_values(left: Array, right: Array) -> Array:
    """Return the values of the product of two neighbours that have a `merged_pattern`."""
    a, b, c, d = left.shape
    a_right, _, c_right, d_right = right.shape
    p, q = a_right // a, d // d_right
    r = c // p
    values: Array = np.einsum(
        "ikstuj,istulj->ikuslj",
        left.reshape(a, b, p, r, q, d_right),
        right.reshape(a, p, r, q, c_right, d_right),
        optimize=True,
    )
    return values.reshape(a, b * q, p * c_right, d_right)


def groups(patterns: Sequence[Pattern], adds: float) -> list[tuple[int, int]]:
    """Return which runs [begin, end) of factors are multiplied as one, in their order.

    ``adds``: multiply-adds that take as long as reading or writing an element of a vector.
    """

    def cost(pattern: Pattern) -> float:
        rows, columns = pattern.shape
        return rows + columns + pattern.nonzeros / adds

    apart = [cost(pattern) for pattern in patterns]
    # the least cost of the first `end` factors, and where their last run begins
    best: list[tuple[float, int]] = [(0.0, 0)]
    for end in range(1, len(patterns) + 1):
        ways = [(best[end - 1][0] + apart[end - 1], end - 1)]
        run = patterns[end - 1]
        for begin in range(end - 2, -1, -1):
            longer = merged_pattern(patterns[begin], run)
            if longer is None or cost(longer) * _MIN_GAIN > sum(apart[begin:end]):
                break
            run = longer
            ways.append((best[begin][0] + cost(run), begin))
        best.append(min(ways))
    found, end = [], len(patterns)
    while end:
        found.append((best[end][1], end))
        end = best[end][1]
    return found[::-1]


class MergedProduct(KroneckerSparse):
    """The product of neighbouring factors of a chain; it follows their updates.

    ``fits``: whether all values are in the range of the dtype where the factors' are: else the
      factors must be applied themselves.
    """

    def __init__(self, factors: Sequence[KroneckerSparse]) -> None:
        first, self._multiplied = factors[0], tuple(factors)
        with building_on(first._backend):
            tune = any(factor._tune for factor in factors)
            super().__init__(self._product_of_values(), precision=first.precision, tune=tune)
        self._place = first._place
        for factor in self._multiplied:
            factor._merged.add(self)

    def _product_of_values(self) -> Array:
        kind = self._multiplied[0].dtype
        wide = np.complex128 if kind.kind == "c" else np.float64
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            given = [factor.values.astype(wide) for factor in self._multiplied]
            # from the right, as `groups` does: from the left not all may have a pattern
            values: Array = reduce(lambda right, left: merged_values(left, right), given[::-1])
            sizes, limits = np.abs(values), np.finfo(kind)
            self.fits = not bool(
                np.any(~(sizes < limits.max))
                or np.any((sizes < limits.tiny) & (sizes != 0))
                or _may_vanish(given)
            )
            return values.astype(kind)

    def merge_again(self) -> None:
        """Take the values that the factors have now."""
        self.update(self._product_of_values())


def _may_vanish(values: Sequence[Array]) -> bool:
    """Whether a product of an entry of each matrix may be too small for the dtype of the values."""
    smallest = 1.0
    for one in values:
        sizes = np.abs(one)
        smallest *= float(np.min(sizes, initial=1.0, where=sizes != 0))
    return bool(smallest < np.finfo(values[0].dtype).tiny)


def merge(factors: Sequence[KroneckerSparse], adds: float) -> tuple[KroneckerSparse, ...]:
    """Return what a chain applies: its factors, or products of neighbours.

    Numbers of 16 bits stay apart, as products of values could leave their range; so do factors of
    different precisions. ``adds`` is as of `groups`.
    """
    half = any(factor._half is not None for factor in factors)
    if half or len({factor.precision for factor in factors}) > 1:
        return tuple(factors)
    found: list[KroneckerSparse] = []
    for begin, end in groups([factor.pattern for factor in factors], adds):
        run = factors[begin:end]
        found.append(run[0] if len(run) == 1 else MergedProduct(run))
    return tuple(found)
