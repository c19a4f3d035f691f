"""What a run refuses before it starts, and how it goes on from a checkpoint."""

import dataclasses
import json
import os
import sys

import pytest

from batchkron.cli.arguments.problem import ProblemArgument
from batchkron.problems import make, save_problem
from batchkron.solvers import Run, evolve
from batchkron.storage import (
    content_limits,
    load_checkpoint,
    load_result,
    previous_path,
    rotation,
    save_checkpoint,
)

SHORT = ["--until", "0.1", "--dt", "0.01"]


@pytest.fixture
def unread(monkeypatch):
    """No problem may be read or made from here on."""
    monkeypatch.setattr(ProblemArgument, "read", None)


@pytest.fixture
def checkpoint(folder, problem, problem_file):
    """The file c2.checkpoint.h5 of a run to 0.1, after 4 of 10 steps."""
    path = folder / "c2.checkpoint.h5"
    evolve(problem, until=0.1, dt=0.01, checkpoint=path, callback=lambda state: state.step == 4)
    return path


@pytest.mark.usefixtures("problem_file", "unread")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], ["c2.result.h5 exists", "--force"]),
        (["-o", "c2.png"], ["c2.png exists", "--force"]),
        (["-o", "new.h5", "--plot", "c2.png"], ["c2.png exists", "--force"]),
        (["-o", "c2.h5", "--force"], ["the result", "c2.h5", "the problem"]),
        (["-o", "./sub/../c2.h5", "--force"], ["the problem"]),
        (["-o", "linked.h5", "--force"], ["the problem"]),
        (["-o", "soft.h5", "--force"], ["the problem"]),
        (["--plot", "c2.h5", "--force"], ["the plot", "the problem"]),
        (["--checkpoint", "c2.h5", "--force"], ["the checkpoint", "the problem"]),
        (["-o", "a.png", "--plot", "a.png"], ["the plot", "the result"]),
        (["-o", "a.h5", "--checkpoint", "a.h5"], ["the checkpoint", "the result"]),
        (["-o", "nowhere/a.h5"], ["nowhere", "does not exist"]),
        (["-o", "c2.h5/a.h5"], ["does not exist"]),
        (["-o", "sub"], ["folder"]),
        (["-o", os.devnull, "--force"], ["not a regular file"]),
        (["-o", "a.h5", "--checkpoint", "old.h5"], ["old.h5 exists", "--resume", "--force"]),
        (["-o", "old.result.h5"], ["old.checkpoint.h5 exists", "--resume", "--force"]),
        (["-o", "a.h5", "--resume", "nothing.h5"], ["nothing.h5", "does not exist"]),
        (["-o", "a.h5", "--plot", "a.xyz"], ["a.xyz", ".png"]),
        (["-o", "a.h5", "--plot", "a"], [".png"]),
        (["--level", "3"], ["--level", "c2.h5 is a file"]),
        (["--degree", "3"], ["--degree"]),
        (["--grid", "full"], ["--grid"]),
        (["--dt", "0"], ["--dt", "> 0"]),
        (["--dt", "-1"], ["--dt", "> 0"]),
        (["--dt", "nan"], ["--dt", "> 0"]),
        (["--dt", "small"], ["--dt", "'small'"]),
        (["--until", "inf"], ["--until", "finite"]),
        (["--stepper", "euler"], ["--stepper", "forward-euler"]),
        (["--threads", "0"], ["--threads"]),
        (["--checkpoint-every", "0"], ["--checkpoint-every", "30s"]),
        (["--checkpoint-every", "2.5"], ["--checkpoint-every"]),
        (["--checkpoint-every", "-3"], ["--checkpoint-every"]),
        (["--checkpoint-every", "5 days"], ["--checkpoint-every"]),
    ],
)
def test_refused_before_any_work(refused, folder, problem_file, words, expected):
    for name in ("c2.result.h5", "c2.png", "old.h5", "old.checkpoint.h5"):
        (folder / name).write_text("of value\n")
    (folder / "sub").mkdir()
    os.link(problem_file, folder / "linked.h5")
    (folder / "soft.h5").symlink_to("c2.h5")
    error = refused("run", "c2.h5", *words)
    for fragment in expected:
        assert fragment in error


