"""The combination preconditioner with its full grids on simulated ranks, next to one process."""

import numpy as np
import pytest
from hard_problems import equations

import batchkron as bk
from batchkron.distributed import distribute, simulate
from batchkron.problems import make
from batchkron.problems.grids.refinement import united
from batchkron.solvers import cg, evolve, gmres, preconditioners
from batchkron.solvers.preconditioners import CombinationPreconditioner

COMPOSITIONS = ["additive", "multiplicative", "symmetric"]


def close(found, expected, factor=100.0):
    """Sums over full grids in another order: some hundred terms of the size of the result."""
    eps = np.finfo(expected.dtype).eps
    np.testing.assert_allclose(found, expected, rtol=0, atol=factor * eps * np.abs(expected).max())


@pytest.mark.parametrize("composition", COMPOSITIONS)
@pytest.mark.parametrize("local", ["exact", "factorised", "sum", "product"])
@pytest.mark.parametrize("name", ["diffusion-2d", "diffusion-3d", "continuity-2d"])
def test_products_are_those_of_one_process(rng, name, local, composition):
    A = make(name, level=3, degree=1).operator
    scale = 0.02 if name == "continuity-2d" else None
    whole = CombinationPreconditioner(A, scale, local=local, composition=composition)
    x = rng.standard_normal(A.shape[0])

    def program(comm):
        op = distribute(A, comm)
        M = distribute(whole, comm, like=op)
        block = op.scatter(x)
        out, before = np.full_like(block, np.nan), comm.traffic.elements
        assert M.matvec(block, out) is out
        assert comm.traffic.elements - before == M.volume().own_elements
        return op.gather(out), op.gather(M.matvec(block)), M.volume().elements, M.volume()

    for ranks in (1, 3, 7):
        results = simulate(ranks, program)
        for y, again, total, _ in results:
            close(y, whole.matvec(x))
            np.testing.assert_array_equal(again, y)
            assert total == sum(volume.own_elements for *_, volume in results)


def test_grids_are_balanced_by_cost():
    """By the greedy rule no rank has more than the mean and the costliest grid."""
    A = make("diffusion-3d", level=5, degree=1).operator
    whole = CombinationPreconditioner(A)
    (work,) = simulate(4, lambda comm: distribute(whole, comm).work)[0]
    assert len(work) == 4
    (dealt,) = whole.dealt_out(4)
    grids = [grid for own in dealt for grid in own.grids]
    assert len({grid.levels for grid in grids}) == len(grids) == whole.num_grids
    costs = [2.0 * len(grid.places) * sum(2**level for level in grid.levels) for grid in grids]
    assert sum(work) == sum(costs)
    assert max(work) <= np.mean(work) + max(costs)
    assert max(work) <= 1.1 * np.mean(work)


def test_more_ranks_than_grids(rng):
    A = make("diffusion-2d", level=2, degree=1).operator
    whole = CombinationPreconditioner(A)
    x = rng.standard_normal(A.shape[0])

    def program(comm):
        M = distribute(whole, comm)
        return M._operator.gather(M.matvec(M._operator.scatter(x)))

    assert whole.num_grids < 9
    for y in simulate(9, program):
        close(y, whole.matvec(x))


@pytest.mark.parametrize("dtype", ["float32", "complex128"])
@pytest.mark.parametrize("composition", COMPOSITIONS)
def test_dtypes_and_shifts(rng, dtype, composition):
    A = make("diffusion-2d", level=3, degree=1).operator
    whole = CombinationPreconditioner(A, 0.1, composition=composition, dtype=dtype)
    x = rng.standard_normal(A.shape[0]).astype(dtype)
    if dtype == "complex128":
        x += 1j * rng.standard_normal(A.shape[0])

    def program(comm):
        op = distribute(A, comm)
        M = distribute(whole, comm, like=op)
        assert M.dtype == dtype
        block = op.scatter(x)
        return op.gather(M.matvec(block)), op.gather(M.shifted(0.3).matvec(block))

    for y, shifted in simulate(3, program):
        close(y, whole.matvec(x), 1000)
        close(shifted, whole.shifted(0.3).matvec(x), 1000)


def test_a_grid_that_lacks_unknowns_of_the_full_ones(rng):
    """An adaptive grid: cells of the full grids that it does not have count as zeros."""
    problem = make("diffusion-2d", level=4, degree=1)
    cells = problem.grid.cells
    kept = cells[(cells[:, 0] < 8) | (cells[:, 1] == 0) & (cells[:, 0] < 12)]
    A = problem.on_grid(united(kept)).operator
    whole = CombinationPreconditioner(A)
    assert not all(group.complete for group in whole._groups)
    x = rng.standard_normal(A.shape[0])

    def program(comm):
        op = distribute(A, comm)
        return op.gather(distribute(whole, comm, like=op).matvec(op.scatter(x)))

    for y in simulate(3, program):
        close(y, whole.matvec(x))


