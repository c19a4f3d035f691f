"""Lists of products, and operators of sparse grids."""

from math import prod
from types import SimpleNamespace

import cupy
import numpy as np
from kernel_parts.values import check, random_array

import batchkron as bk
from batchkron.backends.cuda.runtime import device
from batchkron.problems import SparseGrid
from batchkron.problems.discretization.matrices.mode_operator import connected

BATCHES = [
    [(1, 1)],
    [(4, 4)],
    [(3, 2), (2, 4)],
    [(3, 3)] * 3,
    [(3, 3)] * 4,
    [(3, 3)] * 5,
    [(2, 2), (7, 7), (7, 7)],
    [(4, 4)] * 4,
    [(4, 4)] * 6,
    [(2, 3), (4, 3), (3, 4), (3, 2)],
    [(2, 2)] * 13,
    [(130, 120), (3, 3)],
]
LISTS = [(23, 6, 5), (60, 6, 1), (50, 6, 70)]  # products, inputs, outputs
UNITS = [(8, 8), (8, 8, 8), (4, 2, 8, 8), (4,) * 4, (4,) * 5, (4,) * 6]
UNITS += [(12, 16), (4, 16, 12), (8, 12, 12), (12, 16, 12), (16, 16, 16), (7, 7, 7), (3, 9, 15)]
SEGMENTS = [  # (before, Q, P, behind), nodes, edges of a node
    ((1, 1, 1, 1), 300, 9),
    ((1, 3, 3, 3), 40, 9),
    ((1, 3, 3, 3), 3, 300),
    ((16, 4, 4, 16), 9, 50),
    ((2, 9, 13, 5), 7, 5),
    ((300, 40, 2, 1), 3, 5),
]
SWEEPS = [
    ((3,) * 2, (7, 5)),
    ((2, 4, 3), (6, 3, 5)),
    ((3,) * 6, (1, 0, 1, 2, 0, 1)),
    ((7,) * 3, (2, 1, 5)),
]


def batches(rng, dtype, small):
    for shapes in BATCHES:
        pools = [random_array(rng, (5, *shape), dtype) for shape in shapes]
        for pool in pools:
            if pool.shape[1] == pool.shape[2]:
                pool[0] = np.eye(pool.shape[1])
        for first, (products, num_inputs, num_outputs) in enumerate(LISTS):
            if max(map(max, shapes)) > 8 and first:
                continue
            ids = rng.integers(first % 2, 5, (products, len(shapes)))  # matrix 0 is the identity
            lists = ids, rng.integers(0, num_inputs, products)
            lists += (rng.integers(0, num_outputs, products),)
            weights = random_array(rng, products, dtype) if first else None
            counts = {"num_inputs": num_inputs, "num_outputs": num_outputs, "weights": weights}
            for accumulation in ("owner", "atomic"):
                op = bk.BatchedKron(pools, *lists, accumulation=accumulation, **counts)
                for count in (1, 3) if small else (1, 3, 33):
                    if count > 1 and (len(shapes) > 8 or first):
                        continue
                    x = random_array(rng, (op.shape[1], count), dtype)
                    what = shapes, accumulation, count
                    check(op.to("cuda") @ cupy.asarray(x), op @ x, what)
    for shapes in BATCHES[:6]:
        pools = [random_array(rng, (5, *shape), dtype) for shape in shapes]
        ids, lists = rng.integers(0, 5, (90, len(shapes))), rng.integers(0, 7, (2, 90))
        rows, columns = (prod(shape[axis] for shape in shapes) for axis in (0, 1))
        x, y = random_array(rng, (2, 7, columns), dtype), random_array(rng, (2, 7, rows), dtype)
        expected = bk.batched_kron(pools, ids, x, *lists, y.copy())
        given = [[*map(cupy.asarray, pools)], *map(cupy.asarray, (ids, x, *lists, y))]
        check(bk.batched_kron(*given), expected, (shapes, "batched_kron"))
    left, right = random_array(rng, (4, 9, 5), dtype), random_array(rng, (4, 5, 17), dtype)
    expected = bk.batched_gemm(left, right, c_ids=[0, 1, 1, 0])
    given = cupy.asarray(left), cupy.asarray(right)
    check(bk.batched_gemm(*given, c_ids=[0, 1, 1, 0]), expected, "batched_gemm")


def units(rng, dtype, small):
    """Lists long enough for matrix units, with one product for each output and with 40."""
    multiprocessors = device.device_limits(0).multiprocessors
    for sizes in UNITS:
        pools = [random_array(rng, (5, n, n), dtype) for n in sizes]
        for num_outputs, mean in ((9 * multiprocessors, 1), (2 * multiprocessors, 40)):
            products = num_outputs * mean
            ids, inputs = rng.integers(0, 5, (products, len(sizes))), rng.integers(0, 6, products)
            op = bk.BatchedKron(
                pools,
                ids,
                inputs,
                rng.integers(0, num_outputs, products),
                weights=random_array(rng, products, dtype) if mean > 1 else None,
                num_inputs=6,
                num_outputs=num_outputs,
            )
            x = random_array(rng, (3, op.num_inputs, prod(sizes)), dtype)
            y = random_array(rng, (3, op.num_outputs, prod(sizes)), dtype)
            on_device, given = op.to("cuda"), cupy.asarray(x)
            check(on_device.apply(given), op.apply(x), sizes)
            expected = op.accumulate(x, y.copy())
            check(on_device.accumulate(given, cupy.asarray(y)), expected, sizes)


def segmented(rng, dtype, small):
    for sizes, nodes, maximum in SEGMENTS:
        before, columns, rows, behind = sizes
        degrees = rng.integers(0, maximum, nodes)
        starts = np.concatenate([[0], np.cumsum(degrees)])
        ids, children = rng.integers(0, 5, starts[-1]), rng.integers(0, 9, starts[-1])
        matrices = random_array(rng, (5, rows, columns), dtype)
        counts = {"before": before, "behind": behind, "num_inputs": 9}
        op = bk.SegmentedModeMultiply(matrices, starts, ids, children, **counts)
        x, y = (random_array(rng, shape, dtype) for shape in (op.input_shape, op.output_shape))
        device, given = op.to("cuda"), cupy.asarray(x)
        check(device.apply(given), op.apply(x), sizes)
        check(device.accumulate(given, cupy.asarray(y)), op.accumulate(x, y), sizes)
    for sizes, corner in SWEEPS:
        grid = SparseGrid.custom([corner], [3] * len(corner)).closed()
        modes = []
        for n in sizes:
            joined = np.nonzero(connected(3, "volume"))
            blocks = random_array(rng, (len(joined[0]), n, n), dtype)
            modes.append(SimpleNamespace(rows=joined[0], columns=joined[1], blocks=blocks))
        op = bk.SparseGridOperator(grid, [modes, [*modes[:1], *[None] * (len(sizes) - 1)]], sizes)
        for count in (1, 3) if small else (1, 3, 33):
            X = random_array(rng, (op.shape[1], count), dtype)
            check(op.to("cuda") @ cupy.asarray(X), op @ X, (sizes, count))