@pytest.mark.usefixtures("problem_file")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["c2.h5", "--until", "-1"], "until is -1.0"),
        (["c2.h5", "--until", "1", "--dt", "1e-300"], "too small"),
        (["c2"], "neither a file nor a name"),
        (["c2.h6"], "neither a file nor a name"),
        (["continuity-4d"], "Did you mean continuity-"),
        (["continuity-2d", "--level", "50"], "level is 50"),
    ],
)
def test_refused_before_the_first_step(refused, words, expected):
    assert expected in refused("run", *words)


def test_without_matplotlib_plot_says_what_to_install(refused, problem_file, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for name in [name for name in sys.modules if name.startswith("matplotlib.")]:
        monkeypatch.delitem(sys.modules, name)
    error = refused("run", "c2.h5", "--plot", "c2.png")
    assert "pip install 'batchkron[plot]'" in error


def test_force_replaces_every_output(cli, folder, problem_file):
    cli("run", "c2.h5", "--until", "0.01", "--checkpoint", "c2.checkpoint.h5")
    for name in ("c2.result.h5", "c2.png"):
        (folder / name).write_text("old\n")
    before = problem_file.read_bytes()
    words = [*SHORT, "--plot", "c2.png", "--checkpoint-every", "5", "--force"]
    cli("run", "c2.h5", *words)
    assert load_result(folder / "c2.result.h5").t == 0.1
    assert load_checkpoint(folder / "c2.checkpoint.h5").step == 10
    assert (folder / "c2.png").read_bytes().startswith(b"\x89PNG")
    assert problem_file.read_bytes() == before


@pytest.mark.parametrize("name", ["c2.checkpoint.h5", "c2.checkpoint.h5.previous"])
def test_checkpoints_replace_checkpoints_only(refused, folder, problem_file, name):
    """This holds for runs, too, that write a checkpoint only when they are stopped."""
    (folder / name).write_text("a letter\n")
    error = refused("run", "c2.h5", *SHORT, "--force")
    assert error.startswith("batchkron: checkpoints are to go to c2.checkpoint.h5, but ")
    assert f"{name} exists and is no HDF5 file" in error
    assert "choose another name" in error


@pytest.mark.parametrize(
    ("interval", "steps"),
    [("4", {8, 10}), ("1000s", {10}), ("30min", {10}), (".5h", {10})],
)
def test_checkpoints_are_written_when_due(cli, folder, problem_file, interval, steps):
    cli("run", "c2.h5", *SHORT, "--checkpoint-every", interval)
    path = folder / "c2.checkpoint.h5"
    found = {load_checkpoint(p).step for p in (path, previous_path(path)) if p.exists()}
    assert found == steps


def test_a_short_interval_is_over_after_every_step_that_is_looked_at(cli, folder, problem_file):
    words = ["--checkpoint-every", "0.0000001s", "--record", "norm"]
    cli("run", "c2.h5", *SHORT, *words)
    path = folder / "c2.checkpoint.h5"
    assert [load_checkpoint(p).step for p in (previous_path(path), path)] == [9, 10]


def test_an_explicit_checkpoint_is_written_at_the_end(cli, folder, problem_file):
    cli("run", "c2.h5", *SHORT, "--checkpoint", "kept.h5")
    kept = load_checkpoint(folder / "kept.h5")
    assert (kept.step, kept.until, kept.method) == (10, 0.1, "ssp-rk3")
    assert kept.u.tobytes() == load_result(folder / "c2.result.h5").u.tobytes()
    # and a longer run goes on from it
    words = ["--resume", "kept.h5", "--until", "0.15", "-o", "longer.h5"]
    cli("run", "c2.h5", *words)
    cli("run", "c2.h5", "--until", "0.15", "--dt", "0.01", "-o", "direct.h5")
    longer, direct = load_result(folder / "longer.h5"), load_result(folder / "direct.h5")
    assert (longer.steps, direct.steps) == (15, 15)
    assert longer.u == pytest.approx(direct.u, rel=1e-12)


def test_resumed_runs_end_bitwise_equal(cli, folder, problem, checkpoint):
    before = checkpoint.read_bytes()
    result = cli("run", "c2.h5", "--resume", checkpoint.name, "--json")
    report = json.loads(result.stdout)
    assert (report["steps"], report["steps_taken"], report["time"]) == (10, 6, 0.1)
    assert report["seconds_per_step"] == report["seconds"] / 6
    assert report["kernel_products"] == 18
    written = load_result(folder / "c2.result.h5")
    assert written.u.tobytes() == evolve(problem, until=0.1, dt=0.01).u.tobytes()
    assert checkpoint.read_bytes() == before
    output = cli("run", "c2.h5", "--resume", checkpoint.name, "--force")
    assert "resumed after step 4" in output.stdout
    assert "from step 4" in output.stderr


def test_a_resumed_run_keeps_its_checkpoints_in_the_same_file(cli, checkpoint):
    cli("run", "c2.h5", "--resume", checkpoint.name, "--checkpoint-every", "5")
    assert load_checkpoint(checkpoint).step == 10
    assert load_checkpoint(previous_path(checkpoint)).step == 5


def test_a_resumed_run_may_keep_them_elsewhere(cli, folder, checkpoint):
    before = checkpoint.read_bytes()
    words = ["--checkpoint", "other.h5", "--checkpoint-every", "5"]
    cli("run", "c2.h5", "--resume", checkpoint.name, *words)
    assert checkpoint.read_bytes() == before
    assert load_checkpoint(folder / "other.h5").step == 10


@pytest.mark.usefixtures("checkpoint")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--stepper", "forward-euler"], "method"),
        (["--dt", "0.02"], "dt is 0.02"),
        (["--until", "0.03"], "before the checkpoint's time"),
        (["--until", "0.123"], "no whole number"),
        (["-o", "c2.checkpoint.h5", "--force"], "the result would go to c2.checkpoint.h5"),
    ],
)
def test_a_resumed_run_cannot_change_its_course(refused, words, expected):
    assert expected in refused("run", "c2.h5", "--resume", "c2.checkpoint.h5", *words)


