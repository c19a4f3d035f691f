"""The pictures: what is drawn is what was computed, the right way round."""

import io

import numpy as np
import pytest

from batchkron.cli.output.sampling import plane_cells
from batchkron.cli.running import solution_plot as plotting
from batchkron.cli.running.files import RunFiles
from batchkron.cli.running.report import RunReport
from batchkron.problems import PDE, Axis, Separable, SparseGrid, make, mass
from batchkron.problems.semidiscrete.output.cut import make_cut
from batchkron.solvers import Run

X, Y, Z = Axis("x", -1, 1), Axis("y", 0, 5), Axis("z", 2, 3)
SHAPES = {"x": lambda x: 2.0 + x, "y": lambda y: 7.0 - y, "z": lambda z: z}


def still(axes, level=3, grid="sparse", **shapes):
    """A problem whose state is f = Π shape, linear in each coordinate unless said otherwise."""
    chosen = {axis.name: shapes.get(axis.name, SHAPES[axis.name]) for axis in axes}
    pde = PDE(
        axes,
        [mass(axes[0], 1.0)],
        boundary="periodic",
        initial=Separable(**chosen),
        name="still",
        units={"x": "m", "t": "s", "f": "K"},
    )
    return pde.discretize(level=level, degree=1, grid=grid)


def report_of(problem, until=0.0):
    run = Run(problem, until=until)
    result = run.to_end()
    return RunReport(
        run,
        result,
        result.file_content(),
        product_seconds=0.0,
        written=RunFiles(None, None, None, None),
        checkpointed=False,
    )


@pytest.mark.parametrize("grid", ["sparse", "full"])
def test_cells_are_each_seen_once_with_their_norm(grid, rng):
    problem = still([X, Y], level=3, grid=grid)
    u = rng.standard_normal(problem.unknowns)
    cells = plane_cells(problem, u)
    blocks = u.reshape(-1, 4)
    assert len(cells[0]) == problem.grid.num_cells
    for levels, position, norm in zip(*cells, strict=True):
        index = np.where(levels > 0, 1 << np.maximum(levels - 1, 0), 0) + position
        row = problem.grid.find(index)
        assert norm == pytest.approx(np.linalg.norm(blocks[row]), rel=1e-12)


def test_cells_of_three_axes_are_seen_along_the_third(rng):
    problem = still([X, Y, Z], level=2)
    u = rng.standard_normal(problem.unknowns)
    *_, norms = plane_cells(problem, u)
    assert len(norms) == SparseGrid.sparse([2, 2]).num_cells
    assert np.sum(norms**2) == pytest.approx(np.sum(u**2), rel=1e-12)


def test_a_curve_comes_with_the_exact_one_and_the_difference():
    problem = make("continuity-1d", level=3, degree=2)
    report = report_of(problem, until=0.3)
    figure = plotting.draw(report)
    upper, lower = figure.axes
    exact, computed = upper.get_lines()
    points, values = computed.get_data()
    np.testing.assert_array_equal(values, problem.evaluate(report.result.u, points))
    expected = np.cos(2 * np.pi * points) * np.sin(0.3)
    assert np.abs(exact.get_ydata() - expected).max() < 0.02
    difference = lower.get_lines()[0].get_ydata()
    np.testing.assert_allclose(difference, values - exact.get_ydata(), atol=1e-15)
    title = figure.get_suptitle()
    assert title.startswith("continuity-1d,  t = 0.3,  L2 error ")
    assert f"{report.content.l2_error:.3g} (relative {report.content.relative_error:.3g})" in title


def test_labels_have_units():
    figure = plotting.draw(report_of(still([X])))
    (axes,) = figure.axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("x [m]", "f [K]")
    assert figure.get_suptitle() == "still,  t = 0 s"
    image, cells = plotting.draw(report_of(still([X, Y, Z]))).axes[:2]
    assert (image.get_xlabel(), image.get_ylabel()) == ("x [m]", "y")
    assert image.get_title() == "f [K] at z = 2.5"
    assert (cells.get_xlabel(), cells.get_ylabel()) == ("level in x", "level in y")
    assert cells.get_title() == "38 cells of the sparse grid by level"


def test_an_image_lies_where_the_domain_is():
    problem = still([X, Y])
    (image,) = plotting.draw(report_of(problem)).axes[0].get_images()
    assert image.get_extent() == [-1.0, 1.0, 0.0, 5.0]
    assert image.origin == "lower"
    corner = problem.evaluate(problem.initial, [[-0.999, 4.999]])[0]
    assert image.get_array()[-1, 0] == pytest.approx(corner, rel=1e-2)


def test_an_image_comes_with_the_exact_one_the_error_and_the_cells():
    problem = make("continuity-2d", level=3, degree=2)
    report = report_of(problem, until=0.3)
    figure = plotting.draw(report)
    computed, exact, error, cells = figure.axes[:4]
    titles = [panel.get_title() for panel in (computed, exact, error)]
    assert titles == ["f", "exact f", "error of f"]
    assert cells.get_title().endswith("cells of the sparse grid by level")
    shown = [panel.get_images()[0].get_array() for panel in (computed, exact, error)]
    np.testing.assert_allclose(shown[0] - shown[1], shown[2], atol=1e-14)
    assert np.abs(shown[2]).max() > 0.0


def test_cuts_are_drawn_with_the_cells_of_their_axes():
    problem = still([X, Y, Z], level=(1, 2, 3), grid="full")
    cut = make_cut(problem.axes, {"x": 0.5}, None)
    image, cells = plotting.draw(report_of(problem), cut).axes[:2]
    assert (image.get_xlabel(), image.get_ylabel()) == ("y", "z")
    assert image.get_title() == "f [K] at x = 0.5"
    assert (cells.get_xlabel(), cells.get_ylabel()) == ("level in y", "level in z")
    assert list(cells.get_yticks()) == [0, 1, 2, 3]


def test_a_dollar_sign_is_no_mathematics():
    problem = make("continuity-1d", level=2, degree=1)
    object.__setattr__(problem, "name", "a $\\frac b")
    png_of(report_of(problem))


@pytest.mark.parametrize(
    ("name", "level"),
    [("advection-1d", 2), ("diffusion-2d", (3, 1)), ("continuity-3d", 2), ("continuity-6d", 1)],
)
def test_every_kind_of_picture_is_drawn(cli, folder, name, level):
    from matplotlib.image import imread

    words = ["--level", str(level).strip("()").replace(" ", ""), "--degree", "1"]
    cli("run", name, *words, "--until", "0.01", "--plot", "picture.png", "--quiet")
    pixels = imread(folder / "picture.png")
    assert pixels.shape[0] > 600
    assert pixels.shape[1] > 900
    assert len(np.unique(pixels.reshape(-1, 4), axis=0)) > 20


def test_deep_levels_are_left_out_of_the_picture():
    problem = still([X, Y], level=(11, 1))
    figure = plotting.draw(report_of(problem))
    assert figure.axes[1].get_title().endswith("by level, up to 9")


def png_of(report):
    content = io.BytesIO()
    plotting.draw(report).savefig(content, format="png")
    assert content.getvalue().startswith(b"\x89PNG")
    return content.getvalue()
