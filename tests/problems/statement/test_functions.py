"""Functions of all axes: which callables and texts are taken, and how they are called."""

import functools
import math
import pickle

import numpy as np
import pytest

from batchkron.problems import PDE, Axis, Inflow, Separable, mass, pointwise, time
from batchkron.problems.statement.formula import Formula
from batchkron.problems.statement.functions import function_of_axes

X, Y = Axis("x", 0, 1), Axis("y", 0, 1)
RNG = np.random.default_rng(1)
POINTS = [RNG.uniform(size=20), RNG.uniform(size=20)]


def value(function, *, in_time=True, t=2.0):
    return function_of_axes("f", function, [X, Y], in_time=in_time)(*POINTS, t)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y, t: x - 2 * y + t,
        lambda t, y, x: x - 2 * y + t,  # by name
        lambda a, b, c: a - 2 * b + c,  # in the order of the axes
        lambda *y: y[0] - 2 * y[1] + 2.0,
        lambda *args: args[0] - 2 * args[1] + 2.0,
        lambda x, y, t, shift=0.0: x - 2 * y + t + shift,
        "x - 2*y + t",
    ],
)
def test_arguments_come_by_name_or_in_order(function):
    np.testing.assert_allclose(value(function), POINTS[0] - 2 * POINTS[1] + 2.0, rtol=1e-15)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y, t=0.0: x - 2 * y + t,
        lambda x=0.0, *, y=0.0, t=0.0, shift=0.0: x - 2 * y + t + shift,
        lambda a, b, t=0.0: a - 2 * b + t,
        functools.partial(lambda x, y, t, shift: x - 2 * y + t + shift, shift=0.0),
    ],
)
def test_arguments_with_defaults_are_given(function):
    np.testing.assert_allclose(value(function), POINTS[0] - 2 * POINTS[1] + 2.0, rtol=1e-15)


def test_arguments_that_a_partial_has_fixed_are_kept():
    fixed = functools.partial(lambda x, y, t: x - 2 * y + t, t=0.5)
    np.testing.assert_allclose(value(fixed), POINTS[0] - 2 * POINTS[1] + 0.5, rtol=1e-15)


def test_functions_of_the_state_take_it_alone_or_names():
    for function in (lambda u, x, y: u, lambda u, x=0.5: u):
        with pytest.raises(TypeError, match=r"in which x.* would not .*\(f, x, y, t\), in an"):
            function_of_axes("F", function, [X, Y], in_time=True, state=True)
    with pytest.raises(TypeError, match=r"expected .*\(f, x, y, t\).*: by .*, or the state alone"):
        function_of_axes("F", lambda u, v: u, [X, Y], in_time=True, state=True)


def test_functions_of_some_axes_and_numbers():
    np.testing.assert_array_equal(value(lambda y: y**2), POINTS[1] ** 2)
    np.testing.assert_array_equal(value(np.hypot), np.hypot(*POINTS))
    np.testing.assert_array_equal(value(lambda x, y: 3), np.full(20, 3.0))
    assert not function_of_axes("f", np.hypot, [X, Y], in_time=True).in_time
    assert function_of_axes("f", "t", [X, Y], in_time=True).in_time


@pytest.mark.parametrize(
    ("function", "error", "text"),
    [
        (lambda a: a, TypeError, r"f is a function of \(a\); expected .*\(x, y, t\)"),
        (lambda x, y, t, s: x, TypeError, r"f is a function of \(x, y, t, s\)"),
        (lambda y, b: y, TypeError, r"function of \(y, b\), in which y would not get what the na"),
        (lambda a, b, *, t=0.0: a, TypeError, "in which t would not get"),
        (lambda y, x, /: x, TypeError, "in which y, x would not get"),
        (math.sin, TypeError, "f is math.sin, which takes single numbers"),
        (np.cos, TypeError, "f is np.cos, a function of 1 arrays"),
        (lambda x, y: x[:3], ValueError, r"f gave shape \(3,\) for 20 points"),
        (lambda x, y: 1j * x, TypeError, "f gave dtype complex128"),
        (lambda x, y: np.where(x == POINTS[0][7], np.inf, y), ValueError,
         f"f is inf at x = {POINTS[0][7]}, y = {POINTS[1][7]}, t = 2.0"),
        ("x +", ValueError, "f: 'x \\+' is no formula"),
        ("1 / (x - x)", ValueError, "f is inf at x"),
    ],
)  # fmt: skip
def test_what_is_refused(function, error, text):
    with pytest.raises(error, match=text):
        value(function)


@pytest.mark.parametrize("function", [lambda x, y: math.sin(x), lambda x, y: x if x > 0 else y])
def test_functions_of_single_numbers_are_explained(function):
    with pytest.raises((TypeError, ValueError)) as caught:
        value(function)
    assert "from f: it is called with an array of 20 numbers" in caught.value.__notes__[0]


