"""Neighbouring factors of a chain that are multiplied out."""

import pickle
from functools import reduce
from itertools import pairwise

import numpy as np
import pytest
from dense_oracle import poisoned, random_array
from kron_sparse_oracle import dense_matrix

import batchkron as bk
from batchkron import kronecker_sparse as ks
from batchkron.operators.kronecker_sparse.merged import groups, merged_pattern, merged_values
from batchkron.spec.kron_sparse import Pattern

NEIGHBOURS = [
    ((1, 2, 2, 4), (2, 2, 2, 2)),
    ((3, 5, 6, 4), (6, 6, 7, 2)),  # p = 2, q = 2, r = 3
    ((2, 3, 4, 5), (8, 5, 2, 1)),  # r = 1
    ((2, 3, 4, 5), (2, 4, 6, 5)),  # the same blocks: r = 4
    ((1, 3, 4, 1), (1, 4, 2, 1)),  # dense
    ((1, 1, 3, 6), (3, 2, 5, 3)),
]
APART = [
    ((4, 2, 2, 1), (2, 4, 2, 1)),  # a does not divide a'
    ((1, 2, 4, 2), (1, 2, 3, 4)),  # d' does not divide d
    ((1, 2, 2, 6), (4, 3, 2, 1)),  # p does not divide c
    ((1, 2, 0, 3), (1, 0, 2, 3)),
]
DYADIC = [(1, 2, 2, 16), (2, 2, 2, 8), (4, 2, 2, 4), (8, 2, 2, 2), (16, 2, 2, 1)]


@pytest.mark.parametrize(("left", "right"), NEIGHBOURS, ids=str)
def test_products_of_neighbours(rng, dtype, left, right):
    one, other = Pattern(*left), Pattern(*right)
    assert one.shape[1] == other.shape[0]
    values = random_array(rng, left, dtype), random_array(rng, right, dtype)
    found = merged_values(*values)
    assert found.shape == merged_pattern(one, other)
    expected = np.matmul(*map(dense_matrix, values))
    bound = 20 * left[2] * np.finfo(dtype).eps * np.abs(expected).max()
    np.testing.assert_allclose(dense_matrix(found), expected, rtol=0, atol=bound)


@pytest.mark.parametrize(("left", "right"), APART, ids=str)
def test_neighbours_whose_product_has_no_pattern(left, right):
    assert merged_pattern(Pattern(*left), Pattern(*right)) is None


@pytest.mark.parametrize(
    ("patterns", "adds", "runs"),
    [
        (ks.square_dyadic(1024), 20, [(0, 5), (5, 10)]),
        (ks.square_dyadic(1024), 0.1, [(k, k + 1) for k in range(10)]),
        (ks.monarch(1024, 1024, 32), 20, [(0, 1), (1, 2)]),
        (ks.low_rank(1000, 1000, 4), 20, [(0, 1), (1, 2)]),
        (ks.low_rank(4, 4, 1000), 20, [(0, 2)]),
        ([(3, 2, 2, 5)], 20, [(0, 1)]),
    ],
)
def test_which_are_multiplied_out(patterns, adds, runs):
    found = groups([Pattern(*one) for one in patterns], adds)
    assert found == runs


def test_runs_have_the_least_cost(rng):
    """Compared with all ways to cut a chain into runs."""
    adds = 7.0

    def cost(run):
        pattern = reduce(merged_pattern, run)
        rows, columns = pattern.shape
        return rows + columns + pattern.nonzeros / adds

    patterns = [Pattern(*one) for one in DYADIC]
    costs = []
    for cuts in range(1 << (len(patterns) - 1)):
        ends = [k + 1 for k in range(len(patterns) - 1) if cuts >> k & 1]
        bounds = list(pairwise([0, *ends, len(patterns)]))
        costs.append(sum(cost(patterns[first:end]) for first, end in bounds))
    found = groups(patterns, adds)
    assert sum(cost(patterns[first:end]) for first, end in found) == pytest.approx(min(costs))


