"""Inverses, sorted eigenpairs and tensors on a device, against those on the CPU."""

import numpy as np
import pytest
from dense_oracle import random_array

import batchkron as bk
from batchkron.problems import make

pytestmark = pytest.mark.gpu


def hermitian(rng, n, dtype):
    half = random_array(rng, (n, n), dtype)
    return (half @ half.conj().T / n + np.eye(n)).astype(dtype)


def close(found, expected, factor=1e3):
    eps = np.finfo(expected.dtype).eps
    atol = factor * eps * max(1.0, np.abs(expected).max(initial=0.0))
    np.testing.assert_allclose(found.get(), expected, rtol=0, atol=atol)


def test_inverses_of_sums(cupy, rng, dtype):
    op = bk.KroneckerSum([hermitian(rng, 5, dtype), hermitian(rng, 6, dtype)])
    x = random_array(rng, (4, 30), dtype)
    for A in (op, 2 * op, op + bk.Identity(30, dtype), op @ op):
        inverse, expected = A.to("cuda").inverse(), A.inverse()
        moved = expected.to("cuda")
        for found, known in ((inverse, expected), (moved, expected), (inverse.H, expected.H)):
            assert found.device == "cuda"
            close(found.apply(cupy.asarray(x)), known.apply(x))
        y = random_array(rng, (4, 30), dtype)
        known = expected.accumulate(x, y.copy(), alpha=-1.5)
        close(inverse.accumulate(cupy.asarray(x), cupy.asarray(y), alpha=-1.5), known)


def test_sorted_and_chosen_eigenpairs(cupy, rng, dtype):
    op = bk.KroneckerProduct([hermitian(rng, 3, dtype), hermitian(rng, 4, dtype)])
    device, expected = op.to("cuda"), op.eigvalsh()
    close(device.eigvalsh(), expected)
    values, vectors = device.eigh(sort=True)
    close(values, expected)
    V = vectors.to_dense()
    close(device.matmat(V) - V * values, np.zeros((12, 12), dtype))
    some, columns = device.eigh(k=-3)
    close(some, expected[-3:])
    close(device.matmat(columns) - columns * some, np.zeros((12, 3), dtype))


def test_tensors(cupy, rng, dtype):
    a, b = random_array(rng, (3, 4), dtype), random_array(rng, (5, 2), dtype)
    X = random_array(rng, (4, 2), dtype)
    found = bk.KroneckerProduct(a, b).to("cuda") @ cupy.asarray(X)
    assert found.shape == (3, 5)
    close(found, a @ X @ b.T)


def test_right_hand_sides_without_out(cupy):
    for name in ("continuity-2d", "landau-1x1v"):
        problem = make(name, level=3, degree=1)
        device = problem.to("cuda")
        found = device.rhs(0.1, device.initial)
        assert isinstance(found, cupy.ndarray)
        close(found, problem.rhs(0.1, problem.initial))
