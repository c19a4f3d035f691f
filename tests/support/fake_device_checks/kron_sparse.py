"""Kronecker-sparse operators and chains, and calls of kronecker_sparse_multiply."""

from functools import partial
from importlib import import_module

import cupy
import numpy as np
import pytest
from transposed_products import always_transposed

import batchkron as bk
from batchkron.backends import Tuning
from batchkron.backends.cuda.kernel_family import without
from batchkron.backends.cuda.kron_sparse import function_calls as sparse_calls
from batchkron.backends.cuda.kron_sparse import plan as kron_sparse
from batchkron.backends.cuda.kron_sparse.block_transposition import TRANSPOSITION
from fake_device_checks import DEVICE
from fake_device_checks.common import Counted


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
    A, B = (bk.KroneckerSparse(numbers(2, 3, 3, 2), layout=layout).to("cuda") for _ in range(2))
    total, product, x = A + B, A @ B, numbers(5, 12)
    assert isinstance(total, bk.KroneckerSparse) == (dtype != "float16")
    assert isinstance(product, bk.KroneckerSparseChain)
    for _ in range(2):
        left, right = (bk.KroneckerSparse(one.values).to_dense() for one in (A, B))
        np.testing.assert_array_equal((total @ cupy.asarray(x.T.copy())).host, (left + right) @ x.T)
        check(product.apply(placed(x)), x, left @ right)
        A.update(numbers(2, 3, 3, 2))


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
            if not turned and (kernels[-1].family.stored == "given" or whole):
                assert len(kernels) == 1
        odd = cupy.asarray(np.zeros(x.size + 1, dtype))[1:].reshape(*x.shape)
        odd.host[...] = x
        found = bk.kronecker_sparse_multiply(values, odd, layout=layout)
        np.testing.assert_array_equal(found.host, expected)
    moved = cupy.asarray(np.zeros(values.size + 1, dtype))[1:].reshape(*pattern)
    moved.host[...] = 2 * host
    found = bk.kronecker_sparse_multiply(moved, given, layout=layout)
    np.testing.assert_array_equal(found.host, 2 * expected)


def kronecker_sparse_transposed():
    """Operator and function through transposed vectors, in several parts, also in a graph."""
    rng = np.random.default_rng(4)
    for dtype, pattern in (
        ("float16", (2, 32, 64, 4)),
        ("float32", (3, 48, 32, 3)),
        ("float64", (1, 12, 13, 5)),
    ):
        with always_transposed(vectors=8), without("kron_sparse.general"):
            transposed_products(rng, dtype, pattern)


def transposed_products(rng, dtype, pattern):
    a, b, c, d = pattern
    host = rng.integers(-2, 3, (a, c, b, d)).astype(dtype).transpose(0, 2, 1, 3)
    x = rng.integers(-2, 3, (21, a * c * d)).astype(dtype)
    op = bk.KroneckerSparse(host)
    expected = x.astype(op.to_dense().dtype) @ op.to_dense().T
    values, given = cupy.asarray(host), cupy.asarray(x)
    odd = cupy.asarray(np.zeros(x.size + 1, dtype))[1:].reshape(*x.shape)
    odd.host[...] = x
    out = cupy.asarray(np.full(expected.shape, np.nan, dtype))
    on_device = op.to("cuda")
    for capturing in (0, 9):
        DEVICE.stream.capturing = capturing
        for vectors in (given, odd):
            for call in (
                partial(on_device.apply, vectors, out=out),
                partial(bk.kronecker_sparse_multiply, values, vectors, out=out),
            ):
                out.host[...] = np.nan
                count = len(DEVICE.launches)
                call()
                np.testing.assert_array_equal(out.host, expected)
                turned = [k.family is TRANSPOSITION for k, _ in DEVICE.launches[count:]]
                assert turned[-9:] == 3 * [True, False, True]  # 8, 8 and 5 vectors
    on_device.accumulate(given, out)  # values are where the other kernel finds them
    np.testing.assert_array_equal(out.host, 2 * expected)
    DEVICE.stream.capturing = 0
    count = len(DEVICE.launches)
    on_device.accumulate(given, out, alpha=2)
    assert len(DEVICE.launches) == count + 1  # what scales and adds is one kernel
    np.testing.assert_array_equal(out.host, 4 * expected)
    other = bk.KroneckerSparse(host).to("cuda")
    other.accumulate(given, out)
    DEVICE.stream.capturing = 10
    other.apply(given, out=out)
    DEVICE.stream.capturing = 0
    np.testing.assert_array_equal(out.host, expected)


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


def kronecker_sparse_tuned():
    """When a search begins, and the stream on which it copies values."""
    plain = bk.KroneckerSparse(np.ones((1, 2, 3, 2))).to("cuda")
    asked = Counted(kron_sparse.KronSparsePlan, "_tune")
    for _ in range(2):
        plain.apply(cupy.asarray(np.ones((4, 6))))
    assert not asked.calls  # what is not tuned costs no call
    searched = []
    kron_sparse.tune = lambda shape, device, tuning: searched.append(shape.outer)
    op = bk.KroneckerSparse(np.ones((1, 2, 3, 2)), tune=True).to("cuda")
    for vectors, capturing in ((4, 0), (4, 0), (5, 1), (5, 0), (5, 0)):
        DEVICE.stream.capturing = capturing
        op.apply(cupy.asarray(np.ones((vectors, 6))))
    assert searched == [4, 5]
    both = plain + op
    both.apply(cupy.asarray(np.ones((7, 6))))
    assert searched == [4, 5, 7]
    copied_on = []
    asarray = cupy.asarray

    class Trial:
        def __init__(self, *sizes):
            self.stream = cupy.cuda.Stream(non_blocking=True)

        def measure(self, prepare, best):
            with self.stream:
                prepare()
            assert copied_on == [self.stream]
            return 1.0

    def search(key, words, space, measure, *others):
        measure(space.rule, {}, 1.0)

    tuned = import_module("batchkron.backends.cuda.kron_sparse.tuned")
    tuned.Trial, tuned.search_and_keep, tuned._prepared = Trial, search, lambda *parts: None
    cupy.asarray = lambda value: copied_on.append(DEVICE.streams[-1]) or asarray(value)
    shape = kron_sparse.SparseShape(1, 2, 3, 2, 4, 1, "float32")
    assert tuned.tune_sparse(shape, 0, Tuning(again=True))
