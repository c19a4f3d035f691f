"""gekmm, gemkm and kron with `Identity` among the factors."""

from itertools import product

import numpy as np
import pytest
from dense_oracle import dense_kron, random_array, rounding_bound

import batchkron as bk
from batchkron.functions import kron_fast_path

PATTERNS = [
    [3, (2, 3), 2],
    [(3, 2), 4],
    [4, (2, 3)],
    [2, 3],
    [(2, 3), 5, (4, 4)],
    [2, (3, 2), 1, (2, 5), 3],
    [(2, 2), 17, (3, 1), (2, 2), 2, 2, (1, 3)],
    [(8, 8), 2, (8, 8), 3],
    [(20, 20), 3],
]


def factors_of(rng, pattern, dtype):
    """Factors as the user gives them, and as dense matrices."""
    given = [one if isinstance(one, int) else random_array(rng, one, dtype) for one in pattern]
    dense = [np.eye(one, dtype=dtype) if isinstance(one, int) else one for one in given]
    return [bk.Identity(one) if isinstance(one, int) else one for one in given], dense


@pytest.mark.parametrize("pattern", PATTERNS, ids=str)
def test_values(rng, backend, dtype, pattern):
    factors, dense = factors_of(rng, pattern, dtype)
    for left, lead in product([True, False], [None, (), (2,), (2, 3)]):
        check_values(rng, factors, dense, left, lead)


def check_values(rng, factors, dense, left, lead):
    """All options of gekmm (``left``) or gemkm for vectors with these leading axes; None: one."""
    matrix, dtype = dense_kron(*dense), dense[0].dtype
    size = matrix.shape[1 if left else 0]
    shape = (size,) if lead is None else (*lead, size, 3) if left else (*lead, 3, size)
    x = random_array(rng, shape, dtype)
    parts = dense if left else [one.T for one in dense]
    one = x[..., None] if lead is None else x if left else x.swapaxes(-1, -2)

    def oriented(values):
        return values[..., 0] if lead is None else values if left else values.swapaxes(-1, -2)

    expected = oriented((matrix if left else matrix.T) @ one)
    bound = oriented(rounding_bound(parts, np.abs(one), left=True, extra=3))
    y = random_array(rng, expected.shape, dtype)
    slack = 3 * bound + 8 * np.finfo(dtype).eps * np.abs(y)

    def call(**options):
        if left:
            return bk.gekmm(factors, x, **options)
        return bk.gemkm(x, factors, **options)

    for _ in range(2):  # planned, and known
        assert (np.abs(call() - expected) <= bound).all()
        out = np.full_like(expected, np.nan)
        assert call(out=out) is out
        assert (np.abs(out - expected) <= bound).all()
        given = y.copy()
        found = call(alpha=2, beta=1, y=given)
        assert (np.abs(found - (2 * expected + y)) <= slack).all()
        np.testing.assert_array_equal(given, y)
        assert call(alpha=-1, beta=1, y=given, out=given) is given
        assert (np.abs(given - (y - expected)) <= slack).all()
        apart = np.full((*expected.shape, 2), np.nan, dtype)[..., 0]
        assert call(beta=-2, y=y, out=apart) is apart
        assert (np.abs(apart - (expected - 2 * y)) <= slack).all()


def test_known_calls_take_the_fast_path(rng, monkeypatch):
    A, x = rng.random((4, 4)), rng.random(8 * 4 * 3)
    factors = [bk.Identity(8), A, bk.Identity(3)]
    expected = bk.gekmm(factors, x)
    monkeypatch.setattr("batchkron.functions.kron.kron_call", None)
    np.testing.assert_array_equal(bk.gekmm(factors, x), expected)
    np.testing.assert_array_equal(bk.gemkm(x, [bk.Identity(8), A.T, bk.Identity(3)]), expected)
    for wrong in (x[:-1], x.astype(int), None, x[::-1]):
        assert kron_fast_path.fast_multiply(factors, wrong, True, 1, 0, None, None, None) is None


