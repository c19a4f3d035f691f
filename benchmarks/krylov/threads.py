"""SciPy's solvers with our operators on two threads and on one; status 1: two are slower."""

import sys
import warnings
from functools import partial
from itertools import chain

import numpy as np
import scipy.sparse.linalg as scipy_linalg

import batchkron as bk
from benchmarks.core.options import parser_of
from benchmarks.core.records import machine, recorded
from benchmarks.krylov.cases import ITERATIONS, right_hand_side, second_difference, times_of

SIZES = ((100, 100), (22, 22, 22), (316, 316), (47,) * 3, (1000, 1000), (100,) * 3)
MANY = 500_000  # unknowns, from which a solve has fewer iterations
MAX_RATIO = 1.1  # of two threads to one; runs of the same contender differ by as much
NAMES = {1: "one thread", 2: "two threads"}


def solves(A, b):
    iterations = ITERATIONS if b.size < MANY else ITERATIONS // 4
    with_cg = partial(scipy_linalg.cg, A, b, rtol=1e-15, maxiter=iterations)
    restart = iterations // 2
    with_gmres = partial(scipy_linalg.gmres, A, b, rtol=1e-15, restart=restart, maxiter=2)
    return {"cg": with_cg, "gmres": with_gmres}


def measured(sizes):
    operators = {  # symmetric and positive definite
        "sum": bk.KroneckerSum([second_difference(n) for n in sizes]),
        "product": bk.KroneckerProduct([np.eye(n) + second_difference(n) / 8 for n in sizes]),
    }

    def on_threads(number, solve):
        bk.set_num_threads(number)
        return solve()

    for name, A in operators.items():
        for method, solve in solves(A, right_hand_side(A.shape[0], np)).items():
            contenders = {NAMES[number]: partial(on_threads, number, solve) for number in NAMES}
            seconds = times_of(contenders)
            ratio = seconds[NAMES[2]] / seconds[NAMES[1]]
            case = {"sizes": list(sizes), "operator": name, "method": method}
            yield {**case, "seconds": seconds, "over_one": ratio}


def main(given=None):
    parser = parser_of(__doc__, "json")
    parser.add_argument("--unknowns", type=int, nargs=2, default=(0, 10**6), metavar=("N", "N"))
    options = parser.parse_args(given)
    before, (least, most) = bk.get_num_threads(), options.unknowns
    chosen = (sizes for sizes in SIZES if least <= np.prod(sizes) <= most)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # not converged
            rows = chain.from_iterable(map(measured, chosen))
            records = recorded(rows, options.json, {"machine": machine()}, "solves")
    finally:
        bk.set_num_threads(before)
    slower = sum(record["over_one"] > MAX_RATIO for record in records)
    print(f"\n{slower} of {len(records)} solves take over {MAX_RATIO} times as long on two threads")
    return int(slower > 0)


if __name__ == "__main__":
    sys.exit(main())
