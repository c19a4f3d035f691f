"""Interpolated Kronecker products: ``python -m benchmarks.interpolated [--threads 1,2]``."""

import sys
from functools import partial
from itertools import product

import numpy as np
from threadpoolctl import threadpool_limits

import batchkron as bk
from benchmarks.core.options import counts, parser_of
from benchmarks.core.records import machine, recorded
from benchmarks.core.timing import OURS, Contender, measure, next_to_peers
from benchmarks.interpolation_data import InterpolatedData, SparseMatrices

GRIDS = {2: (128,) * 2, 3: (32,) * 3, 4: (16,) * 4, 5: (10,) * 5, 6: (8,) * 6}
MAX_ENTRIES = 1 << 26  # of a sparse W: 768 MiB in float64; fewer points are taken beyond
KINDS = ("W", "W K")
DTYPES = ("float32", "float64")


def ours(data):
    if data.kind == "W K":
        op = bk.InterpolatedKronecker(data.points, data.grid, data.factors)
        return partial(op.apply, data.inputs[0], data.outputs[0])
    W, between = data.operator, np.empty((data.batch, data.operator.shape[1]), data.dtype)

    def call():
        W.T.apply(data.inputs[0], between)
        W.apply(between, data.outputs[0])

    return call


def by_sparse(data, W, turned):
    """A product with W, or with W and the grid's factors, given W and its transpose."""
    product = bk.KroneckerProduct(data.factors)

    def call():
        on_grid = turned @ data.inputs[0].T
        if data.kind == "W K":
            on_grid = product.matmat(np.asarray(on_grid))
        return (W @ on_grid).T

    return call


def by_torch(data):
    try:
        import torch
    except ImportError:
        return None
    W, T = (
        torch.sparse_csr_tensor(*map(torch.from_numpy, (m.indptr, m.indices, m.data)), m.shape)
        for m in (data.sparse, data.turned)
    )
    product, x = bk.KroneckerProduct(data.factors), torch.from_numpy(data.inputs[0].T.copy())

    def call():
        on_grid = T @ x
        if data.kind == "W K":
            on_grid = torch.from_numpy(product.matmat(on_grid.numpy()))
        return (W @ on_grid).numpy().T

    return call


def contenders(data):
    W = data.sparse
    found = [
        Contender(OURS, "", [ours(data)], False),
        Contender("SciPy CSR", "", [by_sparse(data, W, W.T)], True),
        Contender("SciPy CSR", "transpose stored", [by_sparse(data, W, data.turned)], True),
    ]
    torch_call = by_torch(data)
    if torch_call is not None:
        found.append(Contender("torch CSR", "transpose stored", [torch_call], True))
    return found


def set_threads(count):
    bk.set_num_threads(count)
    threadpool_limits(count)
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(count)


def measured(data, threads, turn_seconds):
    results = measure(contenders(data), data, threads, set_threads, 3, turn_seconds)
    csr = data.sparse
    csr_bytes = csr.data.nbytes + csr.indices.nbytes + csr.indptr.nbytes
    for count in threads:
        yield {
            **described(data, data.kind),
            **next_to_peers(results, count),
            "bytes": {OURS: data.our_bytes, "SciPy CSR": csr_bytes},
            "less_memory": csr_bytes / data.our_bytes,
        }


def described(data, kind):
    found = {"sizes": data.sizes, "points": data.count, "batch": data.batch}
    return {**found, "dtype": data.dtype.name, "kind": kind}


def all_data(options, kinds=("W",)):
    rng = np.random.default_rng(options.seed)
    for modes in options.modes:
        count = min(options.points, MAX_ENTRIES // 4**modes)
        points, grid = rng.random((count, modes)), bk.RegularGrid(0.0, 1.0, GRIDS[modes])
        matrices = SparseMatrices(points, grid)
        for dtype, batch, kind in product(options.dtypes, options.batch, kinds):
            yield InterpolatedData(matrices, batch, dtype, kind, rng)


def cpu_rows(options):
    for data in all_data(options, KINDS):
        yield from measured(data, options.threads, options.turn)


def device_rows(options):
    from benchmarks.gpu.parts import interpolated as part

    for data in all_data(options):
        for kind in part.KINDS:
            yield described(data, kind) | part.measured_row(data, kind)


def segment_rows(options):
    """The transpose alone: by the owners of cells, by the rule, with segments of some points."""
    from benchmarks.gpu.parts.interpolated import variant_time

    ways = [{"_MAX_PARTIAL": -1}, {}]
    ways += [
        {"MIN_POINTS": n, "_MAX_POINTS": n, "INNER": inner}
        for n in options.segments
        for inner in (0, 1)
    ]
    for data in all_data(options):
        for way in ways:
            yield described(data, "W transposed") | way | variant_time(data, way)


def main():
    parser = parser_of(__doc__, "threads", "device", "seed", "turn", "json", turn=0.1)
    parser.add_argument("--modes", type=counts, default=sorted(GRIDS), help="numbers of dimensions")
    parser.add_argument("--points", type=int, help="20 000, on a device 500 000")
    parser.add_argument("--batch", type=counts, default=[1, 17], help="numbers of vectors")
    parser.add_argument("--dtypes", nargs="+", choices=DTYPES, default=DTYPES)
    parser.add_argument(
        "--segments",
        type=counts,
        help="on a device: only the transpose, with so many points, such as 16,32,64",
    )
    options = parser.parse_args()
    on_cpu = options.device == "cpu"
    options.points = options.points or (20_000 if on_cpu else 500_000)
    run = cpu_rows if on_cpu else segment_rows if options.segments else device_rows
    rows = recorded(run(options), options.json, {"machine": machine(options.device)})
    if on_cpu:
        gains = np.array([row["gain"] for row in rows if "gain" in row])
        print(f"median gain {np.median(gains):.2f}, least {gains.min():.2f}")
        return int(any(OURS in row["failed"] for row in rows))
    return int(any("reason" in row.get("ours", row) for row in rows))


if __name__ == "__main__":
    sys.exit(main())
