"""Kronecker-sparse matrices on a CPU: ``python -m benchmarks.kronecker_sparse [--threads 1,2]``."""

import math
import sys
import time
from functools import cached_property, partial

import numpy as np
import scipy.sparse

import batchkron as bk
from benchmarks.core import timing
from benchmarks.core.checks import Data, random_array
from benchmarks.core.options import counts, parser_of
from benchmarks.core.records import earlier, machine, save
from benchmarks.core.tables import groups, head, row, words
from benchmarks.patterns import LAYOUTS, by_ratio, generated

QUICK_SET = (
    (1, 192, 48, 2), (2, 48, 192, 1), (1, 768, 192, 2), (6, 64, 64, 1), (1, 48, 48, 64),
    (1, 64, 64, 16), (4, 128, 128, 4), (16, 64, 64, 16), (1, 256, 1024, 4), (1, 96, 96, 48),
    (3, 48, 192, 4), (64, 48, 48, 4),
)  # fmt: skip
MAX_ELEMENTS = 1 << 25  # of x, y or the values: 256 MiB in float64
MAX_DENSE = 1 << 27  # elements of a dense matrix that is compared with
FEW, LONG = 8, 0.5  # vectors, and seconds, by which a peer may be left out
DTYPES = ("float32", "float64")
GROUP = ("batch", "dtype", "layout", "threads")
GOALS = (1.0, 1.5)  # gains over the best peer


def chosen_patterns(count, seed, batch):
    """The quick set, and others up to ``count``, in turn of each ratio (b + c) / (b c)."""
    rng = np.random.default_rng(seed)
    others = (
        (a, b, c, d)
        for a, b, c, d in generated()
        if max(a * b * c * d, batch * a * max(b, c) * d) <= MAX_ELEMENTS
        and (a, b, c, d) not in QUICK_SET
    )
    found = list(QUICK_SET)
    lists = [list(rng.permutation(np.array(own))) for own in by_ratio(others)]
    while len(found) < count and any(lists):
        for own in lists:
            if own and len(found) < count:
                found.append(tuple(int(n) for n in own.pop()))
    return found[:count]


class SparseData(Data):
    """A matrix of a pattern, and a batch of vectors in a layout."""

    def __init__(self, pattern, batch, dtype, layout, rng):
        super().__init__(np.dtype(dtype), 1, rng)
        a, b, c, d = self.pattern = pattern
        self.batch, self.layout = batch, layout
        self.values = (random_array(rng, pattern, self.dtype) / math.sqrt(c)).astype(dtype)
        sizes = [a * c * d, a * b * d]
        shapes = [(batch, n) if layout == "batch-first" else (n, batch) for n in sizes]
        self.inputs = [random_array(rng, shapes[0], self.dtype)]
        self.outputs = [np.empty(shapes[1], self.dtype)]

    @cached_property
    def reference(self):
        """Some vectors of the result in double precision, and bounds of the errors."""
        a, _, c, d = self.pattern
        few = np.linspace(0, self.batch - 1, min(self.batch, 8)).astype(int)
        first = self.layout == "batch-first"
        x = self.inputs[0] if first else self.inputs[0].T
        blocks = x[few].astype(np.float64).reshape(len(few), a, c, d)
        values = self.values.astype(np.float64)
        sums = [
            np.einsum("nacd,abcd->nabd", *pair, optimize=True).reshape(len(few), -1)
            for pair in ((blocks, values), (np.abs(blocks), np.abs(values)))
        ]
        bound = 2 * np.finfo(self.dtype).eps * (c + 4) * sums[1]
        if first:
            return few, sums[0], bound
        return (slice(None), few), sums[0].T, bound.T


def einsum(data):
    a, _, c, d = data.pattern
    x, first = data.inputs[0], data.layout == "batch-first"
    blocks = x.reshape(data.batch, a, c, d) if first else x.reshape(a, c, d, data.batch)
    formula = "nacd,abcd->nabd" if first else "acdn,abcd->abdn"
    return lambda: np.einsum(formula, blocks, data.values, optimize=True)


def permuted(data):
    """Copies of x and y around a batched multiply."""
    a, _, c, d = data.pattern
    first = data.layout == "batch-first"
    shape, order = (
        ((data.batch, a, c, d), (1, 3, 0, 2)) if first else ((a, c, d, data.batch), (0, 2, 1, 3))
    )
    back = (2, 0, 3, 1) if first else order
    matrices = np.ascontiguousarray(data.values.transpose(0, 3, *((2, 1) if first else (1, 2))))

    def call():
        blocks = data.inputs[0].reshape(shape).transpose(order)
        products = blocks @ matrices if first else matrices @ blocks
        return np.ascontiguousarray(products.transpose(back))

    return call


def by_matrix(data, matrix):
    if data.layout == "batch-last":
        return lambda: matrix @ data.inputs[0]
    if isinstance(matrix, np.ndarray):
        return lambda: data.inputs[0] @ matrix.T
    return lambda: (matrix @ data.inputs[0].T).T


def csr_matrix(values):
    a, b, c, d = values.shape
    i, j, k = np.ogrid[:a, :d, :c]
    columns = np.broadcast_to(((i * c + k) * d + j)[:, None], (a, b, d, c))
    entries = values.transpose(0, 1, 3, 2).ravel()
    starts = np.arange(a * b * d + 1) * c
    return scipy.sparse.csr_array((entries, columns.ravel(), starts), (a * b * d, a * c * d))


