"""The parts of a run in their order, the most important first."""

from __future__ import annotations

import platform
from typing import Any

import numpy as np

import batchkron as bk
from batchkron.errors import BackendUnavailableError
from benchmarks.cpu.machine import output_of, processor_name
from benchmarks.distributed.correctness import check_all
from benchmarks.distributed.others import run_sweeps, run_systems
from benchmarks.distributed.products import (
    FIGURE_11,
    LONG,
    QUICK,
    WAYS,
    Case,
    alone_seconds,
    factors_of,
    grids,
    link_rate,
    run_product,
)
from benchmarks.distributed.products import (
    ON_CPU as PRODUCTS_ON_CPU,
)
from benchmarks.distributed.ranks import Ranks

RATES: dict[str, float | None] = {}  # bytes a second that a rank sends, by transport


def correctness(ranks: Ranks) -> bool:
    """Check all kinds of operators, solvers and runs."""
    transports = ("nccl", "peer") if ranks.device == "cuda" else ("mpi",)
    return check_all(ranks, tuple(name for name in transports if _has(ranks, name)))


def links(ranks: Ranks) -> None:
    """Measure what ranks can send."""
    for name in ("nccl", "peer") if ranks.device == "cuda" else ("mpi",):
        size = 256 << 20 if ranks.device == "cuda" and not ranks.quick else 16 << 20
        RATES[name] = link_rate(ranks, name, size) if _has(ranks, name) else None
        ranks.record(case="link", transport=name, bytes_per_second=RATES[name])
        if RATES[name]:
            ranks.say(f"  {name}: each rank sends {RATES[name] / 1e9:.1f} GB/s")
        ranks.free()


def figure_11(ranks: Ranks) -> None:
    """FastKron's Figure 11: a block of 4 GiB in float32 on each rank."""
    for case in QUICK if ranks.quick else FIGURE_11:
        _products(ranks, case, grids(ranks.size), WAYS)


def long_vectors(ranks: Ranks) -> None:
    """One vector over all ranks."""
    for case in QUICK[1:] if ranks.quick else LONG:
        _products(ranks, case, [(1, ranks.size)], WAYS)


def sweeps(ranks: Ranks) -> None:
    """Sparse grids, continuity-6d."""
    for level in (3,) if ranks.quick else (6, 7, 8):
        if ranks.has_time(20 * (level - 5)):
            run_sweeps(ranks, level, 1, "nccl", RATES.get("nccl"))
            ranks.free()


def systems(ranks: Ranks) -> None:
    """Batches of small systems, which need no exchange."""
    for count in (64,) if ranks.quick else (4096, 65536):
        if ranks.has_time(10):
            run_systems(ranks, count)


def cpu_products(ranks: Ranks) -> None:
    """16: 64^4 on {G, 1} and {1, G}."""
    ways = (("mpi", "group", False), ("mpi", "every", False))
    for case in QUICK[1:] if ranks.quick else PRODUCTS_ON_CPU:
        _products(ranks, case, [(ranks.size, 1), (1, ranks.size)], ways)


def cpu_sweeps(ranks: Ranks) -> None:
    """continuity-6d, level 6."""
    run_sweeps(ranks, 3 if ranks.quick else 6, 1, "mpi", RATES.get("mpi"))


def cpu_systems(ranks: Ranks) -> None:
    """4096 systems."""
    run_systems(ranks, 64 if ranks.quick else 4096)


ON_DEVICES = [
    ("correctness", correctness),
    ("links", links),
    ("figure-11", figure_11),
    ("long", long_vectors),
    ("sweeps", sweeps),
    ("systems", systems),
]
ON_CPU = [
    ("correctness", correctness),
    ("links", links),
    ("systems", cpu_systems),
    ("sweeps", cpu_sweeps),
    ("products", cpu_products),
]


def _products(
    ranks: Ranks, case: Case, given: list[tuple[int, int]], ways: tuple[Any, ...]
) -> None:
    factors = factors_of(case)
    if not ranks.has_time(10):
        return
    alone = alone_seconds(ranks, case, factors)
    ranks.free()
    for grid in given:
        for way in ways:
            exchanges = grid[1] > 1
            if not _has(ranks, way[0]) or (not exchanges and way != ways[0]):
                continue
            if ranks.has_time(8):
                run_product(ranks, case, grid, way, factors, alone, RATES)
                ranks.free()
    ranks.free()


def _has(ranks: Ranks, name: str) -> bool:
    """Whether ranks have a transport, on all of them."""
    if name == "peer" and ranks.size == 1:
        return False
    if name != "peer":
        return True
    try:
        ranks.transport(name).share_memory(1, np.dtype(np.float32), ranks.module)
    except BackendUnavailableError as error:
        ranks.say(f"  no stores to other devices' memory: {error}")
        return False
    return True


def described(ranks: Ranks) -> dict[str, Any]:
    """Return what the figures belong to."""
    found = {
        "ranks": ranks.size,
        "device": ranks.device,
        "version": bk.__version__,
        "commit": output_of("git", "rev-parse", "--short", "HEAD"),
        "processor": processor_name(),
        "python": platform.python_version(),
    }
    if ranks.device == "cuda":
        properties = ranks.module.cuda.runtime.getDeviceProperties(ranks.number)
        found["device_name"] = properties["name"].decode()
        found["nccl"] = ranks.module.cuda.nccl.get_version()
    return found
