"""Kronecker products between interpolations."""

import cupy
import numpy as np
from kernel_parts.values import check, random_array

import batchkron as bk
from batchkron.backends.cuda.interpolated import segments


def interpolated(rng, dtype, small):
    """Points in grids of 1 to 6 dimensions: many cells and few, one vector and some.

    The transpose is by segments of points, then by owners of cells, as if memory were short.
    """
    known = segments._MAX_PARTIAL
    for memory in (known, -1):
        segments._MAX_PARTIAL = memory
        interpolated_products(rng, dtype, small)
    segments._MAX_PARTIAL = known


def interpolated_products(rng, dtype, small):
    for sizes in ((9,), (30, 41), (9, 8, 10), (5, 4, 6, 5), (4,) * 5, (5,) * 6):
        count = 40 if small else 400
        grid = bk.RegularGrid(0.0, 1.0, sizes)
        factors = [random_array(rng, (n, n), dtype) for n in sizes]
        op = bk.InterpolatedKronecker(rng.random((count, len(sizes))), grid, factors, noise=0.5)
        for batch in (1, 2, 7, 16):
            x = random_array(rng, (batch, count), dtype)
            check(op.to("cuda").apply(cupy.asarray(x)), op.apply(x), (sizes, batch))
            columns = np.ascontiguousarray(x.T)
            check(op.to("cuda").matmat(cupy.asarray(columns)), op.matmat(columns), (sizes, batch))
