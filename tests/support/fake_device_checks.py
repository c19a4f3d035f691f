"""Checks of functions on the device of fake_cupy, each for a process of its own."""

import sys
import threading
from functools import partial

import numpy as np
import pytest
from dense_oracle import DTYPES, random_array, sizes
from fake_cupy.arrays import Array
from fake_cupy.installation import install

import batchkron as bk

DEVICE = install()
import cupy  # noqa: E402  the one just installed

from batchkron.backends.cuda.batch import list_calls  # noqa: E402
from batchkron.backends.cuda.batch import plan as batch_plan  # noqa: E402
from batchkron.backends.cuda.kron import function_calls, plan  # noqa: E402
from batchkron.backends.cuda.kron_sparse import function_calls as sparse_calls  # noqa: E402
from batchkron.backends.cuda.kron_sparse import plan as kron_sparse  # noqa: E402
from batchkron.backends.cuda.runtime import device as device_runtime  # noqa: E402
from batchkron.operators.kronecker_sum.batched_factorisation import (  # noqa: E402
    BatchedSumFactorisation,
)

TWO_PASSES = [(16, 16)] * 4
SHAPES = [[(3, 4)], [(2, 3), (4, 2)], [(5, 5)] * 3, [(2, 2)] * 6, [(3, 200), (200, 3)]]


class Counted:
    """Counts the calls of what stays in its place."""

    def __init__(self, place, name):
        self.calls, self._found = 0, getattr(place, name)
        setattr(place, name, self)

    def __get__(self, instance, kind=None):
        return partial(self, instance)

    def __call__(self, *values, **options):
        self.calls += 1
        return self._found(*values, **options)


def close(result, expected):
    scale = 1000 * np.finfo(expected.dtype).eps * np.abs(expected).max()
    np.testing.assert_allclose(result.get(), expected, rtol=0, atol=scale)


def products(rng):
    """Names of functions, their arguments on the host, and the shapes of the results."""
    for dtype in DTYPES:
        for shapes in SHAPES:
            given = [random_array(rng, shape, dtype) for shape in shapes]
            rows, columns = sizes(shapes)
            for lead in ((), (2,), (2, 3)):
                factors = [np.asfortranarray(one) for one in given] if lead else given
                x, tail = random_array(rng, (*lead, rows), dtype), (3,) if lead else ()
                yield "gemkm", (x, factors), (*lead, columns)
                x = random_array(rng, (*lead, columns, *tail), dtype)
                yield "gekmm", (factors, x), (*lead, rows, *tail)


def on_device(value):
    return [on_device(one) for one in value] if isinstance(value, list) else cupy.asarray(value)


def values():
    """All dtypes and shapes, the first time and again, scaled and added, with out= and without."""
    rng, general = np.random.default_rng(1), Counted(plan.KronPlan, "run")
    for name, arguments, shape in products(rng):
        call, given = getattr(bk, name), [on_device(one) for one in arguments]
        expected = call(*arguments)
        y = random_array(rng, shape, expected.dtype)
        for _ in range(2):
            out = cupy.asarray(np.full(shape, np.nan, expected.dtype))
            close(call(*given), expected)
            assert call(*given, out=out) is out
            close(out, expected)
            close(call(*given, alpha=-2.5), -2.5 * expected)
            close(call(*given, beta=2, y=cupy.asarray(y)), expected + 2 * y)
            previous = cupy.asarray(y)
            assert call(*given, alpha=3, beta=-1, y=previous, out=previous) is previous
            close(previous, 3 * expected - y)
    assert not general.calls


def repeated_calls():
    """A known call is not planned again; other factors, shapes and addresses are not mixed up."""
    rng = np.random.default_rng(2)
    planned = Counted(function_calls, "_planned")
    learned = Counted(function_calls, "_learn")
    host = [random_array(rng, (4, 4), "float64") for _ in range(4)]
    device = on_device(host)
    x = random_array(rng, (5, 16), "float64")
    for _ in range(3):
        for pair in ((0, 1), (1, 0), (2, 3), (0, 0)):
            factors = [device[k] for k in pair]
            close(bk.gemkm(cupy.asarray(x), factors), bk.gemkm(x, [host[k] for k in pair]))
    assert (planned.calls, learned.calls) == (1, 4)
    device[0].host *= 2
    close(bk.gemkm(cupy.asarray(x), device[:2]), 2 * bk.gemkm(x, host[:2]))
    close(bk.gekmm(device[:2], cupy.asarray(x.T.copy())), 2 * bk.gekmm(host[:2], x.T))
    assert (planned.calls, learned.calls) == (2, 5)
    with bk.backends.cuda.kernel_family.without("kron.registers"):
        bk.gemkm(cupy.asarray(x), device[:2])
    assert planned.calls == 3


def refusals():
    """What does not fit is refused after what does, with the texts of all other calls."""
    rng = np.random.default_rng(3)
    memory = cupy.asarray(rng.standard_normal(100))
    factors, x, y = (
        [memory[:4].reshape(2, 2), memory[4:8].reshape(2, 2)],
        memory[8:12],
        memory[12:16],
    )
    call, out = partial(bk.gemkm, x, factors), cupy.empty(4)
    call(out=out)
    call(beta=1, y=y, out=out)
    for options, error, text in [
        ({"out": memory[3:7]}, ValueError, "out overlaps an input"),
        ({"out": memory[7:11]}, ValueError, "out overlaps an input"),
        ({"out": memory[11:15]}, ValueError, "out overlaps an input"),
        ({"out": memory[13:17], "y": y, "beta": 1}, ValueError, "out overlaps an input"),
        ({"out": cupy.empty(4, "f4")}, TypeError, "out has dtype float32"),
        ({"out": cupy.empty((1, 4))}, ValueError, "out has shape"),
        ({"out": np.empty(4)}, TypeError, "out is a ndarray; expected a CuPy array"),
        ({"beta": 1}, ValueError, "beta is 1, but y is missing"),
        ({"beta": 1, "y": cupy.empty(5)}, ValueError, "y has shape"),
        ({"precision": "tf16"}, ValueError, "precision is 'tf16'"),
        ({"precision": ["tf32"]}, ValueError, "precision is"),
        ({"alpha": "1"}, TypeError, "alpha is '1'"),
        ({"transpose": "no"}, TypeError, "transpose is"),
    ]:
        with pytest.raises(error, match=text):
            call(**options)
    with pytest.raises(ValueError, match="x has shape"):
        bk.gemkm(memory[:5], factors)
    with pytest.raises(ValueError, match="factors is empty"):
        bk.gemkm(x, [])
    with pytest.raises(TypeError, match="x is an array on the CPU"):
        bk.gemkm(x.get(), factors)
    x.data.device_id = 1
    with pytest.raises(TypeError, match="an array is on CUDA device 1"):
        call(out=out)


