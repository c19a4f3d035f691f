"""Every layout of tiles where sizes are no multiples of theirs, and results past the caches."""

import numpy as np
import pytest
from dense_oracle import random_array

import batchkron as bk
from batchkron.problems import make


def assert_equals_reference(factors, x, alpha, beta, y):
    """Compare with the reference backend, relative to the largest entry."""
    out = np.full_like(y, np.nan) if beta == 0 else y.copy()
    previous = None if beta == 0 else out
    bk.gekmm(factors, x, alpha=alpha, beta=beta, y=previous, out=out)
    with bk.backends.using("reference"):
        expected = bk.gekmm(factors, x, alpha=alpha, beta=beta, y=y)
    scale = np.abs(expected).max()
    terms = sum(factor.shape[1] for factor in factors)
    assert np.abs(out - expected).max() <= 4 * terms * np.finfo(x.dtype).eps * scale


@pytest.mark.parametrize("rows", [1, 3, 7, 8, 9, 15, 16, 17, 33])
@pytest.mark.parametrize(
    "sizes", [(3, 3, 3), (5, 5), (7,), (2, 2, 2, 2, 2), (4, 4, 4), (6, 3, 2), (12, 12), (20, 9)]
)
def test_rows_in_vector_lanes(rng, dtype, rows, sizes):
    """Numbers of rows around the vector widths, sizes around them too."""
    factors = [random_array(rng, (n, n), dtype) for n in sizes]
    x = random_array(rng, (rows, int(np.prod(sizes)), 1), dtype)
    y = random_array(rng, x.shape, dtype)
    for alpha, beta in ((1, 0), (0.5, 0), (1, 1), (-2, 1)):
        assert_equals_reference(factors, x, alpha, beta, y)


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 8, 9, 17])
@pytest.mark.parametrize(
    "sizes",
    [
        (4, 4),
        (4,) * 3,
        (4,) * 4,
        (2,) + (4,) * 5,
        (8, 8),
        (8,) * 3,
        (3, 3, 4, 4),
        (8, 4, 4),
        (5, 8, 8),
    ],
)
def test_last_modes_in_registers(rng, dtype, rows, sizes):
    """Tensors of the last modes, several at a time and one by one, with modes before them."""
    factors = [random_array(rng, (n, n), dtype) for n in sizes]
    x = random_array(rng, (rows, int(np.prod(sizes)), 1), dtype)
    y = random_array(rng, x.shape, dtype)
    for alpha, beta in ((1, 0), (0.5, 0), (1, 1), (-2, 1)):
        assert_equals_reference(factors, x, alpha, beta, y)


@pytest.mark.parametrize(
    ("sizes", "inner"),
    [
        ((4, 4, 4), 77),
        ((3, 3, 3, 3), 16),  # two modes at a time from here on
        ((4, 4), 48),
        ((4, 4, 4), 640),
        ((3, 3), 4096),
        ((4, 4, 4), 632),
        ((5, 6), 701),
        ((3, 3, 3, 3), 130),
        ((20,), 1501),
        ((17, 18), 333),
        ((8, 8, 8), 301),  # beyond the L2 cache from here on
        ((16, 16), 601),
        ((2, 70, 2), 601),
    ],
)
def test_strips(rng, dtype, sizes, inner):
    factors = [random_array(rng, (n, n), dtype) for n in sizes]
    x = random_array(rng, (int(np.prod(sizes)), inner), dtype)
    y = random_array(rng, x.shape, dtype)
    for alpha, beta in ((1, 0), (-2, 1)):
        assert_equals_reference(factors, x, alpha, beta, y)


@pytest.mark.parametrize(
    "shapes",
    [
        [(1, 1), (2, 2), (2, 2), (3, 2), (1, 1)],
        [(2, 2)] * 5,
        [(1, 1), (1, 1)],
        [(2, 2), (1, 1), (2, 2)],
        [(1, 1), (5, 3)],
    ],
)
def test_merged_factors(rng, dtype, shapes):
    factors = [random_array(rng, shape, dtype) for shape in shapes]
    x = random_array(rng, (int(np.prod([q for _, q in shapes])), 3), dtype)
    y = random_array(rng, (int(np.prod([p for p, _ in shapes])), 3), dtype)
    assert_equals_reference(factors, x, 1, 0, y)


