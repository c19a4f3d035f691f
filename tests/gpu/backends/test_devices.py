"""Two devices: what is on one is not touched from the other."""

import numpy as np
import pytest

import batchkron as bk

pytestmark = pytest.mark.gpu


@pytest.fixture
def other(cupy):
    if cupy.cuda.runtime.getDeviceCount() < 2:
        pytest.skip("there is one device")
    return cupy.cuda.Device(1)


def test_operators_move_to_each_device(cupy, rng, other):
    op = bk.KroneckerProduct(rng.standard_normal((2, 3, 3)))
    x = rng.standard_normal(9)
    first = op.to("cuda")
    with other:
        second = op.to("cuda")
        assert second is not first
        np.testing.assert_allclose((second @ cupy.asarray(x)).get(), op @ x, atol=1e-12)
        with pytest.raises(TypeError, match="on cuda:0 and cuda:1 do not act together"):
            first + second
    np.testing.assert_allclose((first @ cupy.asarray(x)).get(), op @ x, atol=1e-12)
    op.update(2 * rng.standard_normal((2, 3, 3)))
    np.testing.assert_allclose((first @ cupy.asarray(x)).get(), op @ x, atol=1e-12)
    with other:
        np.testing.assert_allclose((second @ cupy.asarray(x)).get(), op @ x, atol=1e-12)


def test_functions_on_each_device(cupy, rng, other):
    """Launches are cached; arrays of two devices may have the same addresses."""
    host, x = rng.standard_normal((4, 16, 16)), rng.standard_normal((2, 16**4))
    product, explicit = bk.gemkm(x, host), np.kron(host[0], host[1])
    scale = 1e-12 * np.abs(product).max()
    for _ in range(2):
        for device in (cupy.cuda.Device(0), other):
            with device:
                factors = [cupy.asarray(factor) for factor in host]
                result = bk.gemkm(cupy.asarray(x), factors).get()
                np.testing.assert_allclose(result, product, rtol=0, atol=scale)
                np.testing.assert_array_equal(bk.kron(*factors[:2]).get(), explicit)
                squares = bk.batched_gemm(cupy.asarray(host), cupy.asarray(host)).get()
                np.testing.assert_allclose(squares, host @ host, rtol=0, atol=1e-12)


def test_arrays_of_another_device_are_refused(cupy, rng, other):
    factors = [cupy.asarray(rng.standard_normal((3, 3)))]
    pool = cupy.asarray(rng.standard_normal((1, 3, 3)))
    ops = [bk.KroneckerProduct(factors), bk.BatchedKron(pool, [[0]], [0], [0])]
    here = cupy.ones((3, 1))
    with other:
        there = cupy.ones((3, 1))
        factors_there = [cupy.ones((3, 3))]
    for op in ops:
        with pytest.raises(TypeError, match="is on CUDA device 1"):
            op @ there
        with pytest.raises(TypeError, match="is on CUDA device 1"):
            op.matvec(here, out=there)
        with other, pytest.raises(TypeError, match="the operator is on CUDA device 0"):
            op @ there
    calls = [
        lambda: bk.gekmm(factors, there),
        lambda: bk.gekmm(factors, here, beta=1, y=there),
        lambda: bk.gekmm(factors, here, out=there),
        lambda: bk.gekmm(factors_there, here),
        lambda: bk.kron(factors[0], there),
        lambda: bk.kron(factors[0], cupy.ones((1, 1)), out=factors_there[0]),
        lambda: bk.batched_gemm(pool, there[None]),
    ]
    for call in calls:
        with pytest.raises(TypeError, match="is on CUDA device 1"):
            call()
