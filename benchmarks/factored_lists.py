"""Factored plans of batch lists: ``python -m benchmarks.factored_lists [--device cuda]``.

Times are the least of several in turn, of one vector. The results are compared. "memory" is a
multiple of the list's, "fewer" how many times fewer multiply-adds there are.
"""

import time
import tracemalloc
from functools import partial
from itertools import chain
from types import SimpleNamespace

import numpy as np

import batchkron as bk
from batchkron.operators.factored_list.choice import plan_choice
from batchkron.operators.sparse_grid.rows import rows_as_products
from batchkron.problems import SparseGrid, gallery
from batchkron.problems.discretization.matrices.mode_operator import connected
from benchmarks.core.checks import relative_error
from benchmarks.core.options import parser_of
from benchmarks.core.records import machine, recorded
from benchmarks.core.timing import in_turn, least, waiter
from benchmarks.lists_once import CASES, random_list

GRIDS = (
    *(("diffusion-2d", level) for level in (6, 7, 8, 9)),
    *(("diffusion-3d", level) for level in (5, 6, 7)),
    *(("v f_x", level) for level in (6, 7, 8)),
    *(("continuity-6d", level) for level in (2, 3)),
)
PAIRS = ((2, 8), (3, 6), (4, 4), (6, 3))  # modes, level
PRODUCTS = 10_000_000
ROUNDS = 15


def both_forms(rng, name, level):
    """An operator as sweeps and as a list, with 3 functions per 1-D cell."""
    if name != "v f_x":
        problem = gallery.make(name, level, 2)
        return problem.with_form("sweep").operator, problem.with_form("batch").operator
    fluxes = [_mode_operator(rng, level, "full", 0, 1) for _ in range(2)]
    halves = [_mode_operator(rng, level, "volume", *half) for half in ((0.5, 1), (0, 0.5))]
    grid = SparseGrid.sparse([level, level])
    sweeps = bk.SparseGridOperator(grid, list(zip(fluxes, halves, strict=True)), 3)
    spec = rows_as_products(sweeps._spec, np.arange(len(grid.cells)))
    return sweeps, bk.BatchedKron._from_spec(spec)


def _mode_operator(rng, level, kind, begin, end):
    """Random blocks for pairs of 1-D cells whose supports both meet begin … end of [0, 1]."""
    cells = np.arange(2**level)
    length = 2.0 ** np.minimum(0, 1 - np.frexp(cells.astype(float))[1])
    start = np.where(cells > 0, cells * length - 1, 0)
    meets = (start < end) & (start + length > begin)
    rows, columns = np.nonzero(connected(level, kind) & meets & meets[:, None])
    return SimpleNamespace(
        rows=rows, columns=columns, blocks=rng.standard_normal((len(rows), 3, 3))
    )


def all_pairs(rng, modes, level, count):
    """The first ``count`` products of all pairs of a grid's cells, with 3 × 3 matrices."""
    cells, wide = SparseGrid.sparse([level] * modes).cells, 2**level
    count = min(count, len(cells) ** 2)
    out, source = np.divmod(np.arange(count), len(cells))
    pool = rng.standard_normal((wide**2, 3, 3))
    return bk.BatchedKron(pool, cells[out] * wide + cells[source], source, out)


def least_seconds(ways, rng, device):
    operators = {name: op.to(device) for name, op in ways.items()}
    first = next(iter(operators.values()))
    x = first._arrays.asarray(rng.standard_normal(first.shape[1]).astype(first.dtype))
    results = {name: op.matvec(x) for name, op in operators.items()}
    for name, result in results.items():
        error = relative_error(result, next(iter(results.values())))
        if not error < 1000 * np.finfo(first.dtype).eps:
            raise AssertionError(f"{name} differs by {error:.1e} of the largest element")
    calls = {name: partial(op.matvec, x, out=results[name]) for name, op in operators.items()}
    return least(in_turn(calls, ROUNDS, wait=waiter(device)))


def fewer(op):
    direct = sum(
        np.count_nonzero(~flags[ids]) * pool.shape[2]
        for flags, ids, pool in zip(
            op._spec.identity, op._spec.factor_ids.T, op._spec.pools, strict=True
        )
    )
    listing = plan_choice(op._spec, "factored").listing
    return float(direct * op._spec.input_size / listing.multiply_adds)


def measured_lists(rng, device, quick):
    for name, level in GRIDS[:1] if quick else GRIDS:
        sweeps, op = both_forms(rng, name, level)
        ways = {"sweeps": sweeps, "direct": op, "auto": op.plan("auto")}
        times = least_seconds(ways, rng, device)
        yield {"case": f"{name} {level}", "seconds": times}
    for modes, level in ((2, 4),) if quick else PAIRS:
        op = all_pairs(rng, modes, level, PRODUCTS)
        times = least_seconds({"direct": op, "auto": op.plan("auto")}, rng, device)
        case = f"all pairs, {modes}-D, level {level}"
        yield {"case": case, "fewer": fewer(op), "seconds": times}
    for modes, size in CASES[:1] if quick else CASES:
        pools, ids, _, inputs, outputs, _ = random_list(rng, modes, size, "float64", True)
        op = bk.BatchedKron(pools, ids, inputs, outputs)
        times = least_seconds({"direct": op, "auto": op.plan("auto")}, rng, device)
        yield {"case": f"random ({modes},{size})", "seconds": times}


def measured_setup(rng, products):
    makers = {
        "grid": lambda: all_pairs(rng, 3, 8, products),
        "random": lambda: bk.BatchedKron(
            rng.standard_normal((4096, 3, 3)),
            rng.integers(4096, size=(products, 3)),
            *rng.integers(max(1, products // 64), size=(2, products)),
        ),
    }
    for name, make in makers.items():
        spec = make()._spec
        size = sum(a.nbytes for a in (spec.factor_ids, spec.inputs, spec.outputs, spec.weights))
        begin = time.process_time()
        plan_choice(spec, "auto")
        seconds = time.process_time() - begin
        tracemalloc.start()
        plan_choice(spec, "auto")
        peak = tracemalloc.get_traced_memory()[1] / size
        tracemalloc.stop()
        case = f"{len(spec.inputs)} products, {name}"
        yield {"case": case, "seconds": {"plan": seconds}, "memory": peak}


def main():
    parser = parser_of(__doc__, "seed", "quick", "device", "json")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    bk.set_num_threads(options.threads)
    rng = np.random.default_rng(options.seed)
    lists = measured_lists(rng, options.device, options.quick)
    setup = measured_setup(rng, 10_000 if options.quick else PRODUCTS)
    about = {"machine": machine(), "device": options.device}
    recorded(chain(lists, setup), options.json, about)


if __name__ == "__main__":
    main()
