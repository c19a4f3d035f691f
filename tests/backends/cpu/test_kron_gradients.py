"""All gradients of a Kron-Matmul by one call of the core, against NumPy mode by mode."""

import functools
import math

import numpy as np
import pytest
from gradient_oracle import factor_gradient, vector_gradient
from hypothesis import given, settings
from hypothesis import strategies as st

import batchkron as bk
from batchkron.backends.cpu.native import kron_gradients

CASES = {
    "one number": (1, [(1, 1)], 1),
    "one mode": (1000, [(5, 7)], 1),
    "vectors behind": (4, [(3, 5), (6, 2)], 11),
    "powers of the lanes": (9, [(8, 8)] * 5, 1),
    "rows in lanes": (100, [(3, 3)] * 7, 1),
    "fewer rows than lanes": (3, [(3, 5), (5, 3), (2, 2)], 1),
    "many small modes": (20, [(2, 2)] * 9, 1),
    "rectangular": (64, [(2, 3), (4, 1), (1, 6), (5, 2)], 1),
    "large factors": (5, [(70, 33), (9, 64)], 1),
    "several tiles": (7, [(24, 25), (13, 14)], 3),
}


def test_the_reference_itself(rng):
    """Against dense Kronecker products: that of A_k is linear in it, entry by entry."""
    factors, x, gradient = problem(rng, 3, [(2, 3), (3, 1), (2, 2)], 1, np.float64)
    x, gradient = x[..., 0], gradient[..., 0]
    rows, G = x.reshape(3, -1), gradient.reshape(3, -1)
    dense = functools.reduce(np.kron, factors)
    np.testing.assert_allclose(vector_gradient(gradient, factors).reshape(3, -1), G @ dense.T)
    for k, A in enumerate(factors):
        expected = np.empty_like(A)
        for entry in np.ndindex(A.shape):
            one = np.zeros_like(A)
            one[entry] = 1
            with_one = [one if j == k else other for j, other in enumerate(factors)]
            expected[entry] = (rows @ functools.reduce(np.kron, with_one) * G).sum()
        np.testing.assert_allclose(factor_gradient(x, gradient, factors, k), expected)


def problem(rng, outer, shapes, inner, dtype):
    rows, columns = zip(*shapes, strict=True)
    factors = [rng.standard_normal(shape).astype(dtype) for shape in shapes]
    factors[0] = np.asfortranarray(factors[0])  # strides are free
    x = rng.standard_normal((outer, *rows, inner)).astype(dtype)
    gradient = rng.standard_normal((outer, *columns, inner)).astype(dtype)
    return factors, x, gradient


def gradients(factors, x, gradient, needed, with_x):
    """What the core writes over NaN."""
    of_x = np.full_like(x, np.nan) if with_x else None
    found = [
        np.full(A.shape, np.nan, x.dtype) if one else None
        for A, one in zip(factors, needed, strict=True)
    ]
    kron_gradients(factors, x, gradient, len(x), of_x, found)
    return of_x, found


def assert_right(factors, x, gradient, needed, with_x):
    of_x, found = gradients(factors, x, gradient, needed, with_x)
    exact = [A.astype(np.longdouble) for A in factors]
    # NumPy's modes come before all others: vectors behind are rows, too
    x, gradient = (np.moveaxis(one, -1, 1) for one in (x, gradient))
    x, gradient = (one.reshape(-1, *one.shape[2:]).astype(np.longdouble) for one in (x, gradient))
    sizes = [one for A in factors for one in A.shape]
    for k, one in enumerate(found):
        if one is None:
            assert not needed[k]
            continue
        expected = factor_gradient(x, gradient, exact, k)
        bound = factor_gradient(*map(np.abs, (x, gradient)), [*map(np.abs, exact)], k)
        terms = sum(sizes) + x.size // factors[k].shape[0]
        assert (np.abs(one - expected) <= terms * np.finfo(one.dtype).eps * bound).all()
    if with_x:
        of_x = np.moveaxis(of_x, -1, 1).reshape(x.shape)
        expected = vector_gradient(gradient, exact)
        bound = vector_gradient(np.abs(gradient), [*map(np.abs, exact)])
        assert (np.abs(of_x - expected) <= sum(sizes) * np.finfo(of_x.dtype).eps * bound).all()


