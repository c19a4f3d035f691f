"""Crank-Nicolson steps next to ASGarD: `python -m benchmarks.sparse_grid.implicit`."""

import os
import statistics
import sys
import time
from functools import partial

import numpy as np

import batchkron as bk
from batchkron.problems import gallery
from batchkron.solvers.steppers.crank_nicolson import CrankNicolson
from benchmarks.core.options import counts, parser_of
from benchmarks.core.records import machine, recorded, save
from benchmarks.core.tables import machine_lines
from benchmarks.sparse_grid.asgard import Asgard

GOAL = 10.0  # times ASGarD's speed
DEGREE = 2
DT = 0.01
STEPS = 10
ERROR = 1e-6  # of the state at the end, relative, that a solver may cause
TOLERANCES = tuple(10.0**-k for k in range(4, 12))
EXACT = 1e-12  # tolerance of the run that errors are measured against
AGREEMENT = 1e-6  # of the norms after a few short steps

OURS = (("auto", "gmres"), ("auto", "cg"), ("multiplicative-combination", "gmres"))
ASGARDS = (
    *(f"-sv gmres -pc jacobi -isi 2000 -isn {cycle}" for cycle in (50, 100, 200, 400)),
    "-sv bicgstab -pc jacobi -isi 20000",
)
DIRECT = "-sv direct"


def timed(setup, step):
    """Return what was set up, the seconds of that, and those of each step."""
    start = time.perf_counter()
    made = setup()
    marks = [time.perf_counter()]
    for number in range(STEPS):
        step(made, number)
        marks.append(time.perf_counter())
    return made, marks[0] - start, np.diff(marks).tolist()


def our_run(problem, preconditioner, solver, dt, rtol):
    """Return the state at the end, the seconds before the first step, and those of each step."""
    u = np.array(problem.initial)
    options = {"name": solver, "rtol": rtol}

    def setup():
        return CrankNicolson(problem, dt, preconditioner=preconditioner, solver=options)

    def step(stepper, number):
        failed = stepper.step(u, number * dt, (number + 1) * dt)
        if failed is not None:
            raise RuntimeError(f"{solver} with {preconditioner}: {failed.status.advice}")

    return u, *timed(setup, step)[1:]


def asgard_run(asgard, level, solver, dt, tolerance):
    """Take ASGarD's steps; its tolerance is absolute, of the preconditioned residual."""
    words = solver if solver == DIRECT else f"{solver} -ist {tolerance:g}"
    words = f"-l {level} -d {DEGREE} {words}"
    setup = partial(asgard.example, "diffusion", words, dt)
    made, *times = timed(setup, lambda made, _: made.advance(1))
    state = made.state
    made.close()
    return state, *times


def same_equation(problem, asgard, level):
    """Return what is not the same problem, or None: the norms after a few short steps."""
    short = 1e-3 * DT  # the rules for the data in time differ by its square
    own = our_run(problem, "auto", "gmres", short, EXACT)[0]
    other = asgard_run(asgard, level, ASGARDS[2], short, EXACT)[0]
    if own.size != other.size:
        return f"ASGarD has {other.size} unknowns, batchkron {own.size}"
    norms = float(np.linalg.norm(own)), float(np.linalg.norm(other))
    if not np.isclose(*norms, rtol=AGREEMENT):
        return f"after {STEPS} short steps the norm is {norms[1]:.8e}, batchkron's {norms[0]:.8e}"
    return None


def loosest(name, run):
    exact = run(EXACT)[0]
    error = np.inf
    for tolerance in TOLERANCES:
        state = run(tolerance)[0]
        error = float(np.linalg.norm(state - exact) / np.linalg.norm(exact))
        if error <= ERROR:
            return tolerance, error
    raise RuntimeError(f"{name} does not reach an error of {ERROR:g}: {error:.1e}")


def measure(contenders, rounds):
    found = {name: loosest(name, run) for name, run in contenders.items()}
    runs = {name: [] for name in contenders}
    names = list(contenders)
    for number in range(rounds):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            runs[name].append(contenders[name](found[name][0]))
    for name, own in runs.items():
        tolerance, error = found[name]
        setups, taken = zip(*(times for _, *times in own), strict=True)
        steps = [step for one in taken for step in one]
        record = {"name": name, "tolerance": tolerance, "error": error}
        record |= {"setup": min(setups), "step": statistics.median(steps)}
        first = statistics.median(one[0] for one in taken)
        yield {**record, "least_step": min(steps), "first_step": first}


def measure_level(level, asgard, rounds, direct):
    problem = gallery.make("diffusion-2d", level, DEGREE)
    record = {"level": level, "unknowns": problem.unknowns}
    record["wrong"] = None if asgard is None else same_equation(problem, asgard, level)
    words = (*ASGARDS, *([DIRECT] if direct else [])) if asgard else ()
    made = {
        "batchkron": {f"{s}, {name}": partial(our_run, problem, name, s, DT) for name, s in OURS},
        "ASGarD": {one: partial(asgard_run, asgard, level, one, DT) for one in words},
    }
    print(f"level {level}, {problem.unknowns} unknowns")
    times = recorded(measure({**made["batchkron"], **made["ASGarD"]}, rounds))
    for who, own in made.items():
        record[who] = [entry for entry in times if entry["name"] in own]
    iterative = [entry for entry in record["ASGarD"] if entry["name"] != DIRECT]
    best = min((entry["step"] for entry in iterative), default=None)
    fastest = min(entry["step"] for entry in record["batchkron"])
    record["ratio"] = best / fastest if best else None
    return record


def main(arguments=None):
    parser = parser_of(__doc__, "asgard", "rounds", "json", rounds=3)
    parser.add_argument("--levels", type=counts, default=[7, 8], help="such as 7,8")
    parser.add_argument("--direct", action="store_true", help="ASGarD's direct solver, too")
    options = parser.parse_args(arguments)
    asgard, peers = Asgard(options.asgard).found()
    bk.set_num_threads(1)
    if asgard is not None:
        asgard.library.set_threads(1)
    threads = os.environ.get("OPENBLAS_NUM_THREADS")
    record = {"machine": machine(**peers), "rounds": options.rounds}
    record |= {"blas_threads": threads, "dt": DT, "steps": STEPS, "error": ERROR, "levels": []}
    print(machine_lines(record["machine"]))
    for level in options.levels:
        found = measure_level(level, asgard, options.rounds, options.direct)
        record["levels"].append(found)
        if found["wrong"]:
            print(f"**wrong**: {found['wrong']}")
        elif found["ratio"]:
            met = "met" if found["ratio"] >= GOAL else "**not met**"
            print(f"{found['ratio']:.1f} times, {GOAL:g} is {met}")
    record["load_after"] = os.getloadavg()
    save(options.json, record)
    return int(any(found["wrong"] for found in record["levels"]))


if __name__ == "__main__":
    sys.exit(main())
