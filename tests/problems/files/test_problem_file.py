"""Problem files: exact round trips, and what a file is asked for."""

import dataclasses
from pathlib import Path

import h5py
import numpy as np
import pytest
from random_problem import LEVELS, random_problem

from batchkron import ProblemFileError
from batchkron.problems import (
    StepperSettings,
    load_problem,
    make,
    save_problem,
)
from batchkron.storage import (
    Checkpoint,
    ResultFile,
    load_checkpoint,
    load_result,
    save_checkpoint,
    save_result,
)

EARLIER = Path(__file__).parents[2] / "data" / "files_of_4988497"


@pytest.fixture
def problem(rng):
    return random_problem(rng)


@pytest.fixture
def path(problem, tmp_path):
    path = tmp_path / "problem.h5"
    save_problem(path, problem)
    return path


def assert_same(first, second):
    """Equal in every bit."""
    for name in ("name", "axes", "degree", "t0", "stepper", "units", "provenance"):
        assert getattr(first, name) == getattr(second, name)
    assert first.grid.levels == second.grid.levels
    assert first.grid.kind == second.grid.kind
    arrays = [(first.grid.cells, second.grid.cells), (first.initial, second.initial)]
    assert len(first.terms) == len(second.terms)
    for a, b in zip(first.terms, second.terms, strict=True):
        assert a.time == b.time
        for m, n in zip(a.modes, b.modes, strict=True):
            assert (m is None) == (n is None)
            if m is not None:
                assert (m.cells, m.n) == (n.cells, n.n)
                arrays += [(m.rows, n.rows), (m.columns, n.columns), (m.blocks, n.blocks)]
    assert (first.exact is None) == (second.exact is None)
    pairs = list(zip(first.sources, second.sources, strict=True))
    if first.exact is not None:
        pairs += zip(first.exact.parts, second.exact.parts, strict=True)
        arrays.append((first.exact.remainders, second.exact.remainders))
    for a, b in pairs:
        assert (a.time, a.explicit) == (b.time, b.explicit)
        arrays += zip(a.factors, b.factors, strict=True)
    for a, b in arrays:
        assert (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())


@pytest.mark.parametrize("trusted", [False, True])
def test_a_problem_comes_back_bitwise(problem, path, trusted):
    loaded = load_problem(path, trusted=trusted)
    assert_same(loaded, problem)
    assert loaded.content_hash == problem.content_hash
    with h5py.File(path) as file:
        assert file.attrs["content_hash"] == problem.content_hash.encode()


def test_the_loaded_problem_computes_the_same(problem, path, rng):
    loaded = load_problem(path)
    u = rng.normal(size=problem.unknowns)
    for t in (0.0, 0.7):
        expected, found = np.full_like(u, np.nan), np.full_like(u, np.nan)
        problem.rhs(t, u, expected)
        loaded.rhs(t, u, found)
        assert np.isfinite(found).all()
        assert found.tobytes() == expected.tobytes()
        assert loaded.l2_error(u, t) == problem.l2_error(u, t)


@pytest.mark.parametrize("name", ["continuity-1d", "continuity-2d", "advection-1d", "diffusion-2d"])
def test_the_gallery_comes_back_bitwise(name, tmp_path):
    problem = make(name, level=3)
    save_problem(tmp_path / "a.h5", problem)
    loaded = load_problem(tmp_path / "a.h5")
    assert_same(loaded, problem)
    assert loaded.content_hash == problem.content_hash


def test_what_may_be_missing_may_be_missing(problem, tmp_path):
    bare = dataclasses.replace(
        problem, terms=(), sources=(), exact=None, units={}, provenance={}, t0=0
    )
    save_problem(tmp_path / "a.h5", bare)
    assert_same(load_problem(tmp_path / "a.h5"), bare)


def test_files_that_do_not_tell_sources_apart_have_implicit_ones(problem, path, tmp_path):
    with h5py.File(path) as file:
        assert "sources/explicit" not in file
    assert not any(source.explicit for source in load_problem(path).sources)
    sources = (dataclasses.replace(problem.sources[0], explicit=True), *problem.sources[1:])
    marked = dataclasses.replace(problem, sources=sources)
    save_problem(tmp_path / "b.h5", marked)
    loaded = load_problem(tmp_path / "b.h5")
    assert_same(loaded, marked)
    assert loaded.content_hash == marked.content_hash == problem.content_hash
    with h5py.File(tmp_path / "b.h5", "r+") as file:
        assert file.attrs["content_hash"] != problem.content_hash.encode()
        file["sources/explicit"][0] = 0
    with pytest.raises(ProblemFileError, match="changed after it was written"):
        load_problem(tmp_path / "b.h5")
    found, expected = np.full((2, problem.unknowns), np.nan)
    loaded.implicit_source(0.3, found)
    dataclasses.replace(problem, sources=sources[1:]).source(0.3, expected)
    np.testing.assert_array_equal(found, expected)