def products_by_address():
    """What a key stands for is planned once; None is returned, and known, where it needs arrays."""
    rng, planned = np.random.default_rng(9), Counted(function_calls, "_planned")
    multiply, number = function_calls.addressed_multiply, -1
    for number, (name, arguments, shape) in enumerate(products(rng)):
        expected, left = getattr(bk, name)(*arguments), name == "gekmm"
        factors, x = (on_device(one) for one in (arguments if left else arguments[::-1]))
        for _ in range(2):
            run = multiply(number, lambda given=(factors, x): given, left)
            out = cupy.asarray(np.full(shape, np.nan, expected.dtype))
            run(x.data.ptr, out.data.ptr)
            close(out, expected)
        other = cupy.asarray(2 * x.get())
        run(other.data.ptr, out.data.ptr)
        close(out, 2 * expected)
    assert planned.calls == number + 1
    factors, x = on_device(list(np.ones((2, 2, 2)))), cupy.asarray(np.ones((3, 4)))
    away = cupy.asarray(np.ones((2, 2)))
    away.data.device_id = 1
    for key, given in {
        "strides": ([factors[0], cupy.asarray(np.ones((2, 4)))[:, ::2]], x),
        "empty": ([factors[0], factors[1]], x[:0]),
        "sizes": ([factors[0], cupy.asarray(np.ones((3, 3)))], x),
        "device": ([factors[0], away], x),
    }.items():
        assert multiply(key, lambda given=given: given, False) is None
        assert multiply(key, None, False) is None


def unusual_arguments():
    """Whatever is not plain is computed as before."""
    rng, general = np.random.default_rng(4), Counted(plan.KronPlan, "run")
    host = [random_array(rng, (3, 3), "float64") for _ in range(2)]
    x = random_array(rng, (2, 9), "float64")
    factors, given = on_device(host), cupy.asarray(x)
    expected = bk.gemkm(x, host)
    strided = cupy.empty((2, 18))[:, ::2]
    close(bk.gemkm(given, tuple(factors), out=strided), expected)
    close(bk.gemkm(given, (one for one in factors)), expected)
    close(bk.gemkm(cupy.asarray(np.asfortranarray(x)), factors), expected)
    close(bk.gemkm(given, factors, alpha=np.float64(2)), 2 * expected)
    close(bk.gemkm(given, factors, alpha=1j), 1j * expected)
    close(bk.gemkm(given, factors, transpose=True), bk.gemkm(x, host, transpose=True))
    close(
        bk.gemkm(given, [factors[0].astype("f4"), factors[1]]),
        bk.gemkm(x, [host[0].astype("f4"), host[1]]),
    )
    assert general.calls == 7
    assert bk.gemkm(cupy.empty((0, 9)), factors).shape == (0, 9)


def captures():
    """A graph has its own workspace for all calls of one stream, and keeps it."""
    rng = np.random.default_rng(5)
    host = [random_array(rng, shape, "float64") for shape in TWO_PASSES]
    factors, x = on_device(host), random_array(rng, (2, 16**4), "float64")
    given, expected = cupy.asarray(x), bk.gemkm(x, host)
    DEVICE.stream.ptr, DEVICE.stream.capturing = 5, 1
    for _ in range(2):
        close(bk.gemkm(given, factors), expected)
        close(bk.gemkm(given[:1], factors), expected[:1])
    assert len(DEVICE.allocated) == 1
    DEVICE.stream.capturing = 2
    close(bk.gemkm(given[:1], factors), expected[:1])
    close(bk.gemkm(given, factors), expected)  # needs more
    bk.kron(*(one[:2, :2].reshape(2, 2).astype("f4") for one in factors))
    assert len(DEVICE.allocated) == 3
    DEVICE.stream.ptr = 6  # a stream of the same graph
    close(bk.gemkm(given, factors), expected)
    assert len(DEVICE.allocated) == 4
    DEVICE.stream.capturing = 0
    for _ in range(2):
        close(bk.gemkm(given, factors), expected)
    assert len(DEVICE.allocated) == 6
    DEVICE.stream.capturing = 3
    with pytest.raises(RuntimeError, match="contiguous arrays of one dtype, transpose=False"):
        bk.gemkm(given, factors, transpose=True)


def explicit_products():
    """The last launch of several factors takes those before it along, where rows are long."""
    rng = np.random.default_rng(8)
    for dtype in DTYPES:
        for shapes, launches in [
            ([(3, 4), (2, 5)], 1),
            ([(8, 8)] * 4, 1),
            ([(3, 40), (2, 3), (4, 11)], 1),
            ([(2, 2)] * 4, 3),  # short rows
            ([(4, 8), (4, 8), (4, 8), (2, 3), (2, 3), (2, 3)], 3),
        ]:
            host = [random_array(rng, shape, dtype) for shape in shapes]
            factors = on_device(host)
            before = len(DEVICE.launches)
            close(bk.kron(*factors), bk.kron(*host))
            assert len(DEVICE.launches) - before == launches, shapes
    with bk.backends.cuda.kernel_family.without("explicit.tiles"):
        before = len(DEVICE.launches)
        close(bk.kron(*factors), bk.kron(*host))
        assert len(DEVICE.launches) - before == 5


