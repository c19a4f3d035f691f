"""Terms with fields, split by the signs of the fields."""

import pytest

from batchkron.problems import Axis, Moment, Poisson, div, grad, mass, penalty, time
from batchkron.problems.discretization.fields.signs import split_fields

X, Y, V = Axis("x", 0.0, 1.0), Axis("y", 0.0, 1.0), Axis("v", -6.0, 6.0)
N = Moment(V)


def signs(term):
    return [[part for _, part in own.values()] for _, own in split_fields(term)]


def test_a_term_without_fields_is_returned():
    term = div(X, -1.0, others={V: lambda v: v})
    assert split_fields(term) == [(term, {})]


@pytest.mark.parametrize("kind", [div, grad, penalty])
def test_one_derivative_needs_both_signs(kind):
    term = kind(V, -2.0, others={X: N}, time=time.exp(-1.0)) * 3.0
    parts = split_fields(term)
    assert signs(term) == [[1], [-1]]
    for (plain, own), sign in zip(parts, (1.0, -1.0), strict=True):
        assert own[X][0] is N
        assert (plain.scale, plain.time, plain.fields) == (term.scale, term.time, ())
        factors = [(f.kind, f.axis, f.coefficient) for f in plain.factors]
        assert factors == [("mass", X, sign), (kind.__name__, V, -2.0)]


def test_several_fields_need_all_combinations():
    term = div(V, others={X: N, Y: Moment({V: 1})})
    assert signs(term) == [[1, 1], [1, -1], [-1, 1], [-1, -1]]


def test_other_terms_have_no_sign():
    assert signs(mass(X, N)) == [[0]]
    assert signs(div(V, others={X: N}) @ grad(V)) == [[0]]


@pytest.mark.parametrize("kind", [div, grad])
def test_a_derivative_along_the_fields_own_axis_has_all_of_it(kind):
    term = kind(X, N, flux="downwind") * -2.0
    ((plain, own),) = split_fields(term)
    assert (*own[X], plain.scale, plain.fields) == (N, 0, -2.0, ())
    assert [(f.kind, f.coefficient, f.flux) for f in plain.factors] == [
        (kind.__name__, 1.0, "downwind")
    ]
    assert signs(kind(X, N, others={V: Moment(X)})) == [[1, 0], [-1, 0]]


def test_coefficients_along_the_fields_axis_become_part_of_it():
    E = Poisson(X, N)
    (_, own), _ = split_fields(mass(X, lambda x: x) @ mass(X, 2.0) @ div(V, others={X: E}))
    assert own[X][0].text() == "((Poisson(x, Moment({v: 0})) * <lambda>) * 2)"
    (plain, own), *_ = split_fields(mass(X, E) @ mass(X, N) @ div(V))
    assert own[X][0].text() == "(Poisson(x, Moment({v: 0})) * Moment({v: 0}))"
    assert [factor.kind for factor in plain.factors] == ["mass", "div"]
