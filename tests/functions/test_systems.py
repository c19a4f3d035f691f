"""Factors with leading axes, many modes, forks, and changes of the thread count."""

import multiprocessing

import numpy as np
import pytest
from dense_oracle import dense_kron, poisoned, random_array, rounding_bound

import batchkron as bk

LEADING = [
    ([(4,), (4,)], ()),
    ([(4,), ()], (4,)),
    ([(2, 1), (3,)], (2, 3)),
    ([(), (5,)], (2, 1)),
    ([(0,), ()], ()),
]


@pytest.mark.parametrize(("axes", "leading"), LEADING)
@pytest.mark.parametrize("tail", [None, 1, 6])
def test_factors_with_leading_axes(rng, backend, dtype, axes, leading, tail):
    shapes = [(3, 2), (2, 4)]
    factors = [random_array(rng, a + s, dtype) for a, s in zip(axes, shapes, strict=True)]
    systems = np.broadcast_shapes(*axes, leading)
    for left, size, result_size in ((True, 8, 6), (False, 6, 8)):
        vectors = (size,) if tail is None else (size, tail) if left else (tail, size)
        x = random_array(rng, (leading if tail is not None else ()) + vectors, dtype)
        used = systems if tail is not None else np.broadcast_shapes(*axes)
        shape = (
            (result_size,) if tail is None else (result_size, tail) if left else (tail, result_size)
        )
        out = poisoned(used + shape, dtype)
        y = random_array(rng, out.shape, dtype)
        call = (factors, x) if left else (x, factors)
        function = bk.gekmm if left else bk.gemkm
        assert function(*call, out=out) is out
        added = function(*call, alpha=2, beta=-1, y=y)
        wide = np.broadcast_to(x, used + vectors)
        for index in np.ndindex(*used):
            mine = [np.broadcast_to(f, used + f.shape[-2:])[index] for f in factors]
            one = wide[index]
            dense = dense_kron(*mine)
            expected = dense @ one if left else one @ dense
            bound = rounding_bound(mine, np.abs(one), left=left)
            assert (np.abs(out[index] - expected) <= bound).all()
            bound = 2 * bound + 4 * np.finfo(dtype).eps * np.abs(y[index])
            assert (np.abs(added[index] - 2 * expected + y[index]) <= bound).all()


def test_leading_axes_that_do_not_fit(rng):
    factors = [np.ones((2, 3, 3)), np.ones((3, 2, 2))]
    with pytest.raises(ValueError, match=r"leading axes .* \(2,\), \(3,\), \(\), do not broadcast"):
        bk.gekmm(factors, np.ones(6))
    with pytest.raises(ValueError, match=r"leading axes of factors, \(2,\), \(3,\)"):
        bk.KroneckerProduct(factors)


def test_seventy_modes(rng, backend):
    """As many as anyone will use: most of them small."""
    shapes = [(1, 1)] * 30 + [(2, 3), (3, 2)] + [(1, 1)] * 30 + [(2, 2)] * 4 + [(1, 1)] * 4
    factors = [rng.standard_normal(shape) for shape in shapes]
    assert len(factors) == 70
    x = rng.standard_normal((96, 3))
    bound = rounding_bound(factors, np.abs(x), left=True)
    assert (np.abs(bk.gekmm(factors, x) - dense_kron(*factors) @ x) <= bound).all()
    op = bk.BatchedKron.from_products([factors], [0], [0])
    assert (np.abs(op @ x - dense_kron(*factors) @ x) <= 4 * bound).all()


def multiply_in_child(connection, factors, x):
    connection.send((bk.gemkm(x, factors), bk.get_num_threads()))


def test_fork_after_a_threaded_call_does_not_deadlock(rng, threads):
    threads(2)
    factors, x = list(rng.standard_normal((4, 8, 8))), rng.standard_normal((300, 4096))
    expected = bk.gemkm(x, factors)
    context = multiprocessing.get_context("fork")
    parent, child = context.Pipe()
    process = context.Process(target=multiply_in_child, args=(child, factors, x))
    process.start()
    assert parent.poll(60), "the child is stuck"
    result, count = parent.recv()
    process.join(60)
    np.testing.assert_array_equal(result, expected)
    assert count == 1
    assert bk.get_num_threads() == 2
    np.testing.assert_array_equal(bk.gemkm(x, factors), expected)


def test_the_thread_count_may_change_at_any_time(rng, threads):
    factors, x = list(rng.standard_normal((4, 8, 8))), rng.standard_normal((300, 4096))
    expected = bk.gemkm(x, factors)
    for count in (1, 7, 2, 16, 1, 3):
        threads(count)
        assert bk.get_num_threads() == count
        np.testing.assert_array_equal(bk.gemkm(x, factors), expected)
