"""Distributed batch lists on simulated ranks, next to one process."""

import numpy as np
import pytest
from dense_oracle import DTYPES, random_array

import batchkron as bk
from batchkron.distributed import distribute, simulate
from batchkron.solvers import bicgstab


def random_list(rng, dtype, square=False, integers=True):
    """A batch list with repeated inputs and outputs, and some of neither."""
    modes = int(rng.integers(1, 4))
    shapes = [tuple(rng.integers(1, 5, 2)) for _ in range(modes)]
    if square:
        shapes = [(rows, rows) for rows, _ in shapes]
    count, products = int(rng.integers(1, 5)), int(rng.integers(0, 30))
    blocks = rng.integers(1, 9, 2)
    if square:
        blocks[1] = blocks[0]
    if integers:
        pools = [rng.integers(-3, 4, (count, *shape)).astype(dtype) for shape in shapes]
        weights = rng.integers(-2, 3, products).astype(dtype)
    else:
        pools = [random_array(rng, (count, *shape), dtype) for shape in shapes]
        weights = random_array(rng, products, dtype)
    return bk.BatchedKron(
        pools,
        rng.integers(0, count, (products, modes)),
        rng.integers(0, blocks[0], products),
        rng.integers(0, blocks[1], products),
        weights=weights,
        num_inputs=int(blocks[0]),
        num_outputs=int(blocks[1]),
    )


def whole_product(op, x):
    """A x on flat vectors (rows, N)."""
    out = np.empty((len(x), op.shape[0]), op.dtype)
    return op.apply_flat(x, out)


@pytest.mark.parametrize("stores", [False, True])
@pytest.mark.parametrize("part", range(5))
def test_random_lists(rng, part, stores):
    """Sums of integers are exact, what is sent is what is planned."""
    for _ in range(8):
        dtype = rng.choice(DTYPES)
        whole, ranks = random_list(rng, dtype), int(rng.integers(1, 7))
        parts = int(rng.choice([n for n in range(1, ranks + 1) if ranks % n == 0]))
        x = rng.integers(-4, 5, (int(rng.integers(0, 4)), whole.shape[1])).astype(dtype)
        grid = ranks // parts, parts

        def program(comm, whole=whole, x=x, grid=grid):
            comm.stores = stores
            op = distribute(whole, comm, grid, rows=len(x))
            block, before = op.scatter(x), comm.traffic.elements
            out = np.full((len(block), op.shape[0]), np.nan, op.dtype)
            assert op.apply(block, out) is out
            sent = comm.traffic.elements - before
            assert sent == op.volume().own_elements
            columns = op @ np.ascontiguousarray(block.T)
            np.testing.assert_array_equal(columns.T, out)
            return op.gather(out), sent, op.volume().elements

        results = simulate(ranks, program)
        for y, _, elements in results:
            np.testing.assert_array_equal(y, whole_product(whole, x))
            assert elements == sum(sent for _, sent, _ in results)


def test_rounded_sums_are_those_of_one_process(rng):
    for dtype in DTYPES:
        whole = random_list(rng, dtype, integers=False)
        x = random_array(rng, (1, whole.shape[1]), dtype)

        def program(comm, whole=whole, x=x):
            op = distribute(whole, comm, (1, 3))
            return op.gather(op.apply(op.scatter(x)))

        expected = whole_product(whole, x)
        for y in simulate(3, program):
            eps = np.finfo(dtype).eps
            np.testing.assert_allclose(y, expected, rtol=0, atol=200 * eps * np.abs(expected).max())


def test_a_halo_is_sent_once():
    """Block 0 is read by all products; only rank 0 has it."""
    whole = bk.BatchedKron(
        [np.ones((1, 2, 2))],
        np.zeros((9, 1), int),
        inputs=[0] * 9,
        outputs=np.arange(9) % 6,
        num_inputs=6,
    )

    def program(comm):
        op = distribute(whole, comm, (1, 3))
        return op.volume().own_elements

    assert simulate(3, program) == [4, 0, 0]  # two elements to each of two ranks


