"""Error against time on grids of all kinds: ``python -m benchmarks.full_or_sparse [--page]``.

Each run is timed from the initial state to the end, without the discretization. Its error is that
of the last state, relative and root mean square over random points of the box.
"""

import time
from itertools import product
from typing import NamedTuple

import numpy as np

import batchkron
from batchkron.problems import PDE, Axis, Mixed, div, gallery, make, pointwise
from batchkron.solvers import Adapt, evolve
from benchmarks.core.options import parser_of
from benchmarks.core.plots import figures, save_figure
from benchmarks.core.records import ROOT, machine, recorded, save_text
from benchmarks.core.tables import duration, groups, table

DEGREE = 2
METHOD = "rk4"
POINTS = 4000  # random points at which errors are taken
TARGETS = (3e-1, 1e-1, 3e-2, 1e-2, 3e-3, 1e-3, 3e-4)
PAGE = ROOT / "docs" / "results" / "full-or-sparse.md"
PICTURE = ROOT / "benchmarks" / "results" / "full-or-sparse.svg"
COLORS = {"full": "C3", "sparse": "C0", "mixed": "C2", "adaptive": "C1"}

COMPARED = ["case", "error at most", *COLORS, "fastest", "full / best other"]
MEASURED = ["case", "grid", "level or tolerance", "unknowns", "steps", "run", "error"]
TEXT = """
# When sparse grids win

A sparse grid has far fewer unknowns than the full one of its finest level, and a larger error. What
counts is the time for an error that is wanted. This page is written by
`python -m benchmarks.full_or_sparse --page`: runs of degree {degree} with {method} and the default
step, timed from the initial state to the end, on {processor}, threads: {threads}. Errors are
relative, root mean square over random points of the box.

{cases}

![Error against the time of a run](../../benchmarks/results/full-or-sparse.svg)

The fastest run of each kind that has at most an error; the last column is how many times as long
the full grid takes as the best of the others:

{comparison}

**The full grid is the fastest for** {wins}.

A sparse grid reaches an error with fewer unknowns, but with finer cells than the full one, and
explicit methods take the steps of the finest cells: two levels finer are four times the steps. So
in two and three axes it takes a small error for a sparse grid to win. A wave across the axes, as
that of Burgers' equation, is the worst case: it needs cells that are fine along both axes.

In kinetic problems the step is that of the positions, along which f is smooth, while velocities
need fine cells. A grid that is mixed of positions and velocities, with a level for each axis, has
few unknowns and long steps. Grids that follow the solution begin with few cells, and have the steps
of the finest ones that they then have; in few axes what it takes to change the grid is more than
what that saves.

## All runs

{runs}
"""


class Case(NamedTuple):
    """A problem, its solution at the end, and the runs on each kind of grid.

    ``make(level, grid)`` discretizes; ``exact(until)`` makes a function of points (m, axes) that
    returns the solution at that time. ``runs`` has levels for each kind of grid; those of
    "adaptive" are tolerances, for which the run begins at ``start`` and has at most the level
    ``finest``.
    """

    name: str
    text: str
    until: float
    make: object
    exact: object
    runs: dict
    start: int
    finest: int
    groups: tuple[list[str], ...] = ()


def continuity(until):
    pde = gallery.get("continuity-3d").pde
    (part,) = pde.exact

    def solution(points):
        found = np.full(len(points), part.coefficient * part.time(until))
        for axis, own in zip(pde.axes, points.T, strict=True):
            function = part.factor(axis)
            found *= function(own) if callable(function) else function
        return found

    return solution


def burgers(level, grid):
    x, y = Axis("x", 0, 2 * np.pi), Axis("y", 0, 2 * np.pi)
    flux = pointwise(lambda f: f**2 / 2, speed=1.0)
    terms = [-1 * div(x) @ flux, -1 * div(y) @ flux]
    pde = PDE([x, y], terms, boundary="periodic", initial=lambda x, y: np.sin(x + y))
    return pde.discretize(level, DEGREE, grid)


