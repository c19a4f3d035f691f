"""What is wrong with a pointwise function is said with its name, its term, and what to write."""

import math

import numpy as np
import pytest
from problem_oracle import rates

from batchkron import NotPhysicalError
from batchkron.problems import PDE, Axis, Moment, div, laplacian, mass, pointwise
from batchkron.solvers import evolve

X = Axis("x", 0, 1)


def problem_of(terms, **more):
    more = {"boundary": "periodic", "initial": 1.0, **more}
    return PDE([X], terms, **more).discretize(2, 1)


def growth(f):
    f * (1 - f)


WRONG = {
    "None": (growth, r"pointwise\(growth\) gave None; expected an array of 12 numbers, by return"),
    "one number in an array": (lambda f: np.ones(1), r"gave shape \(1,\) for 12 points; .*arrays"),
    "another shape": (lambda f: f[:, None], r"gave shape \(12, 1\) for 12 points"),
    "what are no numbers": (lambda f: object(), "gave dtype object; .*, one for each point$"),
    "complex numbers": (lambda f: 1j * f, "gave dtype complex128; .*two real components"),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_what_functions_return(what):
    function, text = WRONG[what]
    with pytest.raises((TypeError, ValueError), match=text) as caught:
        rates(problem_of(pointwise(function)), np.ones(8))
    assert str(caught.value).startswith("the function of mass(x) @ pointwise(")
    flux = pointwise("f", speed_of=function)
    with pytest.raises((TypeError, ValueError), match=r"^speed_of of -1 \* div\(x\) @"):
        rates(problem_of(-1 * div(X) @ flux).beginning_at(np.ones(8)), np.ones(8))


@pytest.mark.parametrize("function", [lambda f: math.exp(f), lambda f: 0 * f if f < 0 else f])
def test_functions_of_single_numbers(function):
    with pytest.raises((TypeError, ValueError)) as caught:
        rates(problem_of(pointwise(function)), np.ones(8))
    (note,) = caught.value.__notes__
    assert "mass(x) @ pointwise(<lambda>): it is called with an array of 12 numbers" in note
    assert "write it with NumPy functions (np.exp, np.where), not with math or if" in note
    with pytest.raises(TypeError, match=r"pointwise\(exp\) is math\.exp, which takes single"):
        problem_of(pointwise(math.exp))


F = pointwise("f**2")
ARITHMETIC = {
    "a quotient": lambda: F / 2,
    "a quotient of a term": lambda: (div(X) @ F) / 2,
    "a reciprocal": lambda: 1 / F,
    "a power": lambda: F**2,
    "a sum": lambda: F + F,
    "a sum with a number": lambda: 1.0 + F,
    "a difference of terms": lambda: div(X) @ F - F,
    "a product": lambda: F * F,
    "a product with a term": lambda: div(X) * F,
    "a product with a field": lambda: Moment(X) * F,
    "an array": lambda: np.ones(2) * F,
    "a chain of functions": lambda: F @ F,
    "a chain with a callable": lambda: F @ np.sin,
}


@pytest.mark.parametrize("what", ARITHMETIC)
def test_arithmetic(what):
    text = r"pointwise\('f\*\*2'\)> takes numbers .* Write quotients, .*F\(f\) / 2\), and give sums"
    with pytest.raises(TypeError, match=text):
        ARITHMETIC[what]()


class Reflected:
    """What has operators of its own for what stands left of it."""

    def __rmul__(self, other):
        return "product"

    __rmatmul__ = __radd__ = __rtruediv__ = __rmul__


def test_other_classes_have_their_operators():
    both = F, mass(X) @ F
    for own in both:
        found = own * Reflected(), own @ Reflected(), own + Reflected(), own / Reflected()
        assert set(found) == {"product"}


def test_terms_are_given_as_a_list():
    with pytest.raises(TypeError, match=r"<Term .*give sums as a list, terms=\[a, b\]"):
        mass(X) + laplacian(X)


def test_functions_cannot_change_coordinates():
    def moves(f, x):
        x *= 2
        return f * x

    with pytest.raises(ValueError, match="read-only"):
        problem_of([pointwise(moves)], initial=1.0)


def test_products_with_numbers():
    assert repr(np.array(0.5) * F) == "<Pointwise 0.5 * pointwise('f**2')>"
    assert repr(np.float64(0.5) * F) == "<Pointwise 0.5 * pointwise('f**2')>"
    assert repr(-(mass(X) @ F)) == "<PointwiseTerm -1 * mass(x) @ pointwise('f**2')>"


@pytest.mark.parametrize(
    ("method", "steps"),
    [("backward-euler", {"dt": 0.01}), ("crank-nicolson", {"dt": 0.01}),
     ("esdirk3", {"dt": 0.01}), ("bdf", {"rtol": 1e-3})],
)  # fmt: skip
def test_implicit_methods_where_the_derivative_is_not_finite(method, steps):
    problem = problem_of([pointwise("sqrt(f)"), laplacian(X)], initial=0.0)
    text = rf"^method '{method}' cannot begin: the derivative of .*sqrt\(f\)'\) is inf at x = .*, "
    with pytest.raises(NotPhysicalError, match=text + r"t = 0\.0; .* explicit or IMEX method"):
        evolve(problem, until=0.02, method=method, **steps)
