"""Whether all ranks together compute what one of them computes alone."""

import numpy as np

import batchkron as bk
from batchkron.distributed import distribute
from batchkron.problems import make
from batchkron.solvers import cg, evolve, gmres
from benchmarks.core.checks import relative_error

OPERATORS = (
    *("product 16^4", "product, rectangular", "sum 12^4", "batch list"),
    *("sweeps, continuity-6d", "butterfly of 2^12"),
)
METHODS = {"cg": cg, "gmres": gmres}


def check_operators(ranks, transport, names=OPERATORS):
    return _all_right(ranks, _products(ranks, transport, names))


def check_solvers(ranks, transport, names=METHODS):
    rng = np.random.default_rng(0)
    return _all_right(ranks, (_solver(ranks, rng, transport, n, METHODS[n]) for n in names))


def check_run(ranks, transport):
    return _all_right(ranks, [_run(ranks, transport)])


def _all_right(ranks, findings):
    """Findings: what was compared, the largest difference, if the plan's was sent, the bound."""
    right = True
    for name, difference, sent, bound in findings:
        worst = ranks.together(difference)
        # NaN is not right
        good = worst <= bound and sent
        right = right and good
        ranks.record(case="correctness", what=name, difference=worst, sent_by_plan=sent, right=good)
        ranks.say(f"  {name:44} {worst:.1e} {'right' if good else 'WRONG'}")
    return right


def _products(ranks, transport, names):
    rng = np.random.default_rng(0)
    for name, whole, rows in _operators(rng):
        if name not in names:
            continue
        # one order on all ranks
        for grid in sorted({(1, ranks.size), (ranks.size, 1)}):
            if grid[0] > 1 and rows < ranks.size:
                continue
            text = f"{name}, {grid}, {transport}"
            yield _operator(ranks, text, whole, rows, grid, transport)


def _operators(rng):
    yield "product 16^4", bk.KroneckerProduct(rng.standard_normal((4, 16, 16)) / 4), 16
    shapes = (6, 9), (7, 7), (11, 5), (8, 10)
    yield "product, rectangular", bk.KroneckerProduct([rng.standard_normal(s) for s in shapes]), 1
    yield "sum 12^4", bk.KroneckerSum(rng.standard_normal((4, 12, 12))), 1
    ids, blocks = rng.integers(0, 50, (4000, 3)), rng.integers(0, 300, (2, 4000))
    pool = rng.standard_normal((50, 4, 4))
    yield "batch list", bk.BatchedKron(pool, ids, *blocks, num_inputs=300, num_outputs=300), 1
    yield "sweeps, continuity-6d", make("continuity-6d", level=4, degree=1).operator, 1
    factors = [rng.standard_normal((1 << k, 2, 2, 1 << 11 - k)) / 2 for k in range(12)]
    yield "butterfly of 2^12", bk.KroneckerSparseChain(factors), 1


def _operator(ranks, name, whole, rows, grid, transport):
    here, rng = whole.to(ranks.device), np.random.default_rng(1)
    x = rng.standard_normal((rows, whole.shape[1]) if rows > 1 else whole.shape[1])
    given = ranks.module.asarray(x)
    expected = here.apply(given) if rows > 1 else here.matvec(given)
    op = distribute(here, ranks.transport(transport), grid, rows=rows)
    block = op.scatter(x)
    before = op.communicator.traffic.elements
    y = op.apply(block)
    sent = op.communicator.traffic.elements - before == op.volume().own_elements
    return name, relative_error(op.gather(y), expected), sent, 1e-11


def _solver(ranks, rng, transport, name, method):
    matrices = rng.standard_normal((4, 12, 12))
    whole = bk.KroneckerSum([m @ m.T / 12 + np.eye(12) for m in matrices]).to(ranks.device)
    op = distribute(whole, ranks.transport(transport))
    x = rng.standard_normal(whole.shape[0])
    b = whole.matvec(ranks.module.asarray(x))
    for _ in range(3):  # the last ones by captured graphs
        result = method(op, op.scatter(b), rtol=1e-12)
    return name, relative_error(op.gather(result.x), ranks.module.asarray(x)), True, 1e-9


def _run(ranks, transport):
    problem = make("continuity-6d", level=3, degree=1).to(ranks.device)
    part = distribute(problem, ranks.transport(transport))
    result = evolve(part, until=0.01)
    alone = evolve(problem, until=0.01)
    return "evolve, continuity-6d", relative_error(part.gather(result.u), alone.u), True, 1e-9
