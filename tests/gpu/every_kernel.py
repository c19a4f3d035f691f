"""Every kernel template of the CUDA backend at small sizes, for compute-sanitizer.

compute-sanitizer --tool memcheck python tests/gpu/every_kernel.py
compute-sanitizer --tool initcheck python tests/gpu/every_kernel.py
compute-sanitizer --tool racecheck python tests/gpu/every_kernel.py --small --only fibres

Results are compared with the CPU's. Prints the kernels of each template that were loaded; ends with
status 1 if one of the chosen templates had none. ``--small`` cuts work as for a device of one
multiprocessor, so that a few thread blocks go through every loop: for racecheck, which takes a
thousand times as long, in a process for each ``--only`` and ``--dtype``.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from itertools import product
from math import prod
from pathlib import Path
from types import SimpleNamespace

import cupy
import numpy as np

import batchkron as bk
from batchkron.backends.cuda.gram.gradients import GradientsPlan
from batchkron.backends.cuda.gram.plan import GramPlan
from batchkron.backends.cuda.gram.rows import ProductLayout
from batchkron.backends.cuda.interpolated import segments
from batchkron.backends.cuda.kernel_family import without
from batchkron.backends.cuda.runtime import device
from batchkron.problems import SparseGrid
from batchkron.problems.discretization.matrices.mode_operator import connected
from batchkron.solvers import bicgstab, cg

sys.path.append(str(Path(__file__).parents[1] / "support"))
from plans import preferred
from transposed_products import always_transposed

DTYPES = ("float32", "float64", "complex64", "complex128")
BFLOAT16_EPS = 2.0**-7  # np.finfo does not know it
TILE_BYTES = 227 << 10  # shared memory of a thread block, the largest tile
TILES = 3  # one is loaded, one multiplied, one stored

REGISTERS = [
    [(1, 1)],
    [(3, 2), (2, 4)],
    [(2, 2)] * 6,
    [(8, 8)] * 4,
    [(8, 8)] * 5,
    [(5, 5)] * 3,
    [(12, 9), (10, 11)],
]
FIBRES = [
    [(16, 16)] * 3,
    [(40, 33), (3, 2)],
    [(32, 32), (20, 24)],
    [(64, 64)],
    [(50, 52), (18, 5), (3, 3)],
    [(101, 103)],
    [(5, 5), (5, 5), (2, 2), (25, 25)],
    [(2, 3), (2, 2), (3, 2), (5, 4), (16, 17)],
]
PANELS = [
    [(130, 120), (3, 3)],
    [(129, 33), (70, 190)],
    [(200, 200)],
]
SLICES = {  # factors: columns
    ((8, 8),) * 5: 3,
    ((4, 4),) * 7: 3,
    ((2, 2),) * 14: 3,
    ((16, 16),) * 4: 3,
    ((8, 8),) * 4: 3,
    ((16, 16),) * 3: 24,
    ((8, 8),) * 3: 128,
}
MODES = [
    [(2, 20_000)],
    [(2, 2)] * 13,
]
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
SPARSE = [(1, 20, 24, 8), (2, 33, 17, 1), (2, 16, 40, 3), (1, 2, 4, 16), (3, 70, 9, 12)]
KRON_SPARSE = ("tiles", "registers", "general")
SEGMENTS = [  # (before, Q, P, behind), nodes, edges of a node
    ((1, 1, 1, 1), 300, 9),
    ((1, 3, 3, 3), 40, 9),
    ((1, 3, 3, 3), 3, 300),
    ((16, 4, 4, 16), 9, 50),
    ((2, 9, 13, 5), 7, 5),
    ((300, 40, 2, 1), 3, 5),
]
SUMS = [(8, 8, 8), (5, 7), (33,), (2, 3, 4, 5)]
SWEEPS = [
    ((3,) * 2, (7, 5)),
    ((2, 4, 3), (6, 3, 5)),
    ((3,) * 6, (1, 0, 1, 2, 0, 1)),
    ((7,) * 3, (2, 1, 5)),
]
EXPLICIT = [
    ((90, 7), (3, 3)),
    ((64, 8), (4, 64)),
    ((40, 41), (2, 2)),
    ((2, 20_000), (3, 3)),
    ((3, 3), (200, 331)),
    ((100, 9), (2, 1)),
]


def check(result, expected, what, errors=2000):
    result = cupy.asnumpy(result)
    eps = BFLOAT16_EPS if result.dtype.name == "bfloat16" else np.finfo(result.dtype).eps
    result = result.astype(expected.dtype)
    scale = errors * eps * np.abs(expected).max(initial=1)
    assert np.abs(result - expected).max(initial=0) <= scale, what


def random_array(rng, shape, dtype):
    values = rng.standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        values = values + 1j * rng.standard_normal(shape)
    return values.astype(dtype)


def rows_of(shapes, dtype, small):
    """One row, and as many as make several tiles for every thread block."""
    if not small:
        return 1, 37, 300
    block = max(prod(p for p, _ in shapes), prod(q for _, q in shapes))
    return 1, -(-TILES * TILE_BYTES // (block * np.dtype(dtype).itemsize))


def kron_matmuls(rng, dtype, small, all_shapes, precision=None, columns=None):
    for shapes in all_shapes:
        host = [random_array(rng, shape, dtype) for shape in shapes]
        factors = [cupy.asarray(factor) for factor in host]
        product = bk.KroneckerProduct(host, precision=precision)
        on_device = product.to("cuda")
        for count in rows_of(shapes, dtype, small):
            x = random_array(rng, (count, prod(q for _, q in shapes)), dtype)
            y = random_array(rng, (count, prod(p for p, _ in shapes)), dtype)
            options = {"alpha": 2, "beta": -1, "transpose": True, "precision": precision}
            expected = bk.gemkm(x, host, y=y, **options)
            result = bk.gemkm(cupy.asarray(x), factors, y=cupy.asarray(y), **options)
            check(result, expected, (shapes, count))
            check(on_device.apply(cupy.asarray(x)), product.apply(x), (shapes, count))
        count = columns or (5 if small else 35)
        x = random_array(rng, (prod(q for _, q in shapes), count), dtype)
        result = bk.gekmm(factors, cupy.asarray(x), precision=precision)
        check(result, bk.gekmm(host, x), shapes)


def registers(rng, dtype, small):
    with preferred("registers"):
        kron_matmuls(rng, dtype, small, REGISTERS)


def fibres(rng, dtype, small):
    with preferred("fibres"):
        kron_matmuls(rng, dtype, small, FIBRES)
        if dtype == "float32":
            kron_matmuls(rng, dtype, small, FIBRES, "tf32x3")


def panels(rng, dtype, small):
    with preferred("panels"):
        kron_matmuls(rng, dtype, small, PANELS + (FIBRES if np.dtype(dtype).kind == "c" else []))


def slices(rng, dtype, small):
    with preferred("slices"):
        for shapes, columns in SLICES.items():
            kron_matmuls(rng, dtype, small, [shapes], columns=columns)


def modes(rng, dtype, small):
    with preferred("general"):
        kron_matmuls(rng, dtype, small, MODES)


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


def explicit(rng, dtype, small):
    a, b = random_array(rng, (7, 5), dtype), random_array(rng, (3, 300), dtype)
    c = random_array(rng, (2, 2), dtype)
    check(bk.kron(*map(cupy.asarray, (c, a, b))), bk.kron(c, a, b), "kron")
    four = [random_array(rng, (3, 9), dtype) for _ in range(4)]
    check(bk.kron(*map(cupy.asarray, four)), bk.kron(*four), "four factors")
    for first, second in EXPLICIT:
        a, b = random_array(rng, first, dtype), random_array(rng, second, dtype)
        check(bk.kron(cupy.asarray(a), cupy.asarray(b)), bk.kron(a, b), (first, second))


def triangles(rng, dtype, small):
    """Kronecker sums of factors that are not Hermitian, solved by Schur forms."""
    for sizes in ((40,), (33, 5), (2, 3, 4), (9, 8, 7)):
        matrices = [random_array(rng, (n, n), dtype) / n + 4 * np.eye(n) for n in sizes]
        op = bk.KroneckerSum([matrix.astype(dtype) for matrix in matrices])
        for columns in (1, 3):
            b = random_array(rng, (op.shape[0], columns), dtype)
            check(op.to("cuda").solve(cupy.asarray(b)), op.solve(b), (sizes, columns))


def gram(rng, dtype, small):
    """Gram matrices of small, middle and large modes, with one pair (l, r) and with many."""
    for outer, rows, columns, inner in (
        (1, 1, 1, 1), (70, 3, 2, 1), (9, 8, 8, 40), (3, 12, 20, 300), (5, 70, 9, 11),
        (1, 64, 130, 65),
    ):  # fmt: skip
        x, y = (random_array(rng, (outer, n, inner), dtype) for n in (rows, columns))
        plan = GramPlan((outer, rows, columns, inner), np.dtype(dtype), 0)
        device_x, device_y = cupy.asarray(x), cupy.asarray(y)
        sums, workspace = cupy.empty((rows, columns), dtype), cupy.empty(plan.workspace, "u1")
        addresses = tuple(one.data.ptr for one in (device_x, device_y, sums, workspace))
        plan.sequence()(device.ready_stream(0), addresses, b"")
        check(sums, np.einsum("lpr,lqr->pq", x.conj(), y), (outer, rows, columns, inner))


def gradients(rng, dtype, small):
    """All gradients of products of few rows and of many, by one kernel."""
    uneven = [(3, 2), (5, 16), (2, 3), (4, 4)]
    for count, shapes in (1, [(3, 4)]), (70, [(2, 2)] * 9), (300, [(8, 8)] * 3), (9, uneven):
        factors = [random_array(rng, shape, dtype) for shape in shapes]
        rows, columns = zip(*shapes, strict=True)
        strides = tuple((n, 1) for n in columns)
        layout = ProductLayout(np.dtype(dtype), count, 1, rows, columns, strides)
        plan = GradientsPlan(layout, (True,) * len(shapes), True, False, 0)
        x, G = (random_array(rng, (count, *sides), dtype) for sides in (rows, columns))
        given = [cupy.asarray(one) for one in (x, G, *factors)]
        of_x, *found = (cupy.empty_like(one) for one in (given[0], *given[2:]))
        scratch = cupy.empty(plan.scratch, "u1")
        places = (*(one.data.ptr for one in given[:2]), 0, scratch.data.ptr, of_x.data.ptr)
        lists = [[one.data.ptr for one in group] for group in (given[2:], given[2:], found)]
        ((sequence, _),) = plan.parts
        sequence(device.ready_stream(0), plan.addresses(*places, *lists), b"")
        for k in range(len(shapes)):
            others = [(j, A) for j, A in enumerate(factors) if j != k]
            y = x
            for j, A in others:
                y = np.moveaxis(np.tensordot(y, A, (j + 1, 0)), -1, j + 1)
            left, right = (
                np.moveaxis(one, k + 1, 0).reshape(one.shape[k + 1], -1) for one in (y, G)
            )
            check(found[k], left @ right.T, (count, shapes, k))
        for j, A in enumerate(factors):
            G = np.moveaxis(np.tensordot(G, A, (j + 1, 1)), -1, j + 1)
        check(of_x, G, (count, shapes))


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


def half_dtypes():
    """float16, and bfloat16 where ml_dtypes and CuPy have it."""
    found = [np.dtype("float16")]
    try:
        from ml_dtypes import bfloat16

        if cupy.asarray(np.ones(2, bfloat16)).dtype != bfloat16:
            raise TypeError("CuPy converts it")
    except (ImportError, TypeError, ValueError) as error:
        print(f"no bfloat16: {error}", flush=True)
    else:
        found.append(np.dtype(bfloat16))
    return found


def kron_sparse(rng, dtype, small):
    """Both layouts, by each family of kernels that takes the matrix.

    float16 and bfloat16 beside each other dtype, with sums in float32: their tiles stand for those
    that complex matrices lack.
    """
    kinds = [np.dtype(dtype), *half_dtypes()]
    for kind, pattern, family in product(kinds, SPARSE, KRON_SPARSE):
        others = [one for one in (*KRON_SPARSE, "library") if one != family]
        wide = np.dtype("float32") if kind.itemsize == 2 else kind
        values = random_array(rng, pattern, wide).astype(kind)
        for layout in ("batch-first", "batch-last"):
            op = bk.KroneckerSparse(values, layout=layout)
            count = 9 if small else 70
            shape = (count, op.shape[1]) if layout == "batch-first" else (op.shape[1], count)
            x = random_array(rng, shape, wide).astype(kind)
            expected = op.apply(x.astype(wide))
            with without(*(f"kron_sparse.{name}" for name in others)):
                try:
                    y = op.to("cuda").apply(cupy.asarray(x))
                except LookupError:
                    continue  # the family does not take this matrix
                check(y, expected, (pattern, layout, kind, family), 40)
                if kind == "float32":
                    fast = bk.KroneckerSparse(values, layout=layout, precision="tf32x3")
                    check(fast.to("cuda").apply(cupy.asarray(x)), expected, pattern)
                turned = cupy.asarray(values.transpose(0, 2, 1, 3).copy()).transpose(0, 2, 1, 3)
                y = bk.kronecker_sparse_multiply(turned, cupy.asarray(x), layout=layout)
                check(y, expected, (pattern, layout, kind, family, "function"), 40)
            if kind.kind != "c" and layout == "batch-first":
                with always_transposed(vectors=8):
                    y = op.to("cuda").apply(cupy.asarray(x))
                check(y, expected, (pattern, kind, "transposed"), 40)


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


# what each part runs, and the templates that it must have reached
PARTS = {
    "registers": (registers, {"cuda/kron/registers/kernel.cuh"}),
    "fibres": (fibres, {"cuda/kron/fibres/kernel.cuh"}),
    "slices": (slices, {"cuda/kron/slices.cuh"}),
    "panels": (panels, {"cuda/kron/panels.cuh"}),
    "modes": (modes, {"cuda/kron/general.cuh"}),
    "batches": (
        batches,
        {"cuda/batch/general.cuh", "cuda/batch/registers.cuh", "cuda/batch/slices.cuh"},
    ),
    "systems": (systems, {"cuda/kron_sum/systems.cuh", "cuda/krylov/systems.cuh"}),
    "triangles": (triangles, {"cuda/kron_sum/back_substitution.cuh"}),
    "units": (units, {"cuda/batch/matrix_units.cuh", "cuda/batch/unit_slices.cuh"}),
    "segmented": (segmented, {"cuda/segmented/general.cuh", "cuda/segmented/staged.cuh"}),
    "gram": (gram, {"cuda/gram/tiles.cuh", "cuda/gram/registers.cuh", "cuda/gram/total.cuh"}),
    "gradients": (gradients, {"cuda/gram/rows.cuh", "cuda/gram/total.cuh"}),
    "interpolated": (
        interpolated,
        {f"cuda/interpolated/{name}.cuh" for name in ("fold", "gather", "scatter", "segments")},
    ),
    "kron_sparse": (
        kron_sparse,
        {f"cuda/kron_sparse/{name}.cuh" for name in (*KRON_SPARSE, "store", "transpose_blocks")},
    ),
    "explicit": (
        explicit,
        {"cuda/explicit/bands.cuh", "cuda/explicit/tiles.cuh"},
    ),
}


def count_kernels():
    """Count the kernels that are loaded from now on, by their templates."""
    counts, load = Counter(), device._load

    def counted(program, number):
        counts[program.header] += 1
        return load(program, number)

    device._load = counted
    return counts


def pretend_one_multiprocessor():
    """Cut all work as for a device that has one."""
    ask = device.runtime.deviceGetAttribute

    def answer(attribute, number):
        count = device.runtime.cudaDevAttrMultiProcessorCount
        return 1 if attribute == count else ask(attribute, number)

    device.runtime.deviceGetAttribute = answer


def main():
    parser = argparse.ArgumentParser(description="Run every kernel template once or more.")
    parser.add_argument("--small", action="store_true", help="with few thread blocks")
    parser.add_argument("--only", choices=PARTS, action="append", help="all parts by default")
    parser.add_argument("--dtype", choices=DTYPES, action="append", help="two of them by default")
    options = parser.parse_args()
    if options.small:
        pretend_one_multiprocessor()
    counts, missing = count_kernels(), []
    rng = np.random.default_rng(0)
    for dtype in options.dtype or ("float64", "complex64"):
        for part in options.only or PARTS:
            if part in ("fibres", "slices", "units", "gradients") and np.dtype(dtype).kind == "c":
                continue
            counts.clear()
            device._loaded.cache_clear()  # count what an earlier dtype has loaded, too
            run, templates = PARTS[part]
            run(rng, dtype, options.small)
            cupy.cuda.Device().synchronize()
            for template, count in sorted(counts.items()):
                print(f"{part} {dtype}: {count} kernels of {template}", flush=True)
            missing += [f"{part} {dtype}: none of {one}" for one in templates - set(counts)]
    print("\n".join(missing) or "all results are right")
    raise SystemExit(bool(missing))


if __name__ == "__main__":
    main()
