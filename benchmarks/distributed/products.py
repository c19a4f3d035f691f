"""Kronecker products on ranks: FastKron's Figure 11, and long vectors."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

import batchkron as bk
from batchkron.distributed import distribute
from benchmarks.distributed.ranks import Ranks


@dataclass(frozen=True)
class Case:
    """A product of N factors P × P with so many rows for each rank, or in all if ``total``."""

    P: int
    N: int
    rows: int
    dtype: str = "float32"
    total: bool = False

    @property
    def name(self) -> str:
        return f"{self.rows}: {self.P}^{self.N} {self.dtype}"

    def multiply_adds(self, ranks: int) -> float:
        """Those of each rank."""
        rows = self.rows / ranks if self.total else self.rows
        return rows * float(self.P) ** self.N * self.P * self.N


# FastKron's Figure 11 has a block of 4 GiB in float32 on each device.
DTYPES = ("float32", "float64")
FIGURE_11 = [Case(P, 4, rows, dtype) for dtype in DTYPES for P, rows in ((64, 64), (128, 4))]
LONG = [Case(64, 5, 1, "float32", total=True)]
ON_CPU = [Case(64, 4, 16, "float64", total=True)]
QUICK = [Case(8, 4, 4, "float32"), Case(8, 4, 8, "float64", total=True)]

WAYS = (  # transport, exchange, transpose
    ("nccl", "group", False),
    ("nccl, no overlap", "group", False),
    ("peer", "group", False),
    ("nccl", "every", False),
    ("nccl", "every", True),
)


def fastkron_grid(ranks: int) -> tuple[int, int]:
    half = math.log2(ranks) / 2
    square = 2 ** math.ceil(half), 2 ** math.floor(half)
    return square if math.prod(square) == ranks else (1, ranks)


def grids(ranks: int) -> list[tuple[int, int]]:
    """Return {G, 1}, FastKron's and {1, G}."""
    return list(dict.fromkeys([(ranks, 1), (1, ranks), fastkron_grid(ranks)]))


def measure_link(ranks: Ranks, transport: str, bytes_each: int) -> None:
    rate = None
    if ranks.size > 1 and (transport != "peer" or ranks.can_store()):
        rate = _link_rate(ranks, transport, bytes_each)
        ranks.say(f"  {transport}: each rank sends {rate / 1e9:.1f} GB/s")
    ranks.record(case="link", transport=transport, bytes_per_second=rate)


def _link_rate(ranks: Ranks, transport: str, bytes_each: int) -> float:
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

    def store() -> None:
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


def _alone_seconds(ranks: Ranks, case: Case, factors: Any) -> float | None:
    """Return the time of one rank's share of the work, without other ranks; measured once."""
    for record in ranks.records:
        if record["case"] == case.name and "alone_seconds" in record:
            return record["alone_seconds"]  # type: ignore[no-any-return]
    whole = bk.KroneckerProduct(factors).to(ranks.device)
    share = ranks.size if case.total else 1
    try:
        seconds: float | None = None
        if ranks.device == "cuda" or ranks.rank == 0:
            x = ranks.random((case.rows, whole.shape[1]), case.dtype)
            y = ranks.module.empty_like(x)
            seconds = ranks.seconds(lambda: whole.apply(x, out=y), alone=True) / share
    except MemoryError:
        seconds = None
    if ranks.device != "cuda":
        return float(ranks.host.broadcast(seconds, 0))
    worst = ranks.together(math.nan if seconds is None else seconds)
    return None if math.isnan(worst) else worst


def run_product(
    ranks: Ranks, case: Case, grid: tuple[int, int], way: tuple[str, str, bool]
) -> bool:
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
    shape = (own_rows.stop - own_rows.start, op.shape[1])
    fits = 1.0
    try:
        x = ranks.random(shape, case.dtype)
        y = ranks.module.empty(shape, np.dtype(case.dtype))
    except MemoryError:
        fits = 0.0
    if ranks.together(-fits) > -1:
        ranks.say(f"  {case.name} does not fit")
        return True
    before = op.communicator.traffic.bytes
    op.apply(x, out=y)
    counted, volume = op.communicator.traffic.bytes - before, op.volume()
    seconds = ranks.seconds(lambda: op.apply(x, out=y))
    most = ranks.together(counted)
    rate = ranks.rate(transport)
    sending = most / rate if rate and most else 0.0
    bound = max(alone or 0.0, sending)
    how = {"grid": list(grid), "transport": transport, "exchange": exchange, "transpose": transpose}
    found = {"seconds": seconds, "alone_seconds": alone, "counted_bytes": counted}
    found |= {"planned_bytes": volume.own_bytes, "bytes_right": is_planned(ranks, op, counted)}
    entry = ranks.report(
        **{"case": case.name, **how, **found, "most_bytes": most, "sending_seconds": sending},
        of_bound=bound / seconds if bound else None,
        efficiency=alone / seconds if alone else None,
    )
    return bool(entry["bytes_right"])


def is_planned(ranks: Ranks, op: Any, counted: int) -> bool:
    """Whether all ranks have sent the bytes of the plan."""
    return bool(ranks.together(float(counted != op.volume().own_bytes)) == 0)


def factors_of(case: Case) -> list[np.ndarray]:
    rng = np.random.default_rng(case.P)
    scale = 1 / math.sqrt(case.P)
    return [scale * rng.standard_normal((case.P, case.P)).astype(case.dtype) for _ in range(case.N)]
