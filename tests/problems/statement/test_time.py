"""Functions of time."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchkron.problems import time
from batchkron.problems.time import MAXIMUM_DEPTH, MAXIMUM_SIZE

TABLE = time.spline(np.linspace(-1.0, 3.0, 9), np.cos(np.arange(9.0)))

numbers = st.floats(-3, 3).map(lambda value: round(value, 3))
elementary = st.one_of(
    st.builds(time.constant, numbers),
    st.builds(time.polynomial, st.lists(numbers, max_size=4)),
    st.builds(time.sin, numbers, numbers),
    st.builds(time.cos, numbers, numbers),
    st.builds(time.exp, numbers),
    st.just(TABLE),
)
functions = st.recursive(
    elementary,
    lambda inner: st.one_of(
        st.builds(lambda f, g: f + g, inner, inner),
        st.builds(lambda f, g: f * g, inner, inner),
        st.builds(lambda c, f: c * f, numbers, inner),
        inner.map(lambda f: -f),
    ),
    max_leaves=6,
)


def test_values_of_each_kind():
    t = np.linspace(0.0, 2.0, 7)
    for function, expected in [
        (time.constant(1.5), 1.5 + 0 * t),
        (time.polynomial([1.0, -2.0, 0.5]), 1 - 2 * t + 0.5 * t**2),
        (time.sin(2.0, 0.3), np.sin(2 * t + 0.3)),
        (time.cos(2.0, 0.3), np.cos(2 * t + 0.3)),
        (time.exp(-1.5), np.exp(-1.5 * t)),
        (time.spline([0, 1, 2, 4], [0, 1, 8, 64]), t**3),
    ]:
        np.testing.assert_allclose(function(t), expected, rtol=1e-13, atol=1e-13)
        assert isinstance(function(1.0), float)
        assert function(1.0) == function(np.array([1.0]))[0]


@settings(max_examples=60, deadline=None)
@given(functions, functions, st.floats(0.0, 2.0))
def test_algebra_is_pointwise(f, g, t):
    scale = 1 + abs(f(t)) + abs(g(t)) + abs(f(t) * g(t))
    assert (f + g)(t) == pytest.approx(f(t) + g(t), abs=1e-11 * scale)
    assert (f - g)(t) == pytest.approx(f(t) - g(t), abs=1e-11 * scale)
    assert (f * g)(t) == pytest.approx(f(t) * g(t), abs=1e-11 * scale)
    assert f + g == g + f
    assert f * g == g * f
    assert hash(f * g) == hash(g * f)


@settings(max_examples=60, deadline=None)
@given(functions, st.floats(0.1, 1.9))
def test_derivative_is_the_limit_of_differences(f, t):
    step = 1e-4
    points = t + step * np.array([-2.0, -1.0, 1.0, 2.0])
    difference = float(f(points) @ np.array([1.0, -8.0, 8.0, -1.0])) / (12 * step)
    # a table's third derivative jumps at its entries; the difference then errs by O(step^2)
    scale = 1 + np.abs(f(np.linspace(-0.9, 2.9, 77))).max()
    assert f.derivative()(t) == pytest.approx(difference, abs=1e-4 * scale * (1 + abs(difference)))


KINDS = {
    "constant": time.constant(0.3),
    "polynomial": time.polynomial([1.0, -2.0, 0.5, 0.1]),
    "sin": time.sin(40.0, 0.3),
    "cos": time.cos(-7.3, 1e6),
    "exp": time.exp(-1.7),
    "spline": TABLE,
    "spline's slope": TABLE.derivative(),
    "product": 0.7 * time.sin(3.0) * time.exp(0.4) * TABLE,
    "sum": time.cos(2.0) - 0.3 * time.exp(1.1) + time.polynomial([0.0, 1.0]) * time.sin(5.0),
}


@pytest.mark.parametrize("name", KINDS)
def test_many_times_give_the_bits_of_single_ones(rng, name):
    """Steps evaluate some ahead, and have to be those that are taken singly."""
    function = KINDS[name]
    for shape in [(1, 1), (7, 1), (1, 3), (8, 4), (56, 3), (64, 7), (61,)]:
        t = rng.uniform(-1.0, 3.0, shape)
        single = [function(one) for one in t.ravel().tolist()]
        for times in (t, np.asfortranarray(t), np.repeat(t, 2, axis=0)[::2]):
            found = function(times)
            assert found.shape == shape
            np.testing.assert_array_equal(found.ravel(), single)


@settings(max_examples=60, deadline=None)
@given(functions)
def test_json_brings_back_the_same_value(f):
    assert time.from_json(json.loads(json.dumps(f.to_json()))) == f
    slope = f.derivative()
    assert time.from_json(json.loads(json.dumps(slope.to_json()))) == slope


def test_normal_form():
    f, g = time.sin(2.0), time.exp(-1.0)
    assert f - f == time.constant(0.0)
    assert 0 * f == time.constant(0.0)
    assert 1 * f is f
    assert 2 * f + 3 * f == 5 * f
    assert (f + g) * 2 - f == f + 2 * g
    assert 2 * (3 * f) * g == 6 * (g * f)
    assert time.polynomial([4.0, 0.0]) == time.constant(4.0)
    assert time.sin(0.0, 1.0).is_constant
    assert time.exp(0.0) == time.constant(1.0)
    assert not f.is_constant
    assert (f * 0 + 2).is_constant
    assert f - 1 == f + (-1)
    assert 1 - f == -f + 1
    assert f != g
    assert np.float64(2.0) * f == f * 2


def test_spline_derivatives_end_and_its_range_is_kept():
    assert TABLE.derivative().derivative().derivative().derivative() == time.constant(0.0)
    assert TABLE(3.0 + 1e-15) == pytest.approx(TABLE(3.0))
    for outside in (-1.1, 3.1, np.array([0.0, 3.5]), float("nan")):
        with pytest.raises(ValueError, match="outside the spline's table"):
            TABLE(outside)


def test_functions_are_immutable():
    f = time.sin(2.0)
    with pytest.raises(AttributeError):
        f.omega = 3.0
    assert {f: 1}[time.sin(2.0)] == 1


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: time.sin("2"), TypeError, "omega must be a real number"),
        (lambda: time.sin(True), TypeError, "omega must be a real number"),
        (lambda: time.exp(float("inf")), ValueError, "rate must be finite"),
        (lambda: time.constant(10**400), ValueError, "value must be finite"),
        (lambda: time.polynomial([1.0, float("nan")]), ValueError, r"coefficients\[1\]"),
        (lambda: time.spline([0, 1], [0, 1, 2]), ValueError, "one length"),
        (lambda: time.spline([0], [0]), ValueError, "at least 2"),
        (lambda: time.spline([0, 1, 1], [0, 1, 2]), ValueError, "increase strictly"),
        (lambda: time.spline([0, np.nan, 1], [0, 1, 2]), ValueError, "must be finite"),
        (lambda: time.sin(1.0) * {}, TypeError, "unsupported operand"),
        (lambda: time.sin(1.0) + {}, TypeError, "unsupported operand"),
        (lambda: {} - time.sin(1.0), TypeError, "unsupported operand"),
        (lambda: time.sin(1.0) * float("nan"), ValueError, "must be finite"),
    ],
)
def test_wrong_arguments(make, error, text):
    with pytest.raises(error, match=text):
        make()


def nested(depth):
    data = {"kind": "sin", "omega": 1.0, "phase": 0.0}
    for level in range(depth):
        inner = {"kind": "exp", "rate": 1.0 + level}
        kind = ("sum", "terms") if level % 2 else ("product", "factors")
        data = {"kind": kind[0], kind[1]: [data, inner]}
        if kind[0] == "product":
            data["coefficient"] = 1.0
    return data


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (None, "expected a dictionary"),
        ([], "expected a dictionary"),
        ({"kind": "tan", "omega": 1.0}, "kind must be one of"),
        ({"kind": ["sin"]}, "kind must be one of"),
        ({"kind": "sin", "omega": 1.0}, "has the entries kind, omega, phase"),
        ({"kind": "sin", "omega": 1.0, "phase": 0.0, "x": 1}, "has the entries"),
        ({"kind": "sin", "omega": "1", "phase": 0.0}, "omega: expected a number"),
        ({"kind": "sin", "omega": True, "phase": 0.0}, "omega: expected a number"),
        ({"kind": "constant", "value": float("nan")}, "must be finite"),
        ({"kind": "constant", "value": 10**400}, "must be finite"),
        ({"kind": "polynomial", "coefficients": 3}, "expected a list"),
        ({"kind": "polynomial", "coefficients": [None]}, r"coefficients\[0\]: expected a number"),
        ({"kind": "spline", "times": [0, 1], "values": [0, 1], "order": 4}, "from 0 to 3"),
        ({"kind": "spline", "times": [0, 1], "values": [0, 1], "order": 1.0}, "from 0 to 3"),
        ({"kind": "spline", "times": [1, 0], "values": [0, 1], "order": 0}, "increase strictly"),
        ({"kind": "sum", "terms": []}, "list of 1 to"),
        ({"kind": "sum", "terms": [{"kind": "x"}]}, r"terms\[0\]: kind must be"),
        ({"kind": "polynomial", "coefficients": [0.0] * (MAXIMUM_SIZE + 1)}, "at most"),
        (nested(MAXIMUM_DEPTH + 1), "nested deeper than"),
        (nested(5000), "nested deeper than"),
    ],
)
def test_json_that_nobody_wrote_is_refused(data, text):
    with pytest.raises(ValueError, match=text):
        time.from_json(data)


def test_what_can_be_built_can_be_read():
    deepest = time.from_json(nested(MAXIMUM_DEPTH - 1))
    assert time.from_json(deepest.to_json()) == deepest
    with pytest.raises(ValueError, match="nest at most"):
        deepest + time.exp(0.5)
