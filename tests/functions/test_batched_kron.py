"""`batched_kron`: a batch list that is used once, from raw pools and an unsorted list."""

import contextlib
import threading

import numpy as np
import pytest
from dense_oracle import DTYPES, batch_bound, dense_batch, random_array
from hypothesis import given, settings
from hypothesis import strategies as st

import batchkron as bk

SHAPES = [
    [(1, 1)],
    [(4, 4)],
    [(2, 5)],
    [(3, 3), (3, 3)],
    [(5, 5), (5, 5)],
    [(4, 2), (2, 4)],
    [(1, 3), (3, 1), (2, 2)],
    [(2, 2)] * 4,
    [(17, 9), (3, 4)],
    [(0, 2), (2, 2)],
    [(2, 2), (2, 0)],
]
MATRICES = [2, 60]  # of a pool: few are copied into the kernels' layouts, many are read as they are


@pytest.fixture
def is_fast(monkeypatch):
    """Whether the last call took the way without conversions."""
    chosen, taken = bk.backends.backend(), []
    fast = chosen.fast_path("batched_kron")

    def noting(*arguments):
        taken.append(fast(*arguments))
        return taken[-1]

    monkeypatch.setattr(chosen, "fast_path", lambda call: noting)
    return lambda: taken.pop()


def random_call(rng, shapes, dtype, products=24, matrices=60, index=np.int64):
    """Pools, ids, x, inputs, outputs, y, weights, all plain."""
    pools = [random_array(rng, (matrices, p, q), dtype) for p, q in shapes]
    ids = rng.integers(0, matrices, (products, len(shapes))).astype(index)
    inputs = rng.integers(0, 7, products).astype(index)
    outputs = rng.integers(0, 5, products).astype(index)
    rows, columns = (int(np.prod([shape[i] for shape in shapes])) for i in (0, 1))
    x, y = random_array(rng, (7, columns), dtype), random_array(rng, (5, rows), dtype)
    return pools, ids, x, inputs, outputs, y, random_array(rng, products, dtype)


def check(call, result, y, weights=None):
    """Compare a result with the dense matrix of the list times x, plus the earlier y."""
    pools, ids, x, inputs, outputs = (np.asarray(one) if k else one for k, one in enumerate(call))
    if weights is None:
        weights = np.ones(len(ids), y.dtype)
    lead = x.shape[:-2]
    matrix, magnitude = dense_batch(pools, ids, inputs, outputs, weights, x.shape[-2], y.shape[-2])
    for at in np.ndindex(*lead):
        flat, before = x[at].ravel(), y[at].ravel()
        bound = batch_bound(magnitude, flat, pools, len(ids))
        bound += (len(ids) + 2) * np.finfo(y.dtype).eps * np.abs(before)
        error = np.abs(result[at].ravel() - (before + matrix @ flat))
        assert (error <= bound).all(), (error - bound).max()


@pytest.mark.parametrize("matrices", MATRICES)
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_matches_the_dense_matrix(rng, is_fast, dtype, shapes, matrices):
    for index in (np.int64, np.int32):
        *call, y, weights = random_call(rng, shapes, dtype, matrices=matrices, index=index)
        before = y.copy()
        assert bk.batched_kron(*call, y, weights=weights) is y
        assert is_fast()
        check(call, y, before, weights)
        y = before.copy()
        bk.batched_kron(*call, y)
        assert is_fast()
        check(call, y, before)


@pytest.mark.parametrize("products", [0, 1, 2, 9, 300])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_any_number_of_products(rng, dtype, products):
    for matrices in (1, 400):
        for shapes in ([(4, 4)], [(3, 3), (3, 3)], [(2, 2)] * 3, [(3, 5), (4, 2)]):
            *call, y, weights = random_call(rng, shapes, dtype, products, matrices)
            before = y.copy()
            check(call, bk.batched_kron(*call, y, weights=weights), before, weights)