def test_checkpoints_of_other_problems_and_other_files_are_refused(refused, folder, checkpoint):
    save_problem(folder / "other.h5", make("continuity-2d", level=2, degree=1))
    assert "problem_hash" in refused("run", "other.h5", "--resume", checkpoint.name)
    error = refused("run", "c2.h5", "--resume", "other.h5", expect=3)
    assert "load_problem" in error


@pytest.mark.filterwarnings("default::UserWarning")
def test_a_broken_checkpoint_gives_way_to_the_one_before(cli, folder, problem, checkpoint):
    path = folder / "run.h5"
    path.write_bytes(checkpoint.read_bytes()[:1000])
    checkpoint.rename(previous_path(path))
    errors = cli("run", "c2.h5", "--resume", "run.h5", "--quiet").stderr
    assert errors.startswith("batchkron: warning: ")
    assert "run.h5.previous" in errors
    assert errors.count("\n") == 1
    expected = evolve(problem, until=0.1, dt=0.01)
    assert load_result(folder / "c2.result.h5").u.tobytes() == expected.u.tobytes()


@pytest.mark.filterwarnings("default::UserWarning")
def test_other_surroundings_are_a_line_of_warning(cli, checkpoint, threads):
    words = ["--resume", checkpoint.name, "--threads", "7", "--quiet"]
    errors = cli("run", "c2.h5", *words).stderr
    assert errors.startswith("batchkron: warning: ")
    assert "threads" in errors
    assert errors.count("\n") == 1


@pytest.mark.usefixtures("checkpoint")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (
            ["c2.h5", "-o", "x.h5.previous", "--checkpoint", "x.h5"],
            "before the one in x.h5 is kept",
        ),
        (["c2.h5", "-o", "a.h5.previous", "--checkpoint", "./a.h5", "--force"], "is kept"),
        (["c2.h5", "--resume", "c2.h5"], "is the problem itself; expected a file that an earlier"),
        (["."], ". is a folder"),
        (["/"], "/ is a folder"),
        (["diffusion-1d", "--resume", "c2.checkpoint.h5"], "not of the same run"),
    ],
)
def test_names_that_cannot_be_meant(refused, words, expected):
    assert expected in refused("run", *words)


