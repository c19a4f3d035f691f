"""Seconds of implicit steps with `auto` on a device beside the cores of its host."""

from __future__ import annotations

from typing import Any

import numpy as np

import batchkron as bk
from batchkron.arrays import to_host
from batchkron.operators import on_device
from batchkron.problems import PDE
from batchkron.solvers import preconditioners
from benchmarks import hard_equations as equations
from benchmarks.core.tables import duration, head, row
from benchmarks.core.timing import seconds_of, waiter
from benchmarks.hard_preconditioning import RTOL, STEPS, steps

__all__ = ["print_device"]

ROUNDS = 3  # of the steps: the first one compiles and captures what the others repeat
CASES: tuple[tuple[str, PDE, int], ...] = (
    ("bump 100", equations.bump(), 7),
    ("wind", equations.wind(), 7),
    ("bump 100, 3-D", equations.bump(100.0, 3), 4),
    ("oblique, 3-D", equations.oblique(3), 4),
)


def print_device(device: str, most: int, only: str = "") -> list[dict[str, Any]]:
    """Print the seconds of set-up and ten steps (I - A) u⁺ = u, and return the figures."""
    places = ("cpu",) if device == "cpu" else ("cpu", device)
    print(f"{STEPS} steps (I - A) u⁺ = u to {RTOL:g}; {bk.get_num_threads()} threads on the host")
    names = ["equation", "level", "unknowns", "on", "set-up", "first steps", "steps"]
    print(head([*names, "iterations", "apart"]))
    found = []
    for name, pde, level in CASES:
        if level > most or only not in name:
            continue
        states = []
        for place in places:
            own = _timed(pde, level, place)
            states.append(own.pop("state"))
            apart = float(np.linalg.norm(states[-1] - states[0]) / np.linalg.norm(states[0]))
            own = {"equation": name, "level": level, "on": place} | own | {"apart": apart}
            times = (duration(own[key]) for key in ("setup", "first", "steps"))
            cells = [name, level, own["unknowns"], place, *times, own["iterations"]]
            print(row([*cells, f"{apart:.0e}"]), flush=True)
            found.append(own)
    return found


def _timed(pde: PDE, level: int, place: str) -> dict[str, Any]:
    """Return the seconds on a device, the iterations of all steps, and the last state."""
    problem = pde.discretize(level=level, degree=2)
    A = (problem if place == "cpu" else problem.to(place)).operator
    start = on_device(np.random.default_rng(0).standard_normal(problem.unknowns), place)
    B = bk.Identity(problem.unknowns).to(place) - A
    made: list[Any] = []
    wait = waiter(place)
    setup = seconds_of(lambda: made.append(preconditioners.make("auto", A, 1.0)), wait=wait)

    def run() -> None:
        made.append(steps(B, made[0], start))

    first, *seconds = (seconds_of(run, wait=wait) for _ in range(ROUNDS))
    u, iterations = made[-1]
    found = {"unknowns": problem.unknowns, "setup": setup, "first": first, "steps": min(seconds)}
    return {**found, "iterations": iterations, "state": to_host(u, "u")}