def batches():
    """batched_gemm without ids; its list is on the device before it is captured."""
    rng = np.random.default_rng(6)
    for dtype in DTYPES:
        for m, k, n in ((1, 1, 1), (3, 4, 5), (17, 2, 33), (200, 200, 200)):
            a, b = (random_array(rng, (5, *shape), dtype) for shape in ((m, k), (k, n)))
            for options in ({}, {"alpha": -2}, {"transpose_b": True}):
                right = b.swapaxes(1, 2).copy() if options.get("transpose_b") else b
                expected = bk.batched_gemm(a, right, **options)
                for _ in range(2):
                    close(bk.batched_gemm(*on_device([a, right]), **options), expected)
    a, b = on_device([random_array(rng, (5, 3, 3), "float64") for _ in range(2)])
    expected = bk.batched_gemm(a, b).get()
    DEVICE.stream.capturing = 1
    close(bk.batched_gemm(a, b), expected)
    for options in ({"a_ids": [0, 1], "b_ids": [0, 1]}, {"beta": 1, "c": a}):
        with pytest.raises(RuntimeError, match="call batched_gemm once with the same shapes"):
            bk.batched_gemm(a, b, **options)
    many = cupy.asarray(np.ones((5000, 1, 1)))
    with pytest.raises(RuntimeError, match="call batched_gemm once with the same shapes"):
        bk.batched_gemm(many, many)
    DEVICE.stream.capturing = 0
    close(bk.batched_gemm(many, many), many.get())
    DEVICE.stream.capturing = 2
    close(bk.batched_gemm(many, many), many.get())
    for wrong, text in (
        (b[:, :2].copy(), "b has shape"),
        (b[:4], "the numbers of products differ"),
    ):
        with pytest.raises(ValueError, match=text):
            bk.batched_gemm(a, on_device(getattr(wrong, "host", wrong)))


def lists_once():
    """batched_kron: plain calls take one launch, wrong numbers are named by the next call."""
    rng = np.random.default_rng(7)
    plans = Counted(batch_plan, "BatchPlan")
    for dtype in DTYPES:
        for shapes in ([(4, 4)], [(3, 2), (2, 4)], [(2, 2)] * 4, [(1, 3), (3, 1), (2, 2)]):
            rows, columns = sizes(shapes)
            for lead in ((), (2,), (2, 3)):
                pools = [random_array(rng, (9, *shape), dtype) for shape in shapes]
                x, y = (random_array(rng, (*lead, 5, n), dtype) for n in (columns, rows))
                for products, number in ((1, "i4"), (40, "i8"), (41, "i8")):
                    ids = rng.integers(0, 9, (products, len(shapes))).astype(number)
                    lists = rng.integers(0, 5, (2, products)).astype(number)
                    weights = random_array(rng, products, dtype) if products > 1 else None
                    expected = bk.batched_kron(pools, ids, x, *lists, y.copy(), weights=weights)
                    given = on_device([pools, ids, x, *lists])
                    target = cupy.asarray(y)
                    scale = None if weights is None else cupy.asarray(weights)
                    before = len(DEVICE.launches)
                    assert bk.batched_kron(*given, target, weights=scale) is target
                    assert len(DEVICE.launches) == before + 1
                    close(target, expected)
    assert not plans.calls
    pool, ids = rng.standard_normal((4, 3, 3)), rng.integers(0, 4, (8, 2))
    x, y = rng.standard_normal((2, 2, 9))
    lists = rng.integers(0, 2, (2, 8))
    given = on_device([pool, ids, x, *lists])
    right = bk.batched_kron(pool, ids, x, *lists, y.copy())
    close(bk.batched_kron(*given, cupy.asarray(y)), right)
    given[1].host[5, 0] = 4
    rest = [np.delete(one, 5, 0) for one in (ids, *lists)]
    left_out = bk.batched_kron(pool, rest[0], x, *rest[1:], y.copy())
    close(bk.batched_kron(*given, cupy.asarray(y)), left_out)
    given[1].host[5, 0] = ids[5, 0]
    target = cupy.asarray(y)
    with pytest.raises(IndexError, match=r"an earlier call of batched_kron .* product 5"):
        bk.batched_kron(*given, target)
    close(target, y)
    close(bk.batched_kron(*given, target), right)
    with pytest.raises(ValueError, match="y has shape"):
        bk.batched_kron(*given, cupy.empty((2, 8)))
    with pytest.raises(TypeError, match="y is an array on the CPU"):
        bk.batched_kron(*given, y)
    fast, weights = list_calls.fast_batched_kron, cupy.asarray(rng.standard_normal(8))
    assert fast(*given, cupy.asarray(y), weights)
    long = cupy.asarray(np.repeat(lists[0], 2))
    for name, other in (
        ("inputs", long[::2]),
        ("inputs", given[3][::-1]),
        ("inputs", given[3].reshape(8, 1)),
        ("outputs", given[4].astype("i4")),
        ("weights", weights.astype("f4")),
        ("weights", weights.reshape(8, 1)),
        ("weights", cupy.asarray(np.repeat(weights.get(), 2))[::2]),
    ):
        arguments = dict(zip(("pools", "ids", "x", "inputs", "outputs"), given, strict=True))
        arguments |= {"y": cupy.asarray(y), "weights": weights, name: other}
        assert not fast(*arguments.values()), name
        assert fast(*given, cupy.asarray(y), weights)  # the one before is still known
    assert not fast(*given[:4], given[4], cupy.asarray(given[4].host.view("f8"))[None], None)
    # an array of one element is contiguous with any stride, and is refused beside two products
    two = on_device([pool, ids[:2], x])
    strided = [cupy.asarray(np.repeat(lists[0], 2))[:length:2] for length in (1, 4)]
    target = cupy.asarray(y)
    for inputs in strided:
        assert not fast(*two, inputs, given[4][:2], target, None)
    for inputs in (given[3][:2], strided[1], given[3][:2]):
        assert fast(*two, inputs, given[4][:2], target, None) is (inputs is not strided[1])


