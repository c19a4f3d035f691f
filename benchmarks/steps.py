"""Whole steps of `evolve` beside what they are made of: ``python -m benchmarks.steps``.

A case is a problem of the gallery at degree 2 and an explicit method with fixed steps, run as a
user runs it: nothing recorded, nothing watched. Its step is the difference of two runs divided by
the difference of their numbers of steps, so that the checks before a run do not count. Beside it
stand the right-hand sides alone, on vectors in turn, and the floor of the step: its right-hand
sides, and the vectors that are read and written between them at the bandwidth of a + s b.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import batchkron as bk
from batchkron.arrays import array_module
from batchkron.problems import make
from batchkron.solvers import evolve
from benchmarks.machine import machine

CASES = (  # problem, level, method, its right-hand sides, vectors that its sums read and write
    ("continuity-2d", 7, "ssp-rk3", 3, 11),
    ("continuity-2d", 10, "ssp-rk3", 3, 11),
    ("continuity-3d", 8, "ssp-rk3", 3, 11),
    ("continuity-6d", 5, "ssp-rk3", 3, 11),
    ("continuity-6d", 6, "ssp-rk3", 3, 11),
    ("continuity-6d", 7, "ssp-rk3", 3, 11),
    ("continuity-3d", 8, "dormand-prince", 6, 40),
    ("two-stream", 7, "rk4", 4, 15),
)
_SECONDS = 0.4  # of the longer run of a case, at least


def seconds_of(work: Callable[[], object], wait: Callable[[], object]) -> float:
    """Return the seconds that some work takes."""
    wait()
    begin = time.perf_counter()
    work()
    wait()
    return time.perf_counter() - begin


def step_seconds(problem: Any, method: str, wait: Callable[[], object], rounds: int) -> float:
    """Return the seconds of a step of `evolve`, the median of some pairs of runs."""
    dt = problem.stepper.dt

    def run(steps: int) -> float:
        until = problem.t0 + steps * dt
        return seconds_of(lambda: evolve(problem, method=method, dt=dt, until=until), wait)

    run(20)
    steps, once = 20, run(20)
    while (longer := run(2 * steps)) < _SECONDS and steps < 5000:
        steps, once = 2 * steps, longer
    found = [(longer - once) / steps]
    found += [(run(2 * steps) - run(steps)) / steps for _ in range(rounds - 1)]
    return statistics.median(found)


def call_seconds(call: Callable[[int], object], wait: Callable[[], object], rounds: int) -> float:
    """Return the median of the seconds of a call, which is given its number."""

    def seconds(count: int) -> float:
        return seconds_of(lambda: [call(k) for k in range(count)], wait)

    count = 1
    while seconds(count) < _SECONDS / 8:
        count *= 2
    return statistics.median(seconds(count) / count for _ in range(rounds))


def measure(case: Sequence[Any], device: str, threads: int, rounds: int) -> dict[str, Any]:
    """Return the times of a case, in seconds."""
    name, level, method, stages, vectors = case
    problem = make(name, level=level, degree=2)
    if device == "cuda":
        problem = problem.to("cuda")
    module = array_module(problem.initial)
    wait = (lambda: None) if module is np else module.cuda.get_current_stream().synchronize
    bk.set_num_threads(threads)
    u = [module.asarray(problem.initial) + k for k in range(3)]
    t = problem.t0
    rhs = call_seconds(lambda k: problem.rhs(t, u[k % 3], u[(k + 1) % 3]), wait, rounds)
    triad = call_seconds(
        lambda k: bk.linear_combination([1.0, 0.5], [u[k % 3], u[(k + 1) % 3]], u[(k + 2) % 3]),
        wait,
        rounds,
    )
    step = step_seconds(problem, method, wait, rounds)
    return {
        "problem": name,
        "level": level,
        "method": method,
        "unknowns": len(u[0]),
        "threads": threads,
        "step": step,
        "rhs": rhs,
        "floor": stages * rhs + vectors / 3 * triad,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--threads", type=int, nargs="+", default=[bk.get_num_threads()])
    parser.add_argument("--only", default="", help="a part of a problem's name and level, 6d-5")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", type=Path, help="where to write the figures as JSON")
    given = parser.parse_args()
    results = []
    for case in CASES:
        if given.only not in f"{case[0]}-{case[1]}":
            continue
        for threads in given.threads if given.device == "cpu" else given.threads[:1]:
            found = measure(case, given.device, threads, given.rounds)
            results.append(found)
            print(
                f"{found['problem']:14} {found['level']:2} {found['method']:14} "
                f"{found['unknowns']:9} unknowns {threads:3} threads: step "
                f"{1e6 * found['step']:9.1f} µs, rhs {1e6 * found['rhs']:8.1f} µs, "
                f"step / floor {found['step'] / found['floor']:6.2f}",
                flush=True,
            )
    if given.output:
        given.output.write_text(
            json.dumps({**machine(given.device), "cases": results}, indent=1) + "\n"
        )


if __name__ == "__main__":
    main()
