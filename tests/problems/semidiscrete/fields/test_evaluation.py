"""Values of fields at points, from a state."""

import numpy as np
import pytest

from batchkron.problems import Axis, Moment, SparseGrid
from batchkron.problems.semidiscrete.fields.evaluation import FieldEvaluation, resolved_level
from batchkron.problems.statement.fields import EndMoment, Resolved

x, v, w = Axis("x", -1, 1), Axis("v", -2, 3), Axis("w", -1, 2)
MIXED = SparseGrid.custom([[i, j] for i in range(16) for j in range(4)], [4, 2])


@pytest.mark.parametrize(
    ("axes", "grid", "is_whole"),
    [
        ((x, v), SparseGrid.sparse([5, 5]), False),
        ((v, x), SparseGrid.sparse([4, 6]), False),
        ((x, v, w), SparseGrid.sparse([4, 4, 4]), False),
        ((x, v), MIXED, True),
        ((x, v), SparseGrid.sparse([0, 3]), True),
    ],
)
def test_resolved_moments_are_projections(axes, grid, is_whole, rng):
    place = axes.index(x)
    own = tuple(axis for axis in axes if axis is not x)
    numbers = [k for k in range(len(axes)) if k != place]
    level = resolved_level(grid, place, numbers)
    assert (level == grid.levels[place]) == is_whole
    zeros = dict.fromkeys(own, 0)
    plain = [
        Moment(zeros),
        Moment({**zeros, v: 2}) + 3.0 * Moment({**zeros, v: 1}),
        EndMoment(v, {**zeros, v: 1}),
    ]
    fields = [field for moment in plain for field in (Resolved(moment, own), moment)]
    # a quotient, which is no sum of moments, and one field alone
    fields.append(Resolved(plain[0] / (plain[0] * plain[0] + 1.0), own))
    n, masses = 3, [None] * len(axes)
    u = rng.standard_normal(grid.num_cells * n ** len(axes))
    evaluate = FieldEvaluation(fields, x, axes, grid, n - 1, masses)
    found = evaluate(0.0, u)
    for part, whole in zip(found[:6:2], found[1:6:2], strict=True):
        expected = evaluate.points.projected(whole, level)
        np.testing.assert_allclose(part, expected, atol=1e-12 * np.abs(whole).max())
    alone = FieldEvaluation(fields[:1], x, axes, grid, n - 1, masses)(0.0, u)
    np.testing.assert_allclose(alone[0], found[0], atol=1e-12 * np.abs(found[1]).max())


def test_another_grid_may_resolve_other_levels(rng):
    full, sparse = SparseGrid.full([4, 4]), SparseGrid.sparse([4, 4])
    fields = [Resolved(Moment(v), (v,)), Moment({v: 1})]
    first = FieldEvaluation(fields, x, (x, v), full, 1, [None, None])
    u = rng.standard_normal(sparse.num_cells * 4)
    moved = first.on_grid(sparse)(0.0, u)
    anew = FieldEvaluation(fields, x, (x, v), sparse, 1, [None, None])(0.0, u)
    for own, other in zip(moved, anew, strict=True):
        np.testing.assert_array_equal(own, other)
    more = rng.standard_normal(full.num_cells * 4)
    density = FieldEvaluation([Moment(v)], x, (x, v), full, 1, [None, None])(0.0, more)
    np.testing.assert_allclose(first(0.0, more)[0], density[0], atol=1e-12)
