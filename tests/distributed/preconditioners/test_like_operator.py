"""Whole preconditioners on the blocks of distributed operators, and of sums of such."""

import numpy as np
import pytest
from raw_lists import as_raw

import batchkron as bk
from batchkron.distributed import distribute, simulate
from batchkron.problems import PDE, Axis, Dirichlet, div, grad, make, time
from batchkron.solvers import preconditioners
from batchkron.solvers.preconditioners import CombinationPreconditioner, block_jacobi


@pytest.fixture(scope="module")
def driven():
    """Two terms, one of which depends on time: A(t) is a sum of multiples."""
    x, y = Axis("x", 0, 1), Axis("y", -1, 1)
    return PDE(
        [x, y],
        [div(x, -1.0, time=time.polynomial([1.0, 1.0])), div(y) @ grad(y)],
        boundary={x: "periodic", y: Dirichlet(0.0)},
        initial=0.0,
        sources=1.0,
    ).discretize(level=3, degree=1)


@pytest.mark.parametrize("form", ["sweep", "batch"])
def test_block_jacobi_has_the_bits_of_one_process_and_sends_nothing(rng, form):
    problem = make("diffusion-2d", 3, 2).with_form(form)
    whole = block_jacobi(problem.operator, 0.01)
    x = rng.standard_normal(problem.unknowns)

    def program(comm):
        op = distribute(problem, comm).operator
        M = distribute(whole, comm, like=op)
        assert M.layout.agrees_with(op.layout)
        block = op.scatter(x)
        out, before = np.full_like(block, np.nan), comm.traffic.elements
        M.matvec(block, out)
        back = M.T.matvec(out)
        assert comm.traffic.elements == before
        assert M.volume().elements == 0
        return op.gather(out), op.gather(back), op.shape[0]

    expected = whole @ x
    for ranks in (1, 3, 25):  # more ranks than the grid has cells
        results = simulate(ranks, program)
        assert (0 in {size for *_, size in results}) == (ranks > problem.grid.num_cells)
        for y, back, _ in results:
            np.testing.assert_array_equal(y, expected)
            np.testing.assert_array_equal(back, whole.T @ expected)


@pytest.mark.parametrize("form", ["sweep", "batch"])
def test_an_operator_on_blocks_knows_the_terms_of_the_whole(driven, rng, form):
    """So a user's function of (A, c) needs no whole operator, on whichever grid A is."""
    problem, t, c = driven.with_form(form), 0.3, 0.05
    x = rng.standard_normal(problem.unknowns)

    def program(comm):
        part = distribute(problem, comm)
        A = part.operator_at(t)
        made = [
            block_jacobi(A, c),
            CombinationPreconditioner(A, c),
            CombinationPreconditioner(A, c, composition="symmetric"),
        ]
        found = []
        for whole in made:
            M, block = distribute(whole, comm, like=A), part.scatter(x)
            before = comm.traffic.elements
            y = M.matvec(block)
            assert comm.traffic.elements - before == M.volume().own_elements
            found.append(part.gather(y))
        return found

    A = driven.operator_at(t)
    expected = [
        block_jacobi(A, c) @ x,
        CombinationPreconditioner(A, c).matvec(x),
        CombinationPreconditioner(A, c, composition="symmetric").matvec(x),
    ]
    for found in simulate(3, program):
        for y, other in zip(found, expected, strict=True):  # sums over full grids in another order
            np.testing.assert_allclose(y, other, rtol=0, atol=1e-13 * np.abs(other).max())


def test_terms_are_those_of_present_entries():
    problem = make("continuity-1d", 3, 1)
    sweeps = distribute(problem).operator
    sweeps.update(coefficients=[2.0] * len(sweeps.kronecker_terms().terms))
    assert {term.coefficient for term in sweeps.kronecker_terms().terms} == {2.0}
    batch = distribute(problem.with_form("batch")).operator
    assert len(batch.kronecker_terms().terms) >= 1
    batch.update(weights=np.ones(len(batch._spec.inputs)))
    with pytest.raises(TypeError, match="does not know its Kronecker terms"):
        batch.kronecker_terms()
    with pytest.raises(TypeError, match="does not know its Kronecker terms"):
        distribute(bk.BatchedKron([np.ones((1, 2, 2))], [[0]], [0], [0])).kronecker_terms()