def test_the_bits_of_the_operator(rng):
    """Where pools are copied, it is the operator that skips no identities, bit for bit."""
    for shapes in ([(3, 3), (3, 3)], [(2, 2)] * 4, [(4, 4)], [(2, 3), (4, 2)]):
        pools, ids, x, inputs, outputs, y, weights = random_call(rng, shapes, "float64", 80, 3)
        pools[0][1] = np.eye(*shapes[0])
        options = {"num_inputs": 7, "num_outputs": 5, "weights": weights}
        op = bk.BatchedKron(pools, ids, inputs, outputs, skip_identities=False, **options)
        expected = op.accumulate(x, y.copy())
        result = bk.batched_kron(pools, ids, x, inputs, outputs, y, weights=weights)
        np.testing.assert_array_equal(result, expected)


def test_the_order_of_the_list_decides_only_the_order_of_sums(rng):
    """A list in another order gives the same sums of integers, exactly."""
    pools, ids, x, inputs, outputs, y, _ = random_call(rng, [(3, 2), (2, 3)], "float64", 200)
    pools, x, y = [np.rint(4 * pool) for pool in pools], np.rint(4 * x), np.rint(y)
    order = rng.permutation(200)
    one = bk.batched_kron(pools, ids, x, inputs, outputs, y.copy())
    other = bk.batched_kron(pools, ids[order], x, inputs[order], outputs[order], y.copy())
    np.testing.assert_array_equal(one, other)


def test_one_pool_for_all_modes(rng, is_fast):
    pools, ids, x, inputs, outputs, y, _ = random_call(rng, [(3, 3)] * 3, "float64")
    before = y.copy()
    bk.batched_kron(pools[0], ids, x, inputs, outputs, y)
    assert is_fast()
    check(([pools[0]] * 3, ids, x, inputs, outputs), y, before)


@pytest.mark.parametrize("lead", [(2,), (2, 3), (0,), (1, 1)])
def test_leading_axes(rng, is_fast, lead):
    pools, ids, _, inputs, outputs, _, weights = random_call(rng, [(3, 2), (2, 4)], "float64")
    x, y = random_array(rng, (*lead, 7, 8)), random_array(rng, (*lead, 5, 6))
    before = y.copy()
    bk.batched_kron(pools, ids, x, inputs, outputs, y, weights=weights)
    assert is_fast()
    check((pools, ids, x, inputs, outputs), y, before, weights)


def test_systems(rng):
    """Leading axes of pools, as `BatchedKron` takes them."""
    pools, ids, _, inputs, outputs, _, weights = random_call(rng, [(3, 2), (2, 4)], "float64")
    pools[0] = random_array(rng, (4, *pools[0].shape))
    x, y = random_array(rng, (2, 4, 7, 8)), random_array(rng, (2, 4, 5, 6))
    before = y.copy()
    bk.batched_kron(pools, ids, x, inputs, outputs, y, weights=weights)
    for e in range(4):
        own = [pools[0][e], pools[1]]
        check((own, ids, x[:, e], inputs, outputs), y[:, e], before[:, e], weights)
    with pytest.raises(ValueError, match=r"\(\.\.\., 4, blocks, elements\)"):
        bk.batched_kron(pools, ids, x[:, :3], inputs, outputs, y[:, :3])


def test_unusual_arguments(rng, is_fast):
    """Lists, other dtypes, strides: converted, the same numbers."""
    *call, y, weights = random_call(rng, [(3, 2), (2, 4)], "float64")
    pools, ids, x, inputs, outputs = call
    strided = np.full((5, 12), np.nan)[:, ::2]
    memory = np.zeros(8 + y.nbytes, np.uint8)
    first = (1 - memory.ctypes.data) % 8  # so that its address is 1 more than a multiple of 8
    odd = memory[first : first + y.nbytes].view(y.dtype).reshape(y.shape)
    changes = [
        {"pools": [pool.tolist() for pool in pools]},
        {"pools": tuple(np.asfortranarray(pool) for pool in pools)},
        {"ids": ids.tolist(), "inputs": inputs.tolist(), "outputs": outputs.tolist()},
        {"ids": np.asfortranarray(ids), "inputs": inputs.astype(np.uint16)},
        {"x": np.asfortranarray(x)},
        {"x": np.repeat(x, 2, axis=1)[:, ::2]},
        {"y": strided},
        {"y": odd},
        {"y": np.empty((6, 5)).T},
        {"weights": weights.tolist()},
        {"weights": np.repeat(weights, 2)[::2]},
    ]
    for change in changes:
        given = {"pools": pools, "ids": ids, "x": x, "inputs": inputs, "outputs": outputs, **change}
        target = given.pop("y", np.empty_like(y))
        target[...] = y
        scale = given.pop("weights", weights)
        assert bk.batched_kron(*given.values(), target, weights=scale) is target
        assert not is_fast()
        check(call, target, y, weights)


