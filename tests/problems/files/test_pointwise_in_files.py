"""Pointwise terms in files that are false: each is refused, and the text says where."""

import json

import numpy as np
import pytest
from crafted_files import changed, write_unchecked

from batchkron import ProblemFileError
from batchkron.problems import PDE, Axis, Moment, div, load_problem, pointwise, save_problem
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


def undefined(f):
    """A function of states above 2 alone; others raise, one by one or all together."""
    if (f <= 2.0).any():
        raise ValueError("only above 2")
    return np.sqrt(f - 2.0)


def with_function(function, **fields):
    v = Axis("v", -1, 1)
    axes = [X, v] if fields else [X]
    pde = PDE(axes, pointwise(function, **fields), boundary="periodic", initial=3.0)
    return pde.discretize(1, 1, dt=0.1)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (undefined, lambda f: 2.0 * undefined(f)),
        (lambda f: np.log(f - 5.0), lambda f: np.log(f - 6.0)),
        (lambda f: np.sqrt(-f - 1.0), lambda f: np.sqrt(-f - 2.0)),
    ],
)
def test_functions_that_are_not_defined_everywhere_are_told_apart(first, second):
    assert with_function(first).content_hash == with_function(first).content_hash
    assert with_function(first).content_hash != with_function(second).content_hash


def test_functions_of_later_times_have_a_hash():
    assert len(with_function(lambda f, t: f / (t > 100.0)).content_hash) == 64


def test_fields_outside_of_their_samples():
    def loss(f, n):
        return np.log(n - 3.0) * f

    field = Moment(Axis("v", -1, 1))
    assert len(with_function(loss, n=field).content_hash) == 64
    many = with_function(lambda f, n: np.log(n - 4.0) * f, n=field)
    assert many.content_hash != with_function(loss, n=field).content_hash


def test_many_functions_have_a_hash_but_no_file(tmp_path):
    terms = [pointwise(f"{k} * f") for k in range(70)]
    problem = PDE([X], terms, boundary="periodic", initial=3.0).discretize(1, 1, dt=0.1)
    other = PDE([X], terms[:-1], boundary="periodic", initial=3.0).discretize(1, 1, dt=0.1)
    assert problem.content_hash != other.content_hash
    with pytest.raises(ValueError, match="'pointwise/formula' has 70 functions; expected at most"):
        save_problem(tmp_path / "p.h5", problem)
