"""Quantities that a run records, and the pictures and movies that it makes on the way."""

import json
import os
import sys
from itertools import pairwise

import numpy as np
import pytest
from matplotlib.image import imread
from PIL import Image

from batchkron.analysis.recorded import recorded_in
from batchkron.cli.arguments.problem import ProblemArgument
from batchkron.cli.running import pictures
from batchkron.cli.running.pictures import PicturePlan, numbered
from batchkron.problems import load_problem
from batchkron.solvers import EvolveState, Run, evolve
from batchkron.storage import load_result

SHORT = ["--until", "0.1", "--dt", "0.01", "--quiet"]
PLASMA = ["landau-1x1v", "--level", "2,3", "--grid", "full", "--degree", "1", *SHORT]


@pytest.fixture
def unread(monkeypatch):
    """No problem may be read or made from here on."""
    monkeypatch.setattr(ProblemArgument, "read", None)


def test_quantities_are_in_the_result_file(cli, folder):
    names = ["mass", "momentum", "energy", "field", "norm", "v^2", "outflow"]
    cli("run", *PLASMA, "--record", ",".join(names), "-o", "r.h5")
    recorded = recorded_in(load_result(folder / "r.h5").history)
    assert sorted(recorded.names) == sorted(names)
    np.testing.assert_allclose(recorded.t, np.linspace(0.0, 0.1, 11), atol=1e-12)
    from batchkron.problems import make

    problem = make("landau-1x1v", (2, 3), 1, "full", until=0.1, dt=0.01)
    watch = problem.quantities(*names[:-1])
    expected = evolve(problem, until=0.1, dt=0.01, watch=watch).recorded
    for name in names[:-1]:
        np.testing.assert_array_equal(recorded[name], expected[name])


def test_options_with_lists_may_be_repeated(cli, folder):
    record = ["--record", "mass", "--record", "norm,energy", "--record", "mass"]
    cli("run", *PLASMA, *record, "-o", "r.h5")
    recorded = recorded_in(load_result(folder / "r.h5").history)
    assert sorted(recorded.names) == ["energy", "mass", "norm"]


def test_mass_and_outflow_are_conserved_while_the_grid_changes(cli, folder):
    words = ["two-stream", "--level", "4", "--stepper", "rk4", *SHORT, "--adapt-every", "2"]
    cli("run", *words, "--adapt", "1e-3", "--record", "mass,outflow,v^2", "-o", "r.h5")
    history = load_result(folder / "r.h5").history
    assert len({record["unknowns"] for record in history}) > 1
    recorded = recorded_in(history)
    whole, outflow = recorded["mass"][0], recorded["outflow"]
    assert abs(outflow[-1]) > 1e-8
    np.testing.assert_allclose(recorded["mass"] + outflow, whole, rtol=0, atol=1e-3 * outflow[-1])


def test_quantities_are_in_the_report(cli):
    words = ["run", *[word for word in PLASMA if word != "--quiet"], "--record", "mass,norm"]
    table = cli(*words, "-o", "a.h5").stdout
    assert "\nmass " in table
    assert "largest change" in table
    assert "recurrence time  8.378, when damping ends" in table
    report = json.loads(cli(*words, "-o", "b.h5", "--json").stdout)
    assert list(report["recorded"]) == ["mass", "norm"]
    assert report["recurrence_time"] == pytest.approx(4 * np.pi / 1.5)
    assert report["recorded"]["mass"] == pytest.approx(4 * np.pi)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--record", "mass,speed"], ["'speed' is no quantity of continuity-2d", "mass, norm"]),
        (["--record", "energy"], ["'energy' needs velocities"]),
        (["--plot", "a.png", "--slice", "q=0"], ["slice names the axis 'q'", "x, y"]),
        (["--plot", "a.png", "--slice", "x=7"], ["expected a place in [-1, 1]"]),
        (["--plot", "a.png", "--marginal", "q"], ["marginal names the axis 'q'"]),
        (["--plot", "a.png", "--slice", "x=0,y=0"], ["no axis is left"]),
        (["--plot", "a.png", "--slice", "x=0", "--slice", "y=0"], ["no axis is left"]),
        (["--movie", "a.gif", "--plot-every", "1e-6"], ["100001 pictures", "at most 2000"]),
    ],
)
def test_what_the_problem_does_not_have_is_refused_before_the_run(
    refused, problem_file, monkeypatch, words, expected
):
    monkeypatch.setattr(Run, "to_end", None)
    error = refused("run", "c2.h5", *SHORT, *words)
    for text in expected:
        assert text in error


