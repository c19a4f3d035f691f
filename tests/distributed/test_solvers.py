"""Krylov methods on vectors that are spread over simulated ranks."""

import numpy as np
import pytest
from dense_oracle import DTYPES, dense_kron, random_array

import batchkron as bk
from batchkron.distributed import distribute, simulate
from batchkron.solvers import (
    Cg,
    Gmres,
    Status,
    bicgstab,
    block_cg,
    block_gmres,
    cg,
    fgmres,
    gmres,
    minres,
)
from batchkron.solvers.krylov.vectors.passes import SharedVectors, StartExtent, StartNorms
from batchkron.solvers.krylov.vectors.space import Field, KrylovSpace

SIZES = (5, 6, 7)


def definite_factors(rng, dtype=np.float64):
    """Hermitian and positive definite."""
    factors = []
    for n in SIZES:
        matrix = random_array(rng, (n, n), dtype)
        factors.append((matrix @ matrix.conj().T / n + 2 * np.eye(n)).astype(dtype))
    return factors


def general_factors(rng, dtype=np.float64):
    return [(random_array(rng, (n, n), dtype) / n + np.eye(n)).astype(dtype) for n in SIZES]


METHODS = [
    (cg, definite_factors),
    (minres, definite_factors),
    (bicgstab, general_factors),
    (gmres, general_factors),
    (fgmres, general_factors),
]


def solve_on(ranks, grid, method, factors, b, **options):
    """The solution on the whole, and the result of each rank."""
    whole = bk.KroneckerProduct(factors)

    def program(comm):
        op = distribute(whole, comm, grid, rows=len(np.atleast_2d(b)))
        result = method(op, op.scatter(b), rtol=1e-10, **options)
        return op.gather(result.x, layout=op.layout), result

    results = simulate(ranks, program)
    return [x for x, _ in results], [result for _, result in results]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("method", "factors_of"), METHODS, ids=lambda case: case.__name__)
def test_one_system_is_solved_by_all_ranks(rng, method, factors_of, dtype):
    factors = factors_of(rng, dtype)
    b = random_array(rng, 210, dtype)
    whole = bk.KroneckerProduct(factors)
    wide = np.finfo(dtype).eps < 1e-10
    tolerance = 1e-10 if wide else 1e-4

    def program(comm):
        op = distribute(whole, comm, (1, 4))
        result = method(op, op.scatter(b), rtol=tolerance)
        return op.gather(result.x), result

    results = simulate(4, program)
    assert {result.status for _, result in results} == {Status.CONVERGED}
    for x, result in results:
        np.testing.assert_array_equal(x, results[0][0])
        np.testing.assert_array_equal(result.residual_norms, results[0][1].residual_norms)
        residual = np.linalg.norm(b - dense_kron(*factors) @ x)
        assert residual <= 1.01 * tolerance * np.linalg.norm(b)
    alone = method(whole, b, rtol=tolerance)
    assert abs(results[0][1].iterations - alone.iterations) <= 1 + alone.iterations // 10


def test_the_same_bits_in_every_run(rng):
    factors, b = general_factors(rng), rng.standard_normal(210)
    first, second = (solve_on(3, (1, 3), gmres, factors, b)[0][0] for _ in range(2))
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("method", [cg, gmres])
def test_whole_vectors_have_the_bits_of_one_process(rng, method):
    """On grids (G, 1), whatever G is: sums are over elements that one rank has."""
    factors, b = definite_factors(rng), rng.standard_normal((5, 210))
    alone = method(bk.KroneckerProduct(factors), b, rtol=1e-10, batched="leading").x
    for ranks in (1, 2, 4):
        for x in solve_on(ranks, (ranks, 1), method, factors, b, batched="leading")[0]:
            np.testing.assert_array_equal(x, alone)


def test_many_systems_on_a_grid(rng):
    """Groups of ranks with different systems do different numbers of iterations."""
    factors = definite_factors(rng)
    b = rng.standard_normal((4, 210)) * 10.0 ** np.arange(4)[:, None]
    dense = dense_kron(*factors)
    found, results = solve_on(4, (2, 2), gmres, factors, b, batched="leading", restart=7)
    for x in found:
        norms = np.linalg.norm(b - (dense @ x.T).T, axis=1)
        assert (norms <= 1.01e-10 * np.linalg.norm(b, axis=1)).all()
    assert all(result.converged for result in results)


def test_preconditioners_are_distributed_too(rng):
    factors = definite_factors(rng)
    b, whole = rng.standard_normal(210), bk.KroneckerProduct(factors)

    def program(comm):
        op, M = (distribute(each, comm, (1, 3)) for each in (whole, whole.inverse()))
        shifted = op + 0.1 * bk.Identity(op.shape[0])
        return [
            (op.gather(result.x), result.iterations)
            for result in (method(shifted, op.scatter(b), M=M, rtol=1e-9) for method in (cg, gmres))
        ]

    dense = dense_kron(*factors) + 0.1 * np.eye(210)
    for found in simulate(3, program):
        for x, iterations in found:
            assert np.linalg.norm(b - dense @ x) <= 1.01e-9 * np.linalg.norm(b)
            assert iterations < 10


