"""Problem files: exact round trips, and files whose content is wrong or damaged."""

import dataclasses
import json
import re

import h5py
import numpy as np
import pytest
from crafted_files import changed, edit, metadata_blocks, seal, with_terms, write_unchecked

from batchkron import ProblemFileError
from batchkron.problems import (
    Axis,
    ExactSolution,
    ModeOperator,
    OperatorTerm,
    Problem,
    SeparableVector,
    SparseGrid,
    StepperSettings,
    load_problem,
    make,
    save_problem,
    time,
)
from batchkron.problems.files.encode import encode_problem
from batchkron.problems.semidiscrete.value import content_of
from batchkron.storage import (
    Checkpoint,
    ResultFile,
    load_checkpoint,
    load_result,
    save_checkpoint,
    save_result,
)

LEVELS = (3, 2)
N = 2  # functions per cell and axis
MANY_TIMES = [
    time.constant(-2.5),
    time.polynomial([0.1, 0.0, 1 / 3]),
    time.sin(2.0, 0.3) * time.exp(-1.0) + 0.1 * time.cos(3.0),
    time.spline([0.0, 0.4, 1.0, 2.5], [1.0, -0.1, 1 / 7, 5e-324]),
    time.spline([0.0, 0.4, 1.0, 2.5], [1.0, -0.1, 1 / 7, 5e-324]).derivative(),
]


def random_operator(rng, level):
    dense = rng.normal(size=(N << level, N << level))
    keep = np.kron(rng.random((1 << level, 1 << level)) < 0.5, np.ones((N, N)))
    return ModeOperator.from_dense(dense * keep, N)


def random_vector(rng, function):
    return SeparableVector(tuple(rng.normal(size=N << level) for level in LEVELS), function)


@pytest.fixture
def problem(rng):
    first, second = (random_operator(rng, level) for level in LEVELS)
    copy = ModeOperator(first.cells, N, first.rows, first.columns, first.blocks)
    grid = SparseGrid.sparse(LEVELS)
    return Problem(
        "zufällig ∇",
        [Axis("x", -1, 1 / 3), Axis("ζ", 0.1, 2e300)],
        N - 1,
        grid,
        [
            OperatorTerm((first, None), time.constant(1.0)),
            OperatorTerm((copy, second), MANY_TIMES[2]),
            OperatorTerm((None, None), MANY_TIMES[0]),
        ],
        [random_vector(rng, function) for function in MANY_TIMES],
        rng.normal(size=grid.num_cells * N**2),
        exact=ExactSolution(
            tuple(random_vector(rng, function) for function in MANY_TIMES[:2]),
            rng.normal(size=(2, 2, 2)),
        ),
        t0=0.1,
        stepper=StepperSettings("crank-nicolson", 1 / 3, 2.5),
        units={"x": "µm", "t": "s"},
        provenance={"recipe": ["by hand", 0.1, None]},
    )


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
    before = "b99cbdcfcafe4b6bdb4bb2eed52ceece9ef5b956132ec62bb807b25cec709c81"  # commit 4988497
    assert problem.content_hash == before


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


def put(path, index, value):
    """Change one entry of a dataset."""

    def change(document):
        array = document.datasets[path].copy()
        array[index] = value
        return changed(document, datasets={path: array})

    return change


def replace(path, function):
    """Change a whole dataset."""
    return lambda document: changed(document, datasets={path: function(document.datasets[path])})


def attribute(**attributes):
    return lambda document: changed(document, attributes=attributes)


def text(path, *texts):
    return lambda document: changed(document, datasets={path: texts})


def time_function(data):
    written = data if isinstance(data, str) else json.dumps(data)
    return lambda document: changed(
        document, datasets={"terms/time": (written, *document.datasets["terms/time"][1:])}
    )


def without_exact(*names):
    return lambda document: changed(document, datasets={f"exact/{name}": None for name in names})


