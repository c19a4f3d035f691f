"""Kronecker products with identities on the device: operators, functions and torch."""

import numpy as np
import pytest
from dense_oracle import dense_kron, random_array

import batchkron as bk

pytestmark = pytest.mark.gpu

PATTERNS = [  # shapes of factors, and sizes of identities
    [512, (4, 4), 512],
    [1000, (8, 8)],
    [(16, 16), 777],
    [33, (64, 64), 3],
    [5, (31, 33), 31],
    [(4, 4), 100, (4, 4)],
    [(2, 2), 2, (2, 2), 2, 2, (2, 3)],
    [3, (8, 8), (8, 8), 16, (5, 8), 7],
    [12],
]


def multiplied(factors, x):
    """The product mode by mode, by NumPy."""
    before, after = 1, x.size
    for factor in factors:
        rows, columns = factor.shape
        after //= columns
        if not isinstance(factor, bk.Identity):
            x = np.einsum("pq,lqr->lpr", factor, x.reshape(before, columns, after))
        before *= rows
    return x.reshape(-1)


def given(rng, pattern, dtype):
    return [bk.Identity(o) if isinstance(o, int) else random_array(rng, o, dtype) for o in pattern]


def check(found, expected):
    tolerance = 500 * np.finfo(expected.dtype).eps * np.abs(expected).max()
    np.testing.assert_allclose(found.get(), expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("pattern", PATTERNS, ids=str)
def test_products(cupy, poisoned_on_device, rng, dtype, pattern):
    factors = given(rng, pattern, dtype)
    op = bk.KroneckerProduct(factors).astype(dtype)
    device = op.to("cuda")
    x = random_array(rng, op.shape[1], dtype)
    expected = multiplied(factors, x)
    out = poisoned_on_device(expected.shape, dtype)
    for _ in range(2):
        assert device.apply(cupy.asarray(x), out=out) is out
        check(out, expected)
    y = cupy.asarray(expected)
    check(device.accumulate(cupy.asarray(x), y, alpha=-3), -2 * expected)
    check(device.H @ cupy.asarray(expected), op.H @ expected)
    columns = np.stack([x, 2 * x], 1)
    check(device @ cupy.asarray(columns), np.stack([expected, 2 * expected], 1))
    arrays = [one if isinstance(one, bk.Identity) else cupy.asarray(one) for one in factors]
    for _ in range(2):
        check(bk.gekmm(arrays, cupy.asarray(x)), expected)
        turned = [one if isinstance(one, bk.Identity) else one.T for one in arrays]
        check(bk.gemkm(cupy.asarray(x)[None], turned), expected[None])
        check(bk.gekmm(arrays, cupy.asarray(columns))[:, 1], 2 * expected)


def test_updates_and_captured_products(cupy, rng, captured):
    shapes = (5, 6, 7)
    op = bk.KroneckerProduct([rng.random((n, n)) for n in shapes])
    device, x = op.to("cuda"), cupy.asarray(rng.random(210))
    for factors in (
        [np.eye(5), rng.random((6, 6)), bk.Identity(7)],
        [rng.random((5, 5)), -2 * np.eye(6), rng.random((7, 7))],
        [bk.Identity(5), bk.Identity(6), 3 * np.eye(7)],
        [rng.random((n, n)) for n in shapes],
    ):
        op.update(factors)
        check(device @ x, op @ x.get())
        out, stream = cupy.empty(210), cupy.cuda.Stream(non_blocking=True)
        graph = captured(stream, lambda out=out: device.apply(x, out=out))
        out[...] = np.nan
        graph.launch(stream)
        stream.synchronize()
        check(out, op @ x.get())


def test_direct_methods_and_infinities(cupy, rng):
    A = rng.random((3, 3)) + 3 * np.eye(3)
    op = bk.KroneckerProduct([bk.Identity(4), A, np.eye(2)])
    device, x = op.to("cuda"), rng.random(24)
    check(device.solve(cupy.asarray(x)), op.solve(x))
    check(device.inverse() @ cupy.asarray(x), op.inverse() @ x)
    check(device.to_dense(), op.to_dense())
    check(bk.kron([bk.Identity(4), cupy.asarray(A), bk.Identity(2)]), op.to_dense())
    x[5] = np.inf
    np.testing.assert_array_equal(
        np.isfinite((device @ cupy.asarray(x)).get()), np.isfinite(op @ x)
    )


def test_a_sum_of_terms(cupy, rng):
    sites, terms = 12, []
    for site in range(10):
        factors = [np.eye(2)] * sites
        factors[site : site + 3] = rng.random((3, 2, 2))
        terms.append(bk.KroneckerProduct(factors))
    total, x = sum(terms), rng.random(2**sites)
    check(total.to("cuda") @ cupy.asarray(x), total @ x)


@pytest.mark.parametrize("pattern", [[7, (4, 4), 5], [(2, 3), 9, (3, 3)]], ids=str)
def test_torch(rng, pattern):
    torch = pytest.importorskip("torch")
    bkt = pytest.importorskip("batchkron.torch")
    factors = given(rng, pattern, "float64")
    dense = dense_kron(*[np.eye(*f.shape) if isinstance(f, bk.Identity) else f for f in factors])

    def product(x, *matrices):
        found = iter(matrices)
        return bkt.kron_matmul(
            x, [one if isinstance(one, bk.Identity) else next(found) for one in factors]
        )

    matrices = [
        torch.tensor(one, device="cuda", requires_grad=True)
        for one in factors
        if not isinstance(one, bk.Identity)
    ]
    x = torch.tensor(rng.random((3, dense.shape[0])), device="cuda", requires_grad=True)
    torch.testing.assert_close(product(x, *matrices), x @ torch.tensor(dense, device="cuda"))
    assert torch.autograd.gradcheck(product, (x, *matrices))
