"""Values and antiderivatives at points: both ways to compute them, against the definitions."""

import numpy as np
import pytest

from batchkron.problems import Axis
from batchkron.problems.discretization.fields import point_map
from batchkron.problems.discretization.fields.point_map import PointMap, grouped_cells
from batchkron.problems.discretization.fields.points import CellPoints

X = Axis("x", -1.0, 2.0)
CHANNELS = [
    ("value", (1.0, 0.0)),
    ("neutral", (2.0, -0.5)),
    ("integral", (0.0, 0.7)),
    ("neutral", (0.0, -0.5)),
]


def expected(points, nodal):
    """nodal: (functions, cells, q)"""
    found = []
    for kind, weights in CHANNELS:
        own = sum(w * g for w, g in zip(weights, nodal, strict=True))
        if kind == "neutral":
            own = own - points.integral(own) / X.length
        if kind != "value":
            own = points.antiderivative(own)
            own = own - points.integral(own) / X.length
        found.append(own)
    return np.stack(found)


@pytest.mark.parametrize("way", ["groups", "edges"])
@pytest.mark.parametrize("degree", [0, 1, 2, 4])
@pytest.mark.parametrize("level", [0, 1, 2, 4, 5, 7, 9])
def test_channels(rng, monkeypatch, way, degree, level):
    n, points = degree + 1, CellPoints(X, level, degree)
    given = rng.uniform(0.5, 1.5, (2, n << level))
    made = PointMap(X, level, degree, CHANNELS)
    order = PointMap.order(level)
    if way == "edges":
        made = object.__new__(PointMap)
        monkeypatch.setattr(point_map.SegmentedModeMultiply, "to", lambda self, _: self)
        monkeypatch.setattr(point_map, "on_device", lambda array, _: array)
        made.__init__(X, level, degree, CHANNELS, "cuda")
        order = PointMap.order(level, "cuda")
        np.testing.assert_array_equal(order, np.arange(1 << level))
    np.testing.assert_array_equal(np.sort(order), np.arange(1 << level))
    in_order = given.reshape(2, -1, n)[:, order].reshape(2, -1)
    nodal = points.values(given)
    scale = np.abs(nodal).max() * n * (level + 1)
    bound = 2e-15 * scale * X.length
    np.testing.assert_allclose(made(in_order), expected(points, nodal), atol=bound)


def test_groups_hold_all_cells_once():
    assert grouped_cells([1, 2]).tolist() == [0, 1, 2, 4, 5, 3, 6, 7]
    assert grouped_cells([0]).tolist() == [0]
