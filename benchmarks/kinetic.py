"""Kinetic problems: ``python -m benchmarks.kinetic [--device cuda] [--json PATH]``.

Three tables:

- the right-hand side of two-stream on sparse grids, with fields that follow the state and with
  frozen ones: what the fields cost;
- the time of a step of two-stream and of relaxation-1x1v;
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
from pathlib import Path
from typing import Any

import numpy as np

import batchkron
from batchkron.arrays import array_module
from batchkron.problems import Problem, gallery, make
from batchkron.solvers import Adapt, evolve, steppers

DEGREE = 2
LEVELS = (5, 6, 7, 8)
STEPS = (("two-stream", 7, "rk4", {}), ("relaxation-1x1v", 5, "ark3", {}))
"""Problem, level, method and options of the steps that are timed."""

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


def adapted(level: int, until: float, device: str) -> list[dict[str, Any]]:
    """Return unknowns, error and seconds of runs on the full, the sparse and an adapted grid."""
    full = make("two-stream", level, DEGREE, "full").to(device)
    rule = Adapt(max_level=level, **ADAPT)  # type: ignore[arg-type]
    runs: list[tuple[str, Problem, dict[str, Any]]] = [
        ("full", full, {}),
        ("sparse", make("two-stream", level, DEGREE).to(device), {}),
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
                "error": float(error),
                "steps": result.steps,
                "seconds": result.seconds,
            }
        )
    return found


def main(words: list[str] | None = None) -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--threads", type=int, help="threads of the CPU's kernels")
    parser.add_argument("--levels", default=",".join(map(str, LEVELS)), help="of the first table")
    parser.add_argument("--turns", type=int, default=50, help="measurements of each call")
    parser.add_argument("--until", type=float, default=20.0, help="end of the adapted runs")
    parser.add_argument("--adapted-level", type=int, default=ADAPTED_LEVEL)
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
    print(f"\n| two-stream until {options.until:g} | unknowns | error | steps | seconds |")
    print("| --- " * 5 + "|")
    runs = adapted(options.adapted_level, options.until, device)
    for row in runs:
        print(
            f"| {row['grid']} | {row['unknowns']} | {row['error']:.2e} | {row['steps']} "
            f"| {row['seconds']:.2f} |",
            flush=True,
        )
    if options.json is not None:
        record = {
            "device": device,
            "threads": batchkron.get_num_threads(),
            "instruction_set": batchkron.instruction_set(),
            "right_hand_sides": sides,
            "steps": steps,
            "adapted": {"level": options.adapted_level, "until": options.until, "runs": runs},
        }
        options.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