@pytest.mark.usefixtures("problem_file", "unread")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--record", "mass,,norm"], ["--record", "'mass,,norm' is no list of names"]),
        (["--record", "mass,mass"], ["different ones"]),
        (["--plot-every", "0"], ["--plot-every", "> 0"]),
        (
            ["--plot-every", "0.1"],
            ["--plot-every is for pictures; name a file by --plot or --movie"],
        ),
        (["--slice", "x=0"], ["--slice is for pictures"]),
        (["--marginal", "x"], ["--marginal is for pictures"]),
        (["--plot", "a.png", "--slice", "x"], ["'x' is no list of places", "v2=0,v3=0.5"]),
        (["--plot", "a.png", "--slice", "x=nan"], ["no list of places"]),
        (["--plot", "a.png", "--slice", "x=0,x=1"], ["no list of places"]),
        (["--movie", "a.xyz"], ["a.xyz", "ends in .gif", ".mp4"]),
        (["--movie", "a"], [".gif"]),
        (["--movie", "c2.h5", "--force"], ["the movie", "the problem"]),
        (["--movie", "a.gif", "--plot", "a.gif"], ["the movie", "the plot"]),
        (["--movie", "nowhere/a.gif"], ["nowhere does not exist"]),
    ],
)
def test_options_that_cannot_be_are_refused_before_reading(refused, words, expected):
    error = refused("run", "c2.h5", *SHORT, *words)
    for text in expected:
        assert text in error


@pytest.mark.usefixtures("problem_file", "unread")
def test_a_missing_program_is_named_before_the_run(refused, monkeypatch):
    from matplotlib.animation import writers

    monkeypatch.setattr(writers, "is_available", lambda name: name == "pillow")
    error = refused("run", "c2.h5", *SHORT, "--movie", "a.mp4")
    assert "the program ffmpeg, which writes such files, is not found" in error
    assert ".gif" in error


def test_frames_go_to_ffmpeg(cli, folder, problem_file, tmp_path_factory, monkeypatch):
    """A program of this name in its place keeps what it is given."""
    programs = tmp_path_factory.mktemp("bin")
    fake = programs / "ffmpeg"
    fake.write_text('#!/bin/sh\nfor last; do :; done\ncat > "$last"\n')
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    cli("run", "c2.h5", *SHORT, "--movie", "m.mp4", "--plot-every", "0.05")
    raw = (folder / "m.mp4").read_bytes()
    assert len(raw) == 3 * 640 * 480 * 4
    frames = np.frombuffer(raw, dtype=np.uint8).reshape(3, 480, 640, 4)
    assert len(np.unique(frames[2].reshape(-1, 4), axis=0)) > 20


