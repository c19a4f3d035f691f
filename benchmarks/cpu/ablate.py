"""What parts of the CPU's kernels are worth: cells with them and without, in turn.

``BATCHKRON_WITHOUT`` names parts that plans do without which are made then. Cells that take as long
either way do not have the part, or gain nothing; the mean is over those that differ.
"""

import math
import os
from statistics import geometric_mean, median

import numpy as np

import batchkron as bk
from batchkron.problems import make
from benchmarks.core.options import parser_of
from benchmarks.core.records import machine, recorded
from benchmarks.core.tables import groups, table
from benchmarks.core.timing import in_turn, set_threads

DIFFERENT = 0.03  # of the time, from which a cell counts as another one
SWEEPS = (
    ("continuity-2d", 9, 2),
    ("continuity-3d", 6, 1),
    ("continuity-3d", 6, 2),
    ("continuity-3d", 5, 3),
    ("continuity-6d", 4, 1),
    ("continuity-6d", 7, 1),
    ("continuity-6d", 3, 2),
    ("continuity-6d", 5, 2),
    ("continuity-6d", 6, 2),
    ("continuity-6d", 7, 2),
    ("continuity-6d", 5, 3),
)


def kron_cells():
    """Random factors of sizes that are no whole vectors, and vectors that fit in the caches."""
    rng = np.random.default_rng(1)
    for dtype in ("float64", "float32"):
        for size in (*range(3, 16), 21, 25, 27, 31):
            for modes, rows in ((2, 1), (2, 64), (2, 1024), (3, 1), (3, 64), (4, 16)):
                if rows * size**modes > 1 << 19:
                    continue
                factors = [rng.standard_normal((size, size)).astype(dtype) for _ in range(modes)]
                x = rng.standard_normal((rows, size**modes)).astype(dtype)
                name = f"{rows}: {size}^{modes} {dtype}"
                yield name, x, lambda factors=factors: bk.KroneckerProduct(factors)


def sweep_cells():
    for problem, level, degree in SWEEPS:
        x = make(problem, level=level, degree=degree).initial[None]
        name = f"{problem}, level {level}, degree {degree}"
        yield name, x, lambda given=(problem, level, degree): make(*given).operator


PARTS = {"lanes": kron_cells, "tails": sweep_cells, "cold_blocks": sweep_cells}


def measure(part, cell, rounds, turn):
    name, x, make_operator = cell
    calls = {}
    for without in ("", part):
        os.environ["BATCHKRON_WITHOUT"] = without
        op = make_operator()
        out = np.empty((len(x), op.shape[0]), x.dtype)
        op.apply(x, out=out)
        calls[without] = lambda op=op, out=out: op.apply(x, out=out)
    del os.environ["BATCHKRON_WITHOUT"]
    found = in_turn(calls, rounds, turn)
    own, other = (median(found[one]) for one in ("", part))
    return {"part": part, "cell": name, "microseconds": 1e6 * own, "without": other / own}


def main():
    parser = parser_of(__doc__, "threads", "rounds", "turn", "json", rounds=9, turn=0.02)
    parser.add_argument("--part", nargs="+", choices=PARTS, default=list(PARTS))
    given = parser.parse_args()
    set_threads(given.threads[0])
    rows = (
        measure(part, cell, given.rounds, given.turn)
        for part in given.part
        for cell in PARTS[part]()
    )
    found = recorded(rows, given.json, {"machine": machine("cpu"), "threads": given.threads[0]})
    lines = []
    for part, cells in groups(found, lambda one: one["part"]).items():
        other = [one for one in cells if abs(math.log(one["without"])) > DIFFERENT]
        gains = sorted(other, key=lambda one: one["without"])
        mean = geometric_mean([one["without"] for one in other]) if other else 1.0
        ends = [f"{one['without']:.2f} ({one['cell']})" for one in (*gains[:1], *gains[-1:])]
        lines.append([part, len(cells), len(other), f"{mean:.2f}", *ends])
    print(table(["part", "cells", "that differ", "mean gain", "least", "largest"], lines))


if __name__ == "__main__":
    main()
