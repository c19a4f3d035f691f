"""Values at points and coefficients, next to derivatives: ``python -m benchmarks.points``.

A state's values at the points of a sparse grid, and its coefficients from values, as multiples of
one application of the upwind derivatives along all axes: multiply-adds, and times, of which the
shortest of some turns counts. The points are those of the state's degree and of one more. Last, a
function of six axes is projected. Run it with OMP_NUM_THREADS=1 on a machine that does nothing
else.
"""

import tracemalloc
from itertools import product

import numpy as np

from batchkron.problems import PDE, Axis, div
from batchkron.problems.discretization.interpolation.transform import PointTransform
from benchmarks.core.options import parser_of
from benchmarks.core.records import recorded, save
from benchmarks.core.tables import words as words_of
from benchmarks.core.timing import in_turn, least, seconds_of

CASES = ((2, 7, 2), (2, 9, 2), (3, 5, 2), (3, 7, 2), (4, 4, 2), (6, 3, 2))
QUICK = ((2, 4, 1), (3, 2, 2))


def transport(axes, level, degree):
    """Return the transport along all axes with speed 1 on a sparse grid."""
    box = [Axis(name, 0.0, 2 * np.pi) for name in "abcdef"[:axes]]
    terms = [div(axis, -1.0) for axis in box]
    pde = PDE(box, terms, boundary="periodic", initial=0.0)
    return pde.discretize(level, degree)


def compared(problem, extra, rounds):
    """Return multiply-adds and times of both ways, as multiples of those of the operator."""
    transform = PointTransform(problem.axes, problem.grid, problem.degree, extra=extra)
    u = np.random.default_rng(1).standard_normal(problem.unknowns)
    values, out, operator = transform.values(u), np.empty_like(u), problem.operator
    calls = {
        "unit": lambda: operator.matvec(u, out),
        "time": lambda: transform.values(u, values),
        "time back": lambda: transform.coefficients(values, out),
    }
    times = least(in_turn(calls, rounds))
    unit, work = times.pop("unit"), operator.multiply_adds
    ways = zip(("multiply-adds", "multiply-adds back"), transform.multiply_adds, strict=True)
    found = {name: number / work for name, number in ways}
    found |= {name: time / unit for name, time in times.items()}
    return {**found, "microseconds of the operator": unit * 1e6}


def projected(problem):
    """Return the time, and the most memory, of the projection of a function of all axes."""

    def function(*points):
        return np.exp(np.sin(sum(points)))

    problem.project("a")  # makes the tables and plans of a second call
    seconds = seconds_of(lambda: problem.project(function))
    tracemalloc.start()
    problem.project(function)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    points = problem.system.transform.num_points
    return {"points": points, "seconds": seconds, "megabytes": peak / 1e6}


def main(words=None):
    options = parser_of(__doc__, "quick", "json", "rounds", rounds=20).parse_args(words)
    cases = QUICK if options.quick else CASES

    def rows():
        for (axes, level, degree), extra in product(cases, (0, 1)):
            case = {"axes": axes, "level": level, "degree": degree}
            case["degree of points"] = degree + extra
            yield case | compared(transport(axes, level, degree), extra, options.rounds)

    record = {"cases": recorded(rows())}
    record["projection"] = projected(transport(*cases[-1]))
    print(f"projection at {words_of(record['projection'])}")
    save(options.json, record)


if __name__ == "__main__":
    main()