@pytest.mark.usefixtures("problem_file", "unread")
def test_without_matplotlib_a_movie_says_what_to_install(refused, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    error = refused("run", "c2.h5", *SHORT, "--movie", "a.gif")
    assert "--movie needs Matplotlib" in error
    assert "pip install 'batchkron[plot]'" in error


def frames_of(path):
    with Image.open(path) as movie:
        frames = []
        for number in range(movie.n_frames):
            movie.seek(number)
            frames.append(np.asarray(movie.convert("RGB")).copy())
    return frames


def test_a_movie_has_a_frame_for_each_interval(cli, folder, problem_file):
    cli("run", "c2.h5", *SHORT, "--movie", "m.gif", "--plot-every", "0.02")
    frames = frames_of(folder / "m.gif")
    assert len(frames) == 6
    assert frames[0].shape == (480, 640, 3)
    assert all((a != b).any() for a, b in pairwise(frames))
    assert sorted(path.name for path in folder.iterdir()) == ["c2.h5", "c2.result.h5", "m.gif"]


def test_all_frames_have_the_same_colours(folder, problem_file, monkeypatch):
    problem = load_problem(problem_file)
    plan = PicturePlan(0.0, 1.0, 0.5)
    made = pictures.PicturesDuringRun(
        plan, problem, pictures.Cut(), folder / "m.gif", None, force=False
    )
    made.begin(problem, 0.5 * problem.exact_coefficients(0.2), 0.0)
    for step, factor in ((1, 1.0), (2, 2.0)):
        u = factor * problem.exact_coefficients(0.2)
        made.after_step(EvolveState(u, step * 0.5, step, 2, 0.5, problem=problem))
    drawn = []
    monkeypatch.setattr(
        pictures, "_write_movie", lambda writer, path, view, mesh, frames: (
            drawn.extend([view, mesh, frames]), path.write_bytes(b"movie"))
    )  # fmt: skip
    made.finish()
    assert (folder / "m.gif").read_bytes() == b"movie"
    view, mesh, frames = drawn
    assert [t for t, _ in frames] == [0.0, 0.5, 1.0]
    np.testing.assert_allclose(frames[2][1], 2.0 * frames[1][1], rtol=1e-6)
    values = problem.evaluate(
        problem.exact_coefficients(0.2), *np.meshgrid(*mesh, indexing="ij", sparse=True)
    )
    np.testing.assert_allclose(frames[1][1], values, rtol=1e-5, atol=1e-6)
    from matplotlib.figure import Figure

    from batchkron.problems.semidiscrete.output.draw import draw_values

    axes = Figure().subplots()
    everything = np.stack([values for _, values in frames])
    update = draw_values(axes, view, mesh, everything)
    (image,) = axes.get_images()
    largest = np.abs(everything).max()
    for number in range(3):
        update(number)
        np.testing.assert_array_equal(image.get_array(), everything[number].T)
        assert image.get_clim() == (-largest, largest)


def test_curves_are_movies_too(cli, folder):
    words = ["continuity-1d", "--level", "3", *SHORT, "--movie", "m.gif", "-o", "r.h5"]
    cli("run", *words, "--plot-every", "0.05")
    assert len(frames_of(folder / "m.gif")) == 3
    cli("run", *PLASMA, "--movie", "m.gif", "-o", "s.h5", "--marginal", "v", "--force")
    assert len(frames_of(folder / "m.gif")) >= 2


def test_numbered_pictures(cli, folder, problem_file, refused):
    cli("run", "c2.h5", *SHORT, "--plot", "p.png", "--plot-every", "0.05")
    names = sorted(path.name for path in folder.glob("*.png"))
    assert names == ["p-0000.png", "p-0001.png", "p-0002.png", "p.png"]
    assert imread(folder / "p-0001.png").shape[1] > imread(folder / "p-0001.png").shape[0]
    words = ["run", "c2.h5", *SHORT, "-o", "new.h5", "--plot", "q.png", "--plot-every", "0.05"]
    (folder / "q-0002.png").write_text("mine")
    assert "q-0002.png exists" in refused(*words)
    cli(*words, "--force")
    assert (folder / "q-0002.png").read_bytes().startswith(b"\x89PNG")


def test_pictures_are_cut(cli, folder):
    words = ["landau-1x2v", "--level", "1,2,2", "--degree", "1", "--until", "0.1", "--quiet"]
    cli("run", *words, "--slice", "v2=0.5", "--plot", "p.png", "--movie", "m.gif")
    assert (folder / "p.png").stat().st_size > 5000
    assert (folder / "m.gif").read_bytes().startswith(b"GIF8")


@pytest.mark.parametrize(
    ("interval", "count", "times"),
    [(0.4, 4, {0.0: 0, 0.4: 1, 0.79: 2, 0.99: 2, 1.0: 3}), (0.5, 3, {0.0: 0, 0.5: 1, 1.0: 2}),
     (None, 101, {0.0: 0, 0.01: 1, 0.99: 99, 1.0: 100}), (7.0, 2, {0.0: 0, 0.9: 0, 1.0: 1})],
)  # fmt: skip
def test_numbers_of_pictures(interval, count, times):
    plan = PicturePlan(0.0, 1.0, interval)
    assert plan.count == count
    assert {t: plan.number(t) for t in times} == times


def test_each_picture_is_due_once():
    plan = PicturePlan(0.0, 1.0, 0.1)
    for dt in (0.01, 0.03, 0.1, 0.25):
        steps = int(np.ceil(1.0 / dt))
        due = [k for k in range(steps + 1) if plan.is_due(min(k * dt, 1.0), dt)]
        numbers = [plan.number(min(k * dt, 1.0)) for k in due]
        assert set(numbers) == set(range(11)) if dt <= 0.1 else len(due) == steps + 1
    assert PicturePlan(0.5, 0.5, None).count == 1


def test_names_of_numbered_pictures(tmp_path):
    assert numbered(tmp_path / "a.b.png", 12) == tmp_path / "a.b-0012.png"
