"""All chains of a size and a number of non-zeros."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, lru_cache
from math import gcd

import numpy as np
from numpy.typing import DTypeLike

from batchkron.kronecker_sparse.advice import checked_rates
from batchkron.kronecker_sparse.costs import predicted_seconds
from batchkron.kronecker_sparse.sizes import checked_size
from batchkron.spec.kron_sparse import Layout, Pattern, check_layout


def patterns(
    M: int,
    N: int,
    nonzeros: int | tuple[int, int],
    factors: int = 2,
    *,
    batch: int = 4096,
    dtype: DTypeLike = np.float32,
    layout: Layout = "batch-first",
    device: str = "cpu",
    factorisable: bool = False,
) -> list[list[Pattern]]:
    """Return the chains of M × N matrices that store a number of entries, the fastest first.

    All patterns whose sizes fit are taken, so that some products have zeros: of two factors
    (2, b, c, 1), for example, which are block-diagonal.

    Parameters
    ----------
    M, N : int
        Numbers of rows and columns.
    nonzeros : int, or (int, int)
        The number of entries of all factors together, or the least and the largest number.
    factors : int
        The number L of factors.
    batch : int
        Number of vectors that times are predicted for, as by `advise`.
    dtype : float32 or float64, on "cuda" also float16
    layout : {"batch-first", "batch-last"}
    device : {"cpu", "cuda"}
    factorisable : bool
        Of two factors and more, only chains whose product may be any dense matrix of low-rank
        blocks, and which `factorise` can find: a = 1 in the first pattern, d = 1 in the last one,
        and neighbours that fulfil its condition.

    Returns
    -------
    list of list of Pattern
        By the predicted time of `KroneckerSparseChain`, then by the number of entries and the
        patterns' numbers. It grows fast with ``factors`` and with the range of ``nonzeros``: of
        384 × 384 and 36 864 entries there are 3516 chains of two factors, and five million of
        three.

    Raises
    ------
    TypeError, ValueError
        If a number is not an integer, or less than 1, or the range is empty; or as by `advise`.

    Notes
    -----
    A factor of m rows and n columns stores m n / (a d) entries, where a d divides both, so at least
    as many as the larger of them: numbers of columns and rows between factors are bounded. Of
    ``factorisable`` chains, with r_l = a_l c_l / a_(l+1), factor l stores
    a_(l+1) r_l r_(l-1) d_(l-1) entries, where r_0 d_0 = M and a_(L+1) r_L = N.

    Examples
    --------
    The chains of two factors that store a quarter of a dense 8 × 8 matrix's entries and more, up to
    a half, and those of them that a matrix may be projected onto:

    >>> from batchkron.kronecker_sparse import patterns
    >>> len(patterns(8, 8, (16, 32), batch=1000))
    100
    >>> chains = patterns(8, 8, (16, 32), batch=1000, factorisable=True)
    >>> len(chains), [tuple(p) for p in chains[0]]
    (5, [(1, 8, 1, 1), (1, 1, 8, 1)])
    """
    M, N, count = checked_size(M, "M"), checked_size(N, "N"), checked_size(factors, "factors")
    least, most = nonzeros if isinstance(nonzeros, tuple) else (nonzeros, nonzeros)
    least, most = checked_size(least, "nonzeros"), checked_size(most, "nonzeros")
    if least > most:
        raise ValueError(f"nonzeros is {nonzeros!r}; expected (least, most)")
    vectors, itemsize = checked_size(batch, "batch"), np.dtype(dtype).itemsize
    _, rates = checked_rates(dtype, check_layout(layout), device)
    some = factorisable and count > 1
    found = _factorisable(M, N, most, count) if some else _chains(M, N, least, most, count)
    chains = [chain for chain in found if least <= _entries(chain) <= most]

    @cache
    def seconds(pattern: Pattern) -> float:
        found = predicted_seconds(rates, pattern, vectors, itemsize, layout, device)
        return found["batchkron"]

    return sorted(chains, key=lambda chain: (sum(map(seconds, chain)), _entries(chain), chain))


def _entries(chain: list[Pattern]) -> int:
    return sum(pattern.nonzeros for pattern in chain)


@lru_cache(maxsize=1 << 14)  # chosen by hand: as many sizes between factors, and more
def _divisors(n: int) -> tuple[int, ...]:
    small = [k for k in range(1, int(n**0.5) + 1) if n % k == 0]
    return tuple(sorted({*small, *(n // k for k in small)}))


def _chains(M: int, N: int, least: int, most: int, count: int) -> Iterator[list[Pattern]]:
    """Yield all chains of ``count`` factors with ``least`` to ``most`` entries together."""
    if count == 1:
        for blocks in _divisors(gcd(M, N)):
            if least <= M * N // blocks <= most:
                yield from ([pattern] for pattern in _single(M, N, blocks))
        return
    room = most - N - (count - 2)  # of the first factor; the last one has N entries or more
    for shared in _divisors(M):
        for rest in range(1, room // M + 1):
            if gcd(rest, M // shared) > 1:
                continue
            columns = shared * rest  # its greatest common divisor with M is ``shared``
            for blocks in _divisors(shared):
                stored = M * columns // blocks
                if stored > room:
                    continue
                for others in _chains(columns, N, least - stored, most - stored, count - 1):
                    yield from ([pattern, *others] for pattern in _single(M, columns, blocks))


def _single(M: int, N: int, blocks: int) -> Iterator[Pattern]:
    """Yield the patterns of M × N matrices with a d = ``blocks``, which divides M and N."""
    for a in _divisors(blocks):
        yield Pattern(a, M // blocks, N // blocks, blocks // a)


def _factorisable(M: int, N: int, most: int, count: int) -> Iterator[list[Pattern]]:
    """Yield those of ``count`` factors, at least 2, that `factorise` finds, of dense matrices."""
    for d in _divisors(M):
        yield from _continued([], 1, M // d, d, N, most, count)


def _continued(
    chain: list[Pattern], a: int, b: int, d: int, N: int, most: int, count: int
) -> Iterator[list[Pattern]]:
    """Yield all ends of a chain whose next pattern is (a, b, c, d) with any c."""
    if count == 1:
        if b * N * d <= most:
            yield [*chain, Pattern(a, b, N // a, d)]
        return
    for following in _divisors(N):  # the next pattern's a
        if following % a:
            continue
        step = following // a
        # entries of this pattern, and at least of the next one, for each unit of the rank
        unit = a * b * d * step + d * (N if count == 2 else following)
        for rank in range(1, most // unit + 1):
            pattern = Pattern(a, b, step * rank, d)
            for narrower in _divisors(d) if count > 2 else (1,):  # the next pattern's d
                yield from _continued(
                    [*chain, pattern],
                    following,
                    rank * (d // narrower),
                    narrower,
                    N,
                    most - pattern.nonzeros,
                    count - 1,
                )
