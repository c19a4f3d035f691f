"""Whether all ranks together compute what one of them computes alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import batchkron as bk
from batchkron.distributed import distribute
from batchkron.problems import make
from batchkron.solvers import cg, evolve, gmres
from benchmarks.distributed.ranks import Ranks


def check_all(ranks: Ranks, transports: tuple[str, ...]) -> bool:
    """Check every kind of operator, solvers and runs; return whether all is right."""
    right = True
    for name, difference, sent, bound in _checks(ranks, transports):
        worst = ranks.together(difference)
        # NaN is not right
        good = worst <= bound and sent
        right = right and good
        ranks.record(case="correctness", what=name, difference=worst, sent_by_plan=sent, right=good)
        ranks.say(f"  {name:44} {worst:.1e} {'right' if good else 'WRONG'}")
    return right


def _checks(ranks: Ranks, transports: tuple[str, ...]) -> Iterator[tuple[str, float, bool, float]]:
    """Yield what was compared, the largest difference, whether bytes are the plan's, the bound."""
    rng = np.random.default_rng(0)
    for transport in transports:
        for name, whole, rows in _operators(rng):
            for grid in {(1, ranks.size), (ranks.size, 1)}:
                if rows < ranks.size and grid[0] > 1:
                    continue
                yield _operator(
                    ranks, rng, f"{name}, {grid}, {transport}", whole, rows, grid, transport
                )
    yield _solver(ranks, rng, "cg", cg)
    yield _solver(ranks, rng, "gmres", gmres)
    yield _run(ranks)


def _operators(rng: np.random.Generator) -> Iterator[tuple[str, Any, int]]:
    yield "product 16^4", bk.KroneckerProduct(rng.standard_normal((4, 16, 16)) / 4), 16
    shapes = (6, 9), (7, 7), (11, 5), (8, 10)
    yield "product, rectangular", bk.KroneckerProduct([rng.standard_normal(s) for s in shapes]), 1
    yield "sum 12^4", bk.KroneckerSum(rng.standard_normal((4, 12, 12))), 1
    ids, blocks = rng.integers(0, 50, (4000, 3)), rng.integers(0, 300, (2, 4000))
    pool = rng.standard_normal((50, 4, 4))
    yield "batch list", bk.BatchedKron(pool, ids, *blocks, num_inputs=300, num_outputs=300), 1
    yield "sweeps, continuity-6d", make("continuity-6d", level=4, degree=1).operator, 1


def _operator(
    ranks: Ranks,
    rng: np.random.Generator,
    name: str,
    whole: Any,
    rows: int,
    grid: tuple[int, int],
    transport: str,
) -> tuple[str, float, bool, float]:
    here = whole.to(ranks.device)
    x = rng.standard_normal((rows, whole.shape[1]) if rows > 1 else whole.shape[1])
    given = ranks.module.asarray(x)
    expected = here.apply(given) if rows > 1 else here.matvec(given)
    op = distribute(here, ranks.transport(transport), grid, rows=rows)
    block = op.scatter(x)
    before = op.communicator.traffic.elements
    y = op.apply(block)
    sent = op.communicator.traffic.elements - before == op.volume().own_elements
    return name, _difference(op.gather(y), expected), sent, 1e-11


def _solver(
    ranks: Ranks, rng: np.random.Generator, name: str, method: Callable[..., Any]
) -> tuple[str, float, bool, float]:
    matrices = rng.standard_normal((4, 12, 12))
    whole = bk.KroneckerSum([m @ m.T / 12 + np.eye(12) for m in matrices]).to(ranks.device)
    transport = "nccl" if ranks.device == "cuda" else "mpi"
    op = distribute(whole, ranks.transport(transport))
    x = rng.standard_normal(whole.shape[0])
    b = whole.matvec(ranks.module.asarray(x))
    for _ in range(3):  # the last ones by captured graphs
        result = method(op, op.scatter(b), rtol=1e-12)
    return name, _difference(op.gather(result.x), ranks.module.asarray(x)), True, 1e-9


def _run(ranks: Ranks) -> tuple[str, float, bool, float]:
    problem = make("continuity-6d", level=3, degree=1).to(ranks.device)
    transport = "nccl" if ranks.device == "cuda" else "mpi"
    part = distribute(problem, ranks.transport(transport))
    result = evolve(part, until=0.01)
    alone = evolve(problem, until=0.01)
    return "evolve, continuity-6d", _difference(part.gather(result.u), alone.u), True, 1e-9


def _difference(found: Any, expected: Any) -> float:
    """Return the largest difference, relative to the largest element."""
    return float(abs(found - expected).max() / abs(expected).max())