def test_a_function_without_time_may_not_have_it():
    with pytest.raises(ValueError, match="names 't'; expected x, y"):
        value("x * t", in_time=False)
    with pytest.raises(TypeError, match=r"of \(x, y, t\); expected .*\(x, y\)"):
        value(lambda x, y, t: x, in_time=False)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("-x**2 + 3*y/2", lambda x, y: -(x**2) + 3 * y / 2),
        ("exp(-(x - 0.5)**2) * sqrt(y)", lambda x, y: np.exp(-((x - 0.5) ** 2)) * np.sqrt(y)),
        ("sin(cos(x)) ** (1e-1 * y) - +2", lambda x, y: np.sin(np.cos(x)) ** (0.1 * y) - 2),
    ],
)
def test_formulas_are_computed_by_numpy(text, expected):
    np.testing.assert_array_equal(value(text), expected(*POINTS))
    again = pickle.loads(pickle.dumps(function_of_axes("f", text, [X, Y], in_time=True)))
    np.testing.assert_array_equal(again(*POINTS, 2.0), value(text))


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "x.real",
        "(lambda: x)()",
        "[x for x in y]",
        "exp",
        "exp(x, y)",
        "exp(x=1)",
        "x if y else 1",
        "x < y",
        "x // 2",
        "x @ y",
        "x[0]",
        "f'{x}'",
        "1j * x",
        "True",
        "'x'",
        "abs(x)",
        "x := 1",
        "x; y",
        "",
        "(" * 300 + "x" + ")" * 300,
        "-" * 1999 + "x",
        "1" + "0" * 400,
        "x + " * 600 + "x",
    ],
)
def test_what_is_no_formula(text):
    with pytest.raises(ValueError, match=r"formula|names|characters"):
        Formula(text, ("x", "y"))


def test_towers_of_powers_are_not_computed_with_integers():
    """9**9**9 as Python's integers would take minutes."""
    with pytest.raises(ValueError, match="f is inf"):
        value("x * 9**9**9")


@pytest.mark.parametrize(
    "function",
    [
        lambda y, x, t: np.cos(x - 2 * y - t),
        lambda t, x, y: np.cos(x - 2 * y - t),
        lambda *arguments: np.cos(arguments[0] - 2 * arguments[1] - arguments[2]),
        "cos(x - 2*y - t)",
    ],
)
def test_exact_solutions_get_arguments_by_name_or_in_order(function):
    def error(exact):
        pde = PDE([X, Y], mass(X), boundary="neumann", exact=exact, t0=0.3)
        problem = pde.discretize(2, 1)
        return problem.initial, problem.l2_error(problem.initial, 0.7)

    for found, expected in zip(
        error(function), error(lambda x, y, t: np.cos(x - 2 * y - t)), strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)


def test_words_are_no_boundary_data():
    with pytest.raises(ValueError, match="a number, a Separable, or a function of the coordinates"):
        PDE([X, Y], mass(X), boundary={"x": Inflow("from y"), "y": "neumann"}, initial=0.0)


def test_numbers_and_separable_functions_are_projected():
    problem = PDE([X, Y], mass(X), boundary="neumann", initial=0.0).discretize(2, 1)
    known = Separable(x=np.sin, t=time.exp(1.0)) + Separable(y=np.cos)
    for given, same in (
        (2.5, lambda x, y: 2.5),
        (0.0, lambda x, y: 0.0),
        (known, lambda x, y, t: np.sin(x) * np.exp(t) + np.cos(y)),
    ):
        expected = problem.project(same, 0.5)
        np.testing.assert_allclose(problem.project(given, 0.5), expected, rtol=0, atol=1e-14)
    with pytest.raises(TypeError, match="f must be a number, a Separable or a sum of them, got"):
        problem.project(object())


def test_arrays_are_no_initial_states():
    with pytest.raises(TypeError, match=r"initial must be a number, a Separable .* got ndarray"):
        PDE([X], mass(X), boundary="neumann", initial=np.zeros(4))


def test_descriptions_count_functions_of_the_state():
    terms = [pointwise("f**2"), pointwise("-f")]
    problem = PDE([X, Y], terms, boundary="neumann", initial=0.0).discretize(2, 1)
    assert "0 terms and 2 functions of the state, " in repr(problem)


def test_functions_that_change_their_arguments_are_explained():
    def scale(x, t):
        x *= t
        return x

    pde = PDE([X], mass(X), boundary="neumann", initial=0.0, sources=scale)
    problem = pde.discretize(2, 1)
    with pytest.raises(ValueError, match="read-only") as caught:
        problem.rhs(0.0, problem.initial, np.empty_like(problem.initial))
    assert "without changing the arrays it is given" in caught.value.__notes__[0]


def test_exact_solutions_without_the_time_and_those_that_are_refused():
    steady = PDE([X, Y], mass(X), boundary="neumann", exact=lambda x: np.sin(x))
    problem = steady.discretize(2, 1)
    assert problem.l2_error(problem.initial, 0.7) < 1e-2
    with pytest.raises(TypeError, match=r"exact is a function of \(y, s\), in which y wou"):
        PDE([X, Y], mass(X), boundary="neumann", exact=lambda y, s: y)
