"""Interpolated Kronecker products: ``python -m benchmarks.interpolated [--threads 1,2]``."""

import math
import sys
from functools import cached_property, partial
from itertools import product

import numpy as np
import scipy.sparse

import batchkron as bk
from benchmarks.core.checks import Data, random_array
from benchmarks.core.options import counts, parser_of
from benchmarks.core.records import machine, recorded
from benchmarks.core.timing import OURS, Contender, measure, next_to_peers, set_threads


class SparseMatrices:
    """W of some points, and its transpose, in CSR, made once for each dtype."""

    def __init__(self, points, grid):
        self.points, self.grid = points, grid
        self._known = {}

    def matrix(self, dtype=np.float64, *, turned=False):
        key = np.dtype(dtype).name, turned
        if key not in self._known:
            if turned:
                self._known[key] = self.matrix(dtype).T.tocsr()
            elif key[0] == "float64":
                self._known[key] = self._made()
            else:
                self._known[key] = self.matrix().astype(dtype)
        return self._known[key]

    def _made(self):
        count, modes = self.points.shape
        windows = bk.Interpolation(self.points, self.grid, np.float64).windows
        order = np.argsort(windows.places)
        columns, entries = np.zeros((count, 1), np.int32), np.ones((count, 1))
        for k, size in enumerate(self.grid.sizes):
            cells = (windows.corners[order, k, None] + np.arange(4)).astype(np.int32)
            columns = (columns[:, :, None] * np.int32(size) + cells[:, None]).reshape(count, -1)
            weights = windows.weights[order, k]
            entries = (entries[:, :, None] * weights[:, None]).reshape(count, -1)
        starts = np.arange(count + 1, dtype=np.int32) * np.int32(4**modes)
        shape = count, math.prod(self.grid.sizes)
        return scipy.sparse.csr_array((entries.ravel(), columns.ravel(), starts), shape)


class InterpolatedData(Data):
    """Points, factors, and a batch of vectors (batch, points)."""

    def __init__(self, matrices, batch, dtype, kind, rng):
        super().__init__(np.dtype(dtype), 1, rng)
        self.matrices, self.grid, self.points = matrices, matrices.grid, matrices.points
        self.kind, self.sizes, self.batch = kind, self.grid.sizes, batch
        self.count = len(self.points)
        self.factors = [
            np.exp(-8 * (x[:, None] - x) ** 2).astype(dtype) for x in self.grid.axes
        ]  # an exponential of the squared distance, as usual in Gaussian processes
        self.operator = bk.Interpolation(self.points, self.grid, dtype)
        self.inputs = [random_array(rng, (batch, self.count), self.dtype)]
        self.outputs = [np.empty((batch, self.count), self.dtype)]

    @property
    def sparse(self):
        return self.matrices.matrix(self.dtype)

    @property
    def turned(self):
        return self.matrices.matrix(self.dtype, turned=True)

    @cached_property
    def reference(self):
        """Some vectors of the result in double precision, and bounds of the errors."""
        few = np.linspace(0, self.batch - 1, min(self.batch, 2)).astype(int)
        x = self.inputs[0][few].astype(np.float64)
        W = self.matrices.matrix()
        found = []
        for w, values in ((W, x), (abs(W), abs(x))):
            on_grid = (w.T @ values.T).T
            if self.kind == "W K":
                blocks = on_grid.reshape(len(few), *self.sizes)
                for k, factor in enumerate(self.factors):
                    blocks = np.moveaxis(
                        np.tensordot(factor.astype(float), blocks, (1, k + 1)), 0, k + 1
                    )
                on_grid = blocks.reshape(len(few), -1)
            found.append((w @ on_grid.T).T)
        terms = self.count + sum(self.sizes) + 4 ** len(self.sizes) + 8 * len(self.sizes)
        return few, found[0], 2 * np.finfo(self.dtype).eps * terms * found[1]

    @property
    def our_bytes(self):
        """What `Interpolation` and its plan keep: points, weights, corners, places."""
        modes = len(self.sizes)
        return self.points.nbytes + self.count * (4 * modes * self.dtype.itemsize + 16)


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


def by_sparse(data, W, turned, array=np.asarray):
    """A product with W, or with W and the grid's factors, given W and its transpose.

    ``array`` makes what the library of both multiplies.
    """
    product, x = bk.KroneckerProduct(data.factors), array(data.inputs[0].T)

    def call():
        on_grid = turned @ x
        if data.kind == "W K":
            on_grid = array(product.matmat(np.asarray(on_grid)))
        return np.asarray(W @ on_grid).T

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
    return by_sparse(data, W, T, lambda x: torch.from_numpy(np.ascontiguousarray(x)))


def contenders(data):
    W, stored = data.sparse, "transpose stored"
    found = [
        Contender(OURS, "", [ours(data)], False),
        Contender("SciPy CSR", "", [by_sparse(data, W, W.T)], True),
        Contender("SciPy CSR", stored, [by_sparse(data, W, data.turned)], True),
    ]
    torch_call = by_torch(data)
    return found + ([Contender("torch CSR", stored, [torch_call], True)] if torch_call else [])


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
    segments = "on a device: only the transpose, with so many points, such as 16,32,64"
    parser.add_argument("--segments", type=counts, help=segments)
    options = parser.parse_args()
    on_cpu = options.device == "cpu"
    options.points = options.points or (20_000 if on_cpu else 500_000)
    if on_cpu:
        data = all_data(options, KINDS)
        rows = (row for one in data for row in measured(one, options.threads, options.turn))
    elif options.segments:
        rows = segment_rows(options)
    else:
        from benchmarks.gpu.parts import interpolated as part

        pairs = ((one, kind) for one in all_data(options) for kind in part.KINDS)
        rows = (described(*pair) | part.measured_row(*pair) for pair in pairs)
    rows = recorded(rows, options.json, {"machine": machine(options.device)})
    if on_cpu:
        gains = np.array([row["gain"] for row in rows if "gain" in row])
        print(f"median gain {np.median(gains):.2f}, least {gains.min():.2f}")
        return int(any(OURS in row["failed"] for row in rows))
    return int(any("reason" in row.get("ours", row) for row in rows))


if __name__ == "__main__":
    sys.exit(main())
