"""Table 1: sizes and patterns, and the chains of a size."""

import itertools
from functools import reduce

import numpy as np
import pytest

from batchkron import kronecker_sparse as ks


def support(chain):
    """Which entries of a product of matrices of these patterns may be non-zero."""
    factors = [np.kron(np.kron(np.eye(a), np.ones((b, c))), np.eye(d)) for a, b, c, d in chain]
    return reduce(np.matmul, factors) > 0


@pytest.mark.parametrize(
    ("chain", "shape"),
    [
        (ks.dense(3, 5), (3, 5)),
        (ks.low_rank(6, 7, 2), (6, 7)),
        (ks.square_dyadic(16), (16, 16)),
        (ks.kaleidoscope(8), (8, 8)),
        (ks.block_butterfly(24, 3), (24, 24)),
        (ks.monarch(12, 8, 2), (12, 8)),
        (ks.monarch(8, 12, 2), (8, 12)),
        (ks.deformable([(1, 4, 6, 3), (2, 9, 3, 1)]), (12, 6)),
    ],
)
def test_products_are_dense_matrices_of_the_size(chain, shape):
    assert all(isinstance(p, ks.Pattern) for p in chain)
    assert (chain[0].shape[0], chain[-1].shape[1]) == shape
    assert ks.deformable(chain) == chain
    assert support(chain).shape == shape
    assert support(chain).all()


def test_table_1():
    assert ks.square_dyadic(16) == [(1, 2, 2, 8), (2, 2, 2, 4), (4, 2, 2, 2), (8, 2, 2, 1)]
    assert ks.kaleidoscope(8) == [
        *[(1, 2, 2, 4), (2, 2, 2, 2), (4, 2, 2, 1)],
        *[(4, 2, 2, 1), (2, 2, 2, 2), (1, 2, 2, 4)],
    ]
    assert ks.block_butterfly(40, 5) == [(1, 10, 10, 4), (2, 10, 10, 2), (4, 10, 10, 1)]
    assert ks.monarch(384, 1536, 2) == [(1, 192, 192, 2), (2, 192, 768, 1)]
    pattern = ks.monarch(384, 1536, 2)[1]
    assert (pattern.shape, pattern.nonzeros) == ((384, 1536), 294912)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: ks.dense(0, 2), ValueError, "M is 0; expected 1 or more"),
        (lambda: ks.dense(2.0, 2), TypeError, "M is 2.0; expected an integer"),
        (lambda: ks.low_rank(2, 2, True), TypeError, "rank is True"),
        (lambda: ks.square_dyadic(12), ValueError, "N is 12; expected a power of two, 2 or more"),
        (lambda: ks.square_dyadic(1), ValueError, "N is 1; expected a power of two, 2 or more"),
        (lambda: ks.block_butterfly(40, 3), ValueError, "N is 40; expected 3 times a power of two"),
        (lambda: ks.monarch(12, 8, 3), ValueError, "p is 3; expected a divisor of M and N, 12"),
        (lambda: ks.deformable([]), ValueError, "chain is empty"),
        (lambda: ks.deformable([(1, 2, 3)]), ValueError, r"chain\[0\] is \(1, 2, 3\); expected"),
        (lambda: ks.deformable([(1, 2, 0, 1)]), ValueError, "each 1 or more"),
        (
            lambda: ks.deformable([(1, 2, 3, 1), (1, 2, 3, 1)]),
            ValueError,
            r"chain\[0\] is \(1, 2, 3, 1\) and chain\[1\] is .* 3 columns, but 2 rows",
        ),
        (lambda: ks.patterns(4, 4, 0), ValueError, "nonzeros is 0"),
        (lambda: ks.patterns(4, 4, (9, 8)), ValueError, r"nonzeros is \(9, 8\); expected \(least"),
        (lambda: ks.patterns(4, 4, 8, factors=0), ValueError, "factors is 0"),
    ],
)
def test_errors(call, error, message):
    with pytest.raises(error, match=message):
        call()


def chains_by_trial(M, N, most, count):
    """All chains of patterns with small numbers, tried one by one from the definition."""
    numbers = range(1, max(M, N, most) + 1)
    singles = [
        (a, b, c, d)
        for a in numbers
        for b in range(1, most // a + 1)
        for c in range(1, most // (a * b) + 1)
        for d in range(1, most // (a * b * c) + 1)
    ]
    for chain in itertools.product(singles, repeat=count):
        if sum(map(np.prod, chain)) > most:
            continue
        ends = chain[0][0] * chain[0][1] * chain[0][3], np.prod(chain[-1]) // chain[-1][1]
        if ends != (M, N):
            continue
        if all(a * c * d == e * f * h for (a, _, c, d), (e, f, _, h) in itertools.pairwise(chain)):
            yield list(chain)


def is_factorisable(chain):
    """Whether a chain of two factors and more fulfils the condition of `factorise`."""
    return (
        chain[0][0] == 1
        and chain[-1][3] == 1
        and all(
            e % a == 0 and d % h == 0 and a * c % e == 0
            for (a, _, c, d), (e, _, _, h) in itertools.pairwise(chain)
        )
    )


@pytest.mark.parametrize(
    ("M", "N", "most", "count"), [(4, 6, 24, 1), (2, 4, 18, 2), (4, 4, 16, 2), (2, 2, 6, 3)]
)
def test_patterns_are_all_there_are(M, N, most, count):
    expected = sorted(chains_by_trial(M, N, most, count))
    assert sorted(ks.patterns(M, N, (1, most), factors=count)) == expected
    half = ks.patterns(M, N, (most // 2, most - 1), factors=count)
    assert sorted(half) == [
        chain for chain in expected if most // 2 <= sum(map(np.prod, chain)) < most
    ]
    if count > 1:
        found = ks.patterns(M, N, (1, most), factors=count, factorisable=True)
        assert sorted(found) == [chain for chain in expected if is_factorisable(chain)]


@pytest.mark.parametrize(
    ("M", "N", "nonzeros", "chain"),  # of Kronecker-sparse vision transformers
    [
        (384, 384, 36864, [(1, 192, 48, 2), (2, 48, 192, 1)]),
        (1536, 384, 319488, [(1, 768, 192, 2), (6, 64, 64, 1)]),
        (384, 1536, 319488, [(6, 64, 64, 1), (1, 192, 768, 2)]),
    ],
)
def test_patterns_of_one_number_of_entries(M, N, nonzeros, chain):
    found = ks.patterns(M, N, nonzeros)
    assert chain in found
    assert all(sum(p.nonzeros for p in chain) == nonzeros for chain in found)
    assert all(ks.deformable(chain) == chain for chain in found[::100])


def test_factorisable_patterns_may_have_dense_products():
    for chain in ks.patterns(384, 384, 36864, factorisable=True)[::5]:
        assert support(chain).all()