def test_a_list_without_neighbours_sends_nothing():
    op_of = bk.BatchedKron([np.ones((1, 2, 2))], np.zeros((8, 1), int), range(8), range(8))
    volumes = simulate(4, lambda comm: distribute(op_of, comm, (1, 4)).volume())
    assert {(v.exchanges, v.elements) for v in volumes} == {(0, 0)}


def test_accumulate_transposes_and_updates(rng):
    whole = random_list(rng, "float64")
    pools = [rng.integers(-3, 4, pool.shape[1:]).astype(float) for pool in whole._spec.pools]
    weights = rng.integers(-3, 4, whole.num_products).astype(float)
    fresh = bk.BatchedKron(
        pools,
        whole._spec.factor_ids,
        whole._spec.inputs,
        whole._spec.outputs,
        weights=weights,
        num_inputs=whole.num_inputs,
        num_outputs=whole.num_outputs,
        skip_identities=False,
    )
    x = rng.integers(-3, 4, (2, fresh.shape[1])).astype(float)
    y = rng.integers(-3, 4, (2, fresh.shape[0])).astype(float)
    zeros = [np.zeros_like(pool) for pool in pools]
    start = bk.BatchedKron(
        zeros,
        fresh._spec.factor_ids,
        fresh._spec.inputs,
        fresh._spec.outputs,
        num_inputs=whole.num_inputs,
        num_outputs=whole.num_outputs,
    )

    def program(comm):
        op = distribute(start, comm, (1, 3))
        transposed = op.T
        op.update(pools, weights)
        back = transposed.apply(transposed.scatter(y))
        added = op.accumulate(op.scatter(x), transposed.scatter(y), alpha=-2)
        return op.gather(added), transposed.gather(back)

    for added, back in simulate(3, program):
        np.testing.assert_array_equal(added, y - 2 * whole_product(fresh, x))
        np.testing.assert_array_equal(back, whole_product(fresh.T, y))


def test_updates_are_checked():
    pool = np.stack([np.eye(2), np.ones((2, 2))])
    whole = bk.BatchedKron([pool], [[0], [1]], [0, 1], [0, 1])
    op = distribute(whole)
    with pytest.raises(ValueError, match="one for each product of the whole list"):
        op.update(weights=np.ones(3))
    with pytest.raises(ValueError, match="skip_identities=False"):
        op.update([np.ones((2, 2, 2))])
    with pytest.raises(ValueError, match="for a KroneckerProduct, not for a BatchedKron"):
        distribute(whole, exchange="every")


def test_a_problem_like_list_is_solved_on_ranks(rng):
    count = 12
    pool = np.concatenate([rng.standard_normal((4, 3, 3)) / 10, [np.eye(3)]])
    neighbours = [(i, j) for i in range(count) for j in (i - 1, i, i + 1) if 0 <= j < count]
    ids = [[4, 4] if i == j else rng.integers(0, 4, 2).tolist() for i, j in neighbours]
    outputs, inputs = np.array(neighbours).T
    whole = bk.BatchedKron([pool, pool], ids, inputs, outputs)
    b = rng.standard_normal(9 * count)

    def program(comm):
        op = distribute(whole, comm, (1, 4))
        return op.gather(bicgstab(op, op.scatter(b), rtol=1e-10).x)

    for x in simulate(4, program):
        assert np.linalg.norm(b - whole @ x) <= 1.01e-10 * np.linalg.norm(b)


def test_the_ranks_know_the_terms_of_the_list(rng):
    """One term on two cells of a grid that nobody would guess."""
    pool = rng.standard_normal((4, 2, 2))
    inputs, outputs = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])
    ids = np.stack([2 * outputs + inputs] * 2, axis=1)
    whole = bk.BatchedKron([pool, pool], ids, inputs, outputs)
    terms = whole.recover_terms(cells=[[1, 3], [2, 1]])

    def program(comm):
        op = distribute(whole, comm)
        known = op.kronecker_terms() is terms
        op.update([2 * pool, pool])
        return known, op.recover_terms().cells

    for known, cells in simulate(2, program):
        assert known
        np.testing.assert_array_equal(cells, terms.cells)
    assert whole.kronecker_terms() is terms  # the update was the ranks'
