"""Block-tridiagonal nodal matrices in the hierarchical basis against dense products."""

import numpy as np
import pytest

from batchkron.problems.discretization.basis.multiwavelets import to_hierarchical
from batchkron.problems.discretization.fields import neighbour_blocks
from batchkron.problems.discretization.fields.neighbour_blocks import NeighbourBlocks
from batchkron.problems.discretization.fields.points import sum_of_products


def random_blocks(rng, level, n, is_periodic):
    """Return blocks (cells, 3, n, n), zero where there is no neighbour."""
    blocks = rng.standard_normal((1 << level, 3, n, n))
    if not is_periodic:
        blocks[0, 0] = blocks[-1, 2] = 0.0
    return blocks


def dense(blocks):
    """Return A from its blocks, by loops."""
    cells, _, n, _ = blocks.shape
    A = np.zeros((cells, n, cells, n))
    for cell in range(cells):
        for k, offset in enumerate((-1, 0, 1)):
            A[cell, :, (cell + offset) % cells] += blocks[cell, k]
    return A.reshape(cells * n, cells * n)


def hierarchical(A, level, degree):
    """Return W A Wᵀ with a dense W."""
    W = np.stack([to_hierarchical(unit, level, degree) for unit in np.eye(len(A))], axis=1)
    return W @ A @ W.T


def scattered(maker, blocks, cells, n):
    """Return the matrix of hierarchical blocks; a pair may occur only once."""
    pairs = list(zip(maker.rows.tolist(), maker.columns.tolist(), strict=True))
    assert sorted(set(pairs)) == pairs
    found = np.zeros((cells, n, cells, n))
    for (row, column), block in zip(pairs, blocks, strict=True):
        found[row, :, column] = block
    return found.reshape(cells * n, cells * n)


@pytest.mark.parametrize("is_periodic", [True, False])
@pytest.mark.parametrize("degree", range(4))
@pytest.mark.parametrize("level", range(6))
def test_blocks_are_those_of_the_dense_product(level, degree, is_periodic, rng):
    n, cells = degree + 1, 1 << level
    blocks = random_blocks(rng, level, n, is_periodic)
    maker = NeighbourBlocks(level, degree, is_periodic)
    expected = hierarchical(dense(blocks), level, degree)
    found = scattered(maker, maker(blocks), cells, n)
    np.testing.assert_allclose(found, expected, rtol=0.0, atol=1e-13)


@pytest.mark.parametrize("is_periodic", [True, False])
def test_several_matrices_fill_all_of_a_poisoned_vector(is_periodic, rng):
    level, degree, parts = 4, 2, 3
    given = np.stack([random_blocks(rng, level, degree + 1, is_periodic) for _ in range(parts)])
    maker = NeighbourBlocks(level, degree, is_periodic, parts=parts)
    vector = maker.vector(np.full(maker.size, np.nan))
    maker.write(given, vector)
    maker.scale(1, -2.5, vector)
    alone = NeighbourBlocks(level, degree, is_periodic)
    for part, factor in enumerate((1.0, -2.5, 1.0)):
        found = vector.whole[maker.places(part)]
        np.testing.assert_allclose(found, factor * alone(given[part]), rtol=0.0, atol=1e-13)


def test_matrices_of_other_products_are_the_same(rng):
    """On a device all products of values are sums of elementwise ones."""
    for left, right in (((5, 4), (4,)), ((2, 5, 4), (4, 3)), ((2, 6, 3, 5, 4), (6, 3, 4, 7))):
        values, matrix = rng.standard_normal(left), rng.standard_normal(right)
        np.testing.assert_allclose(sum_of_products(values, matrix), values @ matrix, atol=1e-14)


def test_pairs_grow_as_cells_times_levels():
    for level in range(3, 11):
        count = NeighbourBlocks(level, 0, True).rows.size
        assert count < 5 * level * (1 << level)


def test_the_products_of_a_device_give_the_same(monkeypatch, rng):
    blocks = random_blocks(rng, 4, 3, True)
    expected = NeighbourBlocks(4, 2, True)(blocks)
    monkeypatch.setattr(neighbour_blocks, "product", sum_of_products)
    found = NeighbourBlocks(4, 2, True)(blocks)
    np.testing.assert_allclose(found, expected, rtol=0.0, atol=1e-13)
