"""batched_gemm and batched_kron: values, lists on the device, refusals."""

import cupy
import numpy as np
import pytest
from dense_oracle import DTYPES, random_array, sizes

import batchkron as bk
from batchkron.backends.cuda.batch import list_calls
from batchkron.backends.cuda.batch import plan as batch_plan
from fake_device_checks import DEVICE
from fake_device_checks.common import Counted, close, on_device


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