@pytest.mark.parametrize("sizes", [(4, 4, 4), (3, 7, 3), (5, 5, 5, 5)])
def test_results_past_the_caches(rng, sizes):
    """Large results are written by non-temporal stores, with the same bits; ends unaligned."""
    operator = bk.KroneckerProduct([rng.standard_normal((n, n)) for n in sizes])
    size = operator.shape[1]
    rows = 40_000_000 // (16 * size) + 1
    x = rng.standard_normal((rows, size))
    memory = np.full(rows * size + 9, np.nan)
    out = memory[3:-6].reshape(rows, size)
    operator.apply(x, out=out)
    assert np.isnan(memory[:3]).all()
    assert np.isnan(memory[-6:]).all()
    for part in (slice(0, 50), slice(rows // 2, rows // 2 + 33), slice(rows - 50, rows)):
        np.testing.assert_array_equal(out[part], operator.apply(x[part]))


def test_plain_calls_equal_validated_ones(rng, dtype):
    """Contiguous arrays take a fast path; nothing else about a call changes."""
    operator = bk.KroneckerProduct([random_array(rng, (n, n + 1), dtype) for n in (2, 3, 4)])
    x = random_array(rng, (2, 3, 60), dtype)
    expected = np.stack([[operator @ row for row in block] for block in x])
    out = np.full((2, 3, 24), np.nan, dtype)
    assert operator.apply(x, out=out) is out
    np.testing.assert_array_equal(out, expected)
    wide = np.zeros((2, 3, 48), dtype)
    operator.apply(x[:, ::-1], out=wide[:, ::-1, ::2])
    np.testing.assert_array_equal(wide[..., ::2], expected)
    vector = np.full(24, np.nan, dtype)
    assert operator.matvec(x[0, 0], vector) is vector
    np.testing.assert_array_equal(vector, expected[0, 0])
    for wrong in (out[:1], out[..., :23], out[0], vector):
        with pytest.raises(ValueError, match="out has shape"):
            operator.apply(x, out=wrong)
    with pytest.raises(ValueError, match="expected \\(60,\\) or"):
        operator.matvec(x, out)
    memory = np.zeros(80, dtype)
    with pytest.raises(ValueError, match="overlaps an input"):
        operator.apply(memory[:60], out=memory[50:74])
    out.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        operator.apply(x, out=out)
    assert operator.apply(np.zeros((0, 60), dtype), out=np.zeros((0, 24), dtype)).shape == (0, 24)


def test_an_update_reaches_plain_calls(rng):
    operator = bk.KroneckerProduct(rng.standard_normal((2, 3, 3)))
    x, out = rng.standard_normal(9), np.empty(9)
    operator.apply(x, out=out)
    operator.update(2 * np.stack(operator.factors))
    np.testing.assert_array_equal(operator.apply(x, out=np.empty(9)), 4 * out)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((40, 70), (3, 3)),
        ((33, 65), (2, 5)),
        ((9, 4), (2, 1)),
        ((3, 2), (5, 33)),
        ((2, 67), (1, 1)),
        ((700, 700), (3, 3)),  # past the caches from here on
        ((3, 3), (700, 701)),
        ((70, 71), (31, 31)),
        ((2, 2), (3, 400_000)),
    ],
)
def test_explicit_products(rng, dtype, left, right):
    a, b = random_array(rng, left, dtype), random_array(rng, right, dtype)
    expected = np.kron(a, b)
    result = bk.kron(a, b, out=np.full_like(expected, np.nan))
    bound = 2 * np.finfo(dtype).eps * np.abs(expected) if dtype.kind == "c" else 0
    assert (np.abs(result - expected) <= bound).all()


@pytest.mark.parametrize("part", ["lanes", "tails", "cold_blocks"])
def test_plans_without_a_part_are_as_right(rng, monkeypatch, part):
    """For measurements of what the parts are worth; the variable counts when a plan is made."""
    factors = [random_array(rng, (5, 5), "float64") for _ in range(3)]
    x = random_array(rng, (64, 125), "float64")
    problem = make("continuity-6d", 5, 2)  # vectors do not stay in the L2 cache
    found = []
    for without in ("", part):
        monkeypatch.setenv("BATCHKRON_WITHOUT", without)
        sweeps = make("continuity-6d", 5, 2).operator
        found.append((bk.KroneckerProduct(factors).apply(x), sweeps @ problem.initial))
    for own, other in zip(*found, strict=True):
        np.testing.assert_allclose(own, other, rtol=0, atol=1e-12 * np.abs(own).max())
