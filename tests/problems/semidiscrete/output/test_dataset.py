"""States as datasets of xarray."""

import sys

import numpy as np
import pytest

from batchkron.errors import BackendUnavailableError
from batchkron.problems import PDE, Axis, Separable, div, make

X, V, W = Axis("x", -1, 1), Axis("v", 0, 5), Axis("w", 2, 3)


@pytest.fixture(scope="module")
def problem():
    initial = Separable(x=lambda x: 2.0 + x, v=lambda v: 7.0 - v, w=lambda w: w)
    pde = PDE(
        [X, V, W],
        div(X, 0.0),
        boundary="neumann",
        initial=initial,
        name="still",
        units={"x": "m", "t": "s", "f": "K", "v": "m/s"},
    )
    return pde.discretize((2, 3, 1), 1, "full")


def test_a_state_lies_on_the_midpoints_of_equal_parts(problem):
    data = problem.to_xarray(problem.initial, 0.5, points={"x": 4, V: 3})
    assert dict(data.sizes) == {"x": 4, "v": 3, "w": 4}
    assert data["f"].dims == ("x", "v", "w")
    np.testing.assert_allclose(data["x"], [-0.75, -0.25, 0.25, 0.75])
    expected = (2.0 + data["x"]) * (7.0 - data["v"]) * data["w"]
    np.testing.assert_allclose(data["f"], expected, rtol=1e-12)
    assert data["f"].attrs == {"long_name": "f", "units": "K"}
    assert data["x"].attrs == {"long_name": "x", "units": "m"}
    assert data["w"].attrs == {"long_name": "w"}
    assert data["t"].attrs == {"long_name": "time", "units": "s"}
    assert (float(data["t"]), data["t"].dims) == (0.5, ())
    assert data.attrs == {"title": "still", "degree": 1, "grid": "full"}


def test_axes_are_left_out(problem):
    data = problem.to_xarray(problem.initial, points=5, slice={"w": 2.5}, marginal="x")
    assert list(data.sizes) == ["x"]
    np.testing.assert_allclose(data["f"], (2.0 + data["x"]) * 22.5 * 2.5, rtol=1e-12)
    assert data["f"].attrs == {"long_name": "∫ f dv at w = 2.5", "units": "K m/s"}
    assert float(data["w"]) == 2.5
    assert "t" not in data.coords


def test_the_exact_solution_comes_with_it():
    problem = make("continuity-2d", 4, 2)
    u = 2.0 * problem.exact_coefficients(0.3)
    data = problem.to_xarray(u, 0.3, points=16)
    np.testing.assert_allclose(data["f"], 2.0 * data["exact"], atol=1e-13)
    assert data["exact"].attrs["long_name"] == "exact f, projected on the grid"
    assert "exact" not in problem.to_xarray(u, points=4)


def test_default_points_follow_the_cells_up_to_a_million():
    problem = make("continuity-2d", 4, 2)
    assert dict(problem.to_xarray(problem.initial).sizes) == {"x": 48, "y": 48}
    problem = make("continuity-6d", 2, 3)
    sizes = problem.to_xarray(problem.initial).sizes
    assert set(sizes.values()) == {10}


def test_it_can_be_written_and_read(problem, tmp_path):
    import xarray

    data = problem.to_xarray(problem.initial, 0.5, points=4)
    again = xarray.Dataset.from_dict(data.to_dict())
    assert again.identical(data)


@pytest.mark.parametrize(
    ("points", "error", "words"),
    [
        (0, ValueError, "points is 0; expected at least one"),
        (2.5, TypeError, "points is float"),
        ({"q": 3}, ValueError, "points names the axis 'q'"),
        (1000, ValueError, "1000 × 1000 × 1000 values, more than 67108864"),
    ],
)
def test_points_that_cannot_be(problem, points, error, words):
    with pytest.raises(error, match=words):
        problem.to_xarray(problem.initial, points=points)


def test_without_xarray_it_says_what_to_install(problem, monkeypatch):
    monkeypatch.setitem(sys.modules, "xarray", None)
    with pytest.raises(BackendUnavailableError, match=r"to_xarray needs .*'batchkron\[xarray\]'"):
        problem.to_xarray(problem.initial)
