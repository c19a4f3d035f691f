"""Pointwise terms in files that are false: each is refused, and the text says where."""

import json

import numpy as np
import pytest
from crafted_files import changed, write_unchecked

from batchkron import ProblemFileError
from batchkron.problems import PDE, Axis, Moment, div, load_problem, pointwise
from batchkron.problems.files.encode import encode_problem
from batchkron.problems.semidiscrete.value import content_of

X, V = Axis("x", 0.0, 1.0), Axis("v", -1.0, 1.0)


@pytest.fixture(scope="module")
def document():
    terms = [
        -1 * div(X) @ pointwise("f**2", speed_of="2 * f", derivative="2 * f"),
        pointwise("n * f", n=Moment(V) * (lambda s: 1 + s)),
    ]
    pde = PDE([X, V], terms, boundary={X: "periodic", V: "neumann"}, initial=1.0)
    return encode_problem(content_of(pde.discretize(2, 1)))


def field(**changes):
    def damage(document):
        (text,) = document.datasets["pointwise/fields"]
        entry = {**json.loads(text), **changes}
        kept = {key: value for key, value in entry.items() if value is not None}
        return {"pointwise/fields": (json.dumps(kept),)}

    return damage


def owner(change):
    def damage(document):
        found = np.array(document.datasets["pointwise/of_term"])
        change(found)
        return {"pointwise/of_term": found}

    return damage


DAMAGES = {
    "field of no function": (field(of=7), "of is 7; expected 0 … 1"),
    "field of a text": (field(of="0"), "of is '0'"),
    "unknown axis": (field(axis="w"), "axis is 'w'"),
    "another axis": (field(axis="v"), "is not a function of 'v'"),
    "name of a coordinate": (field(name="x"), "a field named 'x'"),
    "name that is none": (field(name=3), "name 3"),
    "no formula": (field(formula=None), "expected an object of of, name, axis and formula"),
    "samples elsewhere": (lambda d: {"pointwise/samples": np.zeros(3)}, "'pointwise/samples'"),
    "unknown name": (lambda d: {"pointwise/formula": ("f**2", "m * f")}, "names 'm'"),
    "no function": (lambda d: {"pointwise/formula": ("", "n * f")}, "is empty"),
    "code": (lambda d: {"pointwise/speed": ("__import__('os')", "")}, "pointwise/speed"),
    "speeds of fewer": (lambda d: {"pointwise/speed": ("f",)}, "pointwise/speed"),
    "damping without a speed": (lambda d: {"pointwise/speed": ("", "")}, "damping needs a speed"),
    "growth": (lambda d: {"pointwise/grows": np.array([2, 0])}, "'pointwise/grows' holds 2"),
    "an owner too large": (owner(lambda a: a.__setitem__(-1, 7)), "'pointwise/of_term' holds 7"),
    "owners that fall": (owner(lambda a: a.__setitem__(0, 2)), "does not ascend"),
    "limiter": (None, "limiter is 'none'"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_false_terms_are_refused(tmp_path, document, name):
    damage, text = DAMAGES[name]
    changes = {"datasets": damage(document)} if damage else {"attributes": {"limiter": "none"}}
    path = tmp_path / "bad.h5"
    write_unchecked(path, changed(document, **changes))
    with pytest.raises(ProblemFileError) as caught:
        load_problem(path, trusted=True)
    assert text in str(caught.value)