def test_cg_and_gmres_take_the_iterations_of_one_process(rng):
    A = make("diffusion-2d", level=5, degree=1).operator
    b = rng.standard_normal(A.shape[0])
    shifted = bk.Identity(A.shape[0]) - 0.1 * A
    whole = CombinationPreconditioner(A, 0.1)

    def program(comm):
        op = distribute(A, comm)
        M = distribute(whole, comm, like=op)
        own = bk.Identity(op.shape[0]) - 0.1 * op
        found = [method(own, op.scatter(b), M=M, rtol=1e-9) for method in (cg, gmres)]
        return [(op.gather(each.x), each.iterations) for each in found]

    alone = [method(shifted, b, M=whole, rtol=1e-9).iterations for method in (cg, gmres)]
    for found in simulate(3, program):
        for (x, iterations), expected in zip(found, alone, strict=True):
            assert abs(iterations - expected) <= 1
            assert np.linalg.norm(b - shifted @ x) <= 1.01e-9 * np.linalg.norm(b)


@pytest.mark.parametrize("name", ["wind", "adapted"])
def test_factorised_grids_take_the_iterations_of_one_process(name):
    if name == "wind":
        problem = equations.wind().discretize(level=4, degree=2)
    else:
        grid = equations.adapted_grid("two bumps", 5, 1e-3)
        problem = equations.bump().discretize(grid=grid, degree=2)
    A = problem.operator
    b = np.random.default_rng(0).standard_normal(A.shape[0])
    whole = preconditioners.make("auto", A, 0.1)
    assert whole.keeps_factors

    def program(comm):
        op = distribute(A, comm)
        M, right, found = distribute(whole, comm, like=op), op.scatter(b), []
        for c in (0.1, 0.15, 0.5):  # factors are kept, and replaced
            M = M.shifted(c)
            own = bk.Identity(op.shape[0]) - c * op
            found.append(gmres(own, right, M=M, rtol=1e-6).iterations)
        return found, M.keeps_factors

    alone = [
        gmres(bk.Identity(A.shape[0]) - c * A, b, M=whole.shifted(c), rtol=1e-6).iterations
        for c in (0.1, 0.15, 0.5)
    ]
    for found, keeps in simulate(3, program):
        assert keeps
        assert np.abs(np.subtract(found, alone)).max() <= 1


def test_implicit_steps_are_preconditioned():
    problem = make("diffusion-2d", level=4, degree=1)
    whole = CombinationPreconditioner(problem.operator, 1.0)
    solver = {"name": "cg", "rtol": 1e-12, "maxiter": 40}

    def program(comm):
        part = distribute(problem, comm)
        M = distribute(whole, comm, like=part.operator)
        result = evolve(
            part, until=0.2, dt=0.05, solver=solver, preconditioner=lambda _, c: M.shifted(c)
        )
        return str(result.status), part.gather(result.u)

    alone = evolve(problem, until=0.2, dt=0.05, solver={"name": "gmres", "rtol": 1e-12})
    for status, u in simulate(2, program):
        assert status == "completed"
        np.testing.assert_allclose(u, alone.u, rtol=0, atol=1e-8 * np.abs(alone.u).max())


def test_a_problem_is_no_preconditioner():
    """Whether it is one is asked without assembling its operator."""

    class Own:
        t0, initial = 0.0, make("continuity-1d", 2, 1).initial
        dtype = scale = order = None
        time_parts = make("continuity-1d", 2, 1).time_parts

        @property
        def operator(self):
            raise AssertionError("the operator is assembled")

    assert distribute(Own()).initial.shape == Own.initial.shape


def test_errors():
    A = make("diffusion-2d", level=2, degree=1).operator
    M, op = CombinationPreconditioner(A), distribute(A)
    part = distribute(M, like=op)
    with pytest.raises(TypeError, match="x is complex"):
        part.matvec(np.ones(A.shape[0], complex))
    with pytest.raises(ValueError, match=r"x has shape \(3,\)"):
        part.matvec(np.ones(3))
    with pytest.raises(TypeError, match="like is a SparseGridOperator; expected a Distributed"):
        distribute(M, like=A)
    with pytest.raises(ValueError, match="like is an operator on 1 ranks"):
        simulate(2, lambda comm: distribute(M, comm, like=op))
    with pytest.raises(ValueError, match="like is for a preconditioner"):
        distribute(A, like=op)
    with pytest.raises(ValueError, match="a preconditioner takes one vector"):
        distribute(M, rows=2)
    other = distribute(make("diffusion-2d", level=3, degree=1).operator)
    with pytest.raises(ValueError, match="expected the preconditioner's, of"):
        distribute(M, like=other)
    tensor = bk.KroneckerSum([np.diag([1.0, 2.0])] * 2)
    with pytest.raises(ValueError, match="only the full grids of a sparse grid"):
        distribute(CombinationPreconditioner(tensor))
    with pytest.raises(TypeError, match="KroneckerTerms cannot be distributed"):
        distribute(CombinationPreconditioner(A.kronecker_terms()))
