"""Expressions of fields: arithmetic, texts, and what is refused."""

import operator

import numpy as np
import pytest

from batchkron.problems import PDE, Axis, Inflow, Moment, Poisson, Separable, div, grad, mass, time
from batchkron.problems.statement.fields import nodes_of

X, Y = Axis("x", 0.0, 1.0), Axis("y", 0.0, 2.0)
V, W = Axis("v", -6.0, 6.0), Axis("w", -5.0, 5.0)
N = Moment(V)


def test_texts_are_the_code_that_makes_a_field():
    u = Moment({V: 1}) / N
    assert repr(u) == "<(Moment({v: 1}) / Moment({v: 0}))>"
    assert repr(2.0 - N**0.5) == "<(2 - Moment({v: 0})**0.5)>"
    assert repr(np.float64(3.0) * -N) == "<(3 * (-1 * Moment({v: 0})))>"
    assert repr(np.cos + N) == "<(cos + Moment({v: 0}))>"
    assert repr(Poisson(X, N)) == "<Poisson(x, Moment({v: 0}))>"
    E = Poisson(X, N, 1.0, potential=(0, 2))
    assert repr(E) == "<Poisson(x, Moment({v: 0}), 1, potential=(0.0, 2.0))>"


def test_long_texts_are_cut_off_and_shared_parts_counted_once():
    total = N
    for _ in range(60):  # 2^60 summands
        total = total + total
    assert len(repr(total)) < 140
    assert len(list(nodes_of(total))) == 61


def test_long_sums_need_no_deep_recursion():
    total = N
    for _ in range(5000):
        total = total + 1.0
    assert len(list(nodes_of(total))) == 10_001


@pytest.mark.parametrize("function", ["+", "-", "*", "/"])
@pytest.mark.parametrize("other", [3, 2.5, np.float32(2.0), np.sin, N, lambda x: x**2])
def test_fields_numbers_and_functions_are_combined_on_both_sides(function, other):
    combine = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}
    for made in (combine[function](N, other), combine[function](other, N)):
        assert made.operation == function
        assert N in made.operands


@pytest.mark.parametrize("other", ["n", None, [1.0], time.sin(1.0), X])
def test_other_things_are_not_combined(other):
    with pytest.raises(TypeError):
        N + other
    with pytest.raises(TypeError):
        other * N
    with pytest.raises(TypeError):
        N**other


def test_what_is_no_moment():
    with pytest.raises(TypeError, match=r"Moment is given str; expected an axis"):
        Moment("v")
    with pytest.raises(TypeError, match=r"Moment names 'v'; expected axes"):
        Moment({"v": 1})
    with pytest.raises(ValueError, match=r"Moment names no axis"):
        Moment({})
    with pytest.raises(ValueError, match=r"Moment names an axis twice: v, v"):
        Moment([V, V])
    with pytest.raises(ValueError, match=r"the power of 'v' is -1; expected 0 … 64"):
        Moment({V: -1})
    with pytest.raises(TypeError, match=r"the power of 'v' is float"):
        Moment({V: 0.5})
    with pytest.raises(ValueError, match="must be finite"):
        N * np.inf
    with pytest.raises(ZeroDivisionError, match="a field is divided by the number 0"):
        N / 0


def test_what_is_no_poisson_equation():
    with pytest.raises(TypeError, match="axis must be an Axis, got str"):
        Poisson("x", N)
    with pytest.raises(TypeError, match="density is float; expected a field"):
        Poisson(X, 1.0)
    with pytest.raises(ValueError, match="the only word for it is 'mean'"):
        Poisson(X, N, background="zero")
    with pytest.raises(TypeError, match="background is list"):
        Poisson(X, N, background=[1.0])
    with pytest.raises(TypeError, match=r"expected the pair \(left, right\)"):
        Poisson(X, N, potential=1.0)


def pde(terms, axes=(X, V), **options):
    boundary = {axis: "periodic" if axis in (X, Y) else Inflow() for axis in axes}
    return PDE(list(axes), terms, **{"boundary": boundary, "initial": 1.0, **options})


def test_a_field_is_a_function_of_the_axis_along_which_it_is_given():
    with pytest.raises(ValueError, match=r"along 'v', and that is a function of 'x'; give it as"):
        pde(mass(V, N))
    with pytest.raises(ValueError, match=r"is a function of x, w; expected one coordinate.*"):
        pde(div(V, -1.0, others={X: N}), axes=(X, V, W))
    with pytest.raises(ValueError, match=r"name all velocities, as in Moment\(\{v: 0, w: 0\}\)"):
        pde(div(V, -1.0, others={X: N}), axes=(X, V, W))
    with pytest.raises(ValueError, match="that of Poisson's equation, Electric"):
        pde(div(V, -1.0, others={X: N}), axes=(X, Y, V))
    with pytest.raises(ValueError, match="integrates over all axes"):
        pde(mass(X, Moment([X, V])))
    with pytest.raises(ValueError, match=r"names y, which is not among the axes x, v|names Axis"):
        pde(mass(X, Moment(Y)))
    with pytest.raises(ValueError, match="parts that are functions of 'x' and of 'v'"):
        pde(mass(X, Moment(V) + Moment(X)))


def test_derivatives_along_a_fields_own_axis_stand_alone():
    with pytest.raises(ValueError, match="div acts along 'x' beside other factors"):
        pde(div(X) @ mass(X, N))
    assert repr(div(X, N)) == "<Term div(x, Moment({v: 0}))>"
    assert repr(-2.0 * grad(X, N, flux="central")) == (
        "<Term -2 * grad(x, Moment({v: 0}), flux='central')>"
    )


def test_what_does_not_go_with_fields():
    force = div(V, -1.0, others={X: Poisson(X, N)})
    with pytest.raises(ValueError, match="periodic: E has the same value at both ends"):
        pde(div(V, others={X: Poisson(X, N, 1.0)}))
    with pytest.raises(ValueError, match="periodic: E has the same value at both ends"):
        pde(div(V, others={X: Poisson(X, N, potential=(0.0, 1.0))}))
    with pytest.raises(ValueError, match="which has a volume element; Poisson's equation"):
        pde(force, volume={X: lambda x: 1.0 + x})
    with pytest.raises(ValueError, match="would need the field of the exact solution"):
        pde(force, initial=None, exact=Separable(x=np.cos), sources="from exact")
    data = pde(force, boundary={X: "periodic", V: Inflow(0.5)})
    with pytest.raises(ValueError, match="meets data at an end of an axis that are not zero"):
        data.discretize(2, 1)
    with pytest.raises(TypeError, match=r"a function of \(x, v\); expected a function of one"):
        N * (lambda x, v: x * v)


@pytest.mark.parametrize("term", [div(X), div(X, N), mass(X, N), div(V, others={X: N})])
@pytest.mark.parametrize("number", [np.nan, np.inf, np.float32("-inf")])
def test_numbers_that_multiply_terms_are_finite(term, number):
    with pytest.raises(ValueError, match="number that multiplies a term must be finite"):
        number * term
    with pytest.raises(ValueError, match="number that multiplies a term must be finite"):
        (1e200 * term) * 1e200


def test_terms_show_their_fields():
    E = Poisson(X, N)
    force = -2.0 * div(V, others={X: E})
    assert repr(force) == "<Term -2 * mass(x, Poisson(x, Moment({v: 0}))) @ div(v)>"
    both = mass(X, N) @ mass(X, np.sin)
    assert repr(both) == "<Term mass(x, Moment({v: 0})) @ mass(x, sin)>"
