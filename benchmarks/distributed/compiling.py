"""Compile the kernels of a run, by several processes and on one device, before its ranks start."""

from functools import partial

import numpy as np

from batchkron.distributed import simulate
from batchkron.distributed.products.kronecker_product import vectors_at_a_time
from batchkron.distributed.products.product_plan import make_plan
from batchkron.spec.kron import KronSpec
from benchmarks.distributed import correctness, products
from benchmarks.distributed.parts import QUICK_LEVELS, QUICK_SYSTEMS, SWEEP_LEVELS, SYSTEMS
from benchmarks.distributed.ranks import Ranks
from benchmarks.gpu.compiling import compile_all


def compile_kernels(ranks, quick, processes):
    print(*(f"not compiled: {text}" for text in compile_all(jobs_of(ranks, quick), processes)))


def jobs_of(ranks, quick):
    """Return what is compiled at the same time, the longest first."""
    levels, counts = (QUICK_LEVELS, QUICK_SYSTEMS) if quick else (SWEEP_LEVELS, SYSTEMS)
    operators = correctness.OPERATORS
    given = [
        (correctness.check_run, {}),
        *((correctness.check_solvers, {"names": [name]}) for name in correctness.METHODS),
        *((correctness.check_operators, {"names": [name]}) for name in operators),
        *((products.apply_sweeps, {"level": level, "degree": 1}) for level in levels),
    ]
    checks = [partial(check, transport="nccl", **how) for check, how in given]
    checks += [partial(correctness.check_operators, transport="peer", names=operators[:1])]
    checks += [partial(_systems, systems=count) for count in counts]
    pieces = sorted(set(_pieces(ranks, quick)), reverse=True)
    owners = sorted({parts for _, parts in products.grids(ranks)} - {1})
    return [
        *(partial(compile_check, ranks, check) for check in checks),
        *(partial(compile_piece, *piece) for piece in pieces),
        *(partial(compile_spread, *piece, parts) for parts in owners for piece in pieces),
    ]


def compile_check(ranks, check):
    simulate(ranks, lambda communicator: check(RanksOfOneDevice(communicator)))


def compile_piece(P, N, dtype, outer, inner):
    from batchkron.backends import backend_on, reserve

    cuda = backend_on("cuda")
    product = cuda.kron_product([np.ones((P, P), dtype)] * N, None)
    reserve(product, outer, inner)


def compile_spread(P, N, dtype, outer, inner, owners):
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


class RanksOfOneDevice(Ranks):
    """Ranks that are threads, and share a device; nothing is measured or printed."""

    def __init__(self, communicator):
        import cupy

        self.host = communicator
        self.rank, self.size = communicator.rank, communicator.size
        self.device, self.module, self.records = "cuda", cupy, []

    def transport(self, name):
        self.host.stores = name == "peer"
        return self.host

    def say(self, *text):
        pass

    def record(self, **values):
        return values

    report = record


def _systems(ranks, systems):
    if ranks.rank == 0:
        products.solve_systems(ranks, systems, 0, systems)()
    begin, end = (systems * part // ranks.size for part in (ranks.rank, ranks.rank + 1))
    products.solve_systems(ranks, systems, begin, end)()


def _pieces(ranks, quick):
    """Factors P, how many, dtype, sizes of the axes before and behind the multiplied ones."""
    for case in products.QUICK if quick else products.FIGURE_11:
        for grid in products.grids(ranks):
            yield from _pieces_of(case, ranks, grid)
    for case in products.QUICK[1:] if quick else products.LONG:
        yield case.P, case.N, case.dtype, case.rows, 1  # on one rank alone
        yield from _pieces_of(case, ranks, (1, ranks))


def _pieces_of(case, ranks, grid):
    rows = (case.rows if case.total else case.rows * ranks) // grid[0]
    if grid[1] == 1:
        yield case.P, case.N, case.dtype, rows, 1
        return
    rules = "group", "every"
    for rule in rules:
        plan = make_plan([(case.P, case.P)] * case.N, grid[1], rule, True)
        chunk = vectors_at_a_time(plan, rows, np.dtype(case.dtype).itemsize)
        for vectors in {chunk, rows % chunk} - {0}:
            for each in plan.rounds:
                for size, local in zip(each.sizes(0), each.products, strict=False):
                    inner = local.behind * (1 if each.behind is None else each.behind[0])
                    outer = vectors * (size // (local.inputs * inner))
                    yield case.P, local.last - local.first + 1, case.dtype, outer, inner