def test_dtypes_are_promoted(rng, is_fast):
    *call, y, _ = random_call(rng, [(3, 2), (2, 4)], "float32")
    pools, ids, x, inputs, outputs = call
    before = y.astype(np.complex128)
    result = bk.batched_kron(pools, ids, x.astype(complex), inputs, outputs, before.copy())
    assert not is_fast()
    wide = [pool.astype(complex) for pool in pools]
    check((wide, ids, x.astype(complex), inputs, outputs), result, before)
    with pytest.raises(TypeError, match="y has dtype float32; expected the result's dtype float64"):
        bk.batched_kron(pools, ids, x.astype(float), inputs, outputs, y)
    whole = [np.rint(3 * pool).astype(int) for pool in pools]
    y = np.zeros((5, 6))
    bk.batched_kron(whole, ids, np.rint(x).astype(int), inputs, outputs, y)
    check(
        ([one.astype(float) for one in whole], ids, np.rint(x).astype(float), inputs, outputs),
        y,
        0 * y,
    )


def refusals(rng):
    """What to change of a right call, the exception and its text."""
    *_, y, weights = random_call(rng, [(3, 2), (2, 4)], "float64")
    yield {"outputs": 5}, IndexError, r"outputs\[3\] is 5; expected 0 to 4"
    yield {"outputs": -1}, IndexError, r"outputs\[3\] is -1; expected 0 to 4"
    yield {"inputs": 7}, IndexError, r"inputs\[3\] is 7; expected 0 to 6"
    yield {"inputs": -(2**40)}, IndexError, r"inputs\[3\] is"
    yield {"ids": 60}, IndexError, r"factor_ids\[3, 1\] is 60; expected 0 to 59"
    yield {"ids": -1}, IndexError, r"factor_ids\[3, 1\] is -1"
    yield {"x": np.zeros((7, 7))}, ValueError, r"x has shape \(7, 7\); expected blocks of 8"
    yield {"x": np.zeros(8)}, ValueError, r"x has shape \(8,\)"
    yield {"y": np.zeros((5, 7))}, ValueError, r"y has shape \(5, 7\); expected"
    yield {"y": np.zeros(6)}, ValueError, r"y has shape \(6,\)"
    yield {"y": np.zeros((2, 5, 6))}, ValueError, r"y has shape \(2, 5, 6\)"
    yield {"y": y.tolist()}, TypeError, "y is a list"
    yield {"y": y.astype(np.float32)}, TypeError, "y has dtype float32"
    yield {"y": np.ma.array(y)}, TypeError, "masked"
    yield {"y": np.broadcast_to(y[:1], (5, 6))}, ValueError, "read-only"
    yield {"pools": []}, ValueError, "there are 0 pools"
    yield {"pools": [np.zeros((60, 3, 2))]}, ValueError, "there are 1 pools; expected one per"
    yield {"pools": [np.zeros((3, 2)), np.zeros((2, 4))]}, ValueError, r"pools\[0\] has shape"
    yield {"weights": weights[:-1]}, ValueError, "weights has shape"
    yield {"inputs": np.zeros(24)}, TypeError, "inputs has dtype float64"
    yield {"outputs": np.zeros(23, int)}, ValueError, "outputs has 23 entries"


def test_refusals_change_nothing(rng):
    for change, error, text in refusals(rng):
        *call, y, weights = random_call(rng, [(3, 2), (2, 4)], "float64")
        given = dict(zip(("pools", "ids", "x", "inputs", "outputs"), call, strict=True))
        given |= {"y": y, "weights": weights}
        for name, value in change.items():
            if isinstance(value, int):
                given[name][(3, 1) if name == "ids" else 3] = value
            else:
                given[name] = value
        target = given["y"]
        before = np.array(target)
        scale = given.pop("weights")
        with pytest.raises(error, match=text):
            bk.batched_kron(*given.values(), weights=scale)
        np.testing.assert_array_equal(np.array(target), before)


