"""The pictures of states: what is drawn is what was computed, the right way round."""

import io
import sys

import numpy as np
import pytest
from matplotlib.figure import Figure

from batchkron.errors import BackendUnavailableError
from batchkron.problems import PDE, Axis, Separable, make, mass

X, Y, Z = Axis("x", -1, 1), Axis("y", 0, 5), Axis("z", 2, 3)
SHAPES = {"x": lambda x: 2.0 + x, "y": lambda y: 7.0 - y, "z": lambda z: z}


def still(axes, level=3, **shapes):
    chosen = {axis.name: shapes.get(axis.name, SHAPES[axis.name]) for axis in axes}
    pde = PDE(
        axes,
        [mass(axes[0], 1.0)],
        boundary="periodic",
        initial=Separable(**chosen),
        name="still",
        units={"x": "m", "t": "s", "f": "K"},
    )
    return pde.discretize(level=level, degree=1)


def pixels(figure):
    content = io.BytesIO()
    figure.savefig(content, format="png")
    assert content.getvalue().startswith(b"\x89PNG")


def array_of(axes):
    (image,) = axes.get_images()
    return np.asarray(image.get_array())


def test_a_state_of_one_axis_is_a_curve():
    problem = still([X])
    figure = problem.plot(problem.initial, 0.25)
    (axes,) = figure.axes
    (line,) = axes.get_lines()
    points, values = line.get_data()
    np.testing.assert_allclose(values, 2.0 + points, rtol=1e-12)
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("x [m]", "f [K]")
    assert axes.get_xlim() == (-1.0, 1.0)
    assert figure.get_suptitle() == "still,  t = 0.25 s"
    pixels(figure)


def test_a_state_of_two_axes_is_an_image_with_a_colour_bar():
    problem = still([X, Y])
    figure = problem.plot(problem.initial)
    axes, bar = figure.axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("x [m]", "y")
    assert axes.get_title() == "f [K]"
    (image,) = axes.get_images()
    assert image.get_extent() == [-1.0, 1.0, 0.0, 5.0]
    values = array_of(axes)
    rows, columns = values.shape
    x = -1.0 + 2.0 * (np.arange(columns) + 0.5) / columns
    y = 5.0 * (np.arange(rows) + 0.5) / rows
    np.testing.assert_allclose(values, (2.0 + x) * (7.0 - y[:, None]), rtol=1e-12)
    assert image.get_clim() == (values.min(), values.max())
    assert bar.get_ylim() == image.get_clim()
    assert image.get_cmap().name == "viridis"
    assert figure.get_suptitle() == "still"
    pixels(figure)


@pytest.mark.parametrize(("name", "level"), [("continuity-1d", 3), ("continuity-2d", 4)])
def test_the_exact_solution_and_the_error_come_with_it(name, level):
    problem = make(name, level, 2)
    u = problem.exact_coefficients(0.3) * 1.1
    figure = problem.plot(u, 0.3)
    error = f"{problem.l2_error(u, 0.3):.3g}"
    assert figure.get_suptitle() == f"{name},  t = 0.3,  L2 error {error}"
    if level == 3:
        upper, lower = figure.axes
        exact, computed = (line.get_data() for line in upper.get_lines())
        np.testing.assert_array_equal(computed[1], problem.evaluate(u, computed[0]))
        np.testing.assert_allclose(exact[1] * 1.1, computed[1], atol=1e-13)
        difference = lower.get_lines()[0].get_ydata()
        np.testing.assert_allclose(difference, computed[1] - exact[1], atol=1e-13)
        assert lower.get_ylabel() == "error of f"
        assert [text.get_text() for text in upper.get_legend().get_texts()] == [
            "exact, projected",
            "computed",
        ]
    else:
        computed, exact, error = figure.axes[:3]
        np.testing.assert_allclose(array_of(exact) * 1.1, array_of(computed), atol=1e-13)
        np.testing.assert_allclose(
            array_of(error), array_of(computed) - array_of(exact), atol=1e-13
        )
        limits = [axes.get_images()[0].get_clim() for axes in (computed, exact, error)]
        assert limits[0] == limits[1]
        assert limits[2][0] == -limits[2][1] == -np.abs(array_of(error)).max()
        assert error.get_images()[0].get_cmap().name == "RdBu_r"
    pixels(figure)


def test_without_a_time_the_exact_solution_is_not_shown():
    problem = make("continuity-2d", 3, 1)
    assert len(problem.plot(problem.initial).axes) == 2
    with pytest.raises(ValueError, match="show is 'exact', and the exact solution is not known"):
        problem.plot(problem.initial, show="exact")


