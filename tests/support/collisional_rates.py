"""Prints rates of waves with collisions on the sparse grid of level 6, beside the theory's.

    python tests/support/collisional_rates.py 0.05 0.1 0.25 1 10

runs `collisional-landau-1x1v` for these ν, about a minute each. Options are --k, --level, --degree,
--grid and --dt.
"""

import argparse

import numpy as np
from dispersion import collisional_mode, wave_and_decay

from batchkron.problems import Moment, Poisson, make
from batchkron.solvers import evolve

UNTIL = 20.0
START = 4.0  # of the fit


def fitted(problem, dt, guess):
    """Rate and frequency of the field at the quarter of the axis."""
    x, v = problem.axes
    field, quarter = Poisson(x, Moment(v)), [x.lower + 0.75 * x.length]
    times, found = [], []

    def record(state):
        if state.step % 4 == 0:
            times.append(state.t)
            found.append(problem.field(state.u, field).evaluate(quarter)[0])

    result = evolve(problem, until=UNTIL, dt=dt, callback=record)
    rate, frequency = wave_and_decay(np.array(times), np.array(found), (START, UNTIL), guess)
    return result.status, rate, frequency


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("nu", type=float, nargs="+")
    parser.add_argument("--k", type=float, default=0.5)
    parser.add_argument("--level", type=int, nargs="+", default=[6])
    parser.add_argument("--degree", type=int, default=2)
    parser.add_argument("--grid", default="sparse")
    parser.add_argument("--dt", type=float, default=0.0066)
    options = parser.parse_args()
    level = options.level[0] if len(options.level) == 1 else options.level
    for nu in options.nu:
        problem = make(
            "collisional-landau-1x1v", level, options.degree, options.grid, k=options.k, nu=nu
        )
        frequency, rate = collisional_mode(options.k, nu)
        status, found, at = fitted(problem, options.dt, (frequency, rate, -0.3))
        within = abs(found - rate) <= max(0.01 * abs(rate), 1.5e-3)
        print(
            f"nu = {nu:g}: {status}, rate {found:.5f} (theory {rate:.5f}, "
            f"{'within' if within else 'beyond'} the bound), frequency {at:.5f} ({frequency:.5f})",
            flush=True,
        )


if __name__ == "__main__":
    main()
