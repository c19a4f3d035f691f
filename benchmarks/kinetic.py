"""Kinetic problems: ``python -m benchmarks.kinetic [--asgard BUILD] [--json PATH]``."""

import sys
import time
from functools import partial

import numpy as np

import batchkron
from batchkron.problems import make
from batchkron.solvers import Adapt, evolve, steppers
from benchmarks.core.options import counts, parser_of
from benchmarks.core.records import machine, recorded, save
from benchmarks.core.timing import in_turn, least, seconds_of, waiter
from benchmarks.sparse_grid.asgard import Asgard

DEGREE = 2
LEVELS = [5, 6, 7, 8]
IMPLICIT = {"preconditioner": "auto", "solver": "bicgstab"}
STEPS = (
    ("two-stream", 7, "rk4", {}),
    ("relaxation-1x1v", 5, "ark3", IMPLICIT),
    ("landau-2x2v", 4, "rk4", {}),
)
"""Problem, level, method and options of the steps that are timed."""

COMPARED_LEVELS = (5, 6, 7)  # of two-stream, next to ASGarD
RELAXATION_LEVEL, RELAXATION_STEP, RELAXATION_RATE = 5, 5e-4, 1e3
RELAXATION_METHODS = ("backward-euler", "imex-euler", "ark2", "ark3")
CHECKED_STEPS = 10
AGREEMENT = {"relaxation-1x1v": lambda level: 1e-5, "two-stream": lambda level: 4.0 * 0.25**level}
"""Largest relative difference of the changes' norms, by the level.

That of two-stream is O(h²), because ASGarD's E is constant in each cell: 2.6e-3, 6.5e-4 and 1.6e-4
on the levels 5 to 7.
"""
ASGARDS = ("-sv gmres -ist 1e-8 -isi 1000 -isn 50", "-sv bicgstab -ist 1e-8 -isi 1000")
"""Solvers of ASGarD's implicit steps, the first one that of its own program; the faster counts."""

ADAPTED_LEVEL = 6
ADAPT = {"tol": 3.4e-2, "every": 10, "horizon": 0.3, "keep": "v"}
ADAPT_START = 3  # level at which the adapted run begins


TURN = 0.005  # seconds of a turn, about


def least_seconds(calls, device, turns):
    return least(in_turn(calls, turns, TURN, waiter(device)))


def right_hand_sides(level, device, turns):
    problem = make("two-stream", level, DEGREE).to(device)
    u = problem.initial.copy()
    frozen, out = problem.frozen(u), u.copy()
    calls = {"field": partial(problem.rhs, 0.0, u, out), "frozen": partial(frozen.rhs, 0.0, u, out)}
    times = least_seconds(calls, device, turns)
    ratio = times["field"] / times["frozen"]
    return {"level": level, "unknowns": problem.unknowns, **times, "ratio": ratio}


def step_seconds(name, level, method, options, device, turns):
    problem = make(name, level, DEGREE, method=method).to(device)
    dt, u = problem.stepper.dt, problem.initial.copy()
    stepper = steppers.get(method)(problem, dt, **options)
    start = u.copy()

    def step():
        u[...] = start
        stepper.step(u, problem.t0, problem.t0 + dt)

    seconds = least_seconds({"step": step}, device, turns)["step"]
    found = {"problem": name, "level": level, "method": method, "unknowns": problem.unknowns}
    return {**found, "seconds": seconds}


def our_run(problem, method, dt, options):
    """Return the seconds of a step from the start, and the norm of what the steps have changed."""
    stepper, u = steppers.get(method)(problem, dt, **options), problem.initial.copy()
    stepper.step(u, 0.0, dt)
    began = time.perf_counter()
    for step in range(1, CHECKED_STEPS):
        stepper.step(u, step * dt, (step + 1) * dt)
    seconds = (time.perf_counter() - began) / (CHECKED_STEPS - 1)
    return seconds, float(np.linalg.norm(u - problem.initial))


def asgards_run(made, unknowns):
    """Return the same of ASGarD, from a problem at its start, which is closed."""
    if made.unknowns != unknowns:
        raise ValueError(f"ASGarD has {made.unknowns} unknowns, batchkron {unknowns}")
    start = np.array(made.state)
    made.advance(1)
    seconds = seconds_of(lambda: made.advance(CHECKED_STEPS - 1)) / (CHECKED_STEPS - 1)
    norm = float(np.linalg.norm(made.state - start))
    made.close()
    return seconds, norm


