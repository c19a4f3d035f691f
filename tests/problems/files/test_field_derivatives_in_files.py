"""Derivatives along their field's own axis in files: false tables are refused by name."""

import warnings

import numpy as np
import pytest
from crafted_files import changed, write_unchecked

from batchkron import ProblemFileError
from batchkron.problems import (
    PDE,
    Axis,
    Inflow,
    Moment,
    ShockWarning,
    div,
    grad,
    load_problem,
    mass,
)
from batchkron.problems.files.encode import encode_problem
from batchkron.problems.semidiscrete.value import content_of

X, V = Axis("x", 0.0, 4.0), Axis("v", -3.0, 3.0)
N = Moment(V)
TABLE, SCALES = "fields/derivatives", "fields/derivative_scales"


@pytest.fixture(scope="module")
def document():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ShockWarning)  # what is saved matters, not a solution
        return made()


def made():
    terms = [mass(X, N), 2.0 * div(X, N, flux="central"), grad(X, N, boundary="neumann")]
    terms.append(div(V, others={X: N}))
    pde = PDE([X, V], terms, boundary=Inflow(), initial=1.0)
    return encode_problem(content_of(pde.discretize(2, 1)))


def test_rows_are_as_documented(document):
    table = document.datasets[TABLE].tolist()
    modes = document.datasets["fields/modes"].tolist()
    scales = dict(zip(map(tuple, table), document.datasets[SCALES].tolist(), strict=True))
    found = {row[1:]: (modes[row[0]][3], scale) for row, scale in scales.items()}
    # ∂(2 N f)/∂x central, f = 0 where it flows in; N ∂f/∂x upwind, free ends
    assert found == {(0, 0, 3, 3): (0, 2.0), (1, -1, 2, 2): (0, 1.0)}


def put(place, value, path=TABLE):
    def damage(document):
        array = document.datasets[path].copy()
        array[place] = value
        return {path: array}

    return damage


def signed_part(document):
    """Make a derivative of the part of a field."""
    row = document.datasets[TABLE][0, 0]
    return put((row, 3), 1, "fields/modes")(document)


DAMAGES = {
    "row": (put((0, 0), 99), f"'{TABLE}' holds 99 at"),
    "kind": (put((0, 1), 2), f"'{TABLE}' holds 2 at"),
    "flux": (put((0, 2), -2), f"'{TABLE}' holds -2 at"),
    "end": (put((0, 4), 4), f"'{TABLE}' holds 4 at"),
    "twice": (lambda d: put((0, 0), d.datasets[TABLE][1, 0])(d), "twice"),
    "part": (signed_part, "with part 0"),
    "one end": (put((0, 3), 0), "is periodic at one end"),
    "other derivative": (put((0, slice(3, 5)), 0), "periodic at one end or in one derivative"),
    "scale": (put(0, np.nan, SCALES), SCALES),
    "no scales": (lambda _: {SCALES: None}, SCALES),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_false_derivatives_are_refused(tmp_path, document, name):
    damage, text = DAMAGES[name]
    path = tmp_path / "false.h5"
    write_unchecked(path, changed(document, datasets=damage(document)))
    with pytest.raises(ProblemFileError, match=text):
        load_problem(path)


def test_derivatives_without_fields_are_refused(tmp_path, document):
    gone = dict.fromkeys(("fields/modes", "fields/formula", "fields/samples"))
    path = tmp_path / "false.h5"
    write_unchecked(path, changed(document, datasets=gone))
    with pytest.raises(ProblemFileError, match=TABLE):
        load_problem(path)
