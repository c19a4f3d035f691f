"""Blocks of the parts of fields, against nodal blocks that the dense change of basis transforms."""

import numpy as np
import pytest

from batchkron.backends import backend
from batchkron.backends.protocol import Backend
from batchkron.problems import Axis, ModeOperator, Moment
from batchkron.problems.discretization.basis.multiwavelets import hierarchical_transform
from batchkron.problems.discretization.fields import part_blocks
from batchkron.problems.discretization.fields.modes import FieldMode
from batchkron.problems.discretization.fields.part_blocks import PartBlocks
from batchkron.problems.discretization.fields.points import CellPoints

X, V = Axis("x", -1.0, 2.0), Axis("v", -6.0, 6.0)


def dense(blocks):
    cells, n, _ = blocks.shape
    nodal = np.zeros((cells, n, cells, n))
    nodal[np.arange(cells), :, np.arange(cells), :] = blocks
    W = hierarchical_transform(cells.bit_length() - 1, n - 1)
    return W @ nodal.reshape(cells * n, cells * n) @ W.T


@pytest.mark.parametrize("way", ["compiled", "levels", "edges"])
@pytest.mark.parametrize("curved", [False, True])
@pytest.mark.parametrize("degree", [0, 1, 2, 5])
@pytest.mark.parametrize("level", [0, 1, 4, 6])
def test_parts_of_two_fields(rng, monkeypatch, way, curved, degree, level):
    points, n = CellPoints(X, level, degree), degree + 1
    first, second = Moment(V), Moment({V: 1})
    values = rng.uniform(-1.0, 1.0, (2, 2**level, points.count))
    volume = rng.uniform(0.5, 1.5, (2**level, points.count)) if curved else None
    mass = points.mass_blocks(volume) if curved else None
    modes = [
        FieldMode(X, level, degree, field, part, volume)
        for field, part in [(first, 1), (second, 0), (first, -1)]
    ]
    device = "cpu"
    if way == "levels":  # in NumPy, as where the backend has nothing of its own
        monkeypatch.setattr(type(backend()), "fast_path", Backend.fast_path)
    if way == "edges":
        device = "cuda"
        monkeypatch.setattr(part_blocks.SegmentedModeMultiply, "to", lambda self, _: self)
        monkeypatch.setattr(part_blocks, "on_device", lambda array, _: np.asarray(array))
    blocks = PartBlocks(modes, [first, second], mass, device)
    vector = blocks.local.vector()
    vector.whole[:] = np.nan
    blocks(list(values), vector)
    nodes, weights = np.polynomial.legendre.leggauss(points.count)
    shapes = np.polynomial.legendre.legvander(nodes, degree)
    shapes = shapes * np.sqrt((2 * np.arange(n) + 1) / X.cell_width(level))
    given = [np.maximum(values[0], 0.0), values[1], np.maximum(-values[0], 0.0)]
    for part, own in enumerate(given):
        if curved:
            own = own * volume
        measure = weights * X.cell_width(level) / 2
        expected = np.einsum("cq,q,qi,qj->cij", own, measure, shapes, shapes)
        if curved:
            expected = np.linalg.solve(mass, expected)
        found = vector.whole[blocks.local.places(part)]
        operator = ModeOperator(2**level, n, blocks.local.rows, blocks.local.columns, found)
        np.testing.assert_allclose(operator.to_dense(), dense(expected), atol=1e-13 * (level + 1))


def test_many_levels_are_several_sums():
    """Cells with more finest cells than a launch takes are sums of S of cells between."""
    found = part_blocks.heap_sums(X, 9, 0, 3)
    assert [first for first, _ in found] == [32, 2, 0]
    assert [sums.output_shape[0] for _, sums in found] == [480 * 3, 30 * 3, 2 * 3]
    edges = [np.diff(sums._spec.starts).max() for _, sums in found]
    assert edges == [16, 16, 2]


@pytest.mark.parametrize(("level", "degree"), [(9, 0), (9, 2), (10, 1)])
def test_sums_of_sums_are_the_blocks_of_the_host(rng, monkeypatch, level, degree):
    field = Moment(V)
    modes = [FieldMode(X, level, degree, field, part) for part in (1, -1)]
    host = PartBlocks(modes, [field], None)
    monkeypatch.setattr(part_blocks.SegmentedModeMultiply, "to", lambda self, _: self)
    monkeypatch.setattr(part_blocks, "on_device", lambda array, _: np.asarray(array))
    device = PartBlocks(modes, [field], None, "cuda")
    values = [rng.uniform(-1.0, 1.0, (2**level, CellPoints(X, level, degree).count))]
    vectors = [blocks.local.vector() for blocks in (host, device)]
    vectors[1].whole[:] = np.nan
    for blocks, vector in zip((host, device), vectors, strict=True):
        blocks(values, vector)
    for part in range(2):
        expected, found = (
            vector.whole[blocks.local.places(part)]
            for blocks, vector in zip((host, device), vectors, strict=True)
        )
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-13 * (level + 1))


def test_what_is_not_a_number_spreads(rng):
    points = CellPoints(X, 2, 1)
    field = Moment(V)
    blocks = PartBlocks([FieldMode(X, 2, 1, field, part) for part in (1, -1)], [field], None)
    values = rng.uniform(0.5, 1.5, (4, points.count))
    values[2, 3] = np.nan
    vector = blocks.local.vector()
    blocks([values], vector)
    for part in range(2):
        found = vector.whole[blocks.local.places(part)]
        assert np.isnan(found[blocks.local.rows == 0]).any()
        left = (blocks.local.rows == 2) & (blocks.local.columns == 2)
        assert np.isfinite(found[left]).all()  # the cell over the other half
