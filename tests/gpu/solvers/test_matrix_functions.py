"""Functions of operators on a device, against those on the CPU."""

import numpy as np
import pytest
import scipy.linalg
from dense_oracle import random_array

import batchkron as bk
from batchkron.solvers import expm_multiply, matrix_function, phi_multiply

pytestmark = pytest.mark.gpu


def positive(rng, dtype):
    factors = []
    for n in (6, 7):
        G = random_array(rng, (n, n), dtype)
        factors.append(G @ G.conj().T / n + np.eye(n, dtype=dtype))
    return bk.KroneckerSum(factors)


def limit(dtype, expected):
    return (1e-3 if np.finfo(dtype).eps > 1e-10 else 1e-6) * abs(expected).max()


@pytest.mark.parametrize(
    "f", ["exp", "sqrt", "inverse-sqrt", pytest.param(scipy.linalg.sinm, id="sinm")]
)
@pytest.mark.parametrize("hermitian", [False, True])
@pytest.mark.parametrize("restart", [10, 50])
def test_functions(cupy, rng, dtype, f, hermitian, restart):
    A, b = positive(rng, dtype), random_array(rng, (42, 2), dtype)
    options = {"hermitian": hermitian, "restart": restart, "rtol": 1e-5, "t": 0.5}
    expected = matrix_function(f, A, b, **options)
    found = matrix_function(f, A.to("cuda"), cupy.asarray(b), **options)
    assert found.converged
    assert isinstance(found.x, cupy.ndarray)
    np.testing.assert_allclose(found.x.get(), expected.x, atol=10 * limit(dtype, expected.x))


def test_exponentials(cupy, rng, dtype):
    A, b = positive(rng, dtype), random_array(rng, (42, 2), dtype)
    found = expm_multiply((-A).to("cuda"), cupy.asarray(b), start=0.0, stop=1.0, num=3)
    expected = np.stack([(-A).expm_apply(b, t) for t in (0.0, 0.5, 1.0)])
    np.testing.assert_allclose(found.get(), expected, atol=limit(dtype, expected))
    vectors = [b[:, 0], None, b[:, 1]]
    there = [None if v is None else cupy.asarray(v) for v in vectors]
    found, expected = phi_multiply(A.to("cuda"), there, -0.5), A.phi_apply(vectors, -0.5)
    np.testing.assert_allclose(found.x.get(), expected, atol=limit(dtype, expected))
