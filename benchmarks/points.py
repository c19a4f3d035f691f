"""Values at points and coefficients, next to derivatives: ``python -m benchmarks.points``.

A state's values at the points of a sparse grid, and its coefficients from values, as multiples of
one application of the upwind derivatives along all axes: multiply-adds, and times, of which the
shortest of some turns counts. The points are those of the state's degree and of one more. Last, a
function of six axes is projected. Run it with OMP_NUM_THREADS=1 on a machine that does nothing
else.
"""

from __future__ import annotations

import sys
import tracemalloc
from typing import Any

import numpy as np

from batchkron.problems import PDE, Axis, Problem, div
from batchkron.problems.discretization.interpolation.transform import PointTransform
from benchmarks.core.options import parser_of
from benchmarks.core.records import save
from benchmarks.core.tables import head, row
from benchmarks.core.timing import in_turn, seconds_of

CASES = ((2, 7, 2), (2, 9, 2), (3, 5, 2), (3, 7, 2), (4, 4, 2), (6, 3, 2))
QUICK = ((2, 4, 1), (3, 2, 2))
COLUMNS = ("axes", "level", "degree", "points of", "multiply-adds", "back", "time", "back")


def transport(axes: int, level: int, degree: int) -> Problem:
    """Return the transport along all axes with speed 1 on a sparse grid."""
    box = [Axis(name, 0.0, 2 * np.pi) for name in "abcdef"[:axes]]
    terms = [div(axis, -1.0) for axis in box]
    pde = PDE(box, terms, boundary="periodic", initial=0.0)
    return pde.discretize(level, degree)


def compared(problem: Problem, extra: int, rounds: int) -> dict[str, float]:
    """Return multiply-adds and times of both ways, as multiples of those of the operator."""
    transform = PointTransform(problem.axes, problem.grid, problem.degree, extra=extra)
    u = np.random.default_rng(1).standard_normal(problem.unknowns)
    values, out, operator = transform.values(u), np.empty_like(u), problem.operator
    calls = {
        "unit": lambda: operator.matvec(u, out),
        "time": lambda: transform.values(u, values),
        "time back": lambda: transform.coefficients(values, out),
    }
    times = {name: min(found) for name, found in in_turn(calls, rounds).items()}
    work: Any = operator
    ways = (number / work.multiply_adds for number in transform.multiply_adds)
    return {
        **dict(zip(("multiply-adds", "multiply-adds back"), ways, strict=True)),
        "time": times["time"] / times["unit"],
        "time back": times["time back"] / times["unit"],
        "microseconds of the operator": times["unit"] * 1e6,
    }


def projected(problem: Problem) -> dict[str, float]:
    """Return the time, and the most memory, of the projection of a function of all axes."""

    def function(*points: Any) -> Any:
        return np.exp(np.sin(sum(points)))

    problem.project("a")  # makes the tables and plans of a second call
    seconds = seconds_of(lambda: problem.project(function))
    tracemalloc.start()
    problem.project(function)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    points = problem.system.transform.num_points
    return {"points": points, "seconds": seconds, "megabytes": peak / 1e6}


def main(words: list[str] | None = None) -> None:
    """Print the tables."""
    options = parser_of(__doc__, "quick", "json", "rounds", rounds=20).parse_args(words)
    print(head(list(COLUMNS)))
    record: dict[str, Any] = {"cases": []}
    for axes, level, degree in QUICK if options.quick else CASES:
        problem = transport(axes, level, degree)
        for extra in (0, 1):
            found = compared(problem, extra, options.rounds)
            case = {"axes": axes, "level": level, "degree": degree}
            case["degree of points"] = degree + extra
            record["cases"].append(case | found)
            numbers = [f"{number:.2f}" for number in list(found.values())[:4]]
            print(row([*case.values(), *numbers]), flush=True)
    record["projection"] = projected(transport(*(QUICK if options.quick else CASES)[-1]))
    points, seconds, megabytes = record["projection"].values()
    print(f"projection at {points} points: {seconds:.3g} s, {megabytes:.3g} MB")
    save(options.json, record)


if __name__ == "__main__":
    main(sys.argv[1:])