@pytest.mark.parametrize("real", [np.float32, np.float64])
@pytest.mark.parametrize("case", CASES)
def test_gradients(rng, case, real):
    factors, x, gradient = problem(rng, *CASES[case], real)
    modes = len(factors)
    assert_right(factors, x, gradient, [True] * modes, True)
    assert_right(factors, x, gradient, [True] * modes, False)
    for k in range(modes):
        assert_right(factors, x, gradient, [j == k for j in range(modes)], k % 2 == 0)


@settings(deadline=None, max_examples=60)
@given(
    shapes=st.lists(st.tuples(*[st.integers(1, 9)] * 2), min_size=1, max_size=5),
    outer=st.integers(1, 40),
    inner=st.sampled_from([1, 1, 1, 2, 3, 8, 17]),
    seed=st.integers(0, 2**31),
)
def test_any_sizes(shapes, outer, inner, seed):
    rng = np.random.default_rng(seed)
    if math.prod(max(shape) for shape in shapes) * outer * inner > 1 << 18:
        shapes = shapes[:2]
    factors, x, gradient = problem(rng, outer, shapes, inner, rng.choice(["f4", "f8"]))
    needed = list(rng.random(len(shapes)) < 0.7)
    needed[rng.integers(len(shapes))] = True
    assert_right(factors, x, gradient, needed, bool(rng.integers(2)))


@pytest.mark.parametrize("case", ["powers of the lanes", "rows in lanes", "large factors"])
def test_any_number_of_threads_gives_the_same_bits(rng, case):
    outer, shapes, inner = CASES[case]
    operands = problem(rng, 20 * outer, shapes, inner, np.float64)
    threads, found = bk.get_num_threads(), []
    for count in (1, 2, 3):
        bk.set_num_threads(count)
        try:
            of_x, of_factors = gradients(*operands, [True] * len(shapes), True)
        finally:
            bk.set_num_threads(threads)
        found.append([of_x, *of_factors])
    for others in found[1:]:
        for one, other in zip(found[0], others, strict=True):
            np.testing.assert_array_equal(one, other)


def test_wrong_arrays_are_refused(rng):
    factors, x, gradient = problem(rng, 4, [(2, 3), (3, 2)], 1, np.float64)
    found = [np.empty((2, 3)), np.empty((3, 2))]
    wrong = [
        (factors, x, gradient[:2], 4, None, found),
        (factors, x, gradient, 4, None, [None, None]),
        (factors, x, gradient, 4, None, found[::-1][:1]),
        (factors, x, gradient, 4, np.empty(3), found),
        (factors, x, gradient, 5, None, found),
        (factors, x.astype("f4"), gradient, 4, None, found),
    ]
    for arguments in wrong:
        with pytest.raises(ValueError, match="internal error"):
            kron_gradients(*arguments)


@pytest.mark.parametrize("outer", [7, 8, 9, 21])
def test_infinite_factors(rng, outer):
    """Lanes without a row add nothing: infinity times nothing would be NaN."""
    factors, x, gradient = problem(rng, outer, [(3, 3)] * 3, 1, np.float32)
    factors[1][0, 0] = np.inf
    x, gradient = np.abs(x), np.abs(gradient)
    factors = [np.abs(A) for A in factors]
    of_x, found = gradients(factors, x, gradient, [True] * 3, True)
    assert not any(np.isnan(one).any() for one in (of_x, *found))
    assert np.isinf(of_x).any()
    assert np.isinf(found[0]).any()