def kronecker_sparse():
    """Operators, chains and the function: fast paths, updates, addresses, captured graphs."""
    rng = np.random.default_rng(0)
    for dtype in ("float16", "float32", "complex128"):
        for layout in ("batch-first", "batch-last"):
            kronecker_sparse_products(rng, dtype, layout)
    op = bk.KroneckerSparse(np.ones((1, 2, 2, 3)))
    with pytest.raises(TypeError, match="is an array on the CPU"):
        bk.kronecker_sparse_multiply(op.values, cupy.asarray(np.ones((4, 6))))
    with pytest.raises(TypeError, match="is an array on the CPU"):
        op.to("cuda").apply(np.ones((4, 6)))
    empty = bk.KroneckerSparse(np.ones((1, 2, 0, 3))).to("cuda")
    out = cupy.asarray(np.full((4, 6), np.nan))
    assert not empty.apply(cupy.asarray(np.ones((4, 0))), out=out).host.any()
    with pytest.raises(ValueError, match="below"):
        kron_sparse.KronSparsePlan(np.broadcast_to(np.float32(1), (1, 1 << 31, 1, 1)))


def kronecker_sparse_products(rng, dtype, layout):
    def numbers(*shape):
        return rng.integers(-2, 3, shape).astype(dtype)

    def placed(x):
        return cupy.asarray(x if layout == "batch-first" else x.T.copy())

    def check(y, x, matrix):
        expected = x.astype(matrix.dtype) @ matrix.T
        np.testing.assert_array_equal(y.host if layout == "batch-first" else y.host.T, expected)

    for pattern in ((2, 12, 10, 4), (1, 2, 3, 5), (3, 9, 17, 1)):
        values, x = numbers(*pattern), numbers(6, pattern[0] * pattern[2] * pattern[3])
        op = bk.KroneckerSparse(values, layout=layout)
        on_device, given = op.to("cuda"), placed(x)
        assert on_device.dtype == np.dtype(dtype)
        assert on_device.to("cpu") is op
        dense = op.to_dense()
        out = placed(np.full((6, op.shape[0]), np.nan, dtype))
        count = len(DEVICE.launches)
        for _ in range(2):
            out.host[...] = np.nan
            assert on_device.apply(given, out=out) is out
            check(out, x, dense)
        assert len(DEVICE.launches) == count + 2
        assert on_device.accumulate(given, out, alpha=2) is out
        check(out, 3 * x, dense)
        check(bk.kronecker_sparse_multiply(cupy.asarray(values), given, layout=layout), x, dense)
        odd = cupy.asarray(np.zeros(x.size + 1, dtype))[1:].reshape(*given.shape)
        odd.host[...] = given.host
        check(on_device.apply(odd), x, dense)
        again = numbers(*pattern)
        on_device.update(again)
        dense = bk.KroneckerSparse(again).to_dense()
        np.testing.assert_array_equal(op.to_dense(), dense)
        check(on_device.apply(given), x, dense)
        w = numbers(6, op.shape[0])
        check(on_device.T.apply(placed(w)), w, dense.T)
    DEVICE.stream.capturing = 5
    fresh = bk.KroneckerSparse(values, layout=layout).to("cuda")
    with pytest.raises(RuntimeError, match="apply the same operator"):
        fresh.apply(given, out=out)
    on_device.apply(given, out=out)  # its values are there
    DEVICE.stream.capturing = 0
    chain = bk.KroneckerSparseChain([numbers(1, 2, 3, 4), numbers(4, 3, 2, 1)], layout=layout)
    x = numbers(5, 8)
    assert chain.to("cuda").dtype == np.dtype(dtype)
    check(chain.to("cuda").apply(placed(x)), x, chain.to_dense())


def kronecker_sparse_calls():
    """The function: plain calls take a launch, or two where values must be copied."""
    rng = np.random.default_rng(9)
    validated = Counted(sparse_calls, "multiply_kron_sparse")
    for dtype in ("float16", "float32", "float64", "complex64", "complex128"):
        for layout in ("batch-first", "batch-last"):
            for pattern in (
                (2, 12, 8, 1),
                (2, 12, 10, 4),
                (1, 2, 3, 5),
                (3, 9, 17, 1),
                (2, 1, 1, 1),
            ):
                for turned in (False, True):
                    plain_sparse_calls(rng, dtype, layout, pattern, turned)
    assert not validated.calls
    planned = Counted(sparse_calls, "_planned")
    values, x = cupy.asarray(np.ones((1, 2, 3, 2))), cupy.asarray(np.ones((4, 6)))
    for _ in range(3):
        bk.kronecker_sparse_multiply(values, x)
    with bk.backends.cuda.kernel_family.without("kron_sparse.registers"):
        bk.kronecker_sparse_multiply(values, x)
    assert planned.calls == 2
    unusual_sparse_calls(rng, validated)