def test_lists_of_numbers_alone_on_ranks(rng):
    """Each rank finds the terms in the whole list; rank 0 says it if there are none."""
    raw = as_raw(make("diffusion-2d", 3, 1).with_form("batch").operator)
    strange = as_raw(raw)
    strange.update(weights=1.0 + rng.random(raw.num_products))
    x = rng.standard_normal(raw.shape[0])

    def program(comm):
        found = []
        for op in (raw, strange):
            A = distribute(op, comm)
            M = distribute(preconditioners.make("auto", A, 0.01), comm, like=A)
            found.append(A.gather(M.matvec(A.scatter(x))))
        return found

    expected = [
        CombinationPreconditioner(raw, 0.01, composition="symmetric").matvec(x),
        block_jacobi(strange, 0.01) @ x,
    ]
    with pytest.warns(preconditioners.PreconditionerWarning, match="'block-jacobi' here") as seen:
        results = simulate(3, program)
    assert len(seen) == 1
    for found in results:
        for y, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(y, other, rtol=0, atol=1e-12 * np.abs(other).max())


def test_errors():
    A = make("diffusion-2d", 2, 1).operator
    M, op = block_jacobi(A), distribute(A)
    with pytest.raises(TypeError, match="like is a SparseGridOperator; expected a Distributed"):
        distribute(M, like=A)
    with pytest.raises(TypeError, match="like is a list; expected a DistributedOperator"):
        distribute(M, like=[op])
    with pytest.raises(ValueError, match="expected the preconditioner's, of"):
        distribute(M, like=distribute(make("diffusion-2d", 3, 1).operator))
    with pytest.raises(ValueError, match="like is an operator on 1 ranks"):
        simulate(2, lambda comm: distribute(M, comm, like=op))
    with pytest.raises(ValueError, match="a preconditioner takes one vector"):
        distribute(M, like=op, rows=2)
    with pytest.raises(TypeError, match="the preconditioner is a SparseGridOperator, which cannot"):
        distribute(make("diffusion-2d", 2, 1)).distribute_preconditioner(A, op)

    def halves(comm):
        """One block of four elements cannot lie on two ranks."""
        like = distribute(bk.KroneckerProduct([np.eye(2)] * 2), comm, (1, 2))
        with pytest.raises(ValueError, match="expected whole blocks on every rank"):
            distribute(bk.BatchedKron([np.ones((1, 4, 4))], [[0]], [0], [0]), comm, like=like)

    simulate(2, halves)


def test_a_list_and_a_diagonal_on_ranks(rng):
    """Block Jacobi of their sum is refused on ranks; that of the whole ones is dealt out."""
    pool = rng.standard_normal((3, 4, 4)) + 4 * np.eye(4)
    whole = bk.BatchedKron(pool, [[0], [1], [2]], [0, 1, 0], [0, 1, 1])
    entries, x = rng.uniform(5, 6, 8), rng.standard_normal(8)
    expected = block_jacobi(whole + bk.Diagonal(entries), -0.1)

    def program(comm):
        op = distribute(whole, comm)
        shifted = op + bk.Diagonal(op.scatter(entries))
        if comm.size > 1:
            with pytest.raises(TypeError, match=r"part of the diagonal.*distribute\(M, communic"):
                block_jacobi(shifted, -0.1)
        M = distribute(expected, comm, like=op)
        return op.gather(M.matvec(op.scatter(x))), op.gather(shifted @ op.scatter(x))

    for ranks in (1, 2):
        for y, product in simulate(ranks, program):
            np.testing.assert_array_equal(y, expected @ x)
            np.testing.assert_allclose(product, whole @ x + entries * x, rtol=1e-13)
