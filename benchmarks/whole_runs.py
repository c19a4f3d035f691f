"""Whole runs on 1, 2, 4, … ranks: ``mpiexec -n G python -m benchmarks.whole_runs --json PATH``.

A run is `evolve` with a given method. All ranks make a problem; then the first, the first two, … of
them solve it. Steps are timed as in `benchmarks.steps`; bytes are those of one product with the
problem's operator, counted and planned; `waiting` is the share of a product that is gone where
nothing is sent; states after a few steps are compared with one rank's. The exit status is 1 where
bytes or states are wrong. Results of cells are written one by one.
"""

import sys
import time
from functools import lru_cache
from unittest import mock

import numpy as np

import batchkron as bk
from batchkron.arrays import array_module
from batchkron.distributed import choose_device, distribute
from batchkron.distributed.exchanges.blocks import BlockExchange
from batchkron.problems import LinearProblem, StepperSettings, make
from batchkron.solvers import evolve
from benchmarks.core.checks import on_host, relative_error
from benchmarks.core.options import parser_of
from benchmarks.core.records import machine, save
from benchmarks.core.tables import words
from benchmarks.core.timing import seconds_of
from benchmarks.steps import Case, step_seconds

BLOCKS, FACTOR = 4096, 8  # of the batch list, whose blocks have FACTOR^3 unknowns
COMPARED = 6  # steps after which states are compared


def runs_of(quick):
    """The runs, the most important first, and tolerances of states by their largest entries."""
    for level in (3, 4, 2) if quick else (8, 9, 7):
        yield Case("continuity-6d", level, "ssp-rk3"), 1e-12
        # steps are chosen by norms, of which ranks sum parts
        yield Case("continuity-6d", level, "dormand-prince", rtol=1e-6), 1e-9
    yield Case("list", 0, "ssp-rk3"), 1e-12
    # solves end at a tolerance
    level = 3 if quick else 6
    yield Case("diffusion-3d", level, "crank-nicolson", preconditioner="auto"), 1e-5
    yield Case("continuity-3d", 4 if quick else 10, "ssp-rk3"), 1e-12


def list_problem(blocks):
    """Blocks in a ring that decay and get from their neighbours, of which a batch list has all."""
    rng = np.random.default_rng(1)
    pool = rng.standard_normal((64, FACTOR, FACTOR)) / FACTOR
    near = np.arange(blocks)
    outputs = np.repeat(near, 5)
    inputs = (near[:, None] + [-2, -1, 0, 1, 2]).ravel() % blocks
    ids = rng.integers(0, len(pool), (len(outputs), 3))
    op = bk.BatchedKron(pool, ids, inputs, outputs)
    u = rng.standard_normal((blocks, FACTOR**3))
    return LinearProblem(op, u, name="list", stepper=StepperSettings("ssp-rk3", dt=1e-2, until=1.0))


@lru_cache(maxsize=1)  # runs of one problem follow each other
def problem_of(name, level, device, quick):
    if name == "list":
        return list_problem(64 if quick else BLOCKS).to(device)
    return make(name, level=level, degree=2).to(device)


def product_seconds(part, comm):
    """The seconds of a product with the problem's operator on the slowest of the ranks."""
    op, x = part.operator, part.initial
    module = array_module(x)
    y = module.empty_like(x)
    wait = (lambda: None) if module is np else module.cuda.get_current_stream().synchronize
    op.apply(x, out=y)

    def rounds(count):
        comm.Barrier()
        took = seconds_of(lambda: [op.apply(x, out=y) for _ in range(count)], 1, wait)
        return float(max(comm.allgather(took)))

    count = 1
    while rounds(count) < 0.05:
        count *= 2
    return min(rounds(count) for _ in range(3)) / count