def plain_sparse_calls(rng, dtype, layout, pattern, turned):
    a, b, c, d = pattern
    host = rng.integers(-2, 3, (a, c, b, d) if turned else pattern).astype(dtype)
    values = cupy.asarray(host)
    if turned:
        host, values = host.transpose(0, 2, 1, 3), values.transpose(0, 2, 1, 3)
    dense = bk.KroneckerSparse(host).to_dense()
    for leading in ((), (6,), (2, 3)):
        x = rng.integers(-2, 3, (*leading, a * c * d)).astype(dtype)
        expected = np.tensordot(x.astype(dense.dtype), dense, (-1, 1))
        if layout == "batch-last":
            x, expected = (np.moveaxis(one, -1, 0).copy() for one in (x, expected))
        given = cupy.asarray(x)
        out = cupy.asarray(np.full(expected.shape, np.nan, dtype))
        for options in ({}, {"out": out}, {"out": out}):
            out.host[...] = np.nan
            count = len(DEVICE.launches)
            found = bk.kronecker_sparse_multiply(values, given, layout=layout, **options)
            assert found is options.get("out", found)
            assert found.dtype == dtype
            np.testing.assert_array_equal(found.host, expected)
            kernels = [kernel for kernel, _ in DEVICE.launches[count:]]
            assert 1 <= len(kernels) <= 2
            whole = d == 1 and c * values.itemsize % 16 == 0
            if not turned and (kernels[-1].stored == "given" or whole):
                assert len(kernels) == 1
        odd = cupy.asarray(np.zeros(x.size + 1, dtype))[1:].reshape(*x.shape)
        odd.host[...] = x
        found = bk.kronecker_sparse_multiply(values, odd, layout=layout)
        np.testing.assert_array_equal(found.host, expected)
    moved = cupy.asarray(np.zeros(values.size + 1, dtype))[1:].reshape(*pattern)
    moved.host[...] = 2 * host
    found = bk.kronecker_sparse_multiply(moved, given, layout=layout)
    np.testing.assert_array_equal(found.host, 2 * expected)


def unusual_sparse_calls(rng, validated):
    """What is not plain goes the other way, what is wrong is refused as without a fast path."""
    memory = cupy.asarray(rng.integers(-2, 3, 200).astype(float))
    values, x = memory[:24].reshape(2, 2, 3, 2), memory[24:72].reshape(4, 12)
    call = partial(bk.kronecker_sparse_multiply, values, x)
    expected = call().host
    before = validated.calls
    for found in (
        call(out=cupy.empty((4, 16))[:, ::2]),
        bk.kronecker_sparse_multiply(values, cupy.asarray(np.asfortranarray(x.host))),
        bk.kronecker_sparse_multiply(values[:, :, ::-1].copy()[:, :, ::-1], x),
        bk.kronecker_sparse_multiply(values.astype("f4"), x),
        bk.kronecker_sparse_multiply(values, x.astype("c16")),
        bk.kronecker_sparse_multiply(values, x, precision="tf32"),
    ):
        np.testing.assert_array_equal(found.host, expected)
    assert validated.calls == before + 5  # the precision is one of a plain call
    spread = cupy.asarray(np.repeat(values.host, 2, axis=3))[..., ::2]
    np.testing.assert_array_equal(bk.kronecker_sparse_multiply(spread, x).host, expected)
    constant = cupy.asarray(np.broadcast_to(np.float64(2), (2, 2, 3, 2)))
    twos = bk.kronecker_sparse_multiply(np.full((2, 2, 3, 2), 2.0), x.get())
    np.testing.assert_array_equal(bk.kronecker_sparse_multiply(constant, x).host, twos)
    assert validated.calls == before + 5
    assert bk.kronecker_sparse_multiply(values, cupy.empty((0, 12))).shape == (0, 8)
    for options, error, text in [
        ({"out": memory[23:55].reshape(4, 8)}, ValueError, "out overlaps an input"),
        ({"out": memory[71:103].reshape(4, 8)}, ValueError, "out overlaps an input"),
        ({"out": memory[10:42].reshape(4, 8)}, ValueError, "out overlaps an input"),
        ({"out": cupy.empty((4, 8), "f4")}, TypeError, "out has dtype float32"),
        ({"out": cupy.empty((8, 4))}, ValueError, "out has shape"),
        ({"out": np.empty((4, 8))}, TypeError, "out is a ndarray; expected a CuPy array"),
        ({"precision": "tf16"}, ValueError, "precision is 'tf16'"),
        ({"precision": ["tf32"]}, ValueError, "precision is"),
        ({"layout": "last"}, ValueError, "layout is 'last'"),
        ({"layout": "batch-last"}, ValueError, "x has shape"),
    ]:
        with pytest.raises(error, match=text):
            call(**options)
    beside = memory[72:104].reshape(4, 8)
    np.testing.assert_array_equal(call(out=beside).host, expected)
    for wrong, text in ((values[0], "values has shape"), (values[:1], "x has shape")):
        with pytest.raises(ValueError, match=text):
            bk.kronecker_sparse_multiply(wrong, x)
    with pytest.raises(TypeError, match="values is an array on the CPU"):
        bk.kronecker_sparse_multiply(values.get(), x)
    with pytest.raises(TypeError, match="x is an array on the CPU"):
        bk.kronecker_sparse_multiply(values, x.get())
    DEVICE.stream.capturing = 7
    count = len(DEVICE.allocated)
    for _ in range(3):  # the copies of one capture share their memory
        np.testing.assert_array_equal(bk.kronecker_sparse_multiply(spread, x).host, expected)
    assert len(DEVICE.allocated) == count + 1
    DEVICE.stream.capturing = 0
    x.data.device_id = 1
    with pytest.raises(TypeError, match="an array is on CUDA device 1"):
        call(out=beside)


def interpolated_problem(rng, sizes, dtype, columns=False):
    grid = bk.RegularGrid(0.0, np.arange(1.0, len(sizes) + 1), sizes)
    points = rng.uniform(grid.lower, grid.upper, (23, len(sizes)))
    shapes = [(n,) if columns and k % 2 == 0 else (n, n) for k, n in enumerate(sizes)]
    factors = [random_array(rng, shape, dtype) for shape in shapes]
    for factor in factors:
        if factor.ndim == 1:
            factor[0] = factor[0].real
    return points, grid, factors