def test_colours_of_both_signs_have_zero_in_the_middle():
    problem = still([X, Y], x=lambda x: x - 0.5)
    image = problem.plot(problem.initial).axes[0].get_images()[0]
    low, high = image.get_clim()
    assert low == -high == -np.abs(image.get_array()).max()
    assert image.get_cmap().name == "RdBu_r"
    slight = still([X, Y], x=lambda x: x + 0.97)  # an undershoot does not take half of the colours
    image = slight.plot(slight.initial).axes[0].get_images()[0]
    assert image.get_clim() == (image.get_array().min(), image.get_array().max())
    zero = still([X, Y], x=lambda x: 0.0 * x)
    pixels(zero.plot(zero.initial))


def test_three_axes_are_cut():
    problem = still([X, Y, Z])
    u = problem.initial
    axes = problem.plot(u, slice={"y": 1.0}).axes[0]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("x [m]", "z")
    assert axes.get_title() == "f [K] at y = 1"
    corner = problem.evaluate(u, [[0.9999, 1.0, 2.0001]])[0]
    assert array_of(axes)[0, -1] == pytest.approx(corner, rel=1e-2)
    assert problem.plot(u).axes[0].get_title() == "f [K] at z = 2.5"
    axes = problem.plot(u, marginal=[Y]).axes[0]
    points, values = axes.get_lines()[0].get_data()
    np.testing.assert_allclose(values, (7.0 - points) * 4.0 * 2.5, rtol=1e-12)
    assert axes.get_ylabel() == "∫ f dx dz"
    (axes,) = problem.plot(u, slice={Y: 1.0, X: 0.0}).axes
    assert axes.get_title() == "at x = 0, y = 1"
    four = make("continuity-6d", 1, 1)
    kept = [axis.name for axis in four.axes[:3]]
    title = four.plot(four.initial, marginal=kept).axes[0].get_title()
    assert title.startswith("∫ f d")
    assert " at " in title


def test_panels_go_into_axes_that_are_given():
    problem = make("continuity-2d", 3, 1)
    u = problem.exact_coefficients(0.2)
    figure = Figure()
    panels = figure.subplots(1, 3)
    for panel, shown in zip(panels, (None, "exact", "error"), strict=True):
        assert problem.plot(2.0 * u, 0.2, ax=panel, show=shown) is panel
    solution, exact, error = map(array_of, panels)
    np.testing.assert_allclose(solution, 2.0 * exact, atol=1e-13)
    np.testing.assert_allclose(solution - exact, error, atol=1e-13)
    figure = problem.plot(u, 0.2, show="error")
    assert [axes.get_title() for axes in figure.axes[:1]] == ["error of f"]


def test_limits_can_be_given():
    problem = still([X, Y])
    image = problem.plot(problem.initial, limits=(0.0, 30.0)).axes[0].get_images()[0]
    assert image.get_clim() == (0.0, 30.0)
    line = still([X])
    assert line.plot(line.initial, limits=(0.0, 4.0)).axes[0].get_ylim() == (0.0, 4.0)
    exact = make("continuity-2d", 3, 1)
    panels = exact.plot(exact.exact_coefficients(0.2), 0.2, limits=(-2.0, 2.0)).axes[:3]
    limits = [axes.get_images()[0].get_clim() for axes in panels]
    assert limits[:2] == [(-2.0, 2.0)] * 2
    assert limits[2] != (-2.0, 2.0)


def test_dollars_are_no_mathematics():
    problem = still([X, Y])
    object.__setattr__(problem, "name", "a $\\frac b")
    pixels(problem.plot(problem.initial))


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"show": "all"}, ValueError, "show is 'all'; expected one of 'solution', 'exact'"),
        ({"limits": (1.0, 1.0)}, ValueError, "expected two ascending numbers"),
        ({"t": "now"}, TypeError, "t must be a real number"),
        ({"slice": {"q": 0.0}}, ValueError, "slice names the axis 'q'"),
        ({"u": np.zeros(3)}, ValueError, r"u has shape \(3,\)"),
        ({"u": [0.0]}, TypeError, "expected a float64 array"),
    ],
)
def test_what_cannot_be_drawn_is_refused(options, error, words):
    problem = still([X, Y])
    with pytest.raises(error, match=words):
        problem.plot(**{"u": problem.initial, **options})


def test_without_matplotlib_it_says_what_to_install(monkeypatch):
    problem = still([X, Y])
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(BackendUnavailableError, match=r"plot needs .*'batchkron\[plot\]'"):
        problem.plot(problem.initial)


def test_nothing_opens_a_window():
    """Figures are made without pyplot, which would keep them and ask for a display."""
    import subprocess

    script = (
        "import sys\n"
        "from batchkron.problems import make\n"
        "problem = make('continuity-2d', 2, 1)\n"
        "problem.plot(problem.initial, 0.0).savefig(sys.argv[1])\n"
        "sys.exit('matplotlib.pyplot' in sys.modules)\n"
    )
    run = subprocess.run([sys.executable, "-c", script, "/dev/null"], capture_output=True)
    assert run.returncode == 0, run.stderr
