"""Batch lists that are used once: ``python -m benchmarks.lists_once [--threads 1,2]``.

For each (d, n), a list whose outputs have 64 products each, in random order, is added to y

- by `batchkron.batched_kron`,
- by a new `batchkron.BatchedKron` and its `accumulate` (built and applied),
- by `accumulate` of an operator that is there already (applied).

Matrices are drawn from pools of 4096 (shared), or each product has matrices of its own. Times are
the least of several in turn; the sums are compared. With ``--device cuda`` all arrays are CuPy's,
each time ends when the device has done its work, and the first line is the time of an eager call of
`batched_kron` on 1000 products, one of many in a row.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import batchkron as bk
from benchmarks.cpu.machine import describe_machine

CASES = (
    (1, 4), (2, 2), (2, 4), (3, 2), (3, 3), (3, 4), (4, 2), (4, 3), (4, 4),
    (5, 3), (6, 2), (6, 3), (6, 4),
)  # fmt: skip
CONTRIBUTIONS = 64  # products of an output
POOL = 4096  # shared matrices
MULTIPLY_ADDS = 1e8  # of a list, about
MAX_PRODUCTS = 200_000
ROUNDS = 7


def random_list(
    rng: np.random.Generator, modes: int, size: int, dtype: str, shares: bool
) -> tuple[Any, ...]:
    """The arguments of `batchkron.batched_kron`."""
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


def on_device(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """The same arrays on a CUDA device."""
    import cupy

    pools, *others = arguments
    return ([cupy.asarray(pool) for pool in pools], *map(cupy.asarray, others))


def synchronize(array: Any) -> None:
    """Wait for the device of an array."""
    if not isinstance(array, np.ndarray):
        array.device.synchronize()


def eager_seconds(rng: np.random.Generator, calls: int = 2000) -> float:
    """The time of one call of many, on 1000 products of three 4 x 4 matrices on a device."""
    pools, ids, x, inputs, outputs, y = random_list(rng, 3, 4, "float64", True)
    few = slice(1000)
    arguments = on_device((pools, ids[few], x, inputs[few], outputs[few], y))
    bk.batched_kron(*arguments)
    synchronize(arguments[-1])
    begin = time.perf_counter()
    for _ in range(calls):
        bk.batched_kron(*arguments)
    synchronize(arguments[-1])
    return (time.perf_counter() - begin) / calls


def measure(arguments: tuple[Any, ...]) -> dict[str, float]:
    """The least seconds of each way."""
    pools, ids, x, inputs, outputs, y = arguments
    counts = {"num_inputs": len(x), "num_outputs": len(y)}

    def build() -> bk.BatchedKron:
        return bk.BatchedKron(pools, ids, inputs, outputs, **counts)

    operator = build()
    ways: dict[str, Callable[[], object]] = {
        "batched_kron": lambda: bk.batched_kron(*arguments),
        "built and applied": lambda: build().accumulate(x, y),
        "applied": lambda: operator.accumulate(x, y),
    }
    compare(operator, arguments)
    seconds = dict.fromkeys(ways, np.inf)
    for _ in range(ROUNDS):
        for name, call in ways.items():
            begin = time.perf_counter()
            call()
            synchronize(y)
            seconds[name] = min(seconds[name], time.perf_counter() - begin)
    return {name: float(value) for name, value in seconds.items()}


def compare(operator: bk.BatchedKron, arguments: tuple[Any, ...]) -> None:
    """Raise if the two ways differ by more than rounding."""
    *call, y = arguments
    expected = operator.apply(call[2])
    result = bk.batched_kron(*call, y - y)
    error = float(abs(result - expected).max() / abs(expected).max())
    if not error < 100 * np.finfo(y.dtype).eps:
        raise AssertionError(f"results differ by {error:.1e} of the largest element")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--threads", default="1", help="numbers of threads, such as 1,2")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="two cases only")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    threads = [int(count) for count in options.threads.split(",")]
    rng = np.random.default_rng(options.seed)
    rows, eager = [], None
    if options.device == "cuda":
        threads, eager = [0], eager_seconds(rng)
        print(f"batched_kron on 1000 products, an eager call: {eager * 1e6:.1f} µs")
    head = "(d,n)  dtype    pool    threads  batched_kron  built+applied  applied  gain  / applied"
    print(head)
    for modes, size in CASES[:2] if options.quick else CASES:
        for dtype in ("float64", "float32"):
            for shares in (True, False):
                arguments = random_list(rng, modes, size, dtype, shares)
                if options.device == "cuda":
                    arguments = on_device(arguments)
                for count in threads:
                    if count:
                        bk.set_num_threads(count)
                    times = measure(arguments)
                    once, built, applied = times.values()
                    pool = "shared" if shares else "own"
                    print(
                        f"({modes},{size})  {dtype}  {pool:6}  {count:7}  {once * 1e6:9.0f} µs  "
                        f"{built * 1e6:10.0f} µs  {applied * 1e6:5.0f} µs  {built / once:5.1f}  "
                        f"{once / applied:6.2f}",
                        flush=True,
                    )
                    case = {"modes": modes, "size": size, "dtype": dtype, "pool": pool}
                    products = len(arguments[1])
                    rows.append({**case, "products": products, "threads": count, "seconds": times})
    if options.json:
        machine = describe_machine([], {}, [])
        report = {"machine": machine, "device": options.device, "eager": eager, "cells": rows}
        options.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
