"""Time single kernels of Kron-Matmuls on the device: what `benchmarks.gpu.fit` fits costs to."""

import datetime
import math
import random
import time
from collections import Counter
from concurrent.futures import as_completed
from dataclasses import replace
from itertools import combinations, islice, product
from pathlib import Path

import cupy
import numpy as np

from batchkron.backends.cuda.kron.families import FAMILIES
from batchkron.backends.cuda.kron.fibres.passes import PRODUCTS
from batchkron.backends.cuda.kron.plan import prepared_call
from batchkron.backends.cuda.kron.tuned import LoadedKernels, random_factors
from batchkron.backends.cuda.runtime.device import current_device, device_limits, options_for, place
from batchkron.backends.cuda.steps import ModeRun
from batchkron.backends.cuda.tuning.compilers import Compilers
from batchkron.backends.cuda.tuning.search import RejectedError
from batchkron.backends.cuda.tuning.trials import Trial
from batchkron.spec.kron import KronSpec
from benchmarks.core.options import parser_of
from benchmarks.gpu.cases.cases import KRON, PDE
from benchmarks.gpu.fit import MeasuredKernel, write
from benchmarks.shapes import KronMatmul

SMALL_SIZES = tuple(range(2, 17))  # of factors of random products
LARGE_SIZES = (
    18, 20, 24, 25, 27, 30, 32, 36, 40, 48, 50, 56, 64, 72, 80, 96, 100, 112, 128, 144, 160,
)  # fmt: skip
SIZES = (*SMALL_SIZES, *LARGE_SIZES, 192, 256)
MAX_ELEMENTS = 1 << 26  # of a random product's largest result
MAX_RUN_ELEMENTS = 1 << 28
KERNELS = 3000  # that are chosen, about
COMPLEX, REDUCED = 0.06, 0.10  # shares of runs that are taken in complex, and in TF32
# variants of a run that are timed beside the fastest one, and each family's share of all kernels;
# those of other families are the last numbers
OTHERS = {"fibres": 4, "registers": 2, "slices": 2, "panels": 4, "general": 0}
OTHERS_USUALLY, SHARE_USUALLY = 2, 0.04
SHARES = {"fibres": 0.42, "registers": 0.38, "slices": 0.04, "panels": 0.12, "general": 0.04}


def products(rng, count):
    yield from (case.shape for case in (*KRON, *PDE))
    for _ in range(count):
        modes = rng.choice((1, 2, 2, 3, 3, 3, 4, 4, 5, 6, 7))
        one = rng.choice(SIZES)
        square = rng.random() < 0.6
        factors = []
        for _ in range(modes):
            inputs = one if square else rng.choice(SIZES)
            same = square or rng.random() < 0.5
            factors.append((inputs, inputs if same else rng.choice(SIZES)))
        largest = math.prod(max(pair) for pair in factors)
        if largest <= MAX_ELEMENTS:
            rows = min(1 << rng.randrange(14), max(1, MAX_ELEMENTS // largest))
            yield KronMatmul(rows, tuple(factors))


def runs(shape, rng):
    """The runs of neighbouring modes of a product, as if all later modes were done."""
    inputs, outputs = zip(*shape.factors, strict=True)
    count = len(inputs)
    dtypes = ("float32", "float64", "complex64", "complex128")
    for dtype, (low, high) in product(dtypes, combinations(range(count + 1), 2)):
        if dtype.startswith("complex") and rng.random() > COMPLEX:
            continue
        whole = ModeRun(0, inputs, outputs, shape.rows, 1, np.dtype(dtype))
        run = whole.part(low, high, range(high, count))
        if run.L * run.R * max(map(math.prod, (run.inputs, run.outputs))) > MAX_RUN_ELEMENTS:
            continue
        is_reduced = dtype == "float32" and rng.random() < REDUCED
        products = PRODUCTS[rng.choice(("tf32", "tf32x3"))] if is_reduced else 0
        constant = rng.random() < 0.5
        yield replace(run, first=0, products=products, constant=constant, fixed_columns=True)


def kernels(family, run, rng):
    """The kernel that a family chooses (True), and some near it."""
    device = device_limits(current_device())
    fastest = family.fastest(run, device)
    if fastest is None:
        return
    yield fastest, True
    near = list(islice(family.near(run, fastest.variant, 1, 1.6, device), 60))
    for variant in rng.sample(near, min(len(near), OTHERS.get(family.name, OTHERS_USUALLY))):
        kernel = family.kernel(run, variant, device) if variant != fastest.variant else None
        if kernel is not None:
            yield kernel, False


def drawn(count, rng):
    """About ``count`` kernels, of each family its share, in random order; who is chosen: True."""
    shapes = products(rng, count // 40)
    order = list(dict.fromkeys(run for shape in shapes for run in runs(shape, rng)))
    rng.shuffle(order)
    found = []
    for family in FAMILIES:
        own = (pair for run in order for pair in kernels(family, run, rng))
        found += islice(own, int(SHARES.get(family.name, SHARE_USUALLY) * count))
    rng.shuffle(found)
    return found


def measured(kernel, chosen, code, device):
    run = kernel.work
    spec = KronSpec(run.inputs, run.outputs, run.L, run.R, run.dtype)
    host = random_factors(spec)
    factors = place(host)
    loaded = LoadedKernels({kernel.program: code}, host, device)
    trial = Trial(run.L * run.R * math.prod(run.inputs), run.results, run.dtype)
    microseconds = trial.measure(
        lambda: prepared_call(spec, device, (kernel,), factors, loaded.load), math.inf
    )
    what = run.inputs, run.outputs, run.L, run.R, run.dtype.name, run.products, run.constant
    variant = tuple(kernel.variant)
    return MeasuredKernel(kernel.family.name, *what, variant, chosen, round(microseconds, 3))


def main():
    parser = parser_of(__doc__, "seconds", "seed", seconds=300.0, seed=0)
    parser.add_argument("output", type=Path)
    options = parser.parse_args()
    begin = time.monotonic()
    device = current_device()
    queue = drawn(KERNELS, random.Random(options.seed))
    print(f"{len(queue)} kernels chosen in {time.monotonic() - begin:.0f} s")
    found, failures = [], Counter()
    with Compilers(options_for(device)) as compilers:
        futures = {compilers.submit(kernel.program): (kernel, own) for kernel, own in queue}
        for future in as_completed(futures):
            if time.monotonic() - begin > options.seconds:
                break
            kernel, own = futures[future]
            try:
                found.append(measured(kernel, own, future.result(), device))
            except RejectedError as error:
                failures[str(error)[:80]] += 1
            if len(found) % 100 == 0:
                cupy.get_default_memory_pool().free_all_blocks()
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    write(options.output, device_limits(device), today, found)
    print(f"{len(found)} measured in {time.monotonic() - begin:.0f} s; failed: {dict(failures)}")


if __name__ == "__main__":
    main()
