"""Preconditioners on the device."""

import cupy
import numpy as np

import batchkron as bk
from batchkron.solvers import preconditioners
from fake_device_checks.common import close


def block_jacobi():
    """Block Jacobi of a Kronecker-sparse matrix is one on its device."""
    rng = np.random.default_rng(0)
    host = bk.KroneckerSparse(rng.standard_normal((2, 3, 3, 2)))
    x = rng.standard_normal(12)
    expected = preconditioners.block_jacobi(host, 0.1)
    found = preconditioners.block_jacobi(host.to("cuda"), 0.1)
    assert found.device == "cuda"
    close(found.matvec(cupy.asarray(x)), expected.matvec(x))