def test_the_hash_is_that_of_versions_that_did_not_tell_sources_apart():
    problem = make("continuity-1d", 3, 2)
    assert any(source.explicit for source in problem.sources)
    implicit = [dataclasses.replace(source, explicit=False) for source in problem.sources]
    assert dataclasses.replace(problem, sources=implicit).content_hash == problem.content_hash
    earlier = load_problem(EARLIER / "problem.h5")
    assert earlier.content_hash == load_checkpoint(EARLIER / "checkpoint.h5").problem_hash


def test_equal_operators_are_stored_once(path):
    with h5py.File(path) as file:
        np.testing.assert_array_equal(file["operators/level"], LEVELS)
        np.testing.assert_array_equal(file["terms/operators"], [[0, -1], [0, 1], [-1, -1]])


def test_the_hash_is_of_the_content_and_not_of_its_history(problem, rng):
    again = dataclasses.replace(problem, provenance={"recipe": "another"})
    assert again.content_hash == problem.content_hash
    initial = problem.initial.copy()
    initial[3] = np.nextafter(initial[3], 1.0)
    for change in (
        {"initial": initial},
        {"name": "other"},
        {"t0": 0.2},
        {"units": {}},
        {"exact": None},
        {"terms": problem.terms[::-1]},
        {"sources": problem.sources[1:]},
        {"stepper": StepperSettings("crank-nicolson", 0.25, 2.5)},
    ):
        assert dataclasses.replace(problem, **change).content_hash != problem.content_hash


def test_saving_twice_needs_to_be_asked_for(problem, path):
    before = path.read_bytes()
    other = dataclasses.replace(problem, name="other")
    with pytest.raises(FileExistsError, match="overwrite=True"):
        save_problem(path, other)
    assert path.read_bytes() == before
    save_problem(path, other, overwrite=True)
    assert load_problem(path).name == "other"


def test_what_cannot_be_saved_is_refused_before_the_file_is_touched(problem, path):
    before = path.read_bytes()
    for change, error, text in (
        ({"provenance": {"f": np.sin}}, TypeError, "JSON cannot hold"),
        ({"provenance": {"x": np.nan}}, ValueError, "JSON holds nan"),
        ({"units": {"x": 3}}, TypeError, "units maps 'x' to 3"),
        ({"name": "a\0b"}, ValueError, "dataset 'name', text 0 holds the character NUL"),
    ):
        with pytest.raises(error, match=text):
            save_problem(path, dataclasses.replace(problem, **change), overwrite=True)
    with pytest.raises(TypeError, match="problem is dict; expected a Problem"):
        save_problem(path, {}, overwrite=True)
    assert path.read_bytes() == before


def test_loaders_name_each_other(path, tmp_path):
    with pytest.raises(ProblemFileError, match=r"load this file with .*problems.load_problem"):
        load_result(path)
    with pytest.raises(ProblemFileError, match=r"load this file with .*problems.load_problem"):
        load_checkpoint(path)
    u = np.ones(3)
    save_result(tmp_path / "r.h5", ResultFile(u, 0.0, "completed", 1, 0.1, "m", "h", "n"))
    with pytest.raises(ProblemFileError, match=r"load this file with .*storage.load_result"):
        load_problem(tmp_path / "r.h5")
    save_checkpoint(
        tmp_path / "c.h5", Checkpoint(u, 0.0, 0.1, 1, 1.0, "m", "h", "0", 1, "avx2", "float64")
    )
    with pytest.raises(ProblemFileError, match=r"load this file with .*storage.load_checkpoint"):
        load_problem(tmp_path / "c.h5")


def test_another_device_is_refused(path):
    with pytest.raises(ValueError, match="device is 'abacus'; expected 'cpu' or 'cuda'"):
        load_problem(path, device="abacus")


def test_missing_files_and_folders(tmp_path):
    with pytest.raises(FileNotFoundError):
        load_problem(tmp_path / "missing.h5")
    with pytest.raises(IsADirectoryError):
        load_problem(tmp_path)
