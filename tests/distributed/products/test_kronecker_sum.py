"""Distributed Kronecker sums on simulated ranks, next to one process and to dense matrices."""

import math

import numpy as np
import pytest
from dense_oracle import DTYPES, dense_kron, random_array

import batchkron as bk
from batchkron.distributed import distribute, simulate
from batchkron.distributed.products.sum_plan import make_sum_plan
from batchkron.solvers import gmres


def dense_sum(factors):
    """Σ_k I ⊗ A_k ⊗ I."""
    eyes = [np.eye(len(factor)) for factor in factors]
    return sum(dense_kron(*eyes[:k], factor, *eyes[k + 1 :]) for k, factor in enumerate(factors))


def random_case(rng, sizes):
    """Sizes of at most 2000 elements, ranks and their grid."""
    chosen = []
    for _ in range(rng.integers(1, 6)):
        size = int(rng.choice(sizes))
        if math.prod(chosen) * size <= 2000:
            chosen.append(size)
    ranks = int(rng.integers(1, 7))
    parts = int(rng.choice([n for n in range(1, ranks + 1) if ranks % n == 0]))
    return chosen, ranks, (ranks // parts, parts)


@pytest.mark.parametrize("part", range(5))
def test_random_sums(rng, part):
    """Sums of integers are exact; others have the bits of one process."""
    for k in range(8):
        dtype = rng.choice(DTYPES)
        sizes, ranks, grid = random_case(rng, range(1, 9))
        rows = int(rng.integers(0, 5))
        if k % 2:
            factors = [random_array(rng, (n, n), dtype) for n in sizes]
            x = random_array(rng, (rows, math.prod(sizes)), dtype)
        else:
            factors = [rng.integers(-3, 4, (n, n)).astype(dtype) for n in sizes]
            x = rng.integers(-4, 5, (rows, math.prod(sizes))).astype(dtype)
        whole = bk.KroneckerSum(factors)

        def program(comm, whole=whole, x=x, grid=grid):
            op = distribute(whole, comm, grid, rows=len(x))
            block = op.scatter(x)
            out, before = (
                np.full((len(block), op.shape[0]), np.nan, op.dtype),
                comm.traffic.elements,
            )
            assert op.apply(block, out) is out
            assert comm.traffic.elements - before == op.volume().own_elements
            return op.gather(out)

        for y in simulate(ranks, program):
            np.testing.assert_array_equal(y, whole.apply(x))
            if k % 2 == 0:
                np.testing.assert_array_equal(y, (dense_sum(factors) @ x.T).T)


def test_the_volume_is_counted(rng):
    """Two stages: there and back, of what does not stay."""
    whole = bk.KroneckerSum([rng.standard_normal((4, 4))] * 3)

    def program(comm):
        op = distribute(whole, comm, (1, 4))
        block, before = op.scatter(np.ones((3, 64))), comm.traffic.elements
        op.apply(block)
        sent = comm.traffic.elements - before
        distributed = distribute(whole, comm, (1, 4), rows=3)
        return sent, distributed.volume()

    for sent, volume in simulate(4, program):
        assert sent == volume.own_elements == 3 * 2 * 12
        assert (volume.exchanges, volume.elements) == (2, 3 * 2 * (64 - 16))


def test_many_ranks_need_more_stages():
    plan = make_sum_plan([2] * 4, 8)
    assert [(stage.first, stage.last) for stage in plan.stages] == [(3, 3), (2, 2), (1, 1), (0, 0)]
    assert plan.num_exchanges == 6
    assert make_sum_plan([5, 5], 1).num_exchanges == 0


def test_accumulate_transposes_updates_and_algebra(rng):
    old, new = ([rng.integers(-3, 4, (n, n)).astype(float) for n in (4, 3, 5)] for _ in range(2))
    x, y = rng.integers(-3, 4, (2, 2, 60)).astype(float)
    dense = dense_sum(new)
    expected = [y - 2 * x @ dense.T, x @ dense, x @ (dense.T + dense @ dense)]

    def program(comm):
        op = distribute(bk.KroneckerSum(old), comm, (1, 4))
        transposed = op.T
        op.update(new)
        block = op.scatter(x)
        found = [
            op.accumulate(block, op.scatter(y), alpha=-2),
            transposed.apply(block),
            (op.T.T @ op + (2 * op.T - op).T @ bk.Identity(op.shape[0])).apply(block),
        ]
        return [op.gather(each) for each in found]

    expected[2] = x @ (dense @ dense + 2 * dense - dense.T).T
    for found in simulate(4, program):
        for result, right in zip(found, expected, strict=True):
            np.testing.assert_array_equal(result, right)


def test_a_laplacian_is_inverted_on_ranks(rng):
    factors = [2.0 * np.eye(n) - np.eye(n, k=1) - np.eye(n, k=-1) for n in (5, 6, 7)]
    whole, b = bk.KroneckerSum(factors), rng.standard_normal(210)

    def program(comm):
        op = distribute(whole, comm, (1, 3))
        return op.gather(gmres(op, op.scatter(b), rtol=1e-10).x)

    for x in simulate(3, program):
        assert np.linalg.norm(b - whole @ x) <= 1.01e-10 * np.linalg.norm(b)


def test_options_of_products_are_refused():
    whole = bk.KroneckerSum([np.eye(2)])
    for options in ({"exchange": "every"}, {"redistribute": False}):
        with pytest.raises(ValueError, match=r"for a KroneckerProduct.* not for a KroneckerSum"):
            distribute(whole, **options)