def next_to_asgard(asgard, turns):
    """Yield the times of steps, ours and ASGarD's in turns, and how far their states agree."""
    asgard.library.set_threads(1)
    cases = []
    for level in COMPARED_LEVELS:
        problem = make("two-stream", level, DEGREE)
        dt, words = problem.stepper.dt, f"-l {level} -d {DEGREE} -s rk3"
        cases.append((problem, "ssp-rk3", dt, [partial(asgard.example, "two_stream", words, dt)]))
    problem, dt = make("relaxation-1x1v", RELAXATION_LEVEL, DEGREE), RELAXATION_STEP
    words = f"-l {RELAXATION_LEVEL} -d {DEGREE} -s be"
    make_other = partial(asgard.example, "relaxation")
    others = [partial(make_other, f"{words} {own}", dt, RELAXATION_RATE) for own in ASGARDS]
    cases += [(problem, method, dt, others) for method in RELAXATION_METHODS]
    for problem, method, dt, makers in cases:
        best = [float("inf")] * (1 + len(makers))
        norms = [0.0] * len(best)
        for _ in range(turns):
            runs = [our_run(problem, method, dt, {} if method == "ssp-rk3" else IMPLICIT)]
            runs += [asgards_run(maker(), problem.unknowns) for maker in makers]
            for k, (seconds, norm) in enumerate(runs):
                best[k], norms[k] = min(best[k], seconds), norm
        agreement = AGREEMENT[problem.name](max(problem.grid.levels))
        own = {"problem": problem.name, "levels": problem.grid.levels, "method": method}
        own |= {"unknowns": problem.unknowns, "norms": norms, "seconds": best[0]}
        wrong = not np.allclose(norms, norms[0], rtol=agreement, atol=0.0)
        yield {**own, "asgard": best[1:], "ratio": min(best[1:]) / best[0], "wrong": wrong}


def adapted(level, until, device):
    """Yield unknowns, error and seconds of runs on the full, sparse and an adapted grid."""
    full = make("two-stream", level, DEGREE, "full").to(device)
    rule = Adapt(max_level=level, **ADAPT)
    lower = range(level, ADAPT_START, -1)
    runs = [
        ("full", full, {}),
        *((f"sparse, level {k}", make("two-stream", k, DEGREE).to(device), {}) for k in lower),
        ("adapted", make("two-stream", ADAPT_START, DEGREE).to(device), {"adapt": rule}),
    ]
    reference = None
    for kind, problem, options in runs:
        result = evolve(problem, until=until, method="ssp-rk3", raise_on_failure=True, **options)
        last = problem if result.problem is None else result.problem
        u = last.to("cpu").on_grid(full.grid, last._on_host(result.u)).initial
        reference = u if reference is None else reference
        sizes = [record.get("unknowns", 0) for record in result.history]
        error = float(np.linalg.norm(u - reference) / np.linalg.norm(reference))
        own = {"grid": kind, "unknowns": max([problem.unknowns, *sizes]), "error": error}
        levels = {"levels": last.grid.levels}
        yield {**own, **levels, "steps": result.steps, "seconds": result.seconds}


def main(words=None):
    parser = parser_of(__doc__, "device", "asgard", "json")
    add = parser.add_argument
    add("--threads", type=int, help="threads of the CPU's kernels")
    add("--levels", type=counts, default=LEVELS, help="of the first table")
    add("--turns", type=int, default=50, help="measurements of each call")
    add("--until", type=float, default=20.0, help="end of the adapted runs; 0 for none")
    add("--adapted-level", type=int, default=ADAPTED_LEVEL)
    options = parser.parse_args(words)
    if options.threads:
        batchkron.set_num_threads(options.threads)
    device, turns, threads = options.device, options.turns, batchkron.get_num_threads()
    print(f"degree {DEGREE}, {device}, {threads} threads\n\nright-hand sides of two-stream")
    sides = recorded(right_hand_sides(level, device, turns) for level in options.levels)
    print("\nsteps")
    steps = recorded(step_seconds(*case, device, turns) for case in STEPS)
    asgard = Asgard(options.asgard).found()[0] if options.asgard else None
    compared = []
    if asgard is not None:
        batchkron.set_num_threads(1)
        print("\nsteps next to ASGarD's")
        compared = recorded(next_to_asgard(asgard, turns))
        batchkron.set_num_threads(threads)
    print(f"\nruns until {options.until:g}")
    runs = adapted(options.adapted_level, options.until, device) if options.until > 0.0 else ()
    record = {"machine": machine(device), "device": device, "threads": threads}
    record |= {"instruction_set": batchkron.instruction_set(), "right_hand_sides": sides}
    record |= {"steps": steps, "asgard": compared}
    about = {"level": options.adapted_level, "until": options.until, "runs": recorded(runs)}
    save(options.json, {**record, "adapted": about})
    return int(any(one["wrong"] for one in compared))


if __name__ == "__main__":
    sys.exit(main())
