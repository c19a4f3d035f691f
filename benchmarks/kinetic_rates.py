"""Rates of kinetic waves beside theory: ``python -m benchmarks.kinetic_rates [--json PATH]``."""

import sys
from pathlib import Path

import numpy as np

from batchkron.problems import Moment, Poisson, make
from batchkron.solvers import evolve
from benchmarks.core.options import parser_of
from benchmarks.core.records import machine, recorded

sys.path.append(str(Path(__file__).parents[1] / "tests" / "support"))
import dispersion as theory

LEVEL, DEGREE = 6, 2
FINER = (3, 6)  # levels of the full grid
RELATIVE, ABSOLUTE = 0.01, 1.5e-3
COLLISIONAL_WINDOW = (4.0, 20.0)


def landau(k, end):
    return "landau-1x1v", {"k": k}, [theory.Beam()], k, (6.0, end)


def two_stream(drift, window, k=0.2):
    beams = [theory.Beam([0.5], drift), theory.Beam([0.5], -drift)]
    return "two-stream-linear", {"drift": drift, "k": k}, beams, k, window


SMALL = {"amplitude": 1e-5}  # grows for long before it saturates
# Waves: a problem of the gallery and its settings, its equilibrium (empty with collisions), its
# wave number, and the times between which its rate is fitted; a run ends with them.
CASES = (
    *(landau(*one) for one in ((0.5, 20.0), (0.45, 25.0), (0.4, 30.0), (0.3, 40.0))),
    *(two_stream(3.0, (20.0, 30.0)), two_stream(2.7, (22.0, 32.0), 0.25)),
    *(two_stream(2.4, (30.0, 40.0)), two_stream(2.0, (40.0, 55.0))),
    ("two-stream", SMALL, [theory.Beam([0.0, 0.0, 1.0], theta=0.5)], 0.5, (22.0, 30.0)),
    ("two-stream-warm", SMALL, [theory.Beam([0.0, 0.0, 1.0])], 0.5, (18.0, 26.0)),
    ("bump-on-tail", SMALL, [theory.Beam([2 / 7, 0.0, 10 / 7])], 0.5, (20.0, 28.0)),
    *(
        ("collisional-landau-1x1v", {"nu": nu}, [], 0.5, COLLISIONAL_WINDOW)
        for nu in (0.05, 0.1, 0.25, 0.5, 1.0, 10.0)
    ),
)


def followed(problem, until, measure):
    """Return the times of every fourth step, and norms or values of the field."""
    x, *velocities = problem.axes
    poisson = Poisson(x, Moment(velocities))
    quarter = [x.lower + 0.75 * x.length]
    times, found = [], []

    def record(state):
        if state.step % 4 == 0:
            now = problem.field(state.u, poisson)
            times.append(state.t)
            found.append(now.norm() if measure == "norm" else now.evaluate(quarter)[0])

    evolve(problem, until=until, callback=record, raise_on_failure=True)
    return np.array(times), np.array(found)


def measured(case, level, grid):
    name, settings, beams, k, window = case
    problem = make(name, level, DEGREE, grid, **settings)
    if not beams:
        frequency, rate = theory.collisional_mode(k, settings["nu"])
        times, values = followed(problem, window[1], "value")
        fitted, _ = theory.wave_and_decay(times, values, window, (frequency, rate, -0.3))
    else:
        _, rate = theory.fastest_mode(beams, k)
        times, values = followed(problem, window[1], "norm")
        if rate < 0:  # a wave, else a growing mode
            fitted, _ = theory.slope_at_maxima(times, values, window)
        else:
            fitted = theory.slope(times, values, window)
    found = {"problem": name, "settings": settings, "k": k, "unknowns": problem.unknowns}
    found |= {"theory": float(rate), "fitted": float(fitted)}
    bound = max(RELATIVE * abs(rate), ABSOLUTE if grid == "sparse" else 0.0)
    return {**found, "within": bool(abs(fitted - rate) <= bound)}


def main(words=None):
    parser = parser_of(__doc__, "json")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="problems of the gallery")
    parser.add_argument("--level", type=int, default=LEVEL, help="of the sparse grid")
    finer = "on full grids of the levels 3 and 6, to 1 %%"
    parser.add_argument("--finer", action="store_true", help=finer)
    options = parser.parse_args(words)
    level, grid = (FINER, "full") if options.finer else (options.level, "sparse")
    chosen = (case for case in CASES if not options.only or case[0] in options.only)
    about = {"machine": machine(), "level": level, "grid": grid}
    rows = recorded((measured(case, level, grid) for case in chosen), options.json, about, "rates")
    return int(not all(found["within"] for found in rows))


if __name__ == "__main__":
    sys.exit(main())
