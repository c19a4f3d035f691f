"""`batchkron converge`: the table, its JSON and its picture are what the runs say."""

import json
import math
import os
import signal

import numpy as np
import pytest

import batchkron
from batchkron.cli.running.convergence import Convergence, run_level
from batchkron.cli.running.convergence_plot import draw_convergence
from batchkron.cli.running.signals import StopOnSignal
from batchkron.problems import gallery, make
from batchkron.problems.grids.sparse_grid import SparseGrid
from batchkron.solvers import Run, evolve

LEVELS = [2, 3, 5]


def expected_run(name, level, **settings):
    problem = make(name, level, **settings)
    result = evolve(problem, until=problem.stepper.until)
    return problem, result


def test_every_line_is_a_run(cli, folder):
    output = cli("converge", "continuity-1d", "--levels", "2,3,5", "--until", "0.3").stdout
    first, heading, *rows = output.splitlines()
    assert first == ("continuity-1d, sparse grid, degree 2, ssp-rk3 to t = 0.3; expected order 3")
    assert heading.split() == (
        ["level", "unknowns", "steps", "L2", "error", "relative", "order", "projection", "seconds"]
    )
    before = None
    for level, row in zip(LEVELS, rows, strict=True):
        problem, result = expected_run("continuity-1d", level, until=0.3)
        error = problem.l2_error(result.u, 0.3)
        projected = problem.exact_coefficients(0.3)
        order = before and math.log2(before[1] / error) / (level - before[0])
        assert row.split()[:-1] == [
            str(level),
            str(problem.unknowns),
            str(result.steps),
            f"{error:.3e}",
            f"{problem.relative_error(result.u, 0.3):.3e}",
            f"{order:.2f}" if before else "-",
            f"{problem.l2_error(projected, 0.3):.3e}",
        ]
        assert float(row.split()[-1]) > 0.0
        before = level, error
    assert {len(line) for line in (heading, *rows)} == {len(heading)}
    assert not list(folder.iterdir())


def test_json_is_one_object(cli):
    words = [
        "continuity-2d",
        "--levels",
        "2:4",
        "--degree",
        "1",
        "--grid",
        "full",
        "--until",
        "0.1",
    ]
    result = cli("converge", *words, "--json")
    assert result.stdout.count("\n") == 1
    report = json.loads(result.stdout)
    assert (report["problem"], report["degree"], report["grid"]) == ("continuity-2d", 1, "full")
    assert (report["expected_order"], report["status"], report["plot"]) == (2, "completed", None)
    assert (report["stepper"], report["until"]) == ("ssp-rk3", 0.1)
    assert [run["level"] for run in report["levels"]] == [2, 3, 4]
    for run in report["levels"]:
        problem, result = expected_run(
            "continuity-2d", run["level"], degree=1, grid="full", until=0.1
        )
        assert (run["unknowns"], run["cells"]) == (problem.unknowns, problem.grid.num_cells)
        assert (run["steps"], run["dt"]) == (result.steps, result.dt)
        assert run["l2_error"] == problem.l2_error(result.u, 0.1)
        assert run["projection_error"] < run["l2_error"]
        assert run["status"] == "completed"
    assert report["levels"][0]["order"] is None
    errors = [run["l2_error"] for run in report["levels"]]
    assert report["levels"][2]["order"] == pytest.approx(math.log2(errors[1] / errors[2]))


def test_the_expected_order_is_observed(cli):
    for degree in (0, 1, 3):
        words = ["--levels", "3:6", "--degree", degree, "--dt", "0.002", "--until", "0.1"]
        report = json.loads(cli("converge", "continuity-1d", *words, "--json").stdout)
        assert report["levels"][-1]["order"] == pytest.approx(report["expected_order"], abs=0.15)


