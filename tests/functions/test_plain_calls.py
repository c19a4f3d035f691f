"""Calls of functions whose arguments need no conversion: checked and run in C++.

They must give the same bits as the way through Python, and leave to it whatever it refuses.
"""

import pickle
import threading
from functools import partial

import numpy as np
import pytest

import batchkron as bk
from batchkron.backends.protocol import unavailable

DTYPES = ("float32", "float64", "complex64", "complex128")
SIZES = [((2, 3), (3, 2)), ((4, 4),), ((1, 1), (5, 5)), ((3, 2), (2, 4), (4, 3))]


@pytest.fixture
def through_python(monkeypatch):
    """A function that makes calls the way through Python only."""

    def call(function, *arguments, **options):
        with monkeypatch.context() as patch:
            patch.setattr(bk.backends.backend(), "fast_path", lambda call: unavailable)
            return function(*arguments, **options)

    return call


@pytest.fixture
def is_plain(monkeypatch):
    """Whether the last call took the way through C++."""
    chosen, taken = bk.backends.backend(), []

    def noting(run, *arguments):
        result = run(*arguments)
        taken.append(result is not None)
        return result

    fast_path = chosen.fast_path
    monkeypatch.setattr(chosen, "fast_path", lambda call: partial(noting, fast_path(call)))
    return lambda: taken.pop()


def numbers(rng, shape, dtype):
    values = rng.standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        values = values + 1j * rng.standard_normal(shape)
    return values.astype(dtype)


def calls(rng, dtype, sizes):
    """Calls on vectors of one to four axes: function, arguments, the result's shape."""
    factors = [numbers(rng, size, dtype) for size in sizes]
    p, q = (int(np.prod([size[i] for size in sizes])) for i in (0, 1))
    for leading in ((), (3,), (2, 3), (2, 1, 3)):
        x = numbers(rng, (*leading, p), dtype)
        yield bk.gemkm, (x, factors), (*leading, q)
    for shape in ((q,), (q, 3), (2, q, 3), (2, 2, q, 1)):
        result = (p,) if len(shape) == 1 else (*shape[:-2], p, shape[-1])
        yield bk.gekmm, (factors, numbers(rng, shape, dtype)), result


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_same_bits_as_through_python(rng, through_python, is_plain, dtype, sizes):
    for function, arguments, shape in calls(rng, dtype, sizes):
        expected = through_python(function, *arguments)
        result = function(*arguments)
        assert is_plain()
        assert result.dtype == dtype
        assert result.shape == shape
        np.testing.assert_array_equal(result, expected)
        out = np.full(shape, np.nan, dtype)
        assert function(*arguments, out=out) is out
        assert is_plain()
        np.testing.assert_array_equal(out, expected)
        scaled = function(*arguments, alpha=-2)
        assert is_plain()
        np.testing.assert_array_equal(scaled, through_python(function, *arguments, alpha=-2))
        y = numbers(rng, shape, dtype)
        added = through_python(function, *arguments, alpha=0.5, beta=1, y=y)
        assert function(*arguments, alpha=0.5, beta=1, y=y, out=y) is y
        assert is_plain()
        np.testing.assert_array_equal(y, added)


def test_dense_product(rng):
    factors = [rng.standard_normal((3, 4)), rng.standard_normal((2, 5))]
    x = rng.standard_normal((7, 6))
    for _ in range(2):  # the second call finds the plan
        np.testing.assert_allclose(bk.gemkm(x, factors), x @ np.kron(*factors))
        np.testing.assert_allclose(bk.gekmm(factors, np.eye(20)), np.kron(*factors))


@pytest.mark.parametrize("left", [False, True])
def test_factors_in_either_order_of_memory(rng, through_python, is_plain, left):
    factors = [np.asfortranarray(rng.standard_normal((3, 4))), rng.standard_normal((5, 2)).T]
    x = rng.standard_normal(20 if left else 6)
    call = partial(bk.gekmm, factors, x) if left else partial(bk.gemkm, x, factors)
    expected = through_python(call)
    np.testing.assert_array_equal(call(), expected)
    assert is_plain()


