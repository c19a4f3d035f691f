"""Each kernel with views of any alignment and strides, host arrays, and too little memory."""

import gc
from functools import partial

import numpy as np
import pytest
from dense_oracle import random_array

import batchkron as bk

pytestmark = pytest.mark.gpu


def shifted(cupy, array, elements=1):
    """A copy that begins some elements behind the beginning of an allocation."""
    memory = cupy.empty(array.size + elements, array.dtype)
    view = memory[elements:].reshape(array.shape)
    view[...] = cupy.asarray(array)
    return view


class ByOperator:
    """y = A x by an operator."""

    def __init__(self, cupy, op):
        self.op, self.device = op, op.to("cuda")
        blocks = isinstance(op, bk.BatchedKron)
        self.x_shape = (2, op.num_inputs, op.shape[1] // op.num_inputs) if blocks else (2, -1)
        if not blocks:
            self.x_shape = (2, op.shape[1])

    def __call__(self, x, out):
        return self.device.apply(x, out=out)

    def expected(self, x):
        return self.op.apply(x)


class ByFunction:
    """y = x (A_1 ⊗ …), factors at odd places."""

    def __init__(self, cupy, host):
        self.host, self.factors = host, [shifted(cupy, factor) for factor in host]
        self.x_shape = 3, int(np.prod([len(factor) for factor in host]))

    def __call__(self, x, out):
        return bk.gemkm(x, self.factors, out=out)

    def expected(self, x):
        return bk.gemkm(x, self.host)


class Explicit:
    """x ⊗ B, B at an odd place."""

    def __init__(self, cupy, b, x_shape):
        self.b, self.on_device, self.x_shape = b, shifted(cupy, b), x_shape

    def __call__(self, x, out):
        return bk.kron(x, self.on_device, out=out)

    def expected(self, x):
        return np.kron(x, self.b)


def by_operator(make, cupy, rng, dtype):
    return ByOperator(cupy, make(rng, dtype))


def product(shapes, rng, dtype):
    return bk.KroneckerProduct([random_array(rng, shape, dtype) for shape in shapes])


def total(rng, dtype):
    op = bk.KroneckerSum([random_array(rng, (4, 4), dtype) for _ in range(3)])
    return 2 * op @ op - bk.Identity(64, dtype)


def batch(shapes, accumulation, rng, dtype):
    pools = [random_array(rng, (5, *shape), dtype) for shape in shapes]
    lists = rng.integers(0, 5, (30, len(shapes))), rng.integers(0, 4, 30), rng.integers(0, 3, 30)
    counts = {"num_inputs": 4, "num_outputs": 3}
    return bk.BatchedKron(pools, *lists, accumulation=accumulation, **counts)


def by_function(shapes, cupy, rng, dtype):
    return ByFunction(cupy, [random_array(rng, shape, dtype) for shape in shapes])


def explicit(shape, x_shape, cupy, rng, dtype):
    return Explicit(cupy, random_array(rng, shape, dtype), x_shape)


def operator(make, *arguments):
    return partial(by_operator, partial(make, *arguments))


CALLS = {
    "constants": operator(product, [(3, 3), (4, 4), (5, 5)]),
    "constants, two passes": operator(product, [(8, 8)] * 5),
    "registers": partial(by_function, [(3, 5), (4, 4), (7, 2)]),
    "fibres": operator(product, [(20, 24), (17, 33)]),
    "fibres, several groups": operator(product, [(32, 32)] * 3),
    "fibres of a function": partial(by_function, [(64, 64)]),
    "modes": partial(by_function, [(2, 2)] * 13),
    "algebra": operator(total),
    "list in registers": operator(batch, [(3, 3)] * 2, "owner"),
    "list in registers, whole words": operator(batch, [(4, 4)] * 3, "owner"),
    "list": operator(batch, [(2, 3), (12, 10)], "owner"),
    "atomic": operator(batch, [(4, 4)] * 3, "atomic"),
    "explicit": partial(explicit, (31, 30), (9, 7)),
    "explicit, few rows": partial(explicit, (3, 700), (2, 2)),
}


@pytest.fixture(params=CALLS)
def call(request, cupy, rng, dtype):
    return CALLS[request.param](cupy, rng, dtype)


def check(result, expected):
    scale = 2000 * np.finfo(expected.dtype).eps * np.abs(expected).max()
    np.testing.assert_allclose(result.get(), expected, rtol=0, atol=scale)


@pytest.mark.parametrize("places", [(1, 0), (0, 1), (1, 1), (3, 2)], ids=str)
def test_views_that_begin_anywhere(cupy, poisoned_on_device, rng, dtype, call, places):
    x = random_array(rng, call.x_shape, dtype)
    expected = call.expected(x)
    before, behind = places[1], 5
    memory = poisoned_on_device(before + expected.size + behind, dtype)
    out = memory[before : before + expected.size].reshape(expected.shape)
    assert call(shifted(cupy, x, places[0]), out) is out
    check(out, expected)
    guards = np.delete(memory.get(), np.s_[before : before + expected.size])
    assert np.isnan(guards).all()


def test_views_with_strides(cupy, poisoned_on_device, rng, dtype, call):
    x = random_array(rng, call.x_shape, dtype)
    expected, given = call.expected(x), cupy.asarray(x)
    wide = cupy.asarray(np.repeat(x[..., None], 2, -1))
    for view in (wide[..., 1], given[..., ::-1].copy()[..., ::-1], cupy.asfortranarray(given)):
        memory = poisoned_on_device((*expected.shape, 3), dtype)
        out = memory[..., 1]
        assert call(view, out) is out
        check(out, expected)
        assert np.isnan(memory.get()[..., [0, 2]]).all()
        plain = poisoned_on_device(expected.shape, dtype)
        call(view, plain)
        check(plain, expected)
    np.testing.assert_array_equal(given.get(), x)


def test_arrays_of_the_host_are_refused(cupy, rng, dtype, call):
    x = random_array(rng, call.x_shape, dtype)
    expected, given = call.expected(x), cupy.asarray(x)
    out = cupy.asarray(expected)
    with pytest.raises(TypeError, match="on the CPU"):
        call(x, out)
    np.testing.assert_array_equal(out.get(), expected)
    with pytest.raises(TypeError, match="out is a ndarray; expected a CuPy array"):
        call(given, expected)


@pytest.mark.parametrize("transpose_b", [False, True])
def test_batched_gemm_of_views(cupy, rng, dtype, transpose_b):
    a, b = random_array(rng, (6, 3, 5), dtype), random_array(rng, (6, 5, 4), dtype)
    ids = {"c_ids": [0, 1, 1, 0, 2, 2]}
    expected = bk.batched_gemm(a, b, **ids)
    turned = np.ascontiguousarray(b.swapaxes(1, 2)) if transpose_b else b
    wide = cupy.asarray(np.repeat(turned[..., None], 2, -1))[..., 1]
    for left, right in [
        (shifted(cupy, a), shifted(cupy, turned)),
        (cupy.asfortranarray(cupy.asarray(a)), wide),
    ]:
        check(bk.batched_gemm(left, right, transpose_b=transpose_b, **ids), expected)
    with pytest.raises(TypeError, match="on the CPU"):
        bk.batched_gemm(cupy.asarray(a), turned, transpose_b=transpose_b, **ids)


@pytest.fixture
def no_more_memory(cupy):
    """Stops CuPy's pool from growing, when it has no free memory."""
    pool = cupy.get_default_memory_pool()
    gc.collect()
    pool.free_all_blocks()

    def stop():
        pool.free_all_blocks()
        pool.set_limit(size=max(1, pool.total_bytes()))

    yield stop
    pool.set_limit(size=0)


LARGE = 1 << 21  # elements, more than what lies free in the pool


def needing_memory(cupy, rng):
    """Calls that need memory of their own, and an array that they must leave as it is."""
    x, out = (cupy.asarray(rng.standard_normal((LARGE, 2))) for _ in range(2))
    matrix = cupy.asarray(rng.standard_normal((2, 2)))
    by_columns = cupy.asfortranarray(x)
    yield partial(bk.gemkm, by_columns, [matrix], out=out), out
    square = bk.KroneckerProduct([np.ones((1, 1)), np.eye(2)]).to("cuda")
    chain = square @ bk.KroneckerProduct([np.eye(2)]).to("cuda")
    yield partial(chain.apply, x, out=out), out
    yield partial(square.apply, x), x
    yield partial(bk.kron, x, matrix), x
    yield partial(bk.batched_gemm, x[None], matrix[None]), x


def test_too_little_memory_is_said_and_changes_nothing(cupy, rng, no_more_memory):
    calls = list(needing_memory(cupy, rng))
    kept = [array.get() for _, array in calls]
    no_more_memory()
    for (run, array), before in zip(calls, kept, strict=True):
        with pytest.raises(MemoryError, match=r"[Mm]emory"):
            run()
        np.testing.assert_array_equal(array.get(), before)


def test_an_operator_beyond_memory_can_be_moved_later(cupy, rng, no_more_memory):
    pool = rng.standard_normal((LARGE // 4, 2, 2))
    op = bk.BatchedKron(pool, [[0, 1]], [0], [0])
    x = rng.standard_normal((1, 4))
    no_more_memory()
    with pytest.raises(MemoryError):
        op.to("cuda")
    cupy.get_default_memory_pool().set_limit(size=0)
    check(op.to("cuda").apply(cupy.asarray(x)), op.apply(x))


@pytest.mark.parametrize("kind", ["driver", "runtime"])
def test_memory_that_cuda_lacks_is_said(cupy, rng, monkeypatch, kind):
    """Memory that CUDA itself allocates at a launch: for the code of a kernel, or its stack."""
    from batchkron.backends.cuda.runtime.launch import LaunchSequence

    errors = {
        "driver": cupy.cuda.driver.CUDADriverError,
        "runtime": cupy.cuda.runtime.CUDARuntimeError,
    }
    op = bk.KroneckerProduct(rng.standard_normal((2, 3, 3)))
    x, out = cupy.asarray(rng.standard_normal((4, 9))), cupy.ones((4, 9))

    def fail(*arguments):
        raise errors[kind](2)

    monkeypatch.setattr(LaunchSequence, "__call__", fail)
    for target in (out, None):
        with pytest.raises(MemoryError, match="the CUDA device has too little free memory"):
            op.to("cuda").apply(x, out=target)
    np.testing.assert_array_equal(out.get(), np.ones((4, 9)))
    monkeypatch.undo()
    check(op.to("cuda").apply(x, out=out), op.apply(x.get()))