def interpolated():
    """InterpolatedKronecker on a device: products, transposes, sums, updates, few launches."""
    rng = np.random.default_rng(0)
    for dtype in DTYPES:
        for cells in ((4,), (6, 4, 5)):
            interpolated_products(rng, cells, dtype)
    points, grid, factors = interpolated_problem(rng, (5, 6), "float64")
    on_host = bk.InterpolatedKronecker(points, grid, factors, noise=0.5)
    x = rng.standard_normal((3, 23))
    mixed = bk.InterpolatedKronecker(points, grid, on_device(factors), noise=0.5)
    assert (mixed.device, mixed.interpolation.device) == ("cuda", "cuda")
    close(mixed.apply(cupy.asarray(x)), on_host.apply(x))
    none = bk.InterpolatedKronecker(points[:0], grid, factors, noise=0.5).to("cuda")
    assert none.apply(cupy.asarray(x[:, :0])).shape == (3, 0)
    cells = none.interpolation.T.apply(cupy.asarray(x[:, :0]))
    np.testing.assert_array_equal(cells.get(), np.zeros((3, 30)))
    others = on_host.to("cuda").cross(points[:5])
    close(others.apply(cupy.asarray(x)), on_host.cross(points[:5]).apply(x))
    interpolated_with_less_memory(rng)


def interpolated_with_less_memory(rng):
    """Wᵀ of some vectors at a time, and by the owners of cells."""
    from batchkron.backends.cuda.interpolated import segments

    points, grid, _ = interpolated_problem(rng, (5, 6), "float64")
    host, x = bk.Interpolation(points, grid), rng.standard_normal((23, 8))
    known = segments._MAX_PARTIAL
    bounds = segments.segment_bounds((5, 6), 23, segments.DeviceLimits(0, 132))
    kinds = {}
    for vectors in (8, 2, 0):
        segments._MAX_PARTIAL = vectors * bounds.spans * 4 * 8
        W = bk.Interpolation(points, grid).to("cuda")
        before = len(DEVICE.launches)
        close(W.T.matmat(cupy.asarray(x)), host.T.matmat(x))
        kinds[vectors] = [kernel.kind for kernel, _ in DEVICE.launches[before:]]
    segments._MAX_PARTIAL = known
    both = ["segments", "cells"]
    assert kinds == {8: both, 2: both * 4, 0: ["scatter"]}


def interpolated_products(rng, sizes, dtype):
    points, grid, factors = interpolated_problem(rng, sizes, dtype, columns=len(sizes) > 2)
    host = bk.InterpolatedKronecker(points, grid, factors, noise=rng.random(23))
    op = host.to("cuda")
    assert op.to("cpu") is host
    W, w = op.interpolation, host.interpolation
    for batch in (1, 3, 17):
        x, y = (random_array(rng, (batch, 23), dtype) for _ in range(2))
        given, target = cupy.asarray(x), cupy.asarray(np.full((batch, 23), np.nan, dtype))
        assert op.apply(given, target) is target
        close(target, host.apply(x))
        close(op.T.apply(given), host.T.apply(x))
        close(op.H.matmat(cupy.asarray(x.T.copy())), host.H.matmat(x.T.copy()))
        added = cupy.asarray(y)
        for alpha in (1, -0.5, 2 - 1j) if np.dtype(dtype).kind == "c" else (1, -0.5):
            op.accumulate(given, added, alpha=alpha)
            host.accumulate(x, y, alpha=alpha)
            close(added, y)
        real = random_array(rng, (batch, 23), w.dtype)
        close(W.T.apply(cupy.asarray(real)), w.T.apply(real))
        added, y = (random_array(rng, (batch, w.shape[1]), w.dtype) for _ in range(2))
        target = cupy.asarray(y.copy())
        W.T.accumulate(cupy.asarray(real), target, alpha=-2)
        close(target, w.T.accumulate(real, y, alpha=-2))
        close(W.apply(target), w.apply(y))
    close(op.diagonal(), host.diagonal())
    close((op + 2 * op).apply(given), 3 * host.apply(x))
    again = interpolated_problem(rng, sizes, dtype)
    plan = op.interpolation.plan
    plans = plan._there, plan._back
    arrays = [array.data.ptr for one in plans for array in one._arrays]
    op.update(points=again[0], factors=again[2], noise=0.25)
    close(op.apply(given), host.apply(x))
    close(op.T.apply(given), host.T.apply(x))
    assert [array.data.ptr for one in plans for array in one._arrays] == arrays
    DEVICE.stream.capturing = 1
    before = len(DEVICE.launches)
    op.apply(given, target := cupy.asarray(x.copy()))
    DEVICE.stream.capturing = 0
    close(target, host.apply(x))
    kinds = [getattr(kernel, "kind", "kron") for kernel, _ in DEVICE.launches[before:]]
    shares = 3 if np.dtype(dtype).kind == "c" else 2  # of 17 vectors, 16 real ones at a time
    assert kinds.count("segments") == kinds.count("cells") == kinds.count("gather") == shares
    assert kinds.count("fold") == (shares if len(sizes) > 1 else 0)  # 23 points are few
    assert kinds[-1] == "diagonal"


def solves():
    """Solves, eigenpairs and exponentials of products and sums, with factorisations kept."""
    rng = np.random.default_rng(0)
    for dtype in ("float32", "complex128"):
        solves_of(rng, dtype, 0.5)
        for sizes_of_modes in ((5,), (2, 3, 4)):
            solves_without_symmetry(rng, sizes_of_modes, dtype)
    spread = bk.KroneckerProduct([np.eye(2), np.ones((3, 3))])
    with pytest.raises(
        np.linalg.LinAlgError, match=r"factors\[1\], of shape \(3, 3\), is singular"
    ):
        spread.to("cuda").solve(cupy.asarray(np.ones(6)))
    with pytest.raises(TypeError, match="b is an array on the CPU"):
        spread.to("cuda").solve(np.ones(6))


