"""Calls with ``out=`` take a fast path; nothing that differs from the call before is missed."""

import threading

import numpy as np
import pytest

import batchkron as bk

pytestmark = pytest.mark.gpu


def operators(rng):
    pool = rng.standard_normal((5, 2, 2))
    lists = rng.integers(0, 5, (9, 3)), rng.integers(0, 3, 9), rng.integers(0, 3, 9)
    counts = {"num_inputs": 3, "num_outputs": 3}
    yield bk.KroneckerProduct(rng.standard_normal((3, 2, 2)))
    yield bk.KroneckerProduct(rng.standard_normal((2, 17, 11)))
    yield bk.KroneckerProduct(rng.standard_normal((5, 8, 8)) / 3)
    yield bk.BatchedKron(pool, *lists, **counts)
    yield bk.BatchedKron(pool, *lists, accumulation="atomic", **counts)


@pytest.fixture(params=range(5), ids=["2^3", "17x11", "8^5", "owner", "atomic"])
def case(request, cupy, rng):
    """An operator, the same on the device, and a shape of vectors."""
    op = list(operators(rng))[request.param]
    shape = (2, 3, 8) if isinstance(op, bk.BatchedKron) else (2, op.shape[1])
    return op, op.to("cuda"), shape


def test_repeated_calls(cupy, rng, case, poisoned_on_device):
    op, device, shape = case
    for _ in range(3):
        x = rng.standard_normal(shape)
        expected = op.apply(x)
        out = poisoned_on_device(expected.shape, np.float64)
        assert device.apply(cupy.asarray(x), out=out) is out
        scale = 1e-13 * np.abs(expected).max()
        np.testing.assert_allclose(out.get(), expected, rtol=0, atol=scale)
        vector, flat = x.reshape(-1)[: op.shape[1]], poisoned_on_device(op.shape[0], np.float64)
        device.matvec(cupy.asarray(vector), out=flat)
        np.testing.assert_allclose(flat.get(), op.matvec(vector), rtol=0, atol=10 * scale)
        memory = cupy.empty(x.size + 1)
        shifted = memory[1:].reshape(shape)  # 8 bytes beyond the start of an allocation
        shifted[...] = cupy.asarray(x)
        out.fill(np.nan)
        device.apply(shifted, out=out)
        np.testing.assert_allclose(out.get(), expected, rtol=0, atol=scale)
        op.update(*_doubled(op))


def _doubled(op):
    if isinstance(op, bk.KroneckerProduct):
        return [[*op.factors[:-1], 2 * op.factors[-1]]]
    return [None, 2 * op._spec.weights[0]]


def test_what_does_not_fit_is_refused_after_what_does(cupy, rng, case):
    op, device, shape = case
    memory = cupy.asarray(rng.standard_normal(4 * np.prod(shape) + op.shape[0] * 2))
    x = memory[: np.prod(shape)].reshape(shape)
    expected = op.apply(x.get())
    out = cupy.empty_like(cupy.asarray(expected))
    device.apply(x, out=out)
    overlapping = memory[3 : 3 + expected.size].reshape(expected.shape)
    for wrong, error, text in [
        (overlapping, ValueError, "out overlaps an input"),
        (out.astype(np.float32), TypeError, "out has dtype float32"),
        (out[:1], ValueError, "out has shape"),
        (np.empty(expected.shape), TypeError, "out is a ndarray; expected a CuPy array"),
    ]:
        with pytest.raises(error, match=text):
            device.apply(x, out=wrong)
    with pytest.raises(TypeError, match="x is an array on the CPU"):
        device.apply(x.get(), out=out)
    strided = cupy.empty((*expected.shape, 2))[..., 0]
    device.apply(x, out=strided)
    scale = 1e-13 * np.abs(expected).max()
    np.testing.assert_allclose(strided.get(), expected, rtol=0, atol=scale)
    turned = cupy.asfortranarray(x)
    np.testing.assert_allclose(device.apply(turned, out=out).get(), expected, rtol=0, atol=scale)


def test_blocks_and_flat_vectors_are_not_mixed_up(cupy, rng):
    op = list(operators(rng))[3].to("cuda")
    flat, flat_out = cupy.ones(24), cupy.empty(24)
    blocks, blocks_out = cupy.ones((3, 8)), cupy.empty((3, 8))
    op.matvec(flat, out=flat_out)
    op.apply(blocks, out=blocks_out)
    flat_again = cupy.full(24, cupy.nan)
    op.apply(flat, out=flat_again)
    assert cupy.array_equal(flat_again, flat_out)
    with pytest.raises(ValueError, match="out has shape"):
        op.apply(flat, out=blocks_out)
    with pytest.raises(ValueError, match="x has shape"):
        op.matvec(blocks, out=blocks_out)


def test_batch_axes_are_asked_for(cupy, rng):
    pools = rng.standard_normal((1, 4, 2, 2))
    op = bk.BatchedKron(pools, [[0, 1]], [0], [0]).to("cuda")
    x, out = cupy.ones((1, 1, 4)), cupy.empty((1, 1, 4))
    op.apply(x, out=out)
    with pytest.raises(ValueError, match="batch_shape"):
        op.apply(x[0], out=out[0])


def test_a_new_thread_launches(cupy, rng, case):
    """It has no CUDA context yet, and everything that it needs was made by another thread."""
    op, device, shape = case
    x = cupy.asarray(rng.standard_normal(shape))
    expected = op.apply(x.get())
    out = cupy.asarray(expected)
    device.apply(x, out=out)
    out.fill(np.nan)
    cupy.cuda.Device().synchronize()
    thread = threading.Thread(target=lambda: device.apply(x, out=out))
    thread.start()
    thread.join()
    cupy.cuda.Device().synchronize()
    scale = 1e-13 * np.abs(expected).max()
    np.testing.assert_allclose(out.get(), expected, rtol=0, atol=scale)
