"""Boundary data that are formulas of all axes: the same as callables, and kept by files."""

from dataclasses import replace

import numpy as np
import pytest

from batchkron.errors import ProblemFileError
from batchkron.problems import (
    PDE,
    Axis,
    Dirichlet,
    Inflow,
    Neumann,
    Separable,
    div,
    grad,
    load_problem,
    pointwise,
    save_problem,
)
from batchkron.problems.files.decode import decode_problem
from batchkron.problems.files.encode import encode_problem
from batchkron.problems.semidiscrete.value import content_of
from batchkron.problems.statement.formula import Formula

X, Y = Axis("x", 0.0, 1.0), Axis("y", -1.0, 1.0)
TEXT = "sin(3 * x * y) * exp(-t) + x"


def function(x, y, t):
    return np.sin(3 * x * y) * np.exp(-t) + x


def driven(value, slope):
    terms = [div(X, -1.0, others={Y: lambda y: 1.5 + y}), 0.3 * div(Y) @ grad(Y)]
    boundary = {X: Inflow(value), Y: (Dirichlet(value), Neumann(slope))}
    return PDE([X, Y], terms, boundary=boundary, initial="x * y").discretize(3, 2)


def carried(value):
    """A flux of f with values given where f flows in."""
    flux = pointwise("f**2 * (2 + y) - f", speed=5.0)
    boundary = {X: (Dirichlet(value), Neumann()), Y: "periodic"}
    terms = [-1 * div(X) @ flux]
    return PDE([X, Y], terms, boundary=boundary, initial="1 + 0 * x").discretize(3, 1)


def rate(problem, t):
    u = np.random.default_rng(3).standard_normal(problem.unknowns)
    found = np.full_like(u, np.nan)
    problem.rhs(t, u, found)
    return found


@pytest.mark.parametrize("t", [0.0, 0.7])
def test_formulas_are_the_functions_that_they_say(t):
    by_text, by_function = driven(TEXT, "y + t"), driven(function, lambda x, y, t: y + t)
    assert np.abs(rate(by_text, t) - rate(driven(0.0, 0.0), t)).max() > 1.0
    np.testing.assert_allclose(rate(by_text, t), rate(by_function, t), atol=1e-11)
    by_text, by_function = carried("2 + sin(y) * t"), carried(lambda y, t: 2 + np.sin(y) * t)
    np.testing.assert_allclose(rate(by_text, t), rate(by_function, t), atol=1e-11)


@pytest.mark.parametrize(
    "problem",
    [driven(TEXT, "y + t"), driven(TEXT, 0.0), carried("2 + sin(y) * t"), carried(2.0)],
    ids=["all", "values", "flux", "a number"],
)
def test_files_keep_them(tmp_path, problem):
    save_problem(tmp_path / "p.h5", problem)
    loaded = load_problem(tmp_path / "p.h5")
    assert loaded.content_hash == problem.content_hash
    for t in (0.0, 0.4):
        np.testing.assert_array_equal(rate(loaded, t), rate(problem, t))


def test_the_hash_tells_them_apart():
    hashes = {driven(*own).content_hash for own in ((TEXT, 0.0), ("x * y", 0.0), (function, 0.0))}
    assert len(hashes) == 3


def test_callables_are_refused(tmp_path):
    with pytest.raises(TypeError, match="end of axis 'x' is the Python function function, which"):
        save_problem(tmp_path / "p.h5", driven(function, 0.0))
    text = r"at an end is the Python function Separable, which .*; give F and the data as formulas"
    with pytest.raises(TypeError, match=text):
        save_problem(tmp_path / "p.h5", carried(Separable(y=np.cosh)))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sin(y", "Dirichlet: 'sin\\(y' is no formula"),
        ("tan(y)", "Dirichlet: 'tan\\(y\\)' has 'tan\\(y\\)'"),
        ("from exat", "Dirichlet: 'from exat' is no formula.* The only word for data is"),
    ],
)
def test_texts_that_are_no_formulas(text, message):
    with pytest.raises(ValueError, match=message):
        Dirichlet(text)


def test_formulas_of_other_names():
    with pytest.raises(ValueError, match=r"the data at the left end of axis 'x': .* names 'z'"):
        driven("z * x", 0.0)


def test_a_formula_in_the_place_of_a_name():
    composed = Formula("-f**2 * x", ("f", "x")).having("f", Formula("x + t", ("x", "t")))
    assert composed({"x": 2.0, "t": 3.0}) == -50.0
    assert composed.names == {"x", "t"}


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("edges/formula", ("x", "x", "y z"), "is no formula"),
        ("edges/place", np.array([[0, 0], [2, 0], [1, 0]]), "edges/place"),
        ("edges/place", np.array([[1, 0], [1, 1], [1, 0]]), "acts along its axis"),
        ("edges/along", np.zeros(3), "edges/along"),
        ("edges/along", None, "dataset 'edges/along' is missing"),
    ],
    ids=["formula", "axis", "other axis", "too short", "missing"],
)
def test_wrong_files_are_refused(path, value, message):
    document = encode_problem(content_of(driven(TEXT, "y + t")))
    assert len(document.datasets["edges/formula"]) == 3
    datasets = {**document.datasets, path: value}
    datasets = {key: own for key, own in datasets.items() if own is not None}
    with pytest.raises(ProblemFileError, match=message):
        decode_problem(replace(document, datasets=datasets))