def test_transposed_and_conjugated_factors(rng):
    A, B = random_array(rng, (2, 3), complex), random_array(rng, (4, 4), complex)
    x = random_array(rng, 2 * 2 * 3 * 4, complex)
    flags = {"transpose": [True, True, False, False], "conj": [True, True, False, True]}
    expected = dense_kron(np.eye(2), A.conj().T, np.eye(3), B.conj()) @ random_array(rng, 48)
    x = random_array(rng, 48)
    expected = dense_kron(np.eye(2), A.conj().T, np.eye(3), B.conj()) @ x
    found = bk.gekmm([bk.Identity(2), A, bk.Identity(3), B], x, **flags)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_factors_with_leading_axes(rng, backend):
    A, x = rng.random((5, 2, 3)), rng.random((5, 4 * 3 * 2, 1))
    expected = np.einsum("spq,slqr->slpr", A, x.reshape(5, 4, 3, 2)).reshape(5, -1, 1)
    np.testing.assert_allclose(
        bk.gekmm([bk.Identity(4), A, bk.Identity(2)], x), expected, rtol=1e-13
    )


def test_dtypes_and_empty_arrays(rng):
    single = rng.random(6).astype(np.float32)
    assert bk.gekmm([bk.Identity(3), np.ones((2, 2), np.float32)], single).dtype == np.float32
    assert bk.gekmm([bk.Identity(2), bk.Identity(3)], single).dtype == np.float32
    assert bk.gekmm([bk.Identity(3), np.ones((2, 2), complex)], single).dtype == np.complex128
    assert bk.gekmm([bk.Identity(0), np.ones((2, 3))], np.ones(0)).shape == (0,)
    assert (
        bk.gekmm([bk.Identity(3), np.ones((2, 0))], np.ones((0, 4))).tolist()
        == np.zeros((6, 4)).tolist()
    )
    assert bk.gemkm(np.ones((0, 6)), [bk.Identity(3), np.ones((2, 5))]).shape == (0, 15)


def test_infinities_stay_in_their_place():
    x = np.array([1.0, np.inf, 3.0, 4.0])
    np.testing.assert_array_equal(bk.gekmm([bk.Identity(2), [[2.0]], bk.Identity(2)], x), 2 * x)
    assert np.isnan(
        bk.gekmm([np.eye(2), [[2.0]], bk.Identity(2)], x)
    ).any()  # a matrix is multiplied


@pytest.mark.parametrize("pattern", PATTERNS[:6], ids=str)
def test_explicit_products(rng, backend, dtype, pattern):
    factors, dense = factors_of(rng, pattern, dtype)
    expected = dense_kron(*dense)
    wide = np.float64 if len(dense) == sum(isinstance(one, int) for one in pattern) else dtype
    for found in (bk.kron(factors), bk.kron(*factors)):
        assert found.dtype == wide
        np.testing.assert_allclose(found, expected, rtol=20 * np.finfo(dtype).eps)


def test_refusals(rng):
    A, x = rng.random((2, 3)), rng.random(18)
    with pytest.raises(ValueError, match=r"x has shape \(7,\); expected 18 = 3\*3\*2 along axis"):
        bk.gekmm([bk.Identity(3), A, bk.Identity(2)], x[:7])
    with pytest.raises(ValueError, match="out overlaps an input"):
        bk.gekmm([bk.Identity(3), A, bk.Identity(2)], x, out=x[:12])
    with pytest.raises(ValueError, match="out has shape"):
        bk.gekmm([bk.Identity(3), A, bk.Identity(2)], x, out=np.empty(13))
    with pytest.raises(TypeError, match=r"factors\[1\] is a Diagonal, a linear operator"):
        bk.gekmm([bk.Identity(2), bk.Diagonal(np.ones(2))], x[:4])


@pytest.mark.parametrize("threads", [1, 2])
def test_vectors_beyond_the_caches(rng, threads):
    """Results of more than 32 MiB, with x, are written past the caches, in strips of long rows."""
    before = bk.get_num_threads()
    bk.set_num_threads(threads)
    try:
        for rows, columns, lead, behind in ((5, 3, 1, 1_100_003), (3, 4, 2, 700_001)):
            matrix = rng.standard_normal((rows, columns)).astype(np.float32)
            x = rng.standard_normal(lead * columns * behind, np.float32)
            memory = np.full(lead * rows * behind + 1, np.nan, np.float32)
            bk.gekmm([bk.Identity(lead), matrix, bk.Identity(behind)], x, out=memory[1:])
            expected = np.matmul(matrix, x.reshape(lead, columns, behind)).reshape(-1)
            np.testing.assert_allclose(memory[1:], expected, atol=1e-5)
            assert np.isnan(memory[0])
    finally:
        bk.set_num_threads(before)
