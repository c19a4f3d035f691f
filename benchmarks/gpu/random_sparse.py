"""Random Kronecker-sparse matrices next to torch, and all ways in which ours might be computed.

Ways are kernels by their estimates, and cuBLAS. Some are only parts: the transpositions of vectors
along the first axis, and what may be between them. Their times add up to those of a way.
"""

import json
import math
import statistics
import sys
import time
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import cupy
import numpy as np

from batchkron.backends import Tuning, tuned_plans
from batchkron.backends.cuda.kernel import Kernel
from batchkron.backends.cuda.kernel_launch import launch_of
from batchkron.backends.cuda.kron_sparse import library
from batchkron.backends.cuda.kron_sparse.block_transposition import block_transposition
from batchkron.backends.cuda.kron_sparse.choose import fastest_way
from batchkron.backends.cuda.kron_sparse.kernel import WORD
from batchkron.backends.cuda.kron_sparse.library import LibraryProduct
from batchkron.backends.cuda.kron_sparse.stored import stored_shape
from batchkron.backends.cuda.kron_sparse.transposed import programs_of, seconds_of
from batchkron.backends.cuda.runtime.device import device_limits, ready_stream
from batchkron.backends.cuda.runtime.hardware import round_up
from batchkron.backends.cuda.runtime.matrix_library import (
    WORKSPACE,
    LibraryMultiply,
    MatrixProducts,
)
from benchmarks.core.device_timing import TOLERANCE, first_time, random_array, timed
from benchmarks.core.options import counts, parser_of
from benchmarks.core.records import default_processes, machine, save
from benchmarks.core.tables import groups, words
from benchmarks.gpu.cases.sparse_cases import (
    PEAKS,
    SparseCase,
    cells_of,
    drawn_patterns,
    shape_of,
)
from benchmarks.gpu.compiling import compile_programs
from benchmarks.gpu.data import free_memory
from benchmarks.gpu.measure_sparse import chosen_kernels
from benchmarks.gpu.parts.kron_sparse import TOO_LONG, SparseData, peer_calls, too_long
from benchmarks.gpu.peers import torch_chain

MAX_EXPANDED_BYTES = 1 << 30  # of values with zeros
PEERS = ("bmm", "einsum", "dense")
LENGTH, REPLAYS = 1000.0, 3  # µs of a graph, and how often it is replayed
NEAR = 1.2  # ours, and peers this close to the fastest one, are timed a second time
NOISE = 400.0  # µs more that a call from Python may take, which graphs do without
EQUAL = 0.97  # ratio from which ours counts as the fastest: its time is 3 % above the best one's
LEAST = 0.85  # the ratio that no cell may be below
WORST = 40  # cells that are printed


class WayPart(NamedTuple):
    """A kernel or products by cuBLAS that are timed; ``sizes``: elements of x and y of a vector."""

    name: str
    work: Kernel | MatrixProducts
    stored: tuple[int, ...]  # the shape of the values, empty where none are read
    sizes: tuple[int, int]
    multiply_adds: int


def parts_of(shape, limits, count):
    """All parts; ``count``: kernels that multiply, of each order of the vectors' elements."""
    turned = replace(shape, a=shape.a * shape.d, d=1)
    yield from _kernels("kernel", shape, limits, count)
    if shape.inner == 1 and shape.d > 1:
        for size, to_long, name in ((shape.c, True, "forward"), (shape.b, False, "back")):
            matrices = shape.outer * shape.a
            how = size, shape.d, shape.itemsize, to_long, WORD
            kernel = block_transposition(matrices, *how, limits)
            if kernel is not None:
                elements = shape.a * shape.d * size
                yield WayPart(name, kernel, (), (elements, elements), 0)
        yield from _kernels("turned", turned, limits, count)
    if shape.dtype in ("float16", "float32", "float64"):
        yield from _library(shape, turned)


def _kernels(name, shape, limits, count):
    values = shape.a, shape.b, shape.c, shape.d
    sizes = shape.a * shape.c * shape.d, shape.a * shape.b * shape.d
    for kernel in chosen_kernels(shape, limits, count)[:count]:
        stored = stored_shape(values, shape.itemsize, kernel.family.stored)
        yield WayPart(name, kernel, stored, sizes, shape.multiply_adds)


