"""The mass blocks of a problem with a volume element: kept by files, checked wherever they come."""

import dataclasses

import numpy as np
import pytest

from batchkron import ProblemFileError
from batchkron.problems import (
    PDE,
    Axis,
    Dirichlet,
    Separable,
    laplacian,
    load_problem,
    save_problem,
    time,
)
from batchkron.problems.files.encode import encode_problem
from batchkron.problems.semidiscrete.value import content_of
from batchkron.storage import Document, write_document

R, S = Axis("r", 0.0, 1.0), Axis("s", 0.5, 2.0)
EXACT = Separable(r=np.exp, s=np.cos, t=time.cos(1.0), coefficient=-2.0) + Separable(
    r=np.sin, s=np.exp, t=time.exp(0.3)
)


@pytest.fixture
def problem():
    return PDE(
        [R, S],
        laplacian([R, S]),
        boundary=Dirichlet("from exact"),
        exact=EXACT,
        sources="from exact",
        volume={S: lambda s: np.exp(3 * s) * (1.5 + np.sin(9 * s))},
    ).discretize([2, 3], 2)


def test_files_keep_mass_blocks(problem, tmp_path, rng):
    save_problem(tmp_path / "v.h5", problem)
    loaded = load_problem(tmp_path / "v.h5")
    assert loaded.masses[0] is None
    assert loaded.masses[1].tobytes() == problem.masses[1].tobytes()
    assert loaded.content_hash == problem.content_hash
    u, out = rng.standard_normal(problem.unknowns), np.full((2, problem.unknowns), np.nan)
    for each, row in zip((problem, loaded), out, strict=True):
        each.rhs(0.3, u, row)
    assert out[0].tobytes() == out[1].tobytes()
    assert loaded.l2_error(u, 0.3) == problem.l2_error(u, 0.3)
    without = dataclasses.replace(problem, masses=())
    assert without.content_hash != problem.content_hash


def test_values_cannot_be_written_to(problem):
    with pytest.raises(ValueError, match="read-only"):
        problem.masses[1][0] = 1.0


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda blocks: blocks[1:], r"dataset 'masses/axis_1' has shape \(7, 3, 3\); expected \(8"),
        (lambda blocks: -blocks, "not symmetric and positive definite"),
        (lambda blocks: blocks + np.triu(np.ones((3, 3))), "not symmetric and positive definite"),
        (lambda blocks: blocks[:, :2, :2], r"'masses/axis_1' has shape \(8, 2, 2\)"),
    ],
)
def test_files_with_wrong_mass_blocks_are_refused(problem, tmp_path, change, text):
    document = encode_problem(content_of(problem))
    datasets = {**document.datasets}
    datasets["masses/axis_1"] = np.ascontiguousarray(change(datasets["masses/axis_1"]))
    write_document(tmp_path / "bad.h5", Document(document.attributes, datasets))
    with pytest.raises(ProblemFileError, match=text):
        load_problem(tmp_path / "bad.h5", trusted=True)


@pytest.mark.parametrize(
    ("masses", "error", "text"),
    [
        ([None], ValueError, "masses has 1 entries"),
        ([None, np.ones((8, 3))], ValueError, r"masses\[1\] has 2 dimensions; expected 3"),
        ([None, np.ones((4, 3, 3))], ValueError, r"masses\[1\] has shape \(4, 3, 3\); expected"),
        ([None, np.ones((8, 3, 3))], ValueError, r"masses\[1\]\[0\] is not symmetric and positive"),
        ([None, 1j * np.ones((8, 3, 3))], TypeError, r"masses\[1\] has dtype complex128"),
    ],
)
def test_masses_that_problems_refuse(problem, masses, error, text):
    with pytest.raises(error, match=text):
        dataclasses.replace(problem, masses=masses)