def bsr_matrix(values):
    """The matrix in BSR, and what its blocks are; None if they hold too many zeros."""
    a, b, c, d = values.shape
    if d == 1:
        blocks = values[..., 0], np.arange(a), np.arange(a + 1)
        return "b × c", scipy.sparse.bsr_array(blocks, (a * b, a * c))
    fits = values.size * d <= MAX_DENSE
    return "d × d", csr_matrix(values).tobsr((d, d)) if fits else None


def second_call(call):
    call()
    return timing.seconds_of(call)


def contenders(data):
    op = bk.KroneckerSparse(data.values, layout=data.layout)
    apply = partial(op.apply, data.inputs[0], data.outputs[0])
    found = [
        timing.Contender(timing.OURS, "operator", [apply]),
        timing.Contender("einsum", "", [einsum(data)], True),
        timing.Contender("permuted matmul", "", [permuted(data)], True),
    ]
    ours, left_out = second_call(apply), {}
    for name, variant, matrix in (
        ("SciPy CSR", "", csr_matrix(data.values)),
        ("SciPy BSR", *bsr_matrix(data.values)),
    ):
        if matrix is None:
            left_out[name] = "too large"
            continue
        # whether a few vectors say that the matrix is far slower than ours, and takes long
        few = np.ones((matrix.shape[1], FEW), data.dtype)
        expected = second_call(partial(matrix.__matmul__, few)) * data.batch / FEW
        if expected > max(2 * timing.HOPELESS * ours, LONG):
            left_out[name] = "hopeless: by a few vectors"
        else:
            found.append(timing.Contender(name, variant, [by_matrix(data, matrix)], True))
    if op.shape[0] * op.shape[1] <= MAX_DENSE:
        found.append(timing.Contender("dense", "", [by_matrix(data, op.to_dense())], True))
    return found, left_out


def measured(data, threads, turn_seconds):
    timing.set_threads(min(threads))
    chosen, left_out = contenders(data)
    results = timing.measure(chosen, data, threads, timing.set_threads, 3, turn_seconds)
    for count in threads:
        found = timing.next_to_peers(results, count)
        found["failed"] = left_out | found["failed"]
        if "gain" in found:
            seconds = found["seconds"][timing.OURS]
            found["gflops"] = 2e-9 * data.batch * math.prod(data.pattern) / seconds
        described = {"pattern": data.pattern, "batch": data.batch, "dtype": data.dtype.name}
        yield {**described, "layout": data.layout, **found}


def _key(one):
    return tuple(one["pattern"]), one["batch"], one["dtype"], one["layout"], one["threads"]


def standing(rows):
    every = [one for one in rows if "gain" in one]
    parts = groups(every, lambda one: tuple(one[name] for name in GROUP))
    yield head(
        [*GROUP, "patterns", "least", "median", "largest", *(f"≥ {goal} %" for goal in GOALS)]
    )
    for key, own in [*sorted(parts.items()), (("all", "", "", ""), every)]:
        if own:
            gains = np.array([one["gain"] for one in own])
            texts = [*key, gains.size, *(f"{f(gains):.2f}" for f in (np.min, np.median, np.max))]
            yield row([*texts, *(f"{100 * np.mean(gains >= goal):.1f}" for goal in GOALS)])


def main(arguments=None):
    begun = time.perf_counter()
    usual = "threads", "seed", "turn", "seconds", "json"
    parser = parser_of(__doc__, *usual, turn=0.03, seconds=math.inf)
    parser.add_argument("--patterns", type=int, default=40)
    parser.add_argument("--batch", type=counts, default=[256, 4096], help="numbers of vectors")
    options = parser.parse_args(arguments)
    threads = options.threads
    here = machine()
    report = earlier(options.json, here, "processor", "processors", "instruction_set")
    rows = {_key(one): one for one in report.get("cells", ())}
    cells = [
        (pattern, batch, dtype, layout)
        for batch in options.batch
        for pattern in chosen_patterns(options.patterns, options.seed, batch)
        for dtype in DTYPES
        for layout in LAYOUTS
    ]
    missing = [cell for cell in cells if any((*cell, count) not in rows for count in threads)]
    done = 0
    for done, (pattern, batch, dtype, layout) in enumerate(missing):
        if time.perf_counter() - begun >= options.seconds:
            break
        rng = np.random.default_rng([options.seed, done])
        data = SparseData(pattern, batch, dtype, layout, rng)
        found = list(measured(data, threads, options.turn))
        rows |= {_key(one): {**one, "commit": here.get("commit")} for one in found}
        save(options.json, {"machine": here, "cells": list(rows.values())})
        print(*map(words, found), sep="\n", flush=True)
    else:
        done = len(missing)
    print(f"\n{len(cells) - len(missing) + done} of {len(cells)} cells are there\n")
    chosen = [rows[key] for cell in cells for n in threads if (key := (*cell, n)) in rows]
    print("\n".join(standing(chosen)))
    return int(any(timing.OURS in row["failed"] for row in chosen))


if __name__ == "__main__":
    sys.exit(main())
