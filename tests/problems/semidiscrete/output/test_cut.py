"""Which axes of a state are fixed, kept and integrated over."""

import numpy as np
import pytest

from batchkron.problems import PDE, Axis, Separable, make, mass
from batchkron.problems.semidiscrete.output.cut import Cut, make_cut
from batchkron.problems.semidiscrete.output.sampling import choose_plane, inside_cells, sample

X, Y, Z = Axis("x", -1, 1), Axis("y", 0, 5), Axis("z", 2, 3)
SHAPES = {"x": lambda x: 2.0 + x, "y": lambda y: 7.0 - y, "z": lambda z: z}


def still(axes, level=3, grid="sparse", **shapes):
    """A problem whose state is f = Π shape, linear in each coordinate unless said otherwise."""
    chosen = {axis.name: shapes.get(axis.name, SHAPES[axis.name]) for axis in axes}
    initial = Separable(**chosen)
    pde = PDE(axes, [mass(axes[0], 1.0)], boundary="periodic", initial=initial, name="still")
    return pde.discretize(level=level, degree=1, grid=grid)


def test_cuts_are_slices_and_marginals():
    problem = still([X, Y, Z])
    u = problem.initial
    cut = make_cut(problem.axes, {"z": 2.5}, X)
    assert cut == Cut(((Z, 2.5),), (Y,))
    points = np.array([-0.7, 0.3])
    found = cut.of(problem.output, u)
    assert found.axes == (X,)
    area = 7.0 * 5.0 - 12.5  # ∫ (7 - y) dy
    np.testing.assert_allclose(found.evaluate(points), (2.0 + points) * area * 2.5, rtol=1e-12)
    sliced = make_cut(problem.axes, {Z: 2.5}, None).of(problem.output, u)
    np.testing.assert_array_equal(sliced.coefficients, problem.slice(u, {Z: 2.5}).coefficients)
    kept = make_cut(problem.axes, None, ["x", Z]).of(problem.output, u)
    np.testing.assert_array_equal(kept.coefficients, problem.marginal(u, [X, Z]).coefficients)
    whole = make_cut(problem.axes, None, None).of(problem.output, u)
    assert whole.axes == problem.axes
    assert whole.coefficients is u


def test_what_cuts_are_called():
    cut = make_cut([X, Y, Z], {"z": 2.5}, "x")
    assert (cut.quantity, cut.where) == ("∫ f dy", " at z = 2.5")
    assert cut.unit({"f": "K", "y": "m"}) == "K m"
    assert cut.unit({"f": "K"}) is None
    assert make_cut([X, Y], None, None).quantity == "f"
    assert make_cut([X, Y], None, None).where == ""
    assert make_cut([X], None, None).unit({"f": "K"}) == "K"


@pytest.mark.parametrize(
    ("places", "kept", "error", "words"),
    [
        ([1.0], None, TypeError, "slice is a list; expected a mapping"),
        ({"q": 1.0}, None, ValueError, "slice names the axis 'q'; the problem has x, y, z"),
        ({1: 1.0}, None, TypeError, "slice names 1; expected an axis or its name"),
        ({"x": 2.0}, None, ValueError, r"slice\['x'\] is 2.0; expected a place in \[-1, 1\]"),
        ({"x": np.nan}, None, ValueError, r"slice\['x'\] must be finite"),
        ({"x": 0.0}, "x", ValueError, "'x' is fixed by slice and kept by marginal"),
        ({"x": 0.0, "y": 1.0, "z": 2.0}, None, ValueError, "no axis is left"),
        (None, [], ValueError, "no axis is left"),
        (None, ["w"], ValueError, "marginal names the axis 'w'"),
    ],
)
def test_cuts_that_cannot_be(places, kept, error, words):
    with pytest.raises(error, match=words):
        make_cut([X, Y, Z], places, kept)


def test_lines_show_the_state_inside_the_cells():
    problem = still([X])
    (points,), values = sample(Cut().of(problem.output, problem.initial))
    assert len(points) % 8 == 0
    assert np.all(np.diff(points) > 0)
    assert not np.isin(points, np.linspace(-1, 1, 9)).any()
    np.testing.assert_allclose(values, 2.0 + points, rtol=1e-12)


def test_planes_have_one_dimension_per_axis():
    problem = still([X, Y], level=(3, 2))
    (x, y), values = sample(Cut().of(problem.output, problem.initial))
    assert values.shape == (len(x), len(y))
    np.testing.assert_allclose(values, (2.0 + x[:, None]) * (7.0 - y), rtol=1e-12)


def test_points_are_inside_of_cells_however_many_these_are():
    assert len(inside_cells(X, 3, 2000)) == 2000
    assert len(inside_cells(X, 12, 2000)) == 2000
    assert len(inside_cells(X, 8, 384)) == 256


def test_planes_go_through_the_middle():
    problem = still([X, Y, Z])
    assert choose_plane(problem, problem.initial, [Z]) == Cut(((Z, 2.5),))
    assert choose_plane(problem, problem.initial, []) == Cut()


def test_where_the_middle_is_empty_the_plane_goes_elsewhere():
    problem = still([X, Y, Z], z=lambda z: z - 2.5)
    ((_, at),) = choose_plane(problem, problem.initial, [Z]).places
    assert 2.0 <= at <= 3.0
    assert abs(at - 2.5) > 0.4
    problem = still([X, Y, Z], z=lambda z: 0.0 * z)
    assert choose_plane(problem, problem.initial, [Z]).places == ((Z, 2.5),)


def test_cuts_of_volume_elements_have_them_in_their_integrals():
    problem = make("runaway-collisions", 3, 2)
    first = problem.axes[0]
    found = make_cut(problem.axes, None, first).of(problem.output, problem.initial)
    assert found.integral() == pytest.approx(problem.integral(problem.initial), rel=1e-12)
