"""Who owns what: blocks cover whole vectors once, and are dealt out and collected."""

import numpy as np
import pytest

import batchkron as bk
from batchkron.distributed import Layout, distribute, simulate

LAYOUTS = [
    Layout((1, 1), 1, (0, 5)),
    Layout((1, 3), 2, (0, 4, 8, 12)),
    Layout((2, 2), 5, (0, 1, 7)),
    Layout((3, 2), 2, (0, 2, 5), moved=4),  # some ranks have no row
    Layout((1, 4), 3, (0, 0, 1, 1, 2), moved=3),  # some have no element
    Layout((2, 1), 0, (0, 6)),
]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_blocks_cover_everything_once(layout):
    count = layout.grid[0] * layout.grid[1]
    owners = np.zeros((layout.rows, layout.size), int)
    whole = np.arange(owners.size, dtype=float).reshape(owners.shape)
    back = np.full_like(whole, np.nan)
    for rank in range(count):
        columns = layout.columns(rank)
        assert len(columns) == layout.part(rank)
        owners[layout.rows_of(rank), columns] += 1
        block = layout.block_of(whole, rank)
        np.testing.assert_array_equal(block, whole[layout.rows_of(rank), columns])
        assert block.flags.c_contiguous
        layout.put_block(block, back, rank)
    assert (owners == 1).all()
    np.testing.assert_array_equal(back, whole)
    assert layout.describe().count("\n") == count - 1


def test_a_block_is_a_copy():
    layout, whole = Layout((1, 1), 1, (0, 3)), np.arange(3.0)
    layout.block_of(whole, 0)[...] = 7
    np.testing.assert_array_equal(whole, [0, 1, 2])


def test_scatter_from_one_rank_and_gather_on_one(rng):
    whole = bk.KroneckerProduct([np.eye(3), np.eye(4)])
    x = rng.standard_normal((5, 12)).astype("float32")

    def program(comm, grid):
        op = distribute(whole, comm, grid, rows=5)
        block = op.scatter(x if comm.rank == 2 else None, root=2)
        np.testing.assert_array_equal(block, op.scatter(x))
        return op.gather(block, root=1), op.gather(block)

    for grid in [(4, 1), (1, 4), (2, 2)]:
        results = simulate(4, lambda comm, grid=grid: program(comm, grid))
        for rank, (on_one, on_all) in enumerate(results):
            np.testing.assert_array_equal(on_all, x)
            if rank == 1:
                np.testing.assert_array_equal(on_one, x)
            else:
                assert on_one is None


def test_vectors_may_have_more_axes(rng):
    whole, x = bk.KroneckerProduct([np.eye(6)] * 2), rng.standard_normal((2, 3, 36))

    def program(comm):
        op = distribute(whole, comm, (1, 2))
        assert op.scatter(x[0, 0]).shape == (18,)
        return op.gather(op.scatter(x, root=None))

    for found in simulate(2, program):
        np.testing.assert_array_equal(found, x)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda op: op.scatter(np.ones((4, 5))), ValueError, r"expected \(4, 4\)"),
        (lambda op: op.scatter(np.ones((4, 5)), root=0), ValueError, r"expected \(4, 4\)"),
        (lambda op: op.scatter(), TypeError, "expected the whole vectors"),
        (lambda op: op.scatter(root=1), TypeError, "expected the whole vectors"),
        (lambda op: op.scatter(np.ones((4, 4)), root=2), ValueError, "a rank from 0 to 1"),
        (lambda op: op.gather(np.ones(4)), ValueError, r"expected \(2, 4\), the block of rank"),
    ],
)
def test_arguments_are_checked(call, error, text):
    whole = bk.KroneckerProduct([np.eye(2), np.eye(2)])
    with pytest.raises(error, match=text):
        simulate(2, lambda comm: call(distribute(whole, comm, (2, 1), rows=4)))
