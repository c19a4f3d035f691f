"""Batch lists that are used once: ``python -m benchmarks.lists_once [--threads 1,2]``."""

from functools import partial
from itertools import product

import numpy as np

import batchkron as bk
from benchmarks.core.checks import relative_error
from benchmarks.core.options import parser_of
from benchmarks.core.records import machine, recorded
from benchmarks.core.timing import in_turn, least, seconds_of, waiter

CASES = (
    (1, 4), (2, 2), (2, 4), (3, 2), (3, 3), (3, 4), (4, 2), (4, 3), (4, 4),
    (5, 3), (6, 2), (6, 3), (6, 4),
)  # fmt: skip
CONTRIBUTIONS = 64  # products of an output
POOL = 4096  # shared matrices
MULTIPLY_ADDS = 1e8  # of a list, about
MAX_PRODUCTS = 200_000
ROUNDS = 7
EAGER_CALLS = 2000


def random_list(rng, modes, size, dtype, shares):
    block = size**modes
    products = min(MAX_PRODUCTS, int(MULTIPLY_ADDS / (modes * size * block)))
    blocks = max(1, products // CONTRIBUTIONS)
    products = blocks * CONTRIBUTIONS
    count = POOL if shares else products
    pools = [rng.standard_normal((count, size, size)).astype(dtype) for _ in range(modes)]
    ids = rng.integers(count, size=(products, modes))
    if not shares:
        ids[...] = np.arange(products)[:, None]
    inputs = rng.integers(blocks, size=products)
    outputs = rng.permutation(np.repeat(np.arange(blocks), CONTRIBUTIONS))
    x = rng.standard_normal((blocks, block)).astype(dtype)
    return pools, ids, x, inputs, outputs, np.zeros_like(x)


def on_device(arguments):
    import cupy

    pools, *others = arguments
    return ([cupy.asarray(pool) for pool in pools], *map(cupy.asarray, others))


def eager_seconds(rng):
    pools, ids, x, inputs, outputs, y = random_list(rng, 3, 4, "float64", True)
    few = slice(1000)
    call = partial(bk.batched_kron, *on_device((pools, ids[few], x, inputs[few], outputs[few], y)))
    call()
    return seconds_of(call, EAGER_CALLS, waiter("cuda"))


def measure(arguments, device):
    pools, ids, x, inputs, outputs, y = arguments
    build = partial(
        bk.BatchedKron, pools, ids, inputs, outputs, num_inputs=len(x), num_outputs=len(y)
    )
    operator = build()
    error = relative_error(bk.batched_kron(*arguments[:-1], y - y), operator.apply(x))
    if not error < 100 * np.finfo(y.dtype).eps:
        raise AssertionError(f"results differ by {error:.1e} of the largest element")
    ways = {
        "batched_kron": partial(bk.batched_kron, *arguments),
        "built and applied": lambda: build().accumulate(x, y),
        "applied": partial(operator.accumulate, x, y),
    }
    return least(in_turn(ways, ROUNDS, wait=waiter(device)))


def main():
    parser = parser_of(__doc__, "threads", "seed", "quick", "device", "json")
    options = parser.parse_args()
    on_cpu = options.device == "cpu"
    rng, eager = np.random.default_rng(options.seed), None
    if not on_cpu:
        eager = eager_seconds(rng)
        print(f"batched_kron on 1000 products, an eager call: {eager * 1e6:.1f} µs")
    cases = CASES[:2] if options.quick else CASES

    def rows():
        for (modes, size), dtype, shares in product(cases, ("float64", "float32"), (True, False)):
            arguments = random_list(rng, modes, size, dtype, shares)
            arguments = arguments if on_cpu else on_device(arguments)
            for count in options.threads if on_cpu else [0]:
                if on_cpu:
                    bk.set_num_threads(count)
                times = measure(arguments, options.device)
                case = {"modes": modes, "size": size, "dtype": dtype}
                case |= {"pool": "shared" if shares else "own", "products": len(arguments[1])}
                yield {**case, "threads": count, "seconds": times}

    about = {"machine": machine(), "device": options.device, "eager": eager}
    recorded(rows(), options.json, about)


if __name__ == "__main__":
    main()
