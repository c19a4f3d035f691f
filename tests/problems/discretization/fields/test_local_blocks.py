"""Hierarchical blocks of block-diagonal matrices, against the dense change of basis."""

import numpy as np
import pytest

from batchkron.problems import ModeOperator
from batchkron.problems.discretization.basis.multiwavelets import hierarchical_transform
from batchkron.problems.discretization.fields.local_blocks import LocalBlocks
from batchkron.problems.discretization.matrices.mode_operator import connected


@pytest.mark.parametrize("level", [0, 1, 2, 3, 5])
@pytest.mark.parametrize("degree", [0, 1, 2, 4])
@pytest.mark.parametrize("symmetric", [False, True])
def test_blocks_are_those_of_the_dense_matrix(rng, level, degree, symmetric):
    cells, n = 2**level, degree + 1
    blocks = rng.uniform(0.5, 1.5, (cells, n, n))
    if symmetric:
        blocks = blocks + blocks.transpose(0, 2, 1)
    nodal = np.zeros((cells, n, cells, n))
    nodal[np.arange(cells), :, np.arange(cells), :] = blocks
    W = hierarchical_transform(level, degree)
    expected = W @ nodal.reshape(cells * n, cells * n) @ W.T
    local = LocalBlocks(level, degree, symmetric=symmetric)
    found = ModeOperator(cells, n, local.rows, local.columns, local(blocks))
    np.testing.assert_allclose(found.to_dense(), expected, atol=1e-13 * (level + 1))


@pytest.mark.parametrize("level", [0, 1, 4])
def test_the_pairs_are_those_whose_supports_overlap(level):
    local = LocalBlocks(level, 1)
    table = np.zeros((2**level, 2**level), dtype=bool)
    table[local.rows, local.columns] = True
    np.testing.assert_array_equal(table, connected(level, "volume"))
    keys = local.rows * 2**level + local.columns
    assert (np.diff(keys) > 0).all()


@pytest.mark.parametrize("kind", ["symmetric", "any", "by block"])
@pytest.mark.parametrize("level", [0, 1, 4])
def test_one_of_several_matrices_is_scaled(rng, level, kind):
    parts, n = 3, 2
    options = {"symmetric": kind != "any", "by_block": kind == "by block"}
    local = LocalBlocks(level, n - 1, parts=parts, **options)
    vector = local.vector()
    vector.whole[:] = before = rng.uniform(0.5, 1.5, local.size)
    local.scale(1, -2.0, vector)
    for part, factor in enumerate((1.0, -2.0, 1.0)):
        places = local.places(part)
        np.testing.assert_array_equal(vector.whole[places], factor * before[places])


def test_the_given_blocks_are_not_changed(rng):
    blocks = rng.uniform(0.5, 1.5, (8, 3, 3))
    kept = blocks.copy()
    LocalBlocks(3, 2)(blocks)
    np.testing.assert_array_equal(blocks, kept)