def solves_without_symmetry(rng, modes, dtype):
    host = bk.KroneckerSum(
        [random_array(rng, (n, n), dtype) + 4 * np.eye(n, dtype=dtype) for n in modes]
    )
    b = random_array(rng, (host.shape[0], 3), dtype)
    given, count = cupy.asarray(b), len(DEVICE.launches)
    close(host.to("cuda").solve(given), host.solve(b))
    kinds = [getattr(kernel, "kind", "") for kernel, _ in DEVICE.launches[count:]]
    assert kinds.count("back_substitution") == sum(modes) - len(modes) + 1
    wide = b.astype(np.result_type(dtype, "complex64"))
    found = host.to("cuda").factorise().solve_shifted(cupy.asarray(wide), [0.5, 1j])
    close(found, host.factorise().solve_shifted(wide, [0.5, 1j]))
    first = random_array(rng, (2, 3, 3), dtype) + 4 * np.eye(3, dtype=dtype)
    many = bk.KroneckerSum([first, *host.factors])
    b = random_array(rng, (4, 2, many.shape[0]), dtype)
    close(BatchedSumFactorisation(many.factors, "cuda").solve(cupy.asarray(b)), many.solve(b))


def solves_of(rng, dtype, shift):
    def positive(n):
        factor = random_array(rng, (n, n), dtype)
        return (factor @ factor.conj().T / n + 2 * np.eye(n)).astype(dtype)

    factors, masses = [positive(n) for n in (3, 4, 5)], [positive(n) for n in (3, 4, 5)]
    identity = bk.Identity(60, np.dtype(dtype))
    product, whole = bk.KroneckerProduct(factors), bk.KroneckerSum(factors)
    (A, B), (M, N) = factors[:2], masses[:2]
    small = bk.KroneckerProduct([A, N]) + bk.KroneckerProduct([M, B])
    small += shift * bk.KroneckerProduct([M, N])
    vector, columns = (random_array(rng, shape, dtype) for shape in (60, (60, 7)))
    for host in (product, whole, product + shift * identity, whole + shift * identity, small):
        op = host.to("cuda")
        size = host.shape[0]
        for b in (vector[:size], columns[:size], columns[:size].astype("complex128")):
            given = cupy.asarray(np.ascontiguousarray(b))
            for _ in range(2):
                close(op.solve(given), host.solve(b))
            before = len(DEVICE.launches)
            op.solve(given)
            assert len(DEVICE.launches) > before
            if host is not small:
                for t in (0.25, 0.5j, 1 + 0j, 1.0):
                    close(op.expm_apply(given, t), host.expm_apply(b, t))
                    assert op.expm_apply(given, t).dtype == host.expm_apply(b, t).dtype
        copies = Counted(cupy, "asarray")
        uploaded = Counted(Array, "get")
        op.solve(given)
        assert (copies.calls, uploaded.calls) == (0, 0)
        cupy.asarray, Array.get = copies._found, uploaded._found
        for one, other in zip(op.slogdet(), host.slogdet(), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4)
        np.testing.assert_allclose(op.logdet(), host.logdet(), rtol=1e-4)
    for host in (product, whole):
        for name in ("eigh", "eig"):
            values, vectors = getattr(host.to("cuda"), name)()
            assert vectors.device == "cuda"
            close(values, getattr(host, name)()[0])
            rebuilt = vectors.matmat(cupy.asarray(np.eye(60, dtype=vectors.dtype))).get()
            close(host.to("cuda").matmat(cupy.asarray(rebuilt)), rebuilt * values.get())
    left, values, right = bk.KroneckerProduct(factors[:2]).to("cuda").svd()
    again = left.to("cpu").to_dense() * values.get() @ right.to("cpu").to_dense()
    close(cupy.asarray(again), np.kron(*factors[:2]))
    total = product + shift * identity
    on_cuda, b = total.to("cuda"), vector
    on_cuda.solve(cupy.asarray(b))
    for op in (product, whole):
        op.to("cuda").solve(cupy.asarray(b))
        op.update([2 * factor for factor in factors])
        close(op.to("cuda").solve(cupy.asarray(b)), op.solve(b))
    close(on_cuda.solve(cupy.asarray(b)), total.solve(b))


def lanczos():
    """logdet_slq copies to the host once."""
    from batchkron.solvers import logdet_slq

    rng = np.random.default_rng(0)
    for dtype in ("float64", "complex128"):
        factors = [random_array(rng, (n, n), dtype) for n in (5, 6)]
        factors = [f @ f.conj().T + np.eye(len(f)) for f in factors]
        host = bk.KroneckerProduct(factors) + bk.Identity(30, np.dtype(dtype))
        expected, found = logdet_slq(host, steps=20), logdet_slq(host.to("cuda"), steps=20)
        np.testing.assert_allclose(found, expected, rtol=1e-9)
        eye = logdet_slq((3 * bk.Identity(50)).to("cuda"), steps=20)
        np.testing.assert_allclose(eye, (50 * np.log(3), 0), atol=1e-10)