def test_y_must_not_overlap_x(rng):
    pools, ids, _, inputs, outputs, _, _ = random_call(rng, [(3, 3)], "float64")
    memory = random_array(rng, 100)
    x, y = memory[:21].reshape(7, 3), memory[20:35].reshape(5, 3)
    with pytest.raises(ValueError, match="y overlaps an input"):
        bk.batched_kron(pools, ids, x, inputs, outputs, y)


def test_y_may_be_in_the_memory_of_a_pool(rng):
    """The matrices of before the call are taken."""
    *call, y, _ = random_call(rng, [(3, 2)], "float64")
    pools, ids, x, inputs, outputs = call
    before = pools[0].copy()
    y = pools[0].reshape(-1)[:15].reshape(5, 3)
    first = y.copy()
    bk.batched_kron(pools, ids, x, inputs, outputs, y)
    check(([before], ids, x, inputs, outputs), y, first)


@pytest.mark.slow  # not for its time: sanitizers would touch memory for 8 GiB
def test_pools_beyond_32_bits_are_refused(rng):
    """Ids are kept in 32 bits. The system gives memory for zeros only where it is touched."""
    try:
        few = np.zeros((2**31 + 16, 1, 1), "f4")
    except MemoryError:
        pytest.skip("the system does not promise 8 GiB")
    ids, one = np.array([[2**31 + 3]]), np.zeros(1, int)
    with pytest.raises(ValueError, match="has 2147483664 matrices"):
        bk.batched_kron([few], ids, np.ones((1, 1), "f4"), one, one, np.zeros((1, 1), "f4"))


def test_a_list_that_changes_during_the_call_is_never_used_unchecked(rng):
    """What another thread writes meanwhile is refused or used, but never reaches other memory."""
    *call, y, _ = random_call(rng, [(2, 2)] * 2, "float64", 3000)
    outputs = call[-1]
    right, wrong, stop = outputs.copy(), outputs.copy(), threading.Event()
    wrong[::7] = 2**62

    def change():
        while not stop.is_set():
            outputs[:] = wrong
            outputs[:] = right

    thread = threading.Thread(target=change)
    thread.start()
    for _ in range(300):
        with contextlib.suppress(IndexError):
            bk.batched_kron(*call, y)
    stop.set()
    thread.join()
    assert np.isfinite(y).all()


def test_reference_backend(rng):
    *call, y, weights = random_call(rng, [(3, 2), (2, 4)], "float64")
    before = y.copy()
    with bk.backends.using("reference"):
        bk.batched_kron(*call, y, weights=weights)
    check(call, y, before, weights)


def test_the_same_bits_for_any_number_of_threads(rng):
    kept = bk.get_num_threads()
    for matrices in (3, 20000):
        *call, y, weights = random_call(rng, [(4, 4)] * 3, "float64", 20000, matrices)
        results = []
        for threads in (1, 2, 3):
            bk.set_num_threads(threads)
            results += [bk.batched_kron(*call, y.copy(), weights=weights) for _ in range(3)]
        bk.set_num_threads(kept)
        for result in results[1:]:
            np.testing.assert_array_equal(result, results[0])


def test_calls_in_several_threads(rng):
    """Each thread has the memory of its own lists."""
    calls = [random_call(rng, [(3, 3)] * 2, "float64", 500 + 100 * k) for k in range(4)]
    expected = [bk.batched_kron(*c[:5], c[5].copy(), weights=c[6]) for c in calls]
    wrong = []

    def work(k):
        for _ in range(30):
            *call, y, weights = calls[k]
            result = bk.batched_kron(*call, y.copy(), weights=weights)
            if not np.array_equal(result, expected[k]):
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_random_lists(data):
    """Sizes, numbers of products and of outputs that nobody chose, one call after another."""
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    modes = data.draw(st.integers(1, 4))
    shapes = [(data.draw(st.integers(1, 6)), data.draw(st.integers(1, 6))) for _ in range(modes)]
    dtype = data.draw(st.sampled_from(DTYPES))
    products = data.draw(st.integers(0, 90))
    matrices = data.draw(st.integers(1, 100))
    if np.prod(shapes) > 2000:
        shapes = shapes[:1]
    *call, y, weights = random_call(rng, shapes, dtype, products, matrices)
    before = y.copy()
    check(call, bk.batched_kron(*call, y, weights=weights), before, weights)
