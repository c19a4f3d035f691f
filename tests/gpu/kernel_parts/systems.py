"""Kronecker sums that are solved."""

from math import prod

import cupy
import numpy as np
from kernel_parts.values import check, random_array

import batchkron as bk
from batchkron.solvers import bicgstab, cg

SUMS = [(8, 8, 8), (5, 7), (33,), (2, 3, 4, 5)]


def systems(rng, dtype, small):
    for sizes in SUMS:
        factors = [random_array(rng, (4, n, n), dtype) for n in sizes]
        op = bk.KroneckerSum(
            [
                f + f.conj().swapaxes(1, 2) + 8 * n * np.eye(n, dtype=dtype)
                for f, n in zip(factors, sizes, strict=True)
            ]
        )
        b = random_array(rng, (2, 4, prod(sizes)), dtype)
        device, given = op.to("cuda"), cupy.asarray(b)
        check(device.apply(given), op.apply(b), sizes)
        for method in (cg, bicgstab):
            found = method(device, given[0], rtol=1e-4, batched="leading")
            assert found.converged, (method, sizes)


def triangles(rng, dtype, small):
    """Kronecker sums of factors that are not Hermitian, solved by Schur forms."""
    for sizes in ((40,), (33, 5), (2, 3, 4), (9, 8, 7)):
        matrices = [random_array(rng, (n, n), dtype) / n + 4 * np.eye(n) for n in sizes]
        op = bk.KroneckerSum([matrix.astype(dtype) for matrix in matrices])
        for columns in (1, 3):
            b = random_array(rng, (op.shape[0], columns), dtype)
            check(op.to("cuda").solve(cupy.asarray(b)), op.solve(b), (sizes, columns))