@pytest.mark.parametrize("dtype", DTYPES)
def test_unpickled_arrays(rng, is_plain, dtype):
    """Their dtypes are equal to NumPy's own, but other objects."""
    factors = [pickle.loads(pickle.dumps(numbers(rng, (3, 3), dtype))) for _ in range(2)]
    x = pickle.loads(pickle.dumps(numbers(rng, (2, 9), dtype)))
    assert x.dtype is not np.dtype(dtype)
    bk.gemkm(np.array(x.tolist(), dtype), factors)  # plans the shape
    is_plain()
    y = bk.gemkm(x, factors)
    assert is_plain()
    np.testing.assert_allclose(y, x @ np.kron(*factors), rtol=1e-4)
    swapped = x.astype(x.dtype.newbyteorder())
    np.testing.assert_allclose(bk.gemkm(swapped, factors), y, rtol=1e-4)
    assert not is_plain()


def test_a_tuple_of_factors(rng, is_plain):
    factors = (np.eye(3), np.eye(2))
    for _ in range(2):
        x = rng.standard_normal(6)
        np.testing.assert_array_equal(bk.gemkm(x, factors), x)
    assert is_plain()


class Subclass(np.ndarray):
    pass


@pytest.mark.parametrize(
    "change",
    [
        lambda x, factors: (x.astype("float32"), factors, {}),
        lambda x, factors: (x.astype(">f8"), factors, {}),
        lambda x, factors: (np.repeat(x, 2)[::2], factors, {}),
        lambda x, factors: (x.view(Subclass), factors, {}),
        lambda x, factors: (x.tolist(), factors, {}),
        lambda x, factors: (x, [factors[0], factors[1].tolist()], {}),
        lambda x, factors: (x, [factors[0], np.repeat(factors[1], 2, axis=1)[:, ::2]], {}),
        lambda x, factors: (x, iter(factors), {}),
        lambda x, factors: (x, [factors[0][None], factors[1]], {}),
        lambda x, factors: (x[:, None].T, factors, {"alpha": np.float64(2)}),
        lambda x, factors: (x, factors, {"alpha": True}),
        lambda x, factors: (x, factors, {"alpha": 2j}),
        lambda x, factors: (x, factors, {"alpha": float("inf")}),
        lambda x, factors: (x, factors, {"alpha": 10**400}),
        lambda x, factors: (x, factors, {"beta": 2, "y": np.ones(6)}),
        lambda x, factors: (x, factors, {"beta": 1, "y": np.ones(6)}),
        lambda x, factors: (x, factors, {"y": np.ones(6)}),
        lambda x, factors: (x, factors, {"beta": 1}),
        lambda x, factors: (x, factors, {"beta": float("nan"), "y": np.ones(6)}),
        lambda x, factors: (x, factors, {"y": np.ones(7)}),
        lambda x, factors: (x, factors, {"transpose": True}),
        lambda x, factors: (x, factors, {"conj": [True, False]}),
        lambda x, factors: (x, factors, {"precision": "tf32"}),
        lambda x, factors: (x, factors, {"precision": "half"}),
        lambda x, factors: (x, factors, {"tune": 1}),
        lambda x, factors: (x[:5], factors, {}),
        lambda x, factors: (x, [], {}),
        lambda x, factors: (x, [factors[0][0], factors[1]], {}),
        lambda x, factors: (x, factors, {"out": x}),
        lambda x, factors: (x, factors, {"out": np.empty(7)}),
        lambda x, factors: (x, factors, {"out": np.empty((1, 6))}),
        lambda x, factors: (x, factors, {"out": np.empty(6, "float32")}),
        lambda x, factors: (x, factors, {"out": [0.0] * 6}),
        lambda x, factors: (x, factors, {"out": np.broadcast_to(0.0, 6)}),
        lambda x, factors: (x, factors, {"out": np.empty(12)[::2]}),
        lambda x, factors: (x, factors, {"out": factors[0].reshape(-1)[:6]}),
    ],
)
def test_other_arguments_as_through_python(rng, through_python, change):
    """The same result or the same error, and nothing is written where one is raised."""

    def outcome(call):
        x, factors = np.arange(6.0), [np.arange(9.0).reshape(3, 3), np.ones((2, 2))]
        bk.gemkm(x, factors)  # the plan is known
        x, factors, options = change(x, factors)
        try:
            return call(bk.gemkm, x, factors, **options), None
        except Exception as error:  # whatever it is
            return x, (type(error), str(error))

    expected, expected_error = outcome(through_python)
    result, error = outcome(lambda function, *arguments, **options: function(*arguments, **options))
    assert error == expected_error
    np.testing.assert_array_equal(result, expected)
    assert type(result) is type(expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_kron(rng, through_python, is_plain, dtype):
    factors = [numbers(rng, size, dtype) for size in ((2, 3), (3, 1), (4, 5))]
    for given in (factors, factors[:2]):
        expected = through_python(bk.kron, *given)
        np.testing.assert_array_equal(bk.kron(*given), expected)
        assert is_plain()
        np.testing.assert_array_equal(bk.kron(given), expected)
        assert is_plain()
        out = np.full(expected.shape, np.nan, dtype)
        assert bk.kron(*given, out=out) is out
        assert is_plain()
        np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize(
    ("factors", "out"),
    [
        ([np.ones((2, 2)), np.ones((2, 2), "float32")], None),
        ([np.ones((2, 2))], None),
        ([np.ones((2, 0)), np.ones((2, 2))], None),
        ([np.ones((2, 2)).T, np.ones((2, 4))[:, ::2]], None),
        ([np.ones((2, 2)), np.ones(2)], None),
        ([np.ones((2, 2)), np.ones((2, 2))], np.empty((4, 5))),
        ([np.ones((2, 2)), np.ones((2, 2))], np.empty((4, 4), "float32")),
        ([np.ones((2, 2)), np.ones((2, 2))], np.empty((4, 4), order="F")),
    ],
)
def test_other_kron_as_through_python(through_python, factors, out):
    def outcome(call):
        try:
            return call(bk.kron, *factors, out=out), None
        except Exception as error:  # whatever it is
            return None, (type(error), str(error))

    expected, expected_error = outcome(through_python)
    result, error = outcome(lambda function, *arguments, **options: function(*arguments, **options))
    assert error == expected_error
    np.testing.assert_array_equal(result, expected)


def test_kron_refuses_an_overlap(rng):
    memory = rng.standard_normal(20)
    before = memory.copy()
    with pytest.raises(ValueError, match="overlaps"):
        bk.kron(memory[:4].reshape(2, 2), np.eye(2), out=memory[3:19].reshape(4, 4))
    np.testing.assert_array_equal(memory, before)


@pytest.mark.parametrize("transpose_b", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_batched_gemm(rng, through_python, is_plain, dtype, transpose_b):
    a = numbers(rng, (5, 2, 3), dtype)
    b = numbers(rng, (5, 4, 3) if transpose_b else (5, 3, 4), dtype)
    for alpha in (1, 0.5):
        expected = through_python(bk.batched_gemm, a, b, alpha=alpha, transpose_b=transpose_b)
        result = bk.batched_gemm(a, b, alpha=alpha, transpose_b=transpose_b)
        assert is_plain()
        np.testing.assert_array_equal(result, expected)
    with pytest.raises(ValueError, match="numbers of products differ"):
        bk.batched_gemm(a, b[:4], transpose_b=transpose_b)
    with pytest.raises(ValueError, match="shape"):
        bk.batched_gemm(a, b[..., :2, :2], transpose_b=transpose_b)


def test_the_reference_backend_has_no_such_calls(rng, monkeypatch):
    x, factors = rng.standard_normal(6), [np.eye(3), np.eye(2)]
    bk.gemkm(x, factors)

    def refuse(*arguments):
        raise AssertionError("the compiled core was called")

    monkeypatch.setattr(bk.backends.backend(), "fast_path", lambda call: refuse)
    with bk.backends.using("reference"):
        np.testing.assert_array_equal(bk.gemkm(x, factors), x)
        np.testing.assert_array_equal(bk.kron(*factors), np.eye(6))


def test_several_threads_at_once(rng):
    """Each thread packs factors of its own; the lock is released in the larger calls."""
    cases = [
        ([rng.standard_normal((n, n)) for _ in range(3)], rng.standard_normal((9, n**3)))
        for n in (3, 5, 8)
    ]
    expected = [bk.gemkm(x, factors) for factors, x in cases]
    wrong = []

    def run(number):
        factors, x = cases[number % 3]
        for _ in range(100):
            if not np.array_equal(bk.gemkm(x, factors), expected[number % 3]):
                wrong.append(number)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