def _library(shape, turned):
    a, b, c, d = shape.a, shape.b, shape.c, shape.d
    unit = max(1, WORD // shape.itemsize)
    row, blocks = round_up(c, unit), a * d

    def part(name, products, stored, *sizes):
        work = products.m * products.n * products.k * products.count * products.batches
        return WayPart(name, products, stored, (sizes[0], sizes[1]), work)

    along = library._along_first_axis if shape.inner == 1 else library._along_last_axis
    if shape.inner == 1:
        yield part("blocks", along(turned, row), (blocks, b, row), blocks * c, blocks * b)
        after = round_up(b, unit)
        if (row, after) != (c, b):
            padded = along(replace(turned, c=row), row)
            steps, strides = (row, blocks * row, blocks * after), (b * row, row, after)
            padded = replace(padded, steps=steps, strides=strides)
            yield part("padded", padded, (blocks, b, row), blocks * row, blocks * after)
    else:
        yield part("blocks", along(shape, row), (blocks, b, row), blocks * c, blocks * b)
    for name, count in (("expanded", a), ("dense", 1)):
        rows, columns = blocks * b // count, blocks * c // count
        is_known = (name == "expanded" and d == 1) or (name == "dense" and a == 1)
        if not is_known and count * rows * columns * shape.itemsize <= MAX_EXPANDED_BYTES:
            products = along(replace(shape, a=count, b=rows, c=columns, d=1), columns)
            yield part(name, products, (count, rows, columns), count * columns, count * rows)


def calls_of(part, dtype, batch, pairs):
    """A call for each pair of vectors; other vectors take their place if the sizes differ."""
    device = cupy.cuda.Device().id
    if any(x.size != batch * part.sizes[0] or y.size != batch * part.sizes[1] for x, y in pairs):
        pairs = [
            tuple(random_array((batch * size,), dtype, seed) for size in part.sizes)
            for seed in range(len(pairs))
        ]
    more = [random_array((math.prod(part.stored),), dtype)] if part.stored else []
    if isinstance(part.work, Kernel):
        scalars = "accumulate" if more else ""
        launch = launch_of(part.work, device, 2 + len(more), scalars)
    else:
        launch = LibraryMultiply(part.work, dtype, np.dtype(dtype).itemsize, device)
        more.append(cupy.empty(WORKSPACE, np.uint8))

    def call(x, y):
        addresses = tuple(one.data.ptr for one in (x, y, *more))
        launch(ready_stream(device), addresses, b"")

    return [partial(call, x, y) for x, y in pairs]


def name_of(way):
    if isinstance(way, tuple):
        return f"transposed, {name_of(way[0].product)}"
    return f"cuBLAS, {way.stored}" if isinstance(way, LibraryProduct) else str(way.family.name)


def microseconds(calls, on, limit=math.inf):
    """Time of a call, infinite where it cannot be among the fastest: above the limit."""
    with suppress(Exception):
        first_time(calls, on)
        if first_time(calls, on) <= limit + NOISE:
            return timed(calls, on, LENGTH, REPLAYS)
    return math.inf


def measured(case, dtype, parts, way, tuning):
    data = SparseData(case, dtype)
    with tuned_plans(tuning):
        calls = data.calls()
    data.out.fill(np.nan)
    calls[-1]()
    error = data.error()
    ours = microseconds(calls, torch_chain.on)
    slow = too_long(case, dtype, ours)
    makers = peer_calls(data, [name for name in PEERS if name != "dense" or not slow])
    limit = TOO_LONG * ours
    peers = {name: microseconds(make(), torch_chain.on, limit) for name, make in makers.items()}
    for name in [one for one, found in peers.items() if found < NEAR * min(ours, *peers.values())]:
        ours = min(ours, microseconds(calls, torch_chain.on))
        peers[name] = min(peers[name], microseconds(makers[name](), torch_chain.on, limit))
    best = min(peers, key=peers.__getitem__)
    row = {
        "pattern": case.pattern, "dtype": dtype, "layout": case.layout, "batch": case.batch,
        "way": name_of(way), "kernels": [one.expression for one in programs_of(way)],
        "estimate": 1e6 * seconds_of(way), "ours": ours, "error": error, "best": best,
        "ratio": peers[best] / ours, "peers": peers, "parts": [],
    }  # fmt: skip
    if tuning is not None:
        row["tuned"] = asdict(tuning.outcomes[-1])
    free_memory()
    for part in parts:
        if 1e6 * 2 * part.multiply_adds / PEAKS[dtype] > limit:
            continue
        found = {"name": part.name, "estimate": None}
        with suppress(cupy.cuda.memory.OutOfMemoryError):
            their = calls_of(part, dtype, case.batch, data.pairs)
            found["microseconds"] = microseconds(their, torch_chain.on, limit)
        if isinstance(part.work, Kernel):
            found["estimate"] = 1e6 * part.work.seconds
            found["kernel"] = part.work.program.expression
            found["family"] = part.work.family.name
        row["parts"].append(found)
    return row


def fastest_found(row):
    """The fastest way that was timed, and its name."""
    least = {}
    for part in row["parts"]:
        name, found = part["name"], part.get("microseconds", math.inf)
        least[name] = min(least.get(name, math.inf), found)
    around = least.pop("forward", math.inf) + least.pop("back", math.inf)
    ways = {"ours": row["ours"]}
    between = ("blocks", "padded", "turned")
    is_turned = row["layout"] == "batch-first" and row["pattern"][3] > 1
    for name, found in least.items():
        ways[name] = found + (around if is_turned and name in between else 0.0)
    best = min(ways, key=ways.__getitem__)
    return ways[best], best


def summary(rows):
    """Yield how ours stands next to the best peer, and to the fastest way that was timed."""
    names = "dtype", "layout", "batch"
    kinds = groups(rows, lambda row: tuple(row[name] for name in names))
    for key, own in [*sorted(kinds.items()), (("all", "", ""), rows)]:
        ratios = [row["ratio"] for row in own]
        losses = [row["ours"] / fastest_found(row)[0] for row in own]
        found = {**dict(zip(names, key, strict=True)), "cells": len(own)}
        found["fastest"] = sum(ratio >= EQUAL for ratio in ratios)
        found[f"below {LEAST}"] = sum(ratio < LEAST for ratio in ratios)
        found |= {"least_ratio": min(ratios), "median_ratio": statistics.median(ratios)}
        found["over_fastest_way"] = statistics.geometric_mean(losses)
        yield words({**found, "largest": max(losses)})


def worst(rows):
    names = ["pattern", "dtype", "layout", "batch", "way", "ours", "estimate", "best", "ratio"]
    for row in sorted(rows, key=lambda row: row["ratio"])[:WORST]:
        least, way = fastest_found(row)
        yield words({**{name: row[name] for name in names}, "fastest_way": way, "its_µs": least})


def cells_behind(content):
    rows = [row for run in content.get("runs", [content]) for row in run["cells"]]
    names = "pattern", "layout", "batch", "dtype"
    found = [[row[name] for name in names] for row in rows if row["ratio"] < EQUAL]
    return [(SparseCase(tuple(pattern), *where), dtype) for pattern, *where, dtype in found]


def programs(work):
    parts = [part.work for _, _, own, _ in work for part in own]
    found = [program for *_, way in work for program in programs_of(way)]
    found += [one.program for one in parts if isinstance(one, Kernel)]
    return list(dict.fromkeys(found))


def main(arguments=None):
    begun = time.perf_counter()
    parser = parser_of(__doc__, "json", "seed", "seconds", seconds=math.inf)
    parser.add_argument("--random", type=int, default=60, help="patterns")
    parser.add_argument(
        "--pattern", type=counts, action="append", default=[], help="a,b,c,d: one more, repeatable"
    )
    parser.add_argument("--each", type=int, default=4, help="cells of each pattern, of twelve")
    text = "the cells of results of this command where ours was behind, in place of random ones"
    parser.add_argument("--behind", type=Path, help=text)
    parser.add_argument("--tune", type=float, metavar="SECONDS", help="search first, for so long")
    parser.add_argument("--variants", type=int, default=3, help="kernels beside ours; 0: no ways")
    options = parser.parse_args(arguments)
    if absent := torch_chain.missing():
        sys.exit(absent)
    limits = device_limits(cupy.cuda.Device().id)
    patterns = [*map(tuple, options.pattern), *drawn_patterns(options.random, options.seed)]
    cells = list(cells_of(patterns, options.each))
    if options.behind is not None:
        cells = cells_behind(json.loads(options.behind.read_text()))
    tuning = None if options.tune is None else Tuning(seconds=options.tune)
    work = []
    for case, dtype in cells:
        shape = shape_of(case, dtype)
        parts = list(parts_of(shape, limits, options.variants)) if options.variants else []
        work.append((case, dtype, parts, fastest_way(shape, limits)))
    needed = programs(work)
    compile_programs(needed, default_processes())
    print(f"{len(needed)} kernels compiled in {time.perf_counter() - begun:.0f} s", flush=True)
    here, rows = machine("cuda"), []
    for cell in work:
        if time.perf_counter() - begun >= options.seconds:
            break
        try:
            rows.append(measured(*cell, tuning))
        except Exception as error:
            print(f"{cell[0].name} {cell[1]}: {type(error).__name__}: {error}"[:300], flush=True)
        free_memory()
    save(options.json, {"machine": here, "cells": rows})
    print(f"{len(rows)} of {len(cells)} cells in {time.perf_counter() - begun:.0f} s\n")
    if rows:
        print(*worst(rows), "", *summary(rows), sep="\n")
    return int(any(not row["error"] <= TOLERANCE[row["dtype"]] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
