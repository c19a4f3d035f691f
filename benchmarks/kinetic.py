"""Kinetic problems: ``python -m benchmarks.kinetic [--asgard BUILD] [--json PATH]``.

Three tables, with ``--asgard`` four:

- the right-hand side of two-stream on sparse grids, with fields that follow the state and with
  frozen ones: what the fields cost;
- the time of a step of two-stream and of relaxation-1x1v;
- steps next to those of ASGarD 0.9.0 on one thread, after its states have been compared with ours;
- two-stream until a time, on a grid that follows the solution and on the sparse grid of the same
  finest level, against the full grid: unknowns, error, seconds.

Times are the least of several calls, in turns, so that both sides of a ratio see the same machine.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import batchkron
from batchkron.arrays import array_module
from batchkron.problems import Problem, gallery, make
from batchkron.solvers import Adapt, evolve, steppers
from benchmarks.machine import machine
from benchmarks.sparse_grid.asgard import Asgard, AsgardProblem

DEGREE = 2
LEVELS = (5, 6, 7, 8)
IMPLICIT = {"preconditioner": "auto", "solver": "bicgstab"}
STEPS = (("two-stream", 7, "rk4", {}), ("relaxation-1x1v", 5, "ark3", IMPLICIT))
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


def least_seconds(calls: Sequence[Callable[[], object]], synchronize: Callable[[], object],
                  turns: int) -> list[float]:  # fmt: skip
    """Return the least time of each call; the calls take turns."""
    best = [float("inf")] * len(calls)
    for call in calls:  # builds and compiles
        call()
    synchronize()
    for _ in range(turns):
        for k, call in enumerate(calls):
            began = time.perf_counter()
            for _ in range(REPEATS):
                call()
            synchronize()
            best[k] = min(best[k], (time.perf_counter() - began) / REPEATS)
    return best


REPEATS = 10  # calls between two looks at the clock


def synchronizer(problem: Problem) -> Callable[[], object]:
    """Return a function that waits for the problem's device."""
    module = array_module(problem.initial)
    if module is np:
        return lambda: None
    return module.cuda.Device().synchronize  # type: ignore[no-any-return]


def right_hand_sides(level: int, device: str, turns: int) -> dict[str, Any]:
    """Return the times of a right-hand side with fields and with frozen ones."""
    problem = make("two-stream", level, DEGREE).to(device)
    u = problem.initial.copy()
    frozen, out = problem.frozen(u), u.copy()
    field, fixed = least_seconds(
        [lambda: problem.rhs(0.0, u, out), lambda: frozen.rhs(0.0, u, out)],
        synchronizer(problem),
        turns,
    )
    return {"level": level, "unknowns": problem.unknowns, "field": field, "frozen": fixed}


def step_seconds(
    name: str, level: int, method: str, options: dict[str, Any], device: str, turns: int
) -> dict[str, Any]:
    """Return the time of a step of a problem."""
    problem = make(name, level, DEGREE, method=method).to(device)
    dt, u = problem.stepper.dt, problem.initial.copy()
    stepper = steppers.get(method)(problem, dt, **options)
    start = u.copy()

    def step() -> None:
        u[...] = start
        stepper.step(u, problem.t0, problem.t0 + dt)

    (seconds,) = least_seconds([step], synchronizer(problem), turns)
    return {
        "problem": name,
        "level": level,
        "method": method,
        "unknowns": problem.unknowns,
        "seconds": seconds,
    }


def our_run(
    problem: Problem, method: str, dt: float, options: dict[str, Any]
) -> tuple[float, float]:
    """Return the seconds of a step from the start, and the norm of what the steps have changed.

    The first of `CHECKED_STEPS` steps, which also makes solvers, is not counted.
    """
    stepper, u = steppers.get(method)(problem, dt, **options), problem.initial.copy()
    stepper.step(u, 0.0, dt)
    began = time.perf_counter()
    for step in range(1, CHECKED_STEPS):
        stepper.step(u, step * dt, (step + 1) * dt)
    seconds = (time.perf_counter() - began) / (CHECKED_STEPS - 1)
    return seconds, float(np.linalg.norm(u - problem.initial))


