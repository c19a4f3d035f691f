"""What ranks multiply: FastKron's Figure 11, long vectors, sparse grids and batches of systems."""

import math
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import numpy as np

import batchkron as bk
from batchkron.distributed import distribute
from batchkron.problems import make
from batchkron.solvers import Cg

DTYPES = ("float32", "float64")
WAYS = (  # transport, exchange, transpose
    ("nccl", "group", False),
    ("nccl, no overlap", "group", False),
    ("peer", "group", False),
    ("nccl", "every", False),
    ("nccl", "every", True),
)
FACTOR = 8  # rows of the factors of a small system, which has FACTOR^3 unknowns
CYCLE = 30  # iterations of a solve of small systems, which ends there


@dataclass(frozen=True)
class Case:
    """A product of N factors P × P with so many rows for each rank, or in all if ``total``."""

    P: int
    N: int
    rows: int
    dtype: str = "float32"
    total: bool = False

    @property
    def name(self):
        return f"{self.rows}: {self.P}^{self.N} {self.dtype}"

    def multiply_adds(self, ranks):
        """Those of each rank."""
        rows = self.rows / ranks if self.total else self.rows
        return rows * float(self.P) ** self.N * self.P * self.N


# FastKron's Figure 11 has a block of 4 GiB in float32 on each device.
FIGURE_11 = [Case(P, 4, rows, dtype) for dtype in DTYPES for P, rows in ((64, 64), (128, 4))]
LONG = [Case(64, 5, 1, "float32", total=True)]
ON_CPU = [Case(64, 4, 16, "float64", total=True)]
QUICK = [Case(8, 4, 4, "float32"), Case(8, 4, 8, "float64", total=True)]


def fastkron_grid(ranks):
    half = math.log2(ranks) / 2
    square = 2 ** math.ceil(half), 2 ** math.floor(half)
    return square if math.prod(square) == ranks else (1, ranks)


def grids(ranks):
    """Return {G, 1}, FastKron's and {1, G}."""
    return list(dict.fromkeys([(ranks, 1), (1, ranks), fastkron_grid(ranks)]))


def measure_link(ranks, transport, bytes_each):
    rate = None
    if ranks.size > 1 and (transport != "peer" or ranks.can_store()):
        rate = _link_rate(ranks, transport, bytes_each)
        ranks.say(f"  {transport}: each rank sends {rate / 1e9:.1f} GB/s")
    ranks.record(case="link", transport=transport, bytes_per_second=rate)


def _link_rate(ranks, transport, bytes_each):
    elements = bytes_each // 4
    comm = ranks.transport(transport)
    counts = [elements * (other != ranks.rank) for other in range(ranks.size)]
    sent = ranks.random((sum(counts),), "float32")
    if not comm.stores:
        received = ranks.module.empty(sum(counts), "float32")
        seconds = ranks.seconds(lambda: comm.alltoallv(sent, counts, received, counts))
        return sent.nbytes / seconds
    shared = comm.share_memory(sum(counts), np.dtype("float32"), ranks.module)
    # begin with the next rank, as NCCL does: not all ranks write to the same one at first
    others = [(ranks.rank + k) % ranks.size for k in range(1, ranks.size)]

    def store():
        from batchkron.backends import backend_on

        views = []
        for place, other in enumerate(others):
            begin = elements * (ranks.rank - (ranks.rank > other))
            target = shared[other][begin : begin + elements]
            source = sent[elements * place : elements * (place + 1)]
            views.append((target.reshape(1, 1, 1, -1), source.reshape(1, 1, 1, -1)))
        backend_on("cuda").copy_views(views)
        comm.meet(sent)

    return sent.nbytes / ranks.seconds(store)


def _alone_seconds(ranks, case, factors):
    """Return the time of one rank's share of the work, without other ranks; measured once."""
    for record in ranks.records:
        if record["case"] == case.name and "alone_seconds" in record:
            return record["alone_seconds"]
    whole = bk.KroneckerProduct(factors).to(ranks.device)
    share, seconds = ranks.size if case.total else 1, math.nan
    if ranks.device == "cuda" or ranks.rank == 0:
        with suppress(MemoryError):
            x = ranks.random((case.rows, whole.shape[1]), case.dtype)
            y = ranks.module.empty_like(x)
            seconds = ranks.seconds(lambda: whole.apply(x, out=y), alone=True) / share
    together = ranks.together if ranks.device == "cuda" else partial(ranks.host.broadcast, root=0)
    found = float(together(seconds))
    return None if math.isnan(found) else found