@pytest.mark.parametrize("layout", ["batch-first", "batch-last"])
def test_a_butterfly_by_fewer_factors(rng, backend, dtype, layout):
    values = [random_array(rng, pattern, dtype) for pattern in DYADIC]
    dense = reduce(np.matmul, map(dense_matrix, values))
    chain = bk.KroneckerSparseChain(values, layout=layout)
    assert [tuple(p) for p in chain.patterns] == DYADIC
    assert len(chain._steps()) < len(chain.factors) == len(chain.links) == 5

    def check(op, matrix):
        x = random_array(rng, (7, 32), dtype)
        given = x if layout == "batch-first" else x.T.copy()
        expected = x @ matrix.T if layout == "batch-first" else matrix @ x.T
        y = op.apply(given, poisoned(expected.shape, dtype))
        bound = 200 * np.finfo(dtype).eps * np.abs(matrix).max() * 32
        np.testing.assert_allclose(y, expected, rtol=0, atol=bound)

    others = [chain.T, chain.H, pickle.loads(pickle.dumps(chain))]
    for op, matrix in zip([chain, *others], [dense, dense.T, dense.conj().T, dense], strict=True):
        check(op, matrix)
    values[2] = random_array(rng, DYADIC[2], dtype)
    chain.factors[2].update(values[2])
    dense = reduce(np.matmul, map(dense_matrix, values))
    for op, matrix in zip([chain, *others], [dense, dense.T, dense.conj().T], strict=False):
        check(op, matrix)
    values = [random_array(rng, pattern, dtype) for pattern in DYADIC]
    chain.update(values)
    dense = reduce(np.matmul, map(dense_matrix, values))
    check(chain, dense)
    check(chain.T, dense.T)


def test_a_run_that_has_patterns_only_from_the_right(rng):
    """The first two have no product of a pattern, the first and the product of the others have."""
    patterns = [Pattern(4, 2, 2, 1), Pattern(4, 1, 2, 2), Pattern(8, 2, 2, 1)]
    assert merged_pattern(*patterns[:2]) is None
    values = [rng.standard_normal(pattern) for pattern in patterns]
    chain = bk.KroneckerSparseChain(values)
    assert len(chain._steps()) == 1
    dense = reduce(np.matmul, map(dense_matrix, values))
    np.testing.assert_allclose(chain.to_dense(), dense, atol=1e-13)


@pytest.mark.parametrize("layout", ["batch-first", "batch-last"])
def test_chains_of_any_patterns(rng, layout):
    def divisor(number):
        return int(rng.choice([one for one in range(1, number + 1) if number % one == 0]))

    merged = 0
    for _ in range(60):
        patterns, rows = [], int(rng.choice([1, 6, 8, 12, 16]))
        for _ in range(4):
            a = divisor(rows)
            d = divisor(rows // a)
            b, c = rows // (a * d), int(rng.integers(1, 4))
            patterns.append(Pattern(a, b, c, d))
            rows = a * c * d
        values = [rng.standard_normal(pattern) for pattern in patterns]
        chain = bk.KroneckerSparseChain(values, layout=layout)
        merged += len(chain._steps()) < len(values)
        matrix = reduce(np.matmul, map(dense_matrix, values))
        for op, dense in ((chain, matrix), (chain.T, matrix.T)):
            np.testing.assert_allclose(op.to_dense(), dense, atol=1e-11)
    assert merged


@pytest.mark.parametrize("scale", [1e10, 1e-10])
def test_values_whose_products_leave_the_range_stay_apart(rng, scale):
    """The vectors between the factors stay in the range, the products of the values would not."""
    values = [random_array(rng, pattern, "float32") for pattern in DYADIC]
    chain = bk.KroneckerSparseChain(values)
    x = rng.standard_normal((3, 32)).astype("float32")
    expected = x @ reduce(np.matmul, map(dense_matrix, values)).T
    bound = 1e-4 * np.abs(expected).max()
    for _ in range(2):
        assert len(chain._steps()) < 5
        np.testing.assert_allclose(chain.apply(x), expected, rtol=0, atol=bound)
        chain.update([np.float32(scale) * one for one in values[:4]] + values[4:])
        assert chain._steps() is chain.factors
        y = chain.apply(x * np.float32(scale**-2))
        np.testing.assert_allclose(y * scale**-2, expected, rtol=0, atol=bound)
        chain.update(values)


@pytest.mark.parametrize("kind", ["float64", "complex128"])
def test_products_of_values_that_would_be_zero_stay_apart(rng, kind):
    """Here no wider dtype shows that the products of the values leave the range."""
    values = [random_array(rng, pattern, kind) for pattern in DYADIC]
    chain = bk.KroneckerSparseChain(values)
    x = random_array(rng, (3, 32), kind)
    expected = x @ reduce(np.matmul, map(dense_matrix, values)).T
    assert len(chain._steps()) < 5
    chain.update([1e-200 * one for one in values[:2]] + values[2:])
    y = chain.apply(1e200 * x)
    bound = 1e-12 * np.abs(expected).max()
    np.testing.assert_allclose(y * 1e200, expected, rtol=0, atol=bound)


def test_numbers_of_16_bits_and_other_precisions_stay_apart(rng):
    values = [rng.standard_normal(pattern).astype("float16") for pattern in DYADIC]
    assert len(bk.KroneckerSparseChain(values)._steps()) == 5
    mixed = [
        bk.KroneckerSparse(one.astype("float32"), precision=precision)
        for one, precision in zip(values, [None, "tf32", None, None, "tf32x3"], strict=True)
    ]
    assert len(bk.KroneckerSparseChain(mixed)._steps()) == 5
