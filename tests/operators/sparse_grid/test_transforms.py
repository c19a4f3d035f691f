"""The two-scale filters that an operator on a sparse grid knows for preconditioners."""

import pickle

import numpy as np
import pytest

import batchkron as bk
from batchkron.operators.linear_system import LinearSystem
from batchkron.problems import ModeOperator, SparseGrid, gallery

HAAR = np.sqrt(0.5) * np.array([[[1.0]], [[1.0]], [[-1.0]], [[1.0]]])
DOUBLE = ModeOperator.from_dense(2 * np.eye(4), n=1)


def operator(transforms):
    grid = SparseGrid.sparse([2, 2])
    return bk.SparseGridOperator(grid, [(DOUBLE, None)], 1, transforms=transforms)


def test_relatives_and_sums_keep_them():
    op = operator([HAAR, None])
    finer = op.on_grid(SparseGrid.sparse([2, 1]))
    relatives = [op.T, op.astype(np.complex64), finer, pickle.loads(pickle.dumps(op))]
    relatives += [op + operator(None), operator(None) - 2 * op, bk.Identity(op.shape[0]) - op]
    for other in relatives:
        first, second = other.kronecker_terms().transforms
        np.testing.assert_array_equal(first, HAAR)
        assert second is None
    assert operator(None).kronecker_terms().transforms is None


def test_problems_fill_them():
    problem = gallery.make("diffusion-2d", level=2, degree=1)
    for A in (problem.operator, problem.with_form("batch").operator):
        for own in A.kronecker_terms().transforms:
            whole = own.reshape(2, 2, 2, 2).swapaxes(1, 2).reshape(4, 4)
            np.testing.assert_allclose(whole @ whole.T, np.eye(4), atol=1e-14)


def test_checkpoints_do_not_depend_on_them():
    hashes = {LinearSystem(operator(t), np.ones(8)).content_hash for t in (None, [HAAR, HAAR])}
    assert len(hashes) == 1


@pytest.mark.parametrize(
    ("transforms", "text"),
    [
        ([HAAR], "transforms has 1 entries; expected 2"),
        ([HAAR, HAAR[:3]], r"transforms\[1\] has shape \(3, 1, 1\); expected \(4, 1, 1\)"),
        ([HAAR, 2 * HAAR], r"transforms\[1\] is not orthogonal"),
    ],
)
def test_wrong_ones_are_refused(transforms, text):
    with pytest.raises(ValueError, match=text):
        operator(transforms)