def run_product(ranks, case, grid, way):
    """Measure one product, print a line and keep a record; return whether bytes are the plan's."""
    transport, exchange, transpose = way
    factors = factors_of(case)
    alone = _alone_seconds(ranks, case, factors)
    ranks.free()
    rows = case.rows if case.total else case.rows * ranks.size
    comm = ranks.transport(transport)
    whole = bk.KroneckerProduct(factors).to(ranks.device)
    op = distribute(whole, comm, grid, rows=rows, exchange=exchange, transpose=transpose)
    own_rows = op.layout.rows_of(ranks.rank)
    shape, lacks = (own_rows.stop - own_rows.start, op.shape[1]), 1.0
    with suppress(MemoryError):
        x = ranks.random(shape, case.dtype)
        y = ranks.module.empty(shape, np.dtype(case.dtype))
        lacks = 0.0
    if ranks.together(lacks):
        ranks.say(f"  {case.name} does not fit")
        return True
    found = applied(ranks, op, x, y, transport)
    seconds, bound = found["seconds"], max(alone or 0.0, found["sending_seconds"])
    how = {"grid": list(grid), "transport": transport, "exchange": exchange, "transpose": transpose}
    entry = ranks.report(
        **{"case": case.name, **how, "alone_seconds": alone, **found},
        of_bound=bound / seconds if bound else None,
        efficiency=alone / seconds if alone else None,
    )
    return bool(entry["bytes_right"])


def applied(ranks, op, x, y, transport):
    """What a product takes on all ranks, and whether all have sent the bytes of the plan."""
    traffic, planned = op.communicator.traffic, op.volume().own_bytes
    before = traffic.bytes
    op.apply(x, out=y)
    counted = traffic.bytes - before
    most, rate = ranks.together(counted), ranks.rate(transport)
    return {
        "seconds": ranks.seconds(lambda: op.apply(x, out=y)),
        **{"counted_bytes": counted, "planned_bytes": planned, "most_bytes": most},
        "bytes_right": ranks.together(float(counted != planned)) == 0,
        "sending_seconds": most / rate if rate and most else 0.0,
    }


def factors_of(case):
    rng = np.random.default_rng(case.P)
    scale = 1 / math.sqrt(case.P)
    return [scale * rng.standard_normal((case.P, case.P)).astype(case.dtype) for _ in range(case.N)]


def run_sweeps(ranks, level, degree, transport):
    """Sweeps on all ranks, beside one of them; whether the bytes that were sent are the plan's."""
    whole = make("continuity-6d", level=level, degree=degree).operator.to(ranks.device)

    def one():
        x = ranks.random((whole.shape[1],), "float64")
        return partial(whole.apply_flat, x, ranks.module.empty_like(x))

    alone = ranks.seconds_alone(one)
    op, x, y = apply_sweeps(ranks, level, degree, transport)
    found, graph = applied(ranks, op, x, y, transport), _graph_seconds(ranks, op, x, y)
    work = op.plan.work
    busiest = alone * float(work.max() / work.sum())
    bound, least = max(busiest, found["sending_seconds"]), min(found["seconds"], graph or math.inf)
    entry = ranks.report(
        case=f"sweeps, continuity-6d, level {level}, degree {degree}",
        **{"unknowns": int(whole.shape[0]), "transport": transport, **found},
        **{"graph_seconds": graph, "alone_seconds": alone, "busiest_seconds": busiest},
        **{"imbalance": float(work.max() / work.mean())},
        **{"of_bound": bound / least, "efficiency": alone / ranks.size / least},
    )
    return bool(entry["bytes_right"])


def apply_sweeps(ranks, level, degree, transport):
    whole = make("continuity-6d", level=level, degree=degree).operator.to(ranks.device)
    op = distribute(whole, ranks.transport(transport), (1, ranks.size))
    x = ranks.random((op.shape[1],), "float64")
    y = ranks.module.empty(op.shape[0])
    op.apply(x, out=y)
    return op, x, y


def _graph_seconds(ranks, op, x, y):
    if ranks.device != "cuda":
        return None
    stream = ranks.module.cuda.Stream(non_blocking=True)
    ranks.wait()
    with stream:
        op.apply(x, out=y)
        stream.synchronize()
        stream.begin_capture()
        op.apply(x, out=y)
        graph = stream.end_capture()
        return ranks.seconds(lambda: graph.launch(stream))


def run_systems(ranks, systems):
    begin, end = (systems * part // ranks.size for part in (ranks.rank, ranks.rank + 1))
    seconds = ranks.seconds(solve_systems(ranks, systems, begin, end))
    alone = ranks.seconds_alone(lambda: solve_systems(ranks, systems, 0, systems))
    times = {"seconds": seconds, "alone_seconds": alone}
    efficiency = alone / ranks.size / seconds
    ranks.report(case=f"{systems} systems of {FACTOR**3}", **times, efficiency=efficiency)


def solve_systems(ranks, systems, begin, end):
    """Return a solve of a part of the systems, whose first call builds nothing."""
    rng = np.random.default_rng(0)
    matrices = rng.standard_normal((systems, 3, FACTOR, FACTOR))
    matrices = matrices @ matrices.swapaxes(-1, -2) / FACTOR + np.eye(FACTOR)
    given = matrices[begin:end]
    op = bk.KroneckerSum([given[:, k] for k in range(3)]).to(ranks.device)
    b = ranks.random((end - begin, FACTOR**3), "float64")
    method = Cg(op, batched="leading")
    return lambda: method(b, rtol=0.0, maxiter=CYCLE)
