"""Sparse grids and batches of small systems on ranks."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import batchkron as bk
from batchkron.distributed import distribute
from batchkron.problems import make
from batchkron.solvers import Cg
from benchmarks.distributed.products import is_planned
from benchmarks.distributed.ranks import Ranks

FACTOR = 8  # rows of the factors of a small system, which has FACTOR^3 unknowns
CYCLE = 30  # iterations of a solve of small systems, which ends there


def run_sweeps(ranks: Ranks, level: int, degree: int, transport: str) -> bool:
    """Sweeps on all ranks, beside one of them; whether the bytes that were sent are the plan's."""
    rate = ranks.rate(transport)
    whole = make("continuity-6d", level=level, degree=degree).operator.to(ranks.device)
    alone = math.nan
    if ranks.device == "cuda" or ranks.rank == 0:
        x = ranks.random((whole.shape[1],), "float64")
        y = ranks.module.empty_like(x)
        alone = ranks.seconds(lambda: whole.apply_flat(x, y), alone=True)
        del x, y
    alone = float(ranks.host.broadcast(alone, 0))
    op, x, y = apply_sweeps(ranks, level, degree, transport)
    before = op.communicator.traffic.bytes
    op.apply(x, out=y)
    counted = op.communicator.traffic.bytes - before
    seconds = ranks.seconds(lambda: op.apply(x, out=y))
    graph = _graph_seconds(ranks, op, x, y)
    work, most = op.plan.work, ranks.together(counted)
    busiest = alone * float(work.max() / work.sum())
    sending = most / rate if rate and most else 0.0
    least = min(seconds, graph or math.inf)
    entry = ranks.report(
        case=f"sweeps, continuity-6d, level {level}, degree {degree}",
        **{"unknowns": int(whole.shape[0]), "transport": transport, "seconds": seconds},
        **{"graph_seconds": graph, "alone_seconds": alone, "busiest_seconds": busiest},
        **{"counted_bytes": counted, "bytes_right": is_planned(ranks, op, counted)},
        **{"sending_seconds": sending, "imbalance": float(work.max() / work.mean())},
        **{"of_bound": max(busiest, sending) / least, "efficiency": alone / ranks.size / least},
    )
    return bool(entry["bytes_right"])


def apply_sweeps(ranks: Ranks, level: int, degree: int, transport: str) -> tuple[Any, Any, Any]:
    whole = make("continuity-6d", level=level, degree=degree).operator.to(ranks.device)
    op = distribute(whole, ranks.transport(transport), (1, ranks.size))
    x = ranks.random((op.shape[1],), "float64")
    y = ranks.module.empty(op.shape[0])
    op.apply(x, out=y)
    return op, x, y


def _graph_seconds(ranks: Ranks, op: Any, x: Any, y: Any) -> float | None:
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


def run_systems(ranks: Ranks, systems: int) -> None:
    begin, end = (systems * part // ranks.size for part in (ranks.rank, ranks.rank + 1))
    own = solve_systems(ranks, systems, begin, end)
    seconds = ranks.seconds(own)
    alone = math.nan
    if ranks.rank == 0:
        alone = ranks.seconds(solve_systems(ranks, systems, 0, systems), alone=True)
    alone = float(ranks.host.broadcast(alone, 0))
    ranks.report(
        case=f"{systems} systems of {FACTOR**3}",
        seconds=seconds,
        alone_seconds=alone,
        efficiency=alone / ranks.size / seconds,
    )


def solve_systems(ranks: Ranks, systems: int, begin: int, end: int) -> Callable[[], object]:
    """Return a solve of a part of the systems, whose first call builds nothing."""
    rng = np.random.default_rng(0)
    matrices = rng.standard_normal((systems, 3, FACTOR, FACTOR))
    matrices = matrices @ matrices.swapaxes(-1, -2) / FACTOR + np.eye(FACTOR)
    given = matrices[begin:end]
    op = bk.KroneckerSum([given[:, k] for k in range(3)]).to(ranks.device)
    b = ranks.random((end - begin, FACTOR**3), "float64")
    method = Cg(op, batched="leading")
    return lambda: method(b, rtol=0.0, maxiter=CYCLE)
