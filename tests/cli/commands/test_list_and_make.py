"""`batchkron list` and `batchkron make`."""

import os

import pytest

from batchkron.problems import gallery, load_problem, make
from batchkron.problems.discretization.checks import size_check


def test_list_has_a_line_for_every_name(cli):
    lines = cli("list").stdout.splitlines()
    assert [line.split()[0] for line in lines] == list(gallery.names())
    for line in lines:
        assert line.endswith(gallery.get(line.split()[0]).equation)


@pytest.mark.parametrize("name", gallery.names())
def test_make_writes_every_problem(cli, folder, name):
    cli("make", name, "--level", "2", "-o", "made.h5")
    loaded = load_problem(folder / "made.h5")
    assert loaded.content_hash == make(name, level=2).content_hash
    assert loaded.name == name


def test_parameters_follow_the_name(cli, refused, folder):
    cli("make", "landau-1x1v:k=0.4,amplitude=0.01", "--level", "2", "-o", "made.h5")
    expected = make("landau-1x1v", level=2, k=0.4, amplitude=0.01)
    assert load_problem(folder / "made.h5").content_hash == expected.content_hash
    for word, part in (
        ("landau-1x1v:drift=1", "drift=1"),
        ("landau-1x1v:k=0.4,amplitude", "amplitude"),
        ("landau-1x1v:k=fast", "k=fast"),
        ("landau-1x1v:k=inf", "k=inf"),
        ("landau-1x1v:", ""),
    ):
        error = refused("make", word, "-o", "other.h5")
        assert f"{part!r} is no parameter of landau-1x1v; expected some of k=0.5, ampl" in error
    error = refused("make", "continuity-1d:k=1", "-o", "other.h5")
    assert "'k=1' is no parameter of continuity-1d; expected none, for it has none" in error
    assert not (folder / "other.h5").exists()


def test_make_takes_degree_level_and_grid(cli, folder):
    words = ["--degree", "1", "--level", "3,2", "--grid", "full", "-o", "made.h5"]
    output = cli("make", "continuity-2d", *words).stdout
    loaded = load_problem(folder / "made.h5")
    assert (loaded.degree, loaded.grid.levels, loaded.grid.kind) == (1, (3, 2), "full")
    assert output == (
        "wrote made.h5: continuity-2d, 128 unknowns in 32 cells of a full grid, levels 3, 2, "
        "degree 1\n"
    )


@pytest.mark.parametrize(
    "words", [["make", "diffusion-1d", "-o", "made.h5"], ["run", "diffusion-1d"]]
)
def test_a_level_that_cannot_fit_in_memory_says_its_unknowns(refused, monkeypatch, words):
    monkeypatch.setattr(size_check, "_memory", lambda: 24 << 30)
    assert refused(*words, "--level", "30") == (
        "batchkron: not enough memory (3221225472 unknowns in 1073741824 cells of levels 30, "
        "degree 2, take at least 320 GiB, and this machine has 24 GiB); take a lower level or "
        "degree\n"
    )


def test_make_replaces_with_force_only(cli, refused, folder):
    cli("make", "continuity-1d", "--level", "2", "-o", "made.h5")
    again = ["make", "continuity-1d", "--level", "3", "-o", "made.h5"]
    error = refused(*again)
    assert "made.h5 exists" in error
    assert "--force" in error
    cli(*again, "--force")
    assert load_problem(folder / "made.h5").grid.levels == (3,)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["continuty-2d"], ["continuty-2d", "Did you mean continuity-2d", "diffusion-1d"]),
        (["continuity-2d", "--level", "99"], ["level is 99"]),
        (["continuity-2d", "--level", "-1"], ["--level", "'-1'", "6,5"]),
        (["continuity-2d", "--level", "2,2,2"], ["3", "2 axes"]),
        (["continuity-2d", "--level", "x"], ["--level", "'x'"]),
        (["continuity-2d", "--level", "2,"], ["--level", "'2,'"]),
        (["continuity-2d", "--degree", "-1"], ["--degree", "-1"]),
        (["continuity-2d", "--degree", "99"], ["degree is 99"]),
        (["continuity-2d", "--degree", "1.5"], ["--degree", "1.5"]),
        (["continuity-2d", "--grid", "dense"], ["--grid", "dense", "sparse", "full"]),
        (["continuity-2d", "-o", "nowhere/made.h5"], ["nowhere", "does not exist"]),
        (["continuity-2d", "-o", "."], ["is a folder"]),
        (["continuity-2d", "-o", os.devnull, "--force"], ["not a regular file"]),
    ],
)
def test_make_refuses(refused, words, expected):
    given = words if "-o" in words else [*words, "-o", "made.h5"]
    error = refused("make", *given)
    for fragment in expected:
        assert fragment in error


def test_a_folder_without_permission_is_found_before_any_work(refused, monkeypatch, folder):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    monkeypatch.setattr(gallery, "make", None)
    assert "cannot be written" in refused("make", "continuity-1d", "-o", "made.h5")


def test_too_large_a_problem_is_no_crash(refused, monkeypatch):
    def allocate(*arguments, **settings):
        raise MemoryError("Unable to allocate 8.0 TiB")

    monkeypatch.setattr(gallery, "make", allocate)
    error = refused("make", "continuity-3d", "-o", "made.h5")
    assert "not enough memory (Unable to allocate 8.0 TiB)" in error


def test_mathematical_signs_do_not_stop_an_old_terminal(start):
    process = start("list", environment={"PYTHONIOENCODING": "latin-1"}, encoding="latin-1")
    output, errors = process.communicate()
    assert (process.returncode, errors) == (0, "")
    assert "[0, ?]" in output  # latin-1 has no π
    assert "[-1, 1] × [-2, 2]" in output
