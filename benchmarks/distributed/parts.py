"""The cells of a run in their order, the most important first."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from benchmarks.core.records import machine
from benchmarks.distributed import products
from benchmarks.distributed.cells import Cell
from benchmarks.distributed.correctness import check_operators, check_run, check_solvers
from benchmarks.distributed.others import run_sweeps, run_systems
from benchmarks.distributed.products import FIGURE_11, LONG, ON_CPU, QUICK, WAYS, Case, grids
from benchmarks.distributed.ranks import Ranks

SWEEP_LEVELS, SYSTEMS = (6, 7, 8), (4096, 65536)
QUICK_LEVELS, QUICK_SYSTEMS = (3,), (64,)


def cells_of(ranks: Ranks) -> Iterator[Cell]:
    yield from _on_devices(ranks) if ranks.device == "cuda" else _on_processors(ranks)


def _on_devices(ranks: Ranks) -> Iterator[Cell]:
    yield from _checks(ranks, "nccl")
    yield _link(ranks, "nccl", 256 << 20)
    if ranks.size > 1:
        yield _link(ranks, "peer", 256 << 20)
        if ranks.has("peer"):
            yield Cell("correctness", "peer", 4, partial(check_operators, transport="peer"))
    cases = QUICK if ranks.quick else FIGURE_11
    singles = [case for case in cases if case.dtype == "float32"]
    yield from _products(ranks, "figure-11", singles, grids(ranks.size), WAYS)
    yield from _sweeps_and_systems(ranks, "nccl")
    doubles = [case for case in cases if case.dtype == "float64"]
    yield from _products(ranks, "figure-11", doubles, grids(ranks.size), WAYS)
    long = QUICK[1:] if ranks.quick else LONG
    yield from _products(ranks, "long", long, [(1, ranks.size)], WAYS)


def _on_processors(ranks: Ranks) -> Iterator[Cell]:
    yield from _checks(ranks, "mpi")
    yield _link(ranks, "mpi", 16 << 20)
    yield from _sweeps_and_systems(ranks, "mpi")
    ways = (("mpi", "group", False), ("mpi", "every", False))
    cases = QUICK[1:] if ranks.quick else ON_CPU
    yield from _products(ranks, "products", cases, [(ranks.size, 1), (1, ranks.size)], ways)


def _checks(ranks: Ranks, transport: str) -> Iterator[Cell]:
    yield Cell("correctness", transport, 6, partial(check_operators, transport=transport))
    yield Cell("correctness", "solvers", 4, partial(check_solvers, transport=transport))
    yield Cell("correctness", "runs", 6, partial(check_run, transport=transport))


def _link(ranks: Ranks, transport: str, size: int) -> Cell:
    size = 16 << 20 if ranks.quick else size
    work = partial(products.measure_link, transport=transport, bytes_each=size)
    return Cell("links", transport, 2, work)


def _sweeps_and_systems(ranks: Ranks, transport: str) -> Iterator[Cell]:
    on_devices = ranks.device == "cuda"
    levels, counts = (QUICK_LEVELS, QUICK_SYSTEMS) if ranks.quick else (SWEEP_LEVELS, SYSTEMS)
    for count in counts if on_devices else counts[:1]:
        work = partial(run_systems, systems=count)
        yield Cell("systems", f"{count} systems", 4, work)
    for level in levels if on_devices else levels[:1]:
        work = partial(run_sweeps, level=level, degree=1, transport=transport)
        yield Cell("sweeps", f"level {level}", 3 if level < 8 else 12, work)


def _products(
    ranks: Ranks,
    part: str,
    cases: list[Case],
    given: list[tuple[int, int]],
    ways: tuple[tuple[str, str, bool], ...],
) -> Iterator[Cell]:
    seconds = 3.0 if ranks.device == "cuda" else 8.0
    for case in cases:
        for grid in given:
            for way in ways:
                exchanges = grid[1] > 1
                if not ranks.has(way[0]) or (not exchanges and way != ways[0]):
                    continue
                transport, exchange, transpose = way
                text = f"{case.name} {grid} {transport}, {exchange}"
                work = partial(products.run_product, case=case, grid=grid, way=way)
                yield Cell(part, f"{text}{', transposed' if transpose else ''}", seconds, work)


def described(ranks: Ranks) -> dict[str, Any]:
    found = {"ranks": ranks.size, "device": ranks.device, "machine": machine(ranks.device)}
    if ranks.device == "cuda":
        found["nccl"] = ranks.module.cuda.nccl.get_version()
    return found
