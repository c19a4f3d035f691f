"""Whole steps of `evolve` beside what they are made of: ``python -m benchmarks.steps``."""

import statistics
from pathlib import Path
from typing import NamedTuple

import numpy as np

import batchkron as bk
from batchkron.arrays import array_module
from batchkron.distributed import choose_device, distribute
from batchkron.problems import make
from batchkron.solvers import evolve, steppers
from batchkron.solvers.steppers.step_runner import MAX_STEPS, StepTimes
from benchmarks.core.options import parser_of
from benchmarks.core.records import machine, save
from benchmarks.core.tables import words
from benchmarks.core.timing import seconds_of


class Case(NamedTuple):
    """A problem and a method; ``products`` and ``vectors`` count what an explicit step does."""

    problem: str
    level: int
    method: str
    products: int = 0
    vectors: int = 0  # that its sums read and write, without sources
    rtol: float | None = None
    preconditioner: str | None = None

    @property
    def label(self):
        return f"{self.problem}-{self.level}-{self.method}" + ("-rtol" if self.rtol else "")

    @property
    def options(self):
        """What `evolve` is told, beside the length of a step."""
        asked = {"rtol": self.rtol, "preconditioner": self.preconditioner}
        known = {name: one for name, one in asked.items() if one is not None}
        return {"method": self.method, **known}


CASES = (
    *(Case("continuity-2d", level, "ssp-rk3", 3, 11) for level in (7, 8, 10)),
    *(Case("continuity-3d", level, "ssp-rk3", 3, 11) for level in (7, 8)),
    *(Case("continuity-6d", level, "ssp-rk3", 3, 11) for level in (5, 6, 7, 8)),
    Case("continuity-2d", 7, "dormand-prince", 6, 40),
    Case("continuity-2d", 7, "dormand-prince", 6, 40, rtol=1e-13),
    Case("continuity-3d", 8, "dormand-prince", 6, 40, rtol=1e-13),
    Case("continuity-6d", 5, "dormand-prince", 6, 40, rtol=1e-13),
    Case("two-stream", 7, "rk4", 4, 15),
    Case("landau-1x2v", 4, "rk4", 4, 15),
    Case("diffusion-2d", 7, "crank-nicolson", preconditioner="auto"),
    Case("diffusion-3d", 5, "esdirk3", preconditioner="auto"),
    *(Case("relaxation-1x1v", 6, method) for method in ("ark3", "imex-euler", "backward-euler")),
)
_SECONDS = 0.4  # of the steps that count, at least
_MOST_STEPS = 10_000


def step_seconds(problem, case, rounds, comm=None):
    dt = problem.stepper.dt

    def run(steps):
        result = evolve(problem, until=problem.t0 + steps * dt, dt=dt, **case.options)
        records = [record for record in result.history if record["event"] == "step"]
        late = records[len(records) // 4 :]
        seconds = late[-1]["seconds"] - late[0]["seconds"]
        if comm is not None:
            seconds = comm.bcast(seconds)  # ranks take the same number of steps
        accepted = result.steps / (result.steps + result.rejected)
        return seconds, seconds / (late[-1]["step"] - late[0]["step"]) * accepted

    steps = 20
    while run(steps)[0] < _SECONDS and steps < _MOST_STEPS:
        steps *= 2
    return statistics.median(run(steps)[1] for _ in range(rounds))


def call_seconds(call, rounds):

    def seconds(count):
        return seconds_of(lambda: [call(k) for k in range(count)])

    count = 1
    while seconds(count) < _SECONDS / 8:
        count *= 2
    return statistics.median(seconds(count) / count for _ in range(rounds))


def graph_seconds(problem, case, rounds):
    """The seconds of an explicit step in a replayed graph of those of `evolve`, if there is one."""
    from benchmarks.core.device_timing import elapsed

    cupy = array_module(problem.initial)
    dt, u = problem.stepper.dt, cupy.array(problem.initial)
    stepper = steppers.get(case.method)(problem, dt)
    stepper.measures = True
    for k in range(16):
        times = problem.t0 + k * dt, problem.t0 + (k + 1) * dt, dt
        stepper.take(u, [StepTimes(*times)])
    runner = stepper._runner
    graphs = [] if runner._recorder is None else list(runner._recorder._graphs.values())
    if not graphs or graphs[-1] is None:
        return None
    stream, found = cupy.cuda.get_current_stream(), []
    launches = MAX_STEPS - 4
    for _ in range(max(rounds, 3)):
        runner._table.begin()
        work = elapsed(stream, lambda: [graphs[-1].launch(stream) for _ in range(launches)])
        found.append(1e-6 * work / launches)
    return statistics.median(found)


def measure(case, device, threads, rounds, comm=None):
    """Return the times of a case, in seconds; on ranks of processors, that of a step alone."""
    problem = make(case.problem, level=case.level, degree=2)
    if device == "cuda":
        problem = problem.to("cuda")
    unknowns = len(problem.initial)
    if comm is not None:
        problem = distribute(problem, comm)
    module = array_module(problem.initial)
    bk.set_num_threads(threads)
    found = {"problem": case.problem, "level": case.level, "method": case.method}
    found |= {"rtol": case.rtol, "unknowns": unknowns, "threads": threads}
    found["step"] = step_seconds(problem, case, rounds, comm)
    if comm is not None:
        found["ranks"] = comm.Get_size()
    if not case.products or (comm is not None and module is np):
        return found
    if module is not np:
        graph = graph_seconds(problem, case, rounds)
        return found if graph is None else {**found, "graph": graph}
    u = [module.asarray(problem.initial) + k for k in range(3)]
    t = problem.t0
    rhs = call_seconds(lambda k: problem.rhs(t, u[k % 3], u[(k + 1) % 3]), rounds)

    def add(k):
        bk.linear_combination([1.0, 0.5], [u[k % 3], u[(k + 1) % 3]], u[(k + 2) % 3])

    triad = call_seconds(add, rounds)
    return {**found, "rhs": rhs, "floor": case.products * rhs + case.vectors / 3 * triad}


def main():
    parser = parser_of(__doc__, "device", "rounds", rounds=3)
    parser.add_argument("--threads", type=int, nargs="+", default=[bk.get_num_threads()])
    parser.add_argument("--mpi", action="store_true", help="on the ranks of mpiexec")
    parser.add_argument("--only", nargs="+", default=[""], help="parts of cases' names, 6d-5")
    parser.add_argument("--output", type=Path, help="where to write the figures as JSON")
    given = parser.parse_args()
    comm = None
    if given.mpi:
        from mpi4py import MPI

        comm = MPI.COMM_WORLD
        if given.device == "cuda":
            choose_device(comm)
    is_first = comm is None or comm.Get_rank() == 0
    results = []
    for case in CASES:
        if not any(part in case.label for part in given.only):
            continue
        for threads in given.threads if given.device == "cpu" else given.threads[:1]:
            results.append(measure(case, given.device, threads, given.rounds, comm))
            if is_first:
                print(words(results[-1]), flush=True)
    if is_first:
        save(given.output, {**machine(given.device), "cases": results})


if __name__ == "__main__":
    main()
