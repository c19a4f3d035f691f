"""Kronecker sums with a batch_shape on the device, against those on the CPU."""

import numpy as np
import pytest
from dense_oracle import random_array

import batchkron as bk

pytestmark = pytest.mark.gpu

CASES = [  # leading axes of the factors, their sizes
    ([(3,), (), (3,)], [8, 8, 8]),  # each thread holds whole fibres of the first mode
    ([(2, 1), (3,)], [5, 7]),
    ([(4,), ()], [1, 32]),
    ([(3,), (), (3,), ()], [2, 3, 4, 5]),
    ([(2,), (2,)], [40, 33]),
    ([(6,), (6,)], [2, 3]),  # a batch list: tiny
    ([(2,)], [70]),
    ([(2,), ()], [150, 130]),  # too large for a thread block
    ([(2,)] * 9, [2] * 9),
    ([(2,)] * 13, [2, 1] * 5 + [1] * 3),  # a batch list: many modes
    ([(0,), ()], [8, 8]),
]


def sums(rng, case, dtype):
    factors = [random_array(rng, (*lead, n, n), dtype) for lead, n in zip(*case, strict=True)]
    return bk.KroneckerSum(factors)


def close(found, expected, size):
    eps = np.finfo(expected.dtype).eps
    atol = 100 * eps * size * max(1.0, np.abs(expected).max(initial=0.0))
    np.testing.assert_allclose(found.get(), expected, rtol=0, atol=atol)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_products_equal_those_on_the_cpu(cupy, rng, dtype, case, poisoned_on_device):
    op = sums(rng, case, dtype)
    device, size = op.to("cuda"), op.shape[0]
    assert device.batch_shape == op.batch_shape
    for leading in ((), (2,)):
        shape = (*leading, *op.batch_shape, size)
        for given in (dtype, np.result_type(dtype, np.complex64)):
            x = random_array(rng, shape, given)
            for A, B in ((device, op), (device.T, op.T), (device.H, op.H)):
                for _ in range(2):  # the second call takes the fast path
                    out = poisoned_on_device(shape, np.result_type(given, dtype))
                    assert A.apply(cupy.asarray(x), out) is out
                    close(out, B.apply(x), size)
        x, y = random_array(rng, shape, dtype), random_array(rng, shape, dtype)
        expected = op.accumulate(x, y.copy(), alpha=-2.5)
        close(device.accumulate(cupy.asarray(x), cupy.asarray(y), alpha=-2.5), expected, size)


@pytest.mark.parametrize("case", [CASES[0], CASES[5]], ids=str)
def test_updates_reach_the_device(cupy, rng, case):
    op, other = sums(rng, case, np.float64), sums(rng, case, np.float64)
    device = op.to("cuda")
    relatives = device, device.T
    x = rng.standard_normal((*op.batch_shape, op.shape[0]))
    for relative in relatives:
        relative.apply(cupy.asarray(x))
    op.update(other.factors)
    close(relatives[0].apply(cupy.asarray(x)), other.apply(x), op.shape[0])
    close(relatives[1].apply(cupy.asarray(x)), other.T.apply(x), op.shape[0])


def test_factorised_systems_are_solved_on_the_device(cupy, rng):
    factors = rng.standard_normal((2, 5, 6, 6))
    op = bk.KroneckerSum([f + f.swapaxes(-1, -2) + 20 * np.eye(6) for f in factors])
    b = rng.standard_normal((5, 36))
    x = op.to("cuda").factorise().solve(cupy.asarray(b), shift=0.5)
    np.testing.assert_allclose(op.apply(x.get()) + 0.5 * x.get(), b, atol=1e-10)
    not_hermitian = bk.KroneckerSum(list(factors + 20 * np.eye(6)))
    x = not_hermitian.to("cuda").factorise().solve(cupy.asarray(b), shift=0.5).get()
    np.testing.assert_allclose(not_hermitian.apply(x) + 0.5 * x, b, atol=1e-10)


def test_an_apply_is_one_launch(cupy, rng, monkeypatch):
    from batchkron.backends.cuda.runtime.launch import Launch

    device = sums(rng, CASES[0], np.dtype(np.float64)).to("cuda")
    x = cupy.asarray(rng.standard_normal((3, 512)))
    out = device.apply(x)
    launches, original = [], Launch.__call__
    monkeypatch.setattr(Launch, "__call__", lambda *given: launches.append(1) or original(*given))
    device.apply(x, out)
    assert len(launches) == 1