def asgards_run(made: AsgardProblem, unknowns: int) -> tuple[float, float]:
    """Return the same of ASGarD, from a problem at its start, which is closed."""
    if made.unknowns != unknowns:
        raise ValueError(f"ASGarD has {made.unknowns} unknowns, batchkron {unknowns}")
    start = np.array(made.state)
    made.advance(1)
    began = time.perf_counter()
    made.advance(CHECKED_STEPS - 1)
    seconds = (time.perf_counter() - began) / (CHECKED_STEPS - 1)
    norm = float(np.linalg.norm(made.state - start))
    made.close()
    return seconds, norm


def next_to_asgard(asgard: Asgard, turns: int) -> list[dict[str, Any]]:
    """Return the times of steps, ours and ASGarD's in turns, and how far their states agree.

    Of two-stream a step of three stages; of relaxation-1x1v our steps of order 1 to 3, next to
    its backward Euler, which takes the moments of the step's begin. Bases are orthonormal and span
    the same space, so that equal changes of the state have equal norms.
    """
    asgard.library.set_threads(1)
    cases: list[tuple[Problem, str, float, Sequence[Callable[[], AsgardProblem]]]] = []
    for level in COMPARED_LEVELS:
        problem = make("two-stream", level, DEGREE)
        dt, words = problem.stepper.dt, f"-l {level} -d {DEGREE} -s rk3"
        cases.append((problem, "ssp-rk3", dt, [partial(asgard.two_stream, words, dt)]))
    problem, dt = make("relaxation-1x1v", RELAXATION_LEVEL, DEGREE), RELAXATION_STEP
    words = f"-l {RELAXATION_LEVEL} -d {DEGREE} -s be"
    others = [partial(asgard.relaxation, f"{words} {own}", dt, RELAXATION_RATE) for own in ASGARDS]
    cases += [(problem, method, dt, others) for method in RELAXATION_METHODS]
    found = []
    for problem, method, dt, makers in cases:
        best = [float("inf")] * (1 + len(makers))
        norms = [0.0] * len(best)
        for _ in range(turns):
            runs = [our_run(problem, method, dt, {} if method == "ssp-rk3" else IMPLICIT)]
            runs += [asgards_run(maker(), problem.unknowns) for maker in makers]
            for k, (seconds, norm) in enumerate(runs):
                best[k], norms[k] = min(best[k], seconds), norm
        agreement = AGREEMENT[problem.name](max(problem.grid.levels))
        found.append(
            {
                "problem": problem.name,
                "levels": problem.grid.levels,
                "method": method,
                "unknowns": problem.unknowns,
                "norms": norms,
                "seconds": best[0],
                "asgard": best[1:],
                "ratio": min(best[1:]) / best[0],
                "wrong": not np.allclose(norms, norms[0], rtol=agreement, atol=0.0),
            }
        )
    return found


def adapted(level: int, until: float, device: str) -> list[dict[str, Any]]:
    """Return unknowns, error and seconds of runs on the full, sparse and an adapted grid.

    Sparse grids of lower levels say whether the adapted run is worth its name.
    """
    full = make("two-stream", level, DEGREE, "full").to(device)
    rule = Adapt(max_level=level, **ADAPT)  # type: ignore[arg-type]
    runs: list[tuple[str, Problem, dict[str, Any]]] = [
        ("full", full, {}),
        *(
            (f"sparse, level {lower}", make("two-stream", lower, DEGREE).to(device), {})
            for lower in range(level, ADAPT_START, -1)
        ),
        ("adapted", make("two-stream", ADAPT_START, DEGREE).to(device), {"adapt": rule}),
    ]
    found: list[dict[str, Any]] = []
    reference: Any = None
    for kind, problem, options in runs:
        result = evolve(problem, until=until, method="ssp-rk3", raise_on_failure=True, **options)
        last = problem if result.problem is None else result.problem
        u = last.to("cpu").on_grid(full.grid, last._on_host(result.u)).initial
        reference = u if reference is None else reference
        sizes = [record.get("unknowns", 0) for record in result.history]
        error = np.linalg.norm(u - reference) / np.linalg.norm(reference)
        found.append(
            {
                "grid": kind,
                "unknowns": max([problem.unknowns, *sizes]),
                "levels": last.grid.levels,
                "error": float(error),
                "steps": result.steps,
                "seconds": result.seconds,
            }
        )
    return found


