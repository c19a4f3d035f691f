"""Ranks that pass different things to `distribute`: all of them refuse."""

import numpy as np
import pytest

import batchkron as bk
from batchkron.distributed import distribute, simulate
from batchkron.problems import make
from batchkron.solvers import Adapt
from batchkron.solvers.preconditioners import CombinationPreconditioner


def batch_list(values, last):
    pool = np.arange(1.0, 9.0).reshape(2, 2, 2) + values
    return bk.BatchedKron([pool, pool], [[0, 1], [1, 0]], [0, 1], [1, last])


def cases():
    A, B = np.diag([1.0, 2.0]), np.array([[1.0, 0.5], [0.0, 2.0]])
    yield "value", bk.KroneckerProduct([A, B]), bk.KroneckerProduct([A, np.nextafter(B, 2 * B + 1)])
    yield "order", bk.KroneckerProduct([A, B]), bk.KroneckerProduct([B, A])
    yield "shape", bk.KroneckerProduct([A, A]), bk.KroneckerProduct([np.eye(4)])
    yield "dtype", bk.KroneckerSum([A, B]), bk.KroneckerSum([A, B]).astype(np.float32)
    yield "kind", bk.KroneckerProduct([A, B]), bk.KroneckerSum([A, B])
    yield "pool", batch_list(0.0, 0), batch_list(1.0, 0)
    yield "output", batch_list(0.0, 0), batch_list(0.0, 1)
    yield (
        "sparse",
        bk.KroneckerSparse(np.ones((1, 2, 2, 2))),
        bk.KroneckerSparse(np.full((1, 2, 2, 2), 2.0)),
    )
    problem = make("continuity-2d", level=2, degree=1)
    yield "level", problem, make("continuity-2d", level=3, degree=1)
    yield "problem", problem, make("diffusion-2d", level=2, degree=1)
    yield "initial", problem, problem.beginning_at(problem.initial + 1.0)
    yield "time", problem, problem.beginning_at(problem.initial, 1.0)
    yield "adapt", problem.with_adapt(Adapt(1e-3)), problem.with_adapt(Adapt(1e-3, every=3))
    yield (
        "grid operator",
        problem.operator,
        make("diffusion-2d", level=2, degree=1).operator,
    )
    yield "nothing", problem, None


CASES = {name: pair for name, *pair in cases()}


@pytest.mark.parametrize("name", CASES)
def test_other_operators_on_some_ranks_are_refused_on_all(name):
    first, other = CASES[name]

    def program(comm):
        with pytest.raises(ValueError, match=r"ranks 2 of 3 pass another operator") as error:
            distribute(other if comm.rank == 2 else first, comm)
        return f"rank {comm.rank} passes a {type(first).__name__}" in str(error.value)

    assert simulate(3, program)[:2] == [True, True]


def test_other_options_and_grids_are_refused():
    op = bk.KroneckerProduct([np.eye(4), np.eye(4)])

    def program(comm):
        for options in ({"rows": 2 + comm.rank}, {"grid": (2, 1) if comm.rank else (1, 2)}):
            with pytest.raises(ValueError, match="or other options, than rank 0"):
                distribute(op, comm, **options)

    simulate(2, program)


def test_preconditioners_of_other_operators_are_refused():
    problem = make("diffusion-2d", level=2, degree=1)

    def program(comm):
        op = bk.Identity(len(problem.initial)) - (1.0 + comm.rank) * problem.operator
        with pytest.raises(ValueError, match="pass another operator"):
            distribute(CombinationPreconditioner(op), comm)

    simulate(2, program)


@pytest.mark.parametrize("name", CASES)
def test_equal_operators_made_anew_on_each_rank_are_taken(name):
    index = list(CASES).index(name)

    def program(comm):
        made = list(cases())[index][1]
        return distribute(made, comm).layout.size

    assert len(set(simulate(2, program))) == 1
