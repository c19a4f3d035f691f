"""Products whose tiles are larger than shared memory, slice by slice."""

from importlib import import_module
from math import prod

import numpy as np
import pytest
from dense_oracle import factors_of, random_array
from plans import preferred

import batchkron as bk
from batchkron.spec.kron import KronSpec

pytestmark = pytest.mark.gpu

CASES = [  # sizes of the modes, rows, columns, dtype
    ((8,) * 5, 150, 1, "float64"),
    ((8,) * 5, 150, 1, "float32"),
    ((8,) * 8, 1, 1, "float64"),
    ((4,) * 7, 300, 1, "float64"),
    ((2,) * 14, 100, 1, "float64"),
    ((6, 2, 4, 8, 8, 8), 132, 1, "float64"),
    ((6, 16, 4, 4, 16), 140, 1, "float64"),
    ((16,) * 4, 132, 1, "float32"),
    ((4,) * 8, 250, 1, "float32"),
    ((8,) * 4, 1000, 1, "float32"),
    ((16,) * 3, 1000, 1, "float32"),
    ((8,) * 3, 1, 15360, "float64"),
    ((16,) * 3, 1, 1600, "float64"),
    ((16,) * 6, 1, 1, "float64"),
]


@pytest.fixture(params=CASES, ids=str)
def case(request, cupy):
    """A product for the family of slices; skipped on devices that have no such kernels."""
    from batchkron.backends.cuda.runtime.device import device_limits

    sizes, rows, columns, dtype = request.param
    limits = device_limits(0)
    if not limits.double_units or limits.shared_bytes < 227 << 10:
        pytest.skip("a device with fast matrix units of float64, and tiles of 227 KiB")
    plan = import_module("batchkron.backends.cuda.kron.plan")
    spec = KronSpec(sizes, sizes, rows, columns, np.dtype(dtype))
    with preferred("slices"):
        kernels = plan._kernels(spec, False, 0)
        assert "slices" in [kernel.family.name for kernel in kernels]
        yield request.param


def check(cupy, result, expected, host, x, scale=1.0):
    """Compare with float64, within the bound of the oracle; ``x`` is (rows, product, columns)."""
    magnitude = bk.KroneckerProduct([np.abs(f).astype(float) for f in host])
    terms = 2 * (sum(len(f) for f in host) + 2 * len(host) + 4)
    bound = magnitude.to("cuda").apply(cupy.abs(x).astype(float).swapaxes(1, 2).copy())
    bound = scale * terms * np.finfo(result.dtype).eps * bound.swapaxes(1, 2)
    assert bool((cupy.abs(result - expected) <= bound).all())


def test_equals_the_cpu(cupy, rng, case):
    sizes, rows, columns, dtype = case
    host, factors = factors_of(cupy, rng, [(n, n) for n in sizes], dtype)
    x = random_array(rng, (rows, prod(sizes), columns), dtype)
    doubles = [f.astype(float) for f in host]
    expected = np.stack([bk.gekmm(doubles, one.astype(float)) for one in x])
    given = cupy.asarray(x)
    if columns == 1:
        op = bk.KroneckerProduct(host).to("cuda")
        out = cupy.full((rows, prod(sizes)), cupy.nan, dtype)
        assert op.apply(given[:, :, 0], out=out) is out
        result = out[:, :, None]
    else:
        result = cupy.stack([bk.gekmm(factors, one) for one in given])
    check(cupy, result, cupy.asarray(expected), host, given)


@pytest.mark.parametrize("offset", [0, 1])
def test_what_is_there_is_added_at_any_address(cupy, rng, case, offset):
    sizes, rows, columns, dtype = case
    host, factors = factors_of(cupy, rng, [(n, n) for n in sizes], dtype)
    count = rows * prod(sizes) * columns
    memory = cupy.asarray(random_array(rng, 2 * count + 2, dtype))
    x, y = (memory[n + offset : n + offset + count] for n in (0, count))
    whole = rows, prod(sizes), columns
    x, before = x.reshape(whole), y.reshape(whole).copy()
    if columns == 1:
        out = y.reshape(rows, prod(sizes))
        bk.gemkm(x[:, :, 0], [f.T for f in factors], alpha=-2, beta=3, y=out, out=out)
    else:
        out = y.reshape(prod(sizes), columns)
        bk.gekmm(factors, x[0], alpha=-2, beta=3, y=out, out=out)
    doubles = [f.astype(float) for f in host]
    product = np.stack([bk.gekmm(doubles, one) for one in x.get().astype(float)])
    expected = cupy.asarray(-2 * product + 3 * before.get().astype(float))
    check(cupy, y.reshape(whole), expected, host, cupy.abs(x) + cupy.abs(before), scale=5)