def test_a_result_that_came_to_be_meanwhile_is_no_loss(
    cli, folder, problem, problem_file, monkeypatch
):
    to_end = Run.to_end

    def late(self, **options):
        result = to_end(self, **options)
        (folder / "two.h5").write_text("of another run\n")
        return result

    with monkeypatch.context() as patch:
        patch.setattr(Run, "to_end", late)
        errors = cli("run", "c2.h5", *SHORT, "-o", "two.h5", "--quiet", expect=3).stderr
    assert "two.h5 has come to be since this run began" in errors
    assert "--force" in errors
    assert "overwrite" not in errors
    assert "--resume two.checkpoint.h5" in errors
    assert (folder / "two.h5").read_text() == "of another run\n"
    kept = load_checkpoint(folder / "two.checkpoint.h5")
    assert kept.step == 10
    cli("run", "c2.h5", *SHORT, "-o", "other.h5", "--resume", "two.checkpoint.h5")
    written = load_result(folder / "other.h5")
    assert written.u.tobytes() == evolve(problem, until=0.1, dt=0.01).u.tobytes()


def test_an_error_in_the_middle_leaves_the_last_state(
    cli, folder, problem, problem_file, monkeypatch
):
    whole = type(problem).rhs

    def ends(self, t, u, out):
        if t > 0.045:
            raise ValueError(f"the table ends before {t}")
        whole(self, t, u, out)

    with monkeypatch.context() as patch:
        patch.setattr(type(problem), "rhs", ends)
        patch.setattr(type(problem), "split_rhs", lambda self: None)
        words = [*SHORT, "--stepper", "forward-euler", "--quiet"]
        errors = cli("run", "c2.h5", *words, expect=2).stderr
        expected = evolve(problem, until=0.05, dt=0.01, method="forward-euler")
    assert "kept the state after step 5 of 10, t = 0.05" in errors
    assert "the table ends before" in errors
    kept = load_checkpoint(folder / "c2.checkpoint.h5")
    assert kept.u.tobytes() == expected.u.tobytes()


def test_a_checkpoint_of_an_unknown_method_is_refused(refused, folder, checkpoint):
    state = dataclasses.replace(load_checkpoint(checkpoint), method="leapfrog")
    save_checkpoint(folder / "odd.h5", state)
    assert "method is 'leapfrog'" in refused("run", "c2.h5", "--resume", "odd.h5")


def test_a_state_beyond_the_limit_on_files_is_resumed(cli, folder, problem_file, monkeypatch):
    """The limit is on inflation, and this state's file is as long as its content."""
    cli("run", "c2.h5", *SHORT, "-o", "whole.h5")
    for until in ("0.04", "0.1"):
        monkeypatch.setattr(content_limits, "_MAX_INFLATED_BYTES", 500)
        monkeypatch.setattr(content_limits, "_SMALL_CONTENT_BYTES", 100_000)
        resume = ["--resume", "c2.checkpoint.h5"] if until == "0.1" else []
        cli("run", "c2.h5", "--dt", "0.01", "--until", until, "--checkpoint-every", "1",
            "--force", *resume)  # fmt: skip
        monkeypatch.setattr(rotation, "_sound", {})
    assert load_checkpoint(folder / "c2.checkpoint.h5").step == 10
    assert load_checkpoint(previous_path(folder / "c2.checkpoint.h5")).step == 9
    whole, resumed = (load_result(folder / name).u for name in ("whole.h5", "c2.result.h5"))
    assert resumed.tobytes() == whole.tobytes()


def test_a_state_that_could_not_be_read_back_is_refused(refused, problem_file, monkeypatch):
    monkeypatch.setattr(content_limits, "memory_bytes", lambda: 1000)
    text = refused("run", "c2.h5", *SHORT)
    assert "could not be read back" in text
    assert "take a lower level or degree" in text