def test_the_step_and_the_stepper_are_taken(cli):
    words = ["--levels", "1,2", "--dt", "0.05", "--stepper", "backward-euler", "--until", "0.1"]
    report = json.loads(cli("converge", "diffusion-1d", *words, "--json").stdout)
    assert report["stepper"] == "backward-euler"
    assert [(run["steps"], run["dt"]) for run in report["levels"]] == [(2, 0.05), (2, 0.05)]


def test_levels_end_at_the_gallery_s_by_default(cli, monkeypatch):
    made = []

    def remember(name, level, **settings):
        made.append(level)
        return make("continuity-1d", level=len(made), degree=1, until=0.1)

    monkeypatch.setattr(gallery, "make", remember)
    cli("converge", "continuity-2d", "--quiet")
    assert made == [3, 4, 5, 6]
    made.clear()
    cli("converge", "continuity-6d", "--quiet")
    assert made == [0, 1, 2, 3]


def test_threads_are_set(cli, threads):
    cli("converge", "continuity-1d", "--levels", "1,2", "--threads", "3", "--quiet")
    assert batchkron.get_num_threads() == 3


def test_quiet_prints_nothing(cli):
    result = cli("converge", "continuity-1d", "--levels", "1,2", "--quiet")
    assert (result.stdout, result.stderr) == ("", "")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["continuty-2d"], ["Did you mean continuity-2d"]),
        (["c2.h5"], ["c2.h5 is a file", "name of the gallery"]),
        (["continuity-1d", "--levels", "3"], ["--levels", "'3'", "two ascending levels"]),
        (["continuity-1d", "--levels", "3:3"], ["--levels", "'3:3'"]),
        (["continuity-1d", "--levels", "5:2"], ["--levels", "'5:2'"]),
        (["continuity-1d", "--levels", "2,4,3"], ["--levels", "'2,4,3'"]),
        (["continuity-1d", "--levels", "2,2"], ["--levels", "'2,2'"]),
        (["continuity-1d", "--levels", "2:"], ["--levels", "'2:'", "3:7"]),
        (["continuity-1d", "--levels", "-1:2"], ["--levels", "'-1:2'"]),
        (["continuity-1d", "--levels", "2,99"], ["level is 99"]),
        (["continuity-1d", "--until", "-1"], ["until is -1.0"]),
        (["continuity-1d", "--dt", "1e-300"], ["1e-300"]),
        (["continuity-1d", "--plot", "p.txt"], ["p.txt", ".png"]),
        (["continuity-1d", "--plot", "sub/p.png"], ["sub does not exist"]),
        (["continuity-1d", "--plot", "c2.h5"], ["c2.h5 exists", "--force"]),
    ],
)
@pytest.mark.usefixtures("problem_file")
def test_refusals(refused, words, expected):
    error = refused("converge", *words)
    for fragment in expected:
        assert fragment in error


def test_without_an_exact_solution_there_is_nothing_to_compare(refused, monkeypatch):
    problem = make("continuity-1d", 1)
    object.__setattr__(problem, "exact", None)
    monkeypatch.setattr(gallery, "make", lambda *words, **settings: problem)
    assert "no exact solution" in refused("converge", "continuity-1d", "--levels", "1,2")


def test_a_blow_up_ends_the_study_with_its_status(cli, folder):
    words = ["--levels", "1,2", "--stepper", "forward-euler", "--dt", "1e-2", "--until", "100"]
    words += ["--degree", "4", "--allow-unstable"]
    result = cli("converge", "diffusion-1d", *words, "--json", "--plot", "p.png", expect=8)
    report = json.loads(result.stdout)
    assert (report["status"], report["plot"]) == ("unstable", None)
    (run,) = report["levels"]
    assert (run["l2_error"], run["relative_error"], run["status"]) == (None, None, "unstable")
    assert result.stderr.startswith("batchkron: on level 1: unstable at step ")
    assert result.stderr.count("\n") == 1
    assert not list(folder.iterdir())
    table = cli("converge", "diffusion-1d", *words, expect=8).stdout
    assert table.splitlines()[-1].split()[3:6] == ["unknown", "unknown", "-"]


