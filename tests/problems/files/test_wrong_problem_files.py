"""Problem files whose content is wrong or damaged are refused, or harmless."""

import json
import math
import re

import numpy as np
import pytest
from crafted_files import changed, edit, metadata_blocks, seal, with_terms, write_unchecked
from random_problem import MANY_TIMES, random_problem

from batchkron import ProblemFileError
from batchkron.problems import (
    load_problem,
    save_problem,
)
from batchkron.problems.files.encode import encode_problem
from batchkron.problems.semidiscrete.value import content_of


@pytest.fixture
def problem(rng):
    return random_problem(rng)


@pytest.fixture
def path(problem, tmp_path):
    path = tmp_path / "problem.h5"
    save_problem(path, problem)
    return path


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


def rule(**changes):
    whole = {"tol": 1e-3, "every": 10, "horizon": None, "max_level": [2, 3], "keep": [],
             "weight": None, "relative": False, "steps": [0.1, 0.2], **changes}  # fmt: skip
    return text("adapt/rule", json.dumps(whole))


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
    "wrong version": (attribute(format_version=5), "'format_version' is 5"),
    "wrong format": (attribute(format="batchkron"), "attribute 'format' is 'batchkron'"),
    "a rule with more": (rule(code="print(1)"), "'adapt/rule' is no object of tol, every"),
    "a rule that is no object": (text("adapt/rule", "[]"), "'adapt/rule'"),
    "a tolerance of zero": (rule(tol=0.0), "'adapt/rule': tol must be positive"),
    "a tolerance that is a text": (rule(tol="1"), "'adapt/rule': tol must be positive"),
    "a fraction of a step": (rule(every=1.5), "'adapt/rule': every must be an int"),
    "one level for two axes": (rule(max_level=[2]), "max_level has 1 levels; expected one for"),
    "levels that are a number": (rule(max_level=3), "'adapt/rule': max_level is no list"),
    "a level beyond all": (rule(max_level=[2, 99]), "'adapt/rule': max_level along ζ is 99"),
    "an unknown axis": (rule(keep=["q"]), "'adapt/rule': keep names 'q'; the axes are"),
    "a weight that is a number": (rule(weight=2), "'adapt/rule': weight must be a text"),
    "a relative that is a number": (rule(relative=1), "'adapt/rule': relative must be True"),
    "a step of zero": (rule(steps=[0.0]), "'adapt/rule': steps must be positive"),
    "a step that is a text": (rule(steps=["1"]), "'adapt/rule': steps must be positive"),
    "steps that are a number": (rule(steps=0.1), "'adapt/rule': steps is no list"),
    "well-posed until a text": (attribute(well_posed_until="1"), "is str; expected float"),
    "well-posed until infinity": (attribute(well_posed_until=math.inf), "well_posed_until"),
    "well-posed until NaN": (attribute(well_posed_until=math.nan), "well_posed_until"),
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
