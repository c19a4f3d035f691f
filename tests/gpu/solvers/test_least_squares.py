"""Least squares on a device, against those on the CPU."""

import numpy as np
import pytest
from dense_oracle import random_array

import batchkron as bk
from batchkron.solvers import lsmr, lsqr

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("method", [lsqr, lsmr])
def test_equal_those_on_the_cpu(cupy, rng, dtype, method):
    A = bk.KroneckerProduct(random_array(rng, (7, 5), dtype), random_array(rng, (6, 4), dtype))
    b = random_array(rng, (42, 3), dtype)
    single = np.finfo(dtype).eps > 1e-10
    options = {"atol": 1e-5 if single else 1e-12, "btol": 0.0, "batched": "columns"}
    options["iter_lim" if method is lsqr else "maxiter"] = 500
    expected = np.linalg.pinv(A.to_dense().astype(np.result_type(dtype, "f8"))) @ b
    there = cupy.asarray(b)
    for given in (A.to("cuda"), cupy.asarray(A.to_dense())):
        result = method(given, there, **options)
        assert result.converged.all()
        assert isinstance(result.x, cupy.ndarray)
        limit = (1e-2 if single else 1e-8) * abs(expected).max()
        assert abs(result.x.get() - expected).max() < limit


def test_operands_on_two_devices_are_refused(cupy, rng):
    A = bk.KroneckerProduct(rng.standard_normal((4, 3)), rng.standard_normal((4, 3)))
    with pytest.raises(TypeError, match="CUDA device"):
        lsqr(A, cupy.ones(16))