def transforms():
    """Toeplitz factors by CuPy's transforms."""
    from batchkron.operators.interpolated import grid_product

    grid_product.MIN_DEVICE_FFT_ROWS = 5
    rng = np.random.default_rng(1)
    for dtype in DTYPES:
        points, grid, factors = interpolated_problem(rng, (8, 4, 5), dtype, columns=True)
        host = bk.InterpolatedKronecker(points, grid, factors)
        op = host.to("cuda")
        assert "2 of 3 factors by FFT" in op.describe()
        x = random_array(rng, (5, 23), dtype)
        close(op.apply(cupy.asarray(x)), host.apply(x))
        op.update(factors=[2 * factor for factor in factors])
        close(op.apply(cupy.asarray(x)), host.apply(x))
        for one in (op, 2 * op, op + op, op @ op, op.T):
            assert not one.capturable
        before = device_runtime.moves()
        op.update(factors=[np.eye(n, dtype=dtype) for n in (8, 4, 5)])
        close(op.apply(cupy.asarray(x)), host.apply(x))
        assert device_runtime.moves() > before
        assert (op + op).capturable
        before = device_runtime.moves()
        op.update(factors=[2 * np.eye(n, dtype=dtype) for n in (8, 4, 5)])
        assert device_runtime.moves() == before
        for noise in (0.5, 0.0):
            op.update(noise=noise)
            close(op.apply(cupy.asarray(x)), host.apply(x))
            assert device_runtime.moves() > before
            before = device_runtime.moves()


class Squares:
    """y = x² and a count of the calls from Python, as work that a stream can capture."""

    def __init__(self, refuse=None):
        self.calls, self.refuse = 0, refuse

    def __call__(self, x, y):
        self.calls += 1
        stream = cupy.cuda.get_current_stream()
        if stream.capturing and self.refuse is not None:
            raise self.refuse

        def node():
            target = x if y is None else y
            target.host[...] = x.host**2

        if stream.capturing:
            stream.graph.nodes.append(node)
        else:
            node()


def repeated_work():
    """Work is called a few times, then replayed with all vectors and on all streams."""
    from batchkron.backends.cuda.runtime.repeated_work import RepeatedWork

    rng, work = np.random.default_rng(0), Squares()
    repeated = RepeatedWork(work, (7, 7), np.dtype("f8"))

    def check(repeated, work, calls, dtype="f8"):
        x, y = rng.standard_normal(7).astype(dtype), np.full(7, np.nan, dtype)
        target = cupy.asarray(y)
        repeated(cupy.asarray(x), target)
        np.testing.assert_array_equal(target.host, x**2)
        assert work.calls == calls

    for calls in range(1, 6):
        check(repeated, work, calls)
        assert not repeated.is_captured
    check(repeated, work, 7)  # once for the workspace of its stream, once captured
    assert repeated.is_captured
    for _ in range(3):
        check(repeated, work, 7)
    check(repeated, work, 8, "f4")  # does not fit
    DEVICE.stream.begin_capture()  # of a user, whose graph has the work itself
    mine = DEVICE.stream.graph
    x, y = (cupy.asarray(rng.standard_normal(7)) for _ in range(2))
    repeated(x, y)
    assert DEVICE.stream.end_capture() is mine
    assert len(mine.nodes) == 1
    mine.launch(DEVICE.stream)
    np.testing.assert_array_equal(y.host, x.host**2)
    other, before = cupy.cuda.Stream(), DEVICE.stream
    DEVICE.waits.clear()
    with other:
        check(repeated, work, 10)  # the work itself, so that its workspace is there
        assert DEVICE.waits == [(other, before)]
        check(repeated, work, 10)
        assert len(DEVICE.waits) == 1
    check(repeated, work, 10)
    assert DEVICE.waits[1:] == [(before, other)]
    device_runtime.note_move()
    assert not repeated.is_captured
    for calls in range(11, 16):
        check(repeated, work, calls)
    check(repeated, work, 17)
    assert repeated.is_captured
    for error in (NotImplementedError("cuBLAS"), RuntimeError("a copy to the host")):
        work = Squares(error)
        repeated = RepeatedWork(work, (7, 7), np.dtype("f8"))
        for calls in range(1, 6):
            check(repeated, work, calls)
        check(repeated, work, 7)
        assert not DEVICE.stream.capturing
        for calls in range(8, 10):
            check(repeated, work, calls)
        assert not repeated.is_captured
        assert repeated._pool is None
    workspaces = device_runtime.Workspaces()
    places = []

    def with_workspace(x, y):
        places.append(workspaces.pointer(64))
        work(x, y)

    work = Squares()
    repeated = RepeatedWork(with_workspace, (7, 7), np.dtype("f8"))
    for calls in range(1, 6):
        check(repeated, work, calls)
    check(repeated, work, 7)
    assert places[-1] == places[-2] != places[0]  # of the graph, for which it was made before
    assert not workspaces._captured
    thread = threading.Thread(target=check, args=(repeated, work, 8))
    thread.start()  # has a stream without workspace
    thread.join()
    check(repeated, work, 8)
    assert places[-1] not in places[:-1]
    work = Squares(KeyboardInterrupt())
    repeated = RepeatedWork(work, (7, 7), np.dtype("f8"))
    for calls in range(1, 6):
        check(repeated, work, calls)
    with pytest.raises(KeyboardInterrupt):
        check(repeated, work, 7)
    assert not repeated._own_stream.capturing
    repeated = RepeatedWork(Squares(), (7, 0), np.dtype("f8"))
    for _ in range(7):
        repeated(x)
    assert repeated.is_captured
    work = Squares()
    inner = RepeatedWork(work, (7, 7), np.dtype("f8"))

    def twice(x, y):
        between = cupy.asarray(np.full(7, np.nan))
        inner(x, between)
        inner(between, y)

    outer = RepeatedWork(twice, (7, 7), np.dtype("f8"), inner)
    for _ in range(9):
        x = rng.standard_normal(7)
        outer(cupy.asarray(x), y)
        np.testing.assert_allclose(y.host, x**4, rtol=1e-14)
    assert inner.is_captured
    assert outer.is_captured
    assert len(outer._graph.nodes) == 2  # work that is captured is never a graph itself
    large = RepeatedWork(Squares(), ((1 << 21) + 1, 0), np.dtype("f8"))
    x = cupy.asarray(np.ones((1 << 21) + 1))
    for _ in range(7):
        large(x)
    assert not large.is_captured


if __name__ == "__main__":
    globals()[sys.argv[1]]()