def test_ranks_without_elements_take_part(rng):
    """Five ranks for three slices."""
    factors = [np.diag([1.0, 2.0, 3.0]), np.eye(2)]

    def program(comm):
        op = distribute(bk.KroneckerProduct(factors), comm, (1, 5))
        return op.shape[0], op.gather(gmres(op, op.scatter(np.ones(6)), rtol=1e-12).x)

    results = simulate(5, program)
    assert 0 in {size for size, _ in results}
    for _, x in results:
        np.testing.assert_allclose(x, np.repeat([1, 1 / 2, 1 / 3], 2), rtol=1e-12)


def test_a_cycle_is_as_long_as_the_whole_system_allows(rng):
    """Not as the smallest part does; and the limit of iterations is that of all unknowns."""
    factors = [rng.standard_normal((4, 4)) + 2 * np.eye(4) for _ in range(2)]
    b = rng.standard_normal(16)

    def program(comm):
        op = distribute(bk.KroneckerProduct(factors), comm, (1, 4))
        solver = Gmres(op, restart=20)
        return solver.restart, solver(op.scatter(b), rtol=1e-12).restarts

    assert simulate(4, program) == [(16, 0)] * 4


def test_singular_systems_end_alike_on_all_ranks(rng):
    """MINRES measures gradients, which are norms over all ranks."""
    factors = [np.diag([1.0, 2.0, 0.0]), np.diag([1.0, -1.0, 3.0, 2.0])]
    b = np.ones(12)

    def program(comm):
        op = distribute(bk.KroneckerProduct(factors), comm, (1, 3))
        result = minres(op, op.scatter(b), rtol=1e-10)
        return result.status, result.residual_norm

    alone = minres(bk.KroneckerProduct(factors), b, rtol=1e-10)
    for status, norm in simulate(3, program):
        assert status == alone.status == Status.LEAST_SQUARES
        np.testing.assert_allclose(norm, 2.0, rtol=1e-12)


def test_tiny_right_hand_sides_are_measured_over_all_ranks():
    op_of = bk.KroneckerProduct([np.diag([1.0, 1e-200]), np.eye(2)])
    b = np.array([0.0, 0.0, 1e-180, 1e-180])

    def program(comm):
        op = distribute(op_of, comm, (1, 2))
        result = cg(op, op.scatter(b), np.zeros(op.shape[0]), rtol=1e-8, atol=1e-170)
        return result.status, result.residual_norm

    first, second = simulate(2, program)
    assert first == second


def test_a_workspace_belongs_to_its_ranks(rng):
    whole = bk.KroneckerProduct(definite_factors(rng))

    def program(comm):
        op = distribute(whole, comm, (1, 2))
        Cg(op.shape[0]).solve(op, np.ones(op.shape[0]))

    with pytest.raises(ValueError, match=r"spread over 2 ranks, those .* over 1; .* Cg\(A\)"):
        simulate(2, program)


@pytest.mark.parametrize("method", [block_cg, block_gmres])
def test_block_methods_are_refused(rng, method):
    whole = bk.KroneckerProduct(definite_factors(rng))

    def program(comm):
        op = distribute(whole, comm, (1, 2))
        method(op, np.ones((op.shape[0], 2)))

    with pytest.raises(TypeError, match="use the method without a block"):
        simulate(2, program)


class RecordingRanks:
    """Two ranks that have the same elements; it records what is asked of it."""

    size = 2

    def __init__(self):
        self.calls = []

    def allreduce(self, values, *, maxima=False):
        self.calls.append((len(values), maxima))
        if not maxima:
            values *= 2


@pytest.mark.parametrize("size", [5, 30_000])  # the larger one releases the interpreter lock
def test_a_pass_reduces_its_sums_once_for_all_systems(rng, size):
    ranks = RecordingRanks()
    space = KrylovSpace(np, (3, size), np.dtype(np.float64), ranks=ranks)
    b, r, x = (space.vector(name) for name in "brx")
    b[...], r[...] = rng.standard_normal((3, size)), 0.0
    start = space.passes((StartExtent, StartNorms), SharedVectors(b=b, r=r, x=x))
    start.set(rtol=1e-5, atol=0.0, max_iterations=9, max_cycles=9)
    assert start.run() == 3
    assert ranks.calls == [(6, True), (6, False)]
    norms = np.sqrt(2) * np.linalg.norm(b, axis=1)
    np.testing.assert_allclose(space.field(Field.NORM_B), norms, rtol=1e-12)
    np.testing.assert_array_equal(r, b)


@pytest.mark.parametrize("size", [5, 30_000])
def test_a_reduction_that_fails_ends_the_pass(size):
    class Failing(RecordingRanks):
        def allreduce(self, values, *, maxima=False):
            raise ConnectionError("lost a rank")

    space = KrylovSpace(np, (1, size), np.dtype(np.float64), ranks=Failing())
    b, r, x = (space.vector(name) for name in "brx")
    for vector in (b, r, x):
        vector.fill(1.0)
    start = space.passes((StartExtent,), SharedVectors(b=b, r=r, x=x))
    with pytest.raises(ConnectionError, match="lost a rank"):
        start.run()