def print_asgard(rows: Sequence[dict[str, Any]]) -> None:
    """Print the table next to ASGarD."""
    print("\n| problem, level | method | unknowns | a step | ASGarD | ratio | changes differ by |")
    print("| --- " * 7 + "|")
    for row in rows:
        apart = max(abs(norm / row["norms"][0] - 1) for norm in row["norms"])
        wrong = " **wrong**" if row["wrong"] else ""
        print(
            f"| {row['problem']}, {max(row['levels'])} | {row['method']} | {row['unknowns']} "
            f"| {1e6 * row['seconds']:.0f} | {1e6 * min(row['asgard']):.0f} "
            f"| {row['ratio']:.2f} | {apart:.1e}{wrong} |",
            flush=True,
        )


def main(words: list[str] | None = None) -> int:
    """Print the tables; the status is 1 if ASGarD's states are not ours."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--threads", type=int, help="threads of the CPU's kernels")
    parser.add_argument("--levels", default=",".join(map(str, LEVELS)), help="of the first table")
    parser.add_argument("--turns", type=int, default=50, help="measurements of each call")
    parser.add_argument(
        "--until", type=float, default=20.0, help="end of the adapted runs; 0 for none"
    )
    parser.add_argument("--adapted-level", type=int, default=ADAPTED_LEVEL)
    parser.add_argument("--asgard", type=Path, metavar="BUILD", help="a build of ASGarD 0.9.0")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write all numbers here")
    options = parser.parse_args(words)
    if options.threads:
        batchkron.set_num_threads(options.threads)
    device, turns = options.device, options.turns
    print(f"degree {DEGREE}, {device}, {batchkron.get_num_threads()} threads; times in µs")
    print("| two-stream, level | unknowns | with fields | frozen | ratio |")
    print("| --- " * 5 + "|")
    sides = []
    for level in map(int, options.levels.split(",")):
        row = right_hand_sides(level, device, turns)
        sides.append(row)
        print(
            f"| {level} | {row['unknowns']} | {1e6 * row['field']:.1f} "
            f"| {1e6 * row['frozen']:.1f} | {row['field'] / row['frozen']:.2f} |",
            flush=True,
        )
    print("\n| problem | level | method | unknowns | a step |\n" + "| --- " * 5 + "|")
    steps = []
    for name, level, method, given in STEPS:
        if name not in gallery.names():
            continue
        row = step_seconds(name, level, method, given, device, turns)
        steps.append(row)
        print(
            f"| {name} | {level} | {method} | {row['unknowns']} | {1e6 * row['seconds']:.0f} |",
            flush=True,
        )
    compared: list[dict[str, Any]] = []
    if options.asgard is not None:
        asgard = Asgard(options.asgard)
        missing = asgard.missing()
        if missing:
            print(f"\nASGarD was not measured: {missing}")
        else:
            batchkron.set_num_threads(1)
            compared = next_to_asgard(asgard, turns)
            print_asgard(compared)
            if options.threads:
                batchkron.set_num_threads(options.threads)
    failed = int(any(row["wrong"] for row in compared))
    if options.until <= 0.0:
        write(options, sides, steps, compared, [])
        return failed
    print(f"\n| until {options.until:g} | unknowns | last levels | error | steps | seconds |")
    print("| --- " * 6 + "|")
    runs = adapted(options.adapted_level, options.until, device)
    for row in runs:
        print(
            f"| {row['grid']} | {row['unknowns']} | {row['levels']} | {row['error']:.2e} "
            f"| {row['steps']} "
            f"| {row['seconds']:.2f} |",
            flush=True,
        )
    write(options, sides, steps, compared, runs)
    return failed


def write(
    options: argparse.Namespace,
    sides: Sequence[dict[str, Any]],
    steps: Sequence[dict[str, Any]],
    compared: Sequence[dict[str, Any]],
    runs: Sequence[dict[str, Any]],
) -> None:
    """Write all numbers, if a file is asked for."""
    if options.json is None:
        return
    record = {
        "machine": machine(options.device),
        "device": options.device,
        "threads": batchkron.get_num_threads(),
        "instruction_set": batchkron.instruction_set(),
        "right_hand_sides": sides,
        "steps": steps,
        "asgard": compared,
        "adapted": {"level": options.adapted_level, "until": options.until, "runs": runs},
    }
    options.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
