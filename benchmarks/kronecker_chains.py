"""Chains of Kronecker-sparse matrices: ``python -m benchmarks.kronecker_chains``."""

import math
import sys
from functools import partial
from itertools import product

import numpy as np

import batchkron as bk
from batchkron import kronecker_sparse as ks
from benchmarks.core.checks import on_host, relative_error
from benchmarks.core.options import parser_of
from benchmarks.core.records import machine, recorded
from benchmarks.core.timing import in_turn, least
from benchmarks.patterns import LAYOUTS

DTYPES = ("float16", "float32", "float64")
PORTIONS = (16 << 20, 32 << 20)  # bytes of the input and output of one factor, at most
ROUNDS = 7


def radix(size, steps):
    """The factors of a butterfly of size**steps elements."""
    return [(size**k, size, size, size ** (steps - 1 - k)) for k in range(steps)]


CHAINS = {
    "10 of 2 × 2": radix(2, 10),
    "12 of 2 × 2": radix(2, 12),
    "5 of 4 × 4": radix(4, 5),
    "4 of 8 × 8": radix(8, 4),
    "3 of 16 × 16": radix(16, 3),
    "monarch of 1024": [tuple(one) for one in ks.monarch(1024, 1024, 32)],
    "monarch of 4096": [tuple(one) for one in ks.monarch(4096, 4096, 64)],
    "3 of 256 × 256": [(1, 256, 256, 4), (2, 256, 256, 2), (4, 256, 256, 1)],
    "a layer of ViT": [(1, 192, 48, 2), (2, 48, 192, 1)],
}


def calls_of(chain, x, vectors, portions):
    factors = list(chain.factors)

    def apart():
        given = x
        for factor, out in zip(reversed(factors), reversed(vectors), strict=True):
            given = factor.apply(given, out=out)

    y = vectors[0]

    def each(parts):
        for part in parts:
            chain.apply(x[part], out=y[part])

    found = {"chain": partial(chain.apply, x, out=y), "factors": apart}
    for most in PORTIONS if portions else ():
        widest = max(max(one.shape) for one in factors)
        count = max(1, most // (2 * widest * x.dtype.itemsize))
        if count < len(x):
            parts = [slice(k, k + count) for k in range(0, len(x), count)]
            found[f"portions of {most >> 20} MiB"] = partial(each, parts)
    return found


def times_of(calls, cuda):
    """The seconds of each call: the least of several in turn, or on a device in a graph."""
    if not cuda:
        return least(in_turn(calls, ROUNDS))
    from benchmarks.core.device_timing import timed

    return {name: 1e-6 * timed([call]) for name, call in calls.items()}


def measured(name, dtype, layout, batch, cuda, rng):
    patterns = CHAINS[name]
    values = [(rng.standard_normal(p) / math.sqrt(p[2])).astype(dtype) for p in patterns]
    options = {"layout": layout}
    chain = bk.KroneckerSparseChain([bk.KroneckerSparse(v, **options) for v in values], **options)
    first = layout == "batch-first"
    shapes = [(batch, one.shape[0]) if first else (one.shape[0], batch) for one in chain.factors]
    x = rng.standard_normal((batch, chain.shape[1])[:: 1 if first else -1]).astype(dtype)
    module = np
    if cuda:
        import cupy

        module, x, chain = cupy, cupy.asarray(x), chain.to("cuda")
    vectors = [module.empty(shape, dtype) for shape in shapes]
    calls = calls_of(chain, x, vectors, cuda and first)
    results = []
    for call in calls.values():
        vectors[0].fill(math.nan)
        call()
        result = vectors[0][:: max(1, len(vectors[0]) // 64)]
        results.append(on_host(result).astype("float64"))
    error = max(relative_error(one, results[0]) for one in results)
    found = {"chain": name, "dtype": dtype, "layout": layout, "batch": batch}
    found["multiplied_out"] = [tuple(one.pattern) for one in chain._steps()]
    found |= {"seconds": times_of(calls, cuda), "difference": error}
    return {**found, "wrong": not error <= 100 * float(np.finfo(dtype).eps)}


def main(arguments=None):
    parser = parser_of(__doc__, "device", "json")
    parser.add_argument("--chain", action="append", choices=CHAINS, help="may be repeated")
    parser.add_argument("--dtype", nargs="+", choices=DTYPES)
    parser.add_argument("--batch", type=int, help="vectors; 4096, on a device 25 088")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args(arguments)
    cuda = options.device == "cuda"
    bk.set_num_threads(options.threads)
    batch = options.batch or (25_088 if cuda else 4096)
    rng, dtypes = np.random.default_rng(1), options.dtype or (DTYPES if cuda else DTYPES[1:])
    cells = product(options.chain or CHAINS, dtypes, LAYOUTS)
    rows = (measured(*cell, batch, cuda, rng) for cell in cells)
    found = recorded(rows, options.json, {"machine": machine(options.device)})
    return int(any(one["wrong"] for one in found))


if __name__ == "__main__":
    sys.exit(main())
