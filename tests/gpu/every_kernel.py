"""Every kernel of the CUDA backend once or twice at small sizes, for compute-sanitizer.

compute-sanitizer --tool memcheck python tests/gpu/every_kernel.py
compute-sanitizer --tool racecheck python tests/gpu/every_kernel.py
compute-sanitizer --tool initcheck python tests/gpu/every_kernel.py
"""

from __future__ import annotations

import cupy
import numpy as np

import batchkron as bk

FACTORS = [
    [(1, 1)],
    [(3, 2), (2, 4)],
    [(2, 2)] * 6,
    [(8, 8)] * 4,
    [(5, 5)] * 3,
    [(40, 33), (3, 2)],
    [(32, 32), (20, 24)],
    [(64, 64)],
    [(2, 20_000)],
]
BATCHES = [
    [(1, 1)],
    [(4, 4)],
    [(3, 2), (2, 4)],
    [(3, 3)] * 3,
    [(3, 3)] * 5,
    [(4, 4)] * 4,
    [(4, 4)] * 6,
    [(2, 3), (4, 3), (3, 4), (3, 2)],
    [(2, 2)] * 13,
    [(130, 120), (3, 3)],
]
EXPLICIT = [
    ((90, 7), (3, 3)),
    ((64, 8), (4, 64)),
    ((40, 41), (2, 2)),
    ((2, 20_000), (3, 3)),
    ((3, 3), (200, 331)),
    ((100, 9), (2, 1)),
]


def check(result, expected, what):
    result = cupy.asnumpy(result)
    scale = 2000 * np.finfo(result.dtype).eps * np.abs(expected).max(initial=1)
    assert np.abs(result - expected).max(initial=0) <= scale, what


def random_array(rng, shape, dtype):
    values = rng.standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        values = values + 1j * rng.standard_normal(shape)
    return values.astype(dtype)


def kron_matmuls(rng, dtype):
    for shapes in FACTORS:
        host = [random_array(rng, shape, dtype) for shape in shapes]
        factors = [cupy.asarray(factor) for factor in host]
        for count in (1, 37, 300):
            x = random_array(rng, (count, int(np.prod([q for _, q in shapes]))), dtype)
            y = random_array(rng, (count, int(np.prod([p for p, _ in shapes]))), dtype)
            options = {"alpha": 2, "beta": -1, "transpose": True}
            expected = bk.gemkm(x, host, y=y, **options)
            result = bk.gemkm(cupy.asarray(x), factors, y=cupy.asarray(y), **options)
            check(result, expected, (shapes, count))
            product = bk.KroneckerProduct(host)
            check(product.to("cuda").apply(cupy.asarray(x)), product.apply(x), (shapes, count))
        x = random_array(rng, (int(np.prod([q for _, q in shapes])), 35), dtype)
        check(bk.gekmm(factors, cupy.asarray(x)), bk.gekmm(host, x), shapes)


def batches(rng, dtype):
    for shapes in BATCHES:
        pools = [random_array(rng, (4, *shape), dtype) for shape in shapes]
        ids = rng.integers(0, 4, (23, len(shapes)))
        lists = ids, rng.integers(0, 6, 23), rng.integers(0, 5, 23)
        for accumulation in ("owner", "atomic"):
            op = bk.BatchedKron(
                pools, *lists, num_inputs=6, num_outputs=5, accumulation=accumulation
            )
            for count in (1, 3, 33):
                if count > 1 and len(shapes) > 8:
                    continue
                x = random_array(rng, (op.shape[1], count), dtype)
                check(op.to("cuda") @ cupy.asarray(x), op @ x, (shapes, accumulation, count))


def others(rng, dtype):
    a, b = random_array(rng, (7, 5), dtype), random_array(rng, (3, 300), dtype)
    c = random_array(rng, (2, 2), dtype)
    check(bk.kron(*map(cupy.asarray, (c, a, b))), bk.kron(c, a, b), "kron")
    for first, second in EXPLICIT:
        a, b = random_array(rng, first, dtype), random_array(rng, second, dtype)
        check(bk.kron(cupy.asarray(a), cupy.asarray(b)), bk.kron(a, b), (first, second))
    left, right = random_array(rng, (4, 9, 5), dtype), random_array(rng, (4, 5, 17), dtype)
    expected = bk.batched_gemm(left, right, c_ids=[0, 1, 1, 0])
    device = cupy.asarray(left), cupy.asarray(right)
    check(bk.batched_gemm(*device, c_ids=[0, 1, 1, 0]), expected, "batched_gemm")


def main():
    rng = np.random.default_rng(0)
    for dtype in ("float64", "complex64"):
        kron_matmuls(rng, dtype)
        batches(rng, dtype)
        others(rng, dtype)
    cupy.cuda.Device().synchronize()
    print("all results are right")


if __name__ == "__main__":
    main()
