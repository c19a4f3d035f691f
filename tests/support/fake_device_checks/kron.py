"""gekmm and gemkm: values, calls that are known, refusals, captured graphs."""

import math
from itertools import product

import cupy
import numpy as np
import pytest
from dense_oracle import DTYPES, random_array, sizes
from refused_multiplies import refused_multiplies

import batchkron as bk
from batchkron.backends.cuda.kron import function_calls, plan, tuned
from batchkron.spec.kron import KronSpec
from fake_device_checks import DEVICE
from fake_device_checks.common import Counted, close, on_device

TWO_PASSES = [(16, 16)] * 4
SHAPES = [[(3, 4)], [(2, 3), (4, 2)], [(5, 5)] * 3, [(2, 2)] * 6, [(3, 200), (200, 3)]]


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
    """A layout is planned once; factors, shapes and addresses are not mixed up."""
    rng = np.random.default_rng(2)
    planned = Counted(function_calls, "_planned")
    host = [random_array(rng, (4, 4), "float64") for _ in range(4)]
    device = on_device(host)
    x = random_array(rng, (5, 16), "float64")
    for _ in range(3):
        for pair in ((0, 1), (1, 0), (2, 3), (0, 0)):
            factors = [device[k] for k in pair]
            close(bk.gemkm(cupy.asarray(x), factors), bk.gemkm(x, [host[k] for k in pair]))
    assert planned.calls == 1
    device[0].host *= 2
    close(bk.gemkm(cupy.asarray(x), device[:2]), 2 * bk.gemkm(x, host[:2]))
    close(bk.gekmm(device[:2], cupy.asarray(x.T.copy())), 2 * bk.gekmm(host[:2], x.T))
    assert planned.calls == 2
    with bk.backends.cuda.kernel_family.without("kron.registers"):
        bk.gemkm(cupy.asarray(x), device[:2])
    assert planned.calls == 3


def refusals():
    """What does not fit is refused after what does, with the texts of all other calls."""
    call, x = refused_multiplies(cupy, np.random.default_rng(3))
    x.data.device_id = 1
    with pytest.raises(TypeError, match="an array is on CUDA device 1"):
        call()


def products_by_address():
    """What a key stands for is planned once; None is returned, and known, where it needs arrays."""
    rng, planned = np.random.default_rng(9), Counted(function_calls, "_planned")
    multiply, number = function_calls.addressed_multiply, -1

    def run(prepared, x, factors, out):
        memory = DEVICE.alloc(prepared.workspace)
        places = x.data.ptr, out.data.ptr, 0, memory.ptr
        prepared.sequence(0, (*places, *[one.data.ptr for one in factors]), b"")

    for number, (name, arguments, shape) in enumerate(products(rng)):
        expected, left = getattr(bk, name)(*arguments), name == "gekmm"
        factors, x = (on_device(one) for one in (arguments if left else arguments[::-1]))
        for _ in range(2):
            prepared = multiply(number, lambda given=(factors, x): given, left, 0)
            out = cupy.asarray(np.full(shape, np.nan, expected.dtype))
            run(prepared, x, factors, out)
            close(out, expected)
        others = [cupy.asarray(3 * factors[0].host), *factors[1:]]
        run(prepared, cupy.asarray(2 * x.get()), others, out)
        close(out, 6 * expected)
    assert planned.calls == number + 1
    factors, x = on_device(list(np.ones((2, 2, 2)))), cupy.asarray(np.ones((3, 4)))
    for key, given in {
        "strides": ([factors[0], cupy.asarray(np.ones((2, 4)))[:, ::2]], x),
        "empty": ([factors[0], factors[1]], x[:0]),
        "sizes": ([factors[0], cupy.asarray(np.ones((3, 3)))], x),
    }.items():
        assert multiply(key, lambda given=given: given, False, 0) is None
        assert multiply(key, None, False, 0) is None


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


def identities():
    """Identities at the ends and between factors: functions, and operators also after updates."""
    rng = np.random.default_rng(6)
    for dtype, pattern in product(
        DTYPES, [[3, (2, 3), 2], [(2, 3), 2, (3, 1)], [(2, 2), 40, (3, 3)], [2, 3], [7, (4, 4)]]
    ):
        host = [
            bk.Identity(o) if isinstance(o, int) else random_array(rng, o, dtype) for o in pattern
        ]
        given = [one if isinstance(one, bk.Identity) else cupy.asarray(one) for one in host]
        columns = math.prod(one.shape[1] for one in host)
        for lead in ((), (2,)):
            x = random_array(rng, (*lead, columns, *((3,) if lead else ())), dtype)
            expected = bk.gekmm(host, x)
            for _ in range(2):
                close(bk.gekmm(given, cupy.asarray(x)), expected)
                y = cupy.asarray(random_array(rng, expected.shape, dtype))
                close(bk.gekmm(given, cupy.asarray(x), beta=2, y=y), expected + 2 * y.get())
        if pattern != [2, 3]:
            close(bk.kron(given), bk.kron(host))
        op = bk.KroneckerProduct(host).astype(dtype)
        moved, x = op.to("cuda"), random_array(rng, columns, dtype)
        close(moved @ cupy.asarray(x), op @ x)
        close(moved.H @ cupy.asarray(op @ x), op.H @ (op @ x))
        close(moved.to_dense(), op.to_dense())
    op = bk.KroneckerProduct([np.eye(3), rng.random((2, 2)), rng.random((40, 40))])
    moved, x = op.to("cuda"), rng.random(240)
    for factors in (
        [rng.random((3, 3)), bk.Identity(2), rng.random((40, 40))],
        [rng.random((3, 3)), rng.random((2, 2)), 2 * np.eye(40)],
        [rng.random((3, 3)), rng.random((2, 2)), rng.random((40, 40))],
        [bk.Identity(3), bk.Identity(2), bk.Identity(40)],
    ):
        op.update(factors)
        close(moved @ cupy.asarray(x), op @ x)
    spec = KronSpec((4, 512, 4), (4, 512, 4), 64, 1, np.dtype("f8"), None, (False, True, False))
    assert "4x4,I512,4x4" in tuned.kron_key(spec, False, "device")
    assert [factor.shape for factor in tuned.random_factors(spec)] == [(4, 4), (1, 1), (4, 4)]