def characteristics(until):
    """Solve f = sin(x + y - 2 t f) by bisection; before the shock, at t = ½, that is one number."""

    def solution(points):
        z = points.sum(axis=1)
        low, high = np.full(len(z), -1.0), np.ones(len(z))
        for _ in range(60):
            middle = 0.5 * (low + high)
            above = middle > np.sin(z - 2 * until * middle)
            low, high = np.where(above, low, middle), np.where(above, middle, high)
        return low

    return solution


def landau(name, amplitude):
    """The solution by that of one position and velocity, F, and Maxwellians M.

    In 1x2v it is F(x, v1) M(v2). In 2x2v it is F(x, v1) M(v2) + M(v1) F(y, v2) - M(v1) M(v2), up to
    the square of the amplitude.
    """

    def bell(v):
        return np.asarray(np.exp(-(v**2) / 2) / np.sqrt(2 * np.pi))

    def exact(until):
        problem = make("landau-1x1v", (5, 6), 3, "full", amplitude=amplitude)
        u = evolve(problem, until=until, method=METHOD).u

        def solution(points):
            if name == "landau-1x2v":
                x, v1, v2 = points.T
                return problem.evaluate(u, np.stack([x, v1], axis=1)) * bell(v2)
            x, y, v1, v2 = points.T
            first = problem.evaluate(u, np.stack([x, v1], axis=1)) * bell(v2)
            second = problem.evaluate(u, np.stack([y, v2], axis=1)) * bell(v1)
            return first + second - bell(v1) * bell(v2)

        return solution

    return exact


CASES = (
    Case(
        *("continuity-3d", "a wave along each of three axes, carried along, with a source", 0.5),
        *(lambda level, grid: make("continuity-3d", level, DEGREE, grid), continuity),
        {"full": (2, 3, 4, 5), "sparse": (4, 5, 6, 7, 8), "adaptive": (0.1, 0.03, 0.01)},
        *(3, 8),
    ),
    Case(
        *("Landau 1x2v", "a wave of amplitude 0.1 in a plasma, one position and two velocities"),
        *(2.0, lambda level, grid: make("landau-1x2v", level, DEGREE, grid, amplitude=0.1)),
        landau("landau-1x2v", 0.1),
        {
            **{"full": (2, 3, 4), "sparse": (3, 4, 5, 6)},
            **{"mixed": ((2, 3, 3), (2, 4, 4), (3, 5, 5)), "adaptive": (3e-2, 1e-2, 3e-3)},
        },
        *(3, 6, (["x"], ["v1", "v2"])),
    ),
    Case(
        *("Landau 2x2v", "waves of amplitude 0.01 in a plasma, two positions and two velocities"),
        *(1.0, lambda level, grid: make("landau-2x2v", level, DEGREE, grid, amplitude=1e-2)),
        landau("landau-2x2v", 1e-2),
        {
            **{"full": ((1, 1, 2, 2), (1, 1, 3, 3), (1, 1, 4, 4)), "sparse": (3, 4, 5)},
            **{"mixed": ((1, 1, 3, 3), (1, 1, 4, 4), (2, 2, 5, 5)), "adaptive": (3e-2, 1e-2, 3e-3)},
        },
        *(3, 5, (["x", "y"], ["v1", "v2"])),
    ),
    Case(
        *("Burgers", "a wave across two axes that steepens, before its shock", 0.25),
        *(burgers, characteristics),
        {"full": (2, 3, 4, 5, 6), "sparse": (4, 5, 6, 7, 8), "adaptive": (0.03, 0.01, 3e-3)},
        *(3, 8),
    ),
)


def runs_of(case):
    """Run a case on its grids."""
    rng, exact = np.random.default_rng(1), case.exact(case.until)
    axes = case.make(1, "sparse").axes
    points = rng.uniform([a.lower for a in axes], [a.upper for a in axes], (POINTS, len(axes)))
    known = exact(points)
    settings = [(kind, one) for kind in COLORS for one in case.runs.get(kind, ())]
    for kind, setting in settings:
        grids = {"full": "full", "mixed": Mixed(*case.groups) if case.groups else None}
        level = case.start if kind == "adaptive" else setting
        problem = case.make(level, grids.get(kind, "sparse"))
        rule = {"method": METHOD}
        if kind == "adaptive":
            rule["adapt"] = Adapt(setting, every=5, max_level=case.finest)
        evolve(problem, until=problem.stepper.dt, method=METHOD)  # plans, memory
        begin = time.perf_counter()
        result = evolve(problem, until=case.until, raise_on_failure=True, **rule)
        seconds = time.perf_counter() - begin
        last = result.problem if kind == "adaptive" else problem
        error = np.linalg.norm(last.evaluate(result.u, points) - known) / np.linalg.norm(known)
        one = {"case": case.name, "grid": kind, "setting": setting, "unknowns": last.unknowns}
        yield one | {"steps": result.steps, "seconds": seconds, "error": float(error)}