def products(part, comm):
    """What a product takes on ranks, and what it would without waiting for others."""
    op = part.operator
    seconds, volume = product_seconds(part, comm), op.volume()

    def silent(*_):
        pass

    # products go on without others' blocks: their times are right, their results are not
    names = dict.fromkeys(("alltoallv", "ialltoallv", "meet"), silent)
    with (
        mock.patch.multiple(op.communicator, **names),
        mock.patch.object(BlockExchange, "store", silent),
    ):
        alone = product_seconds(part, comm)
    found = {"product": seconds, "busiest_multiply_adds": op._traffic_plan.multiply_adds}
    return {**found, "exchanges": volume.exchanges, "waiting": 1 - alone / seconds}


class Ranks:
    """The first ranks, for each number of them that divides those of mpiexec."""

    def __init__(self, device):
        from mpi4py import MPI

        self.all, self.device = MPI.COMM_WORLD, device
        self.rank, size = self.all.Get_rank(), self.all.Get_size()
        if device == "cuda":
            choose_device(self.all)
        self.counts = [count for count in range(1, size + 1) if size % count == 0]
        self.first = {n: self.all.Split(int(self.rank >= n), self.rank) for n in self.counts}

    def measure(self, case, tolerance, whole, count, expected):
        """Return what the first ``count`` ranks take; ``expected``: one rank's state, or None."""
        comm = self.first[count]
        part = whole if count == 1 else distribute(whole, comm)
        found = {"ranks": count}
        if count > 1:
            op = part.operator
            traffic, before = op.communicator.traffic, op.communicator.traffic.bytes
            op.apply(part.initial)
            sent = comm.gather((traffic.bytes - before, op.volume().own_bytes))
            if self.rank == 0:
                found["bytes"] = sum(one for one, _ in sent)
                found["bytes_of_busiest"] = max(one for one, _ in sent)
                found["bytes_right"] = all(one == other for one, other in sent)
            found |= products(part, comm)
        dt = part.stepper.dt
        u = evolve(part, until=part.t0 + COMPARED * dt, dt=dt, **case.options).u
        found["state"] = part.gather(u, 0) if count > 1 else u
        if self.rank == 0:
            found["state"] = on_host(found["state"])
            if expected is not None:
                found["difference"] = relative_error(found["state"], expected)
                found["state_right"] = found["difference"] <= tolerance
        found["step"] = step_seconds(part, case, 3, comm if count > 1 else None)
        return found


def measure_run(ranks, case, tolerance, quick, say):
    begin = time.perf_counter()
    whole = problem_of(case.problem, case.level, ranks.device, quick)
    found = {"problem": case.problem, "level": case.level, "method": case.method}
    found |= {"rtol": case.rtol, "preconditioner": case.preconditioner}
    found |= {"unknowns": int(whole.initial.size), "setup": time.perf_counter() - begin, "on": []}
    expected = None
    for count in ranks.counts:
        if ranks.rank < count:
            one = ranks.measure(case, tolerance, whole, count, expected)
            state = one.pop("state")
            expected = state if count == 1 else expected
            found["on"].append(one)
            if ranks.rank == 0:
                faster = f"{found['on'][0]['step'] / one['step']:.2f} x one"
                say(f"{case.label}, {found['unknowns']} unknowns: {faster}, {words(one)}")
        ranks.all.Barrier()
    return found


def main():
    usual = "device", "json", "seconds", "quick"
    parser = parser_of(__doc__, *usual, device="cuda", seconds=400.0)
    parser.add_argument("--only", nargs="+", default=[""], help="parts of runs' names, 6d-9")
    given = parser.parse_args()
    begin, ranks = time.perf_counter(), Ranks(given.device)
    is_first, results = ranks.rank == 0, []

    def say(text):
        print(f"{time.perf_counter() - begin:5.0f} s  {text}", flush=True)

    for case, tolerance in runs_of(given.quick):
        if not any(part in case.label for part in given.only):
            continue
        if not ranks.all.bcast(time.perf_counter() - begin < given.seconds):
            break
        results.append(measure_run(ranks, case, tolerance, given.quick, say))
        if is_first:
            save(given.json, {**machine(given.device), "cases": results})
    right = all(
        one.get("bytes_right", True) and one.get("state_right", True)
        for result in results
        for one in result["on"]
    )
    return int(not ranks.all.bcast(right))


if __name__ == "__main__":
    sys.exit(main())