def many_operators(document):
    """A million empty operators would compress to nothing and take long to build."""
    zeros = np.zeros(10**6, dtype=np.int64)
    offsets = np.append(zeros, document.datasets["operators/rows"].size)
    return changed(document, datasets={"operators/level": zeros, "operators/offsets": offsets})


def very_many_terms(document):
    """Each takes little space in the file and some time to build."""
    many = with_terms(document, document.datasets["terms/time"][:1] * 20_000)
    many.datasets["terms/one_sided"] = np.zeros(20_000, np.int64)
    return many


NESTED = {"kind": "sum", "terms": [{"kind": "sin", "omega": 1.0, "phase": 0.0}]}
for _ in range(40):
    NESTED = {"kind": "product", "coefficient": 2.0, "factors": [NESTED]}

LIES = {
    "side of a source": (
        lambda document: changed(
            document, datasets={"sources/explicit": np.arange(1, 1 + len(MANY_TIMES))}
        ),
        r"'sources/explicit' holds 2 at \[1\]; expected 0 … 1",
    ),
    "sides of fewer sources": (
        lambda document: changed(document, datasets={"sources/explicit": np.ones(1, np.int64)}),
        r"dataset 'sources/explicit' has shape \(1,\)",
    ),
    "wrong version": (attribute(format_version=2), "'format_version' is 2"),
    "wrong format": (attribute(format="batchkron"), "attribute 'format' is 'batchkron'"),
    "no degree": (attribute(degree=None), "attribute 'degree' is missing"),
    "degree a text": (attribute(degree="1"), "attribute 'degree' is str; expected int"),
    "degree a float": (attribute(degree=1.0), "attribute 'degree' is float; expected int"),
    "huge degree": (attribute(degree=10**15), "attribute 'degree'"),
    "negative degree": (attribute(degree=-1), "attribute 'degree'"),
    "another degree": (attribute(degree=2), "dataset 'basis/filters' has shape"),
    "unknown attribute": (attribute(more=1), "attribute 'more' is not one of"),
    "another basis": (attribute(basis_id="haar"), "attribute 'basis_id' is 'haar'"),
    "turned filters": (put("basis/filters", (2, 0, 1), 0.25), "'basis/filters' differs by"),
    "filters off by 1e-9": (
        replace("basis/filters", lambda a: a + 1e-9),
        "'basis/filters' differs by 1.0e-09",
    ),
    "initial in single precision": (
        replace("initial", lambda a: a.astype(np.float32)),
        "dataset 'initial' has type float32; expected float64",
    ),
    "real cells": (
        replace("grid/cells", lambda a: a.astype(np.float64)),
        "dataset 'grid/cells' has type float64; expected int64",
    ),
    "text for numbers": (text("initial", "1", "2"), "dataset 'initial' has type text"),
    "numbers for text": (replace("name", lambda _: np.ones(1)), "dataset 'name' has type float64"),
    "short initial": (replace("initial", lambda a: a[:-1]), "dataset 'initial' has 47 for unknown"),
    "initial in two dimensions": (
        replace("initial", lambda a: a[None]),
        "dataset 'initial' has 2 dimensions; expected 1",
    ),
    "cells of three axes": (
        replace("grid/cells", lambda a: np.hstack((a, a[:, :1]))),
        r"dataset 'grid/cells' has shape \(12, 3\)",
    ),
    "no cells": (
        replace("grid/cells", lambda a: a[:0]),
        "dataset 'initial' has 48 for unknowns; expected 0",
    ),
    "cell out of range": (
        put("grid/cells", (5, 1), 4),
        r"dataset 'grid/cells': cells\[5, 1\] is 4",
    ),
    "negative cell": (put("grid/cells", (0, 0), -1), r"dataset 'grid/cells': cells\[0, 0\] is -1"),
    "cells out of order": (
        replace("grid/cells", lambda a: a[::-1]),
        "'grid/cells'.*come after",
    ),
    "cell twice": (replace("grid/cells", lambda a: np.sort(a, 0) * 0), "dataset 'grid/cells'"),
    "level beyond int64": (put("grid/levels", 0, 63), "dataset 'grid/levels': level is 63"),
    "huge level": (put("grid/levels", 0, 2**62), "dataset 'grid/levels': level is"),
    "negative level": (put("grid/levels", 0, -1), "dataset 'grid/levels': level is -1"),
    "higher level": (put("grid/levels", 0, 9), "dataset 'sources/factor_0' has 16 for size_0"),
    "unknown kind of grid": (text("grid/kind", "dense"), "dataset 'grid/kind' is 'dense'"),
    "NaN in a factor": (
        put("operators/blocks", (3, 0, 1), np.nan),
        r"dataset 'operators/blocks' holds nan at \[3, 0, 1\]",
    ),
    "infinite initial state": (put("initial", 7, -np.inf), "dataset 'initial' holds -inf"),
    "NaN in an axis": (put("axes/lower", 0, np.nan), "dataset 'axes/lower' holds nan"),
    "row out of range": (put("operators/rows", 2, 8), "dataset 'operators/rows' holds 8"),
    "column out of range": (put("operators/columns", 0, -1), "dataset 'operators/columns' holds"),
    "rows out of order": (put("operators/rows", 0, 7), "group 'operators', number 0.*not sorted"),
    "operator out of range": (
        put("terms/operators", (1, 1), 2),
        r"dataset 'terms/operators' holds 2 at \[1, 1\]; expected -1 … 1",
    ),
    "operator below the identity": (
        put("terms/operators", (1, 1), -2),
        "dataset 'terms/operators' holds -2",
    ),
    "operator of another axis": (
        put("terms/operators", (0, 0), 1),
        r"'terms/operators' names at \[0, 0\] an operator of level 2; expected level 3",
    ),
    "operator of a huge level": (put("operators/level", 0, 64), r"'operators/level'\[0\]"),
    "offsets beyond the pairs": (
        put("operators/offsets", 1, 10**9),
        "dataset 'operators/offsets' must rise from 0",
    ),
    "offsets backwards": (put("operators/offsets", 0, 1), "'operators/offsets' must rise"),
    "offset missing": (
        replace("operators/offsets", lambda a: a[:-1]),
        "dataset 'operators/offsets' has 2 for operators_and_end; expected 3",
    ),
    "a million operators": (
        many_operators,
        "dataset 'terms/operators' does not name each of the 1000000 operators",
    ),
    "very many terms": (
        very_many_terms,
        "dataset 'terms/time' has 20000 functions for 2 axes; expected at most 16384",
    ),
    "times missing": (text("terms/time"), "dataset 'terms/time' has shape"),
    "time not JSON": (time_function("sin(t)"), r"dataset 'terms/time'\[0\]"),
    "time NaN": (
        time_function('{"kind":"constant","value":NaN}'),
        r"dataset 'terms/time'\[0\]: JSON holds NaN",
    ),
    "time code": (
        time_function({"kind": "eval", "code": "1/0"}),
        r"dataset 'terms/time'\[0\].*kind must be one of",
    ),
    "time too deep": (time_function(NESTED), r"dataset 'terms/time'\[0\].*nested deeper"),
    "time a list": (time_function([]), r"dataset 'terms/time'\[0\].*expected a dictionary"),
    "time overflows": (
        time_function('{"kind":"exp","rate":1e999}'),
        r"dataset 'terms/time'\[0\]",
    ),
    "spline backwards": (
        time_function({"kind": "spline", "times": [1.0, 0.0], "values": [0.0, 1.0], "order": 0}),
        r"dataset 'terms/time'\[0\].*increase",
    ),
    "units a list": (text("units", "[]"), "dataset 'units' holds JSON list; expected dict"),
    "units numbers": (text("units", '{"x":1}'), "dataset 'units' gives 'x' a unit"),
    "provenance not JSON": (text("provenance/problem", "{"), "'provenance/problem' is not strict"),
    "two names": (text("name", "a", "b"), r"dataset 'name' has shape \(2,\); expected \(1\)"),
    "no name": (text("name", ""), "dataset 'name' is empty"),
    "axis upside down": (put("axes/upper", 0, -2.0), "group 'axes': axis 'x'"),
    "axes of one name": (
        text("axes/name", "x", "x"),
        "dataset 'axes/name' is x, x; expected different",
    ),
    "axis with a bad name": (text("axes/name", "x", "y z"), "group 'axes': name is 'y z'"),
    "no axes": (text("axes/name"), "dataset 'axes/name' is missing, empty"),
    "three axes": (text("axes/name", "x", "y", "z"), "dataset 'axes/lower' has shape"),
    "negative step": (put("stepper/dt", 0, -0.1), "group 'stepper': dt must be positive"),
    "no method": (text("stepper/method", ""), "group 'stepper': method"),
    "no initial state": (replace("initial", lambda _: None), "dataset 'initial' is missing"),
    "no stepper": (replace("stepper/dt", lambda _: None), "dataset 'stepper/dt' is missing"),
    "half an exact solution": (without_exact("time"), "dataset 'exact/time' is missing"),
    "exact solution without an axis": (
        without_exact("factor_1"),
        "dataset 'exact/factor_1' is missing",
    ),
    "remainders of another count": (
        replace("exact/remainders", lambda a: a[:, :1]),
        "dataset 'exact/remainders' has shape",
    ),
    "unknown dataset": (
        lambda document: changed(document, datasets={"more": np.ones(1)}),
        "dataset 'more' is not one of this format's",
    ),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_file_that_lies_is_refused(problem, path, lie):
    change, expected = LIES[lie]
    write_unchecked(path, change(encode_problem(content_of(problem))))
    with pytest.raises(ProblemFileError, match=expected) as caught:
        load_problem(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)
    assert re.search("(dataset|attribute|group) '", str(caught.value))


def test_a_file_changed_behind_its_hash_is_refused(path):
    edit(path, lambda file: file["initial"].__setitem__(0, 1.0))
    with pytest.raises(ProblemFileError, match="the content has the hash"):
        load_problem(path)


def refused_or_the_same(path, content_hash):
    """Return whether the file was refused; one that loads must have its original content."""
    try:
        found = load_problem(path)
    except ProblemFileError:
        return True
    assert found.content_hash == content_hash
    return False


def test_random_damage_is_refused_or_harmless(problem, path, rng):
    """Byte flips, overwritten pieces and truncation anywhere in the file."""
    image = path.read_bytes()
    refused = 0
    for k in range(240):
        damaged = bytearray(image)
        place = int(rng.integers(len(damaged)))
        if k % 3 == 0:
            damaged[place] ^= 1 << int(rng.integers(8))
        elif k % 3 == 1:
            damaged[place : place + 20] = rng.bytes(len(damaged[place : place + 20]))
        else:
            del damaged[place:]
        path.write_bytes(damaged)
        refused += refused_or_the_same(path, problem.content_hash)
    assert refused > 200


def test_damage_with_repaired_checksums_is_refused_or_harmless(problem, path, rng):
    """Wrong HDF5 metadata with valid checksums, on which libhdf5 itself may crash."""
    image = path.read_bytes()
    blocks = metadata_blocks(image)
    assert len(blocks) > 30
    refused = 0
    for _ in range(240):
        damaged = bytearray(image)
        start, end = blocks[int(rng.integers(len(blocks)))]
        for place in rng.integers(start, end, size=2).tolist():
            damaged[place] = int(rng.choice([0, 1, 127, 255, rng.integers(256)]))
        seal(damaged, start, end)
        path.write_bytes(damaged)
        refused += refused_or_the_same(path, problem.content_hash)
    assert refused > 60
    save_problem(path, problem, overwrite=True)
    assert not refused_or_the_same(path, problem.content_hash)