def comparison(runs):
    """Return a row for each case and error that the full grid and another reach."""
    rows = []
    for (name, own), target in product(groups(runs, lambda one: one["case"]).items(), TARGETS):
        reached = groups((one for one in own if one["error"] <= target), lambda one: one["grid"])
        known = {kind: min(one["seconds"] for one in found) for kind, found in reached.items()}
        if "full" in known and len(known) > 1:
            best = min(known, key=lambda kind: known[kind])
            ratio = known["full"] / min(time for kind, time in known.items() if kind != "full")
            texts = [duration(known.get(kind)) for kind in COLORS]
            rows.append([name, f"{target:.0e}", *texts, best, f"{ratio:.2g}"])
    return rows


def draw(path, runs):
    """Draw a panel for each case, with the error against seconds."""
    pyplot = figures()
    names = list(dict.fromkeys(one["case"] for one in runs))
    figure, panels = pyplot.subplots(2, 2, figsize=(8.5, 6.5))
    for panel, name in zip(panels.ravel(), names, strict=False):
        for kind, color in COLORS.items():
            own = [one for one in runs if one["case"] == name and one["grid"] == kind]
            seconds, errors = [one["seconds"] for one in own], [one["error"] for one in own]
            if own:
                panel.plot(seconds, errors, "o-", color=color, label=kind, markersize=4)
        panel.set_xscale("log")
        panel.set_yscale("log")
        panel.set_title(name)
        panel.set_xlabel("seconds of a run")
        panel.set_ylabel("error")
        panel.legend(frameon=False)
    save_figure(figure, path)


def page(record):
    """Return the page with the tables of a record."""
    rows = comparison(record["runs"])
    wins = [f"{name} at {target}" for name, target, *_, best, _ in rows if best == "full"]
    every = [
        [*list(run.values())[:5], duration(run["seconds"]), f"{run['error']:.1e}"]
        for run in record["runs"]
    ]
    return TEXT.format(
        degree=DEGREE,
        method=METHOD,
        processor=record["machine"]["processor"],
        threads=record["threads"],
        cases="\n".join(f"- {c.name}: {c.text}, until t = {c.until:g}." for c in CASES),
        comparison=table(COMPARED, rows),
        wins="; ".join(wins) or "none of these",
        runs=table(MEASURED, every),
    ).strip()


def main(words=None):
    parser = parser_of(__doc__, "json", "plot", "quick")
    add = parser.add_argument
    add("--threads", type=int, help="threads of the kernels")
    add("--only", nargs="+", metavar="CASE", help="some cases, by their names")
    add("--page", action="store_true", help=f"write {PAGE.relative_to(ROOT)} and its picture")
    options = parser.parse_args(words)
    if options.threads:
        batchkron.set_num_threads(options.threads)
    cases = [case for case in CASES if not options.only or case.name in options.only]
    if options.quick:
        least = [{kind: given[:1] for kind, given in case.runs.items()} for case in cases]
        pairs = zip(cases, least, strict=True)
        cases = [case._replace(runs=runs, until=case.until / 20) for case, runs in pairs]
    about = {"machine": machine(), "threads": batchkron.get_num_threads()}
    runs = recorded((run for case in cases for run in runs_of(case)), options.json, about, "runs")
    print("\n" + table(COMPARED, comparison(runs)))
    if options.plot:
        draw(options.plot, runs)
    if options.page:
        draw(PICTURE, runs)
        save_text(PAGE, page({**about, "runs": runs}))


if __name__ == "__main__":
    main()
