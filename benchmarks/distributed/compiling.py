"""Compile the kernels of a run, by several processes and on one device, before its ranks start."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from batchkron.distributed import SimulatedCommunicator, simulate
from batchkron.distributed.products.kronecker_product import vectors_at_a_time
from batchkron.distributed.products.product_plan import ExchangeRule, make_plan
from batchkron.spec.kron import KronSpec
from benchmarks.distributed.correctness import (
    METHODS,
    OPERATORS,
    check_operators,
    check_run,
    check_solvers,
)
from benchmarks.distributed.parts import QUICK_LEVELS, QUICK_SYSTEMS, SWEEP_LEVELS, SYSTEMS
from benchmarks.distributed.products import (
    FIGURE_11,
    LONG,
    QUICK,
    Case,
    apply_sweeps,
    grids,
    solve_systems,
)
from benchmarks.distributed.ranks import Ranks
from benchmarks.gpu.compiling import Job, compile_all

# Factors P, how many, dtype, and the sizes of the axes before and behind the multiplied ones.
Piece = tuple[int, int, str, int, int]


def compile_kernels(ranks: int, quick: bool, processes: int) -> None:
    for problem in compile_all(jobs_of(ranks, quick), processes):
        print(f"not compiled: {problem}", flush=True)


def jobs_of(ranks: int, quick: bool) -> list[Job]:
    """Return what is compiled at the same time, the longest first."""
    levels, counts = (QUICK_LEVELS, QUICK_SYSTEMS) if quick else (SWEEP_LEVELS, SYSTEMS)
    checks: list[Callable[[Ranks], object]] = [partial(check_run, transport="nccl")]
    checks += [partial(check_solvers, transport="nccl", names=[name]) for name in METHODS]
    checks += [partial(check_operators, transport="nccl", names=[name]) for name in OPERATORS]
    checks += [partial(check_operators, transport="peer", names=OPERATORS[:1])]
    checks += [partial(apply_sweeps, level=level, degree=1, transport="nccl") for level in levels]
    checks += [partial(_systems, systems=count) for count in counts]
    pieces = sorted(set(_pieces(ranks, quick)), reverse=True)
    owners = sorted({parts for _, parts in grids(ranks)} - {1})
    return [
        *(partial(compile_check, ranks, check) for check in checks),
        *(partial(compile_piece, *piece) for piece in pieces),
        *(partial(compile_spread, *piece, parts) for parts in owners for piece in pieces),
    ]


def compile_piece(P: int, N: int, dtype: str, outer: int, inner: int) -> None:
    from batchkron.backends import backend_on, reserve

    cuda: Any = backend_on("cuda")
    product = cuda.kron_product([np.ones((P, P), dtype)] * N, None)
    reserve(product, outer, inner)


def compile_spread(P: int, N: int, dtype: str, outer: int, inner: int, owners: int) -> None:
    import cupy

    from batchkron.backends.cuda.kron.choose import fastest_plan, product_of
    from batchkron.backends.cuda.kron.spread import spread_kernel
    from batchkron.backends.cuda.runtime.device import device_limits, load_kernel

    device = cupy.cuda.Device().id
    spec = KronSpec((P,) * N, (P,) * N, outer, inner, np.dtype(dtype))
    limits = device_limits(device)
    last = fastest_plan(product_of(spec, False), limits)[-1]
    kernel = spread_kernel(last, owners, limits)
    if kernel is not None:
        load_kernel(kernel.program, device)


def compile_check(ranks: int, check: Callable[[Any], object]) -> None:
    simulate(ranks, lambda communicator: check(RanksOfOneDevice(communicator)))


class RanksOfOneDevice(Ranks):
    """Ranks that are threads, and share a device; nothing is measured or printed."""

    def __init__(self, communicator: SimulatedCommunicator) -> None:
        import cupy

        self.host = communicator
        self.rank, self.size = communicator.rank, communicator.size
        self.device, self.module, self.records = "cuda", cupy, []

    def transport(self, name: str) -> SimulatedCommunicator:
        self.host.stores = name == "peer"
        return self.host

    def say(self, *text: object) -> None:
        pass

    def record(self, **values: Any) -> dict[str, Any]:
        return values

    report = record


def _systems(ranks: Ranks, systems: int) -> None:
    if ranks.rank == 0:
        solve_systems(ranks, systems, 0, systems)()
    begin, end = (systems * part // ranks.size for part in (ranks.rank, ranks.rank + 1))
    solve_systems(ranks, systems, begin, end)()


def _pieces(ranks: int, quick: bool) -> Iterator[Piece]:
    for case in QUICK if quick else FIGURE_11:
        for grid in grids(ranks):
            yield from _pieces_of(case, ranks, grid)
    for case in QUICK[1:] if quick else LONG:
        yield case.P, case.N, case.dtype, case.rows, 1  # on one rank alone
        yield from _pieces_of(case, ranks, (1, ranks))


def _pieces_of(case: Case, ranks: int, grid: tuple[int, int]) -> Iterator[Piece]:
    rows = (case.rows if case.total else case.rows * ranks) // grid[0]
    if grid[1] == 1:
        yield case.P, case.N, case.dtype, rows, 1
        return
    rules: tuple[ExchangeRule, ...] = "group", "every"
    for rule in rules:
        plan = make_plan([(case.P, case.P)] * case.N, grid[1], rule, True)
        chunk = vectors_at_a_time(plan, rows, np.dtype(case.dtype).itemsize)
        for vectors in {chunk, rows % chunk} - {0}:
            for each in plan.rounds:
                for size, local in zip(each.sizes(0), each.products, strict=False):
                    inner = local.behind * (1 if each.behind is None else each.behind[0])
                    outer = vectors * (size // (local.inputs * inner))
                    yield case.P, local.last - local.first + 1, case.dtype, outer, inner