def test_a_step_that_is_not_stable_is_refused(refused):
    words = ["--levels", "1,2", "--stepper", "rk4", "--dt", "0.1", "--until", "1", "--json"]
    error = refused("converge", "diffusion-1d", *words)
    assert "rk4 is not stable with it" in error
    assert "pass --allow-unstable" in error


def test_ctrl_c_ends_the_study(cli, folder, monkeypatch):
    to_end = Run.to_end

    def interrupted(self, **options):
        if self.integration.problem.grid.levels == (3,):
            os.kill(os.getpid(), signal.SIGTERM)
        return to_end(self, **options)

    monkeypatch.setattr(Run, "to_end", interrupted)
    result = cli("converge", "continuity-1d", "--levels", "2:5", "--plot", "p.png", expect=143)
    assert [row.split()[0] for row in result.stdout.splitlines()[2:]] == ["2", "3"]
    assert "on level 3: stopped at step 1 of " in result.stderr
    assert not list(folder.iterdir())


def test_a_bar_is_shown_and_taken_away(capsys):
    problem = make("continuity-1d", 2)
    with StopOnSignal() as stop:
        run_level(problem, [], stop, show=True)
    shown = capsys.readouterr().err
    assert "0/20 " in shown
    assert shown.endswith("\r")


class TestPicture:
    """The picture shows the numbers of the table."""

    @pytest.fixture
    def convergence(self):
        found = Convergence(make("continuity-2d", 4, 1, until=0.1))
        with StopOnSignal() as stop:
            for level in (1, 2, 4):
                problem = make("continuity-2d", level, 1, until=0.1)
                found.runs.append(run_level(problem, found.runs, stop, show=False))
        return found

    def test_curves(self, convergence):
        figure = draw_convergence(convergence)
        assert figure.get_suptitle() == "continuity-2d, sparse grid, degree 1,  t = 0.1"
        errors = [run.l2_error for run in convergence.runs]
        unknowns = [4 * SparseGrid.sparse([level] * 2).num_cells for level in (1, 2, 4)]
        for axes, places in zip(figure.axes, ([1, 2, 4], unknowns), strict=True):
            slope, projection, computed = axes.get_lines()
            np.testing.assert_array_equal(computed.get_xydata(), np.column_stack([places, errors]))
            np.testing.assert_array_equal(slope.get_xdata(), places)
            np.testing.assert_allclose(
                slope.get_ydata(), errors[-1] * np.array([64.0, 16.0, 1.0]), rtol=1e-12
            )
            assert np.all(projection.get_ydata() < errors)
            assert axes.get_yscale() == "log"
        assert figure.axes[1].get_xscale() == "log"
        labels = [label.get_text() for label in figure.axes[1].get_legend().get_texts()]
        assert labels == ["order 2 = degree + 1", "exact, projected", "computed"]

    def test_observed_orders_are_written(self, convergence):
        written = [text.get_text() for text in draw_convergence(convergence).axes[0].texts]
        assert written == [f"{run.order:.2f}" for run in convergence.runs[1:]]

    def test_unknowns_are_the_ticks(self, convergence):
        ticks = draw_convergence(convergence).axes[1].get_xticklabels()
        assert [tick.get_text() for tick in ticks] == [
            str(run.unknowns) for run in convergence.runs
        ]

    def test_it_is_written(self, cli, folder):
        from matplotlib.image import imread

        words = ["continuity-1d", "--levels", "1:3", "--until", "0.1", "--plot", "p.png", "--json"]
        assert json.loads(cli("converge", *words).stdout)["plot"] == "p.png"
        pixels = imread(folder / "p.png")
        assert pixels.shape[:2] == (720, 1650)
        assert len(np.unique(pixels.reshape(-1, 4), axis=0)) > 20
        cli("converge", *words, expect=2)
        cli("converge", *words, "--force")
