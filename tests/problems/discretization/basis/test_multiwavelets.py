import numpy as np
import pytest
from numpy.polynomial import Legendre, Polynomial

from batchkron.problems.discretization.basis.multiwavelets import (
    BASIS_ID,
    filters,
    hierarchical_transform,
    hierarchical_values,
    legendre_derivatives,
    legendre_values,
    to_hierarchical,
    to_nodal,
)
from batchkron.problems.statement.axis import Axis

DEGREES = [0, 1, 2, 3, 4, 8]


def wavelet_pieces(degree):
    """The multiwavelets of the cell [-1, 1] as pairs of polynomials in x: left and right half."""
    two_scale = filters(degree)
    pieces = []
    for i in range(degree + 1):
        halves = []
        for middle, weights in ((-0.5, two_scale.G0[i]), (0.5, two_scale.G1[i])):
            local = Polynomial([-2 * middle, 2.0])  # x to the half-cell's [-1, 1]
            halves.append(
                sum(
                    weight * np.sqrt(2 * j + 1) * Legendre.basis(j).convert(kind=Polynomial)(local)
                    for j, weight in enumerate(weights)
                )
            )
        pieces.append(halves)
    return pieces


def integral(polynomial, lower, upper):
    antiderivative = polynomial.integ()
    return antiderivative(upper) - antiderivative(lower)


def moment(halves, power):
    monomial = Polynomial([0.0] * power + [1.0])
    return integral(halves[0] * monomial, -1, 0) + integral(halves[1] * monomial, 0, 1)


@pytest.mark.parametrize("degree", range(9))
def test_filters_are_orthogonal_to_rounding(degree):
    two_scale = filters(degree)
    both = np.block([[two_scale.H0, two_scale.H1], [two_scale.G0, two_scale.G1]])
    assert np.abs(both @ both.T - np.eye(2 * degree + 2)).max() <= 1e-15


@pytest.mark.parametrize("degree", range(9))
def test_multiwavelets_have_vanishing_moments_parity_and_fixed_sign(degree):
    n = degree + 1
    for i, halves in enumerate(wavelet_pieces(degree)):
        size = 20 * max(np.abs(half.coef).max() for half in halves)
        for power in range(n + i):
            assert abs(moment(halves, power)) <= 1e-16 * size
        assert moment(halves, n + i) > 1e-12
        s = np.linspace(0.0, 1.0, 7)
        np.testing.assert_allclose(halves[0](-s), (-1) ** (n + i) * halves[1](s), atol=1e-15 * size)


@pytest.mark.parametrize(
    ("degree", "published"),
    [
        # Alpert (1993), table 1: on (0, 1), scale and coefficients of 1, x, x^2
        (0, [(1 / 2, [1])]),
        (1, [(3 / 2, [-1, 2]), (1 / 2, [-2, 3])]),
        (2, [(1 / 18, [1, -24, 30]), (3 / 8, [3, -16, 15]), (5 / 18, [4, -15, 12])]),
    ],
)
def test_multiwavelets_are_alperts_up_to_the_chosen_sign(degree, published):
    assert BASIS_ID == "alpert-parity-1"
    for halves, (squared_scale, coefficients) in zip(
        wavelet_pieces(degree), published, strict=True
    ):
        expected = np.sqrt(squared_scale) * np.array(coefficients)
        np.testing.assert_allclose(halves[1].coef, expected, rtol=1e-13)


@pytest.mark.parametrize("degree", DEGREES)
def test_scaling_filters_reproduce_polynomials(degree):
    two_scale = filters(degree)
    s = np.linspace(-1, 1, 5)
    whole = legendre_values(np.concatenate([(s - 1) / 2, (s + 1) / 2]), degree, 2.0)
    halves = legendre_values(s, degree, 1.0)
    np.testing.assert_allclose(
        whole, np.concatenate([halves @ two_scale.H0.T, halves @ two_scale.H1.T]), atol=1e-13
    )


@pytest.mark.parametrize("degree", DEGREES)
def test_legendre_functions_are_orthonormal_and_differentiated(degree):
    nodes, weights = np.polynomial.legendre.leggauss(degree + 1)
    values = legendre_values(nodes, degree, 0.3)
    np.testing.assert_allclose((values.T * weights * 0.15) @ values, np.eye(degree + 1), atol=1e-13)
    for j in range(degree + 1):
        expected = np.sqrt((2 * j + 1) / 0.3) * Legendre.basis(j).deriv()(nodes) * (2 / 0.3)
        np.testing.assert_allclose(
            legendre_derivatives(nodes, degree, 0.3)[:, j], expected, rtol=1e-11, atol=1e-10
        )


@pytest.mark.parametrize("degree", DEGREES)
@pytest.mark.parametrize("level", [0, 1, 2, 5])
def test_transform_is_inverted_and_orthogonal(level, degree):
    size = 2**level * (degree + 1)
    x = np.random.default_rng(level + 10 * degree).standard_normal((3, size, 2))
    hierarchical = to_hierarchical(x, level, degree, axis=1)
    dense = hierarchical_transform(level, degree)
    np.testing.assert_allclose(dense @ dense.T, np.eye(size), atol=1e-14)
    np.testing.assert_allclose(hierarchical, np.einsum("ij,kjl->kil", dense, x), atol=1e-13)
    np.testing.assert_allclose(to_nodal(hierarchical, level, degree, axis=1), x, atol=1e-13)


def test_transform_leaves_its_input_alone():
    x = np.random.default_rng(1).standard_normal((12, 2))
    before = x.copy()
    to_hierarchical(x, 2, 2)[...] = np.nan
    to_nodal(x, 2, 2)[...] = np.nan
    to_hierarchical(x[:3], 0, 2)[...] = np.nan
    to_nodal(x[:3], 0, 2)[...] = np.nan
    np.testing.assert_array_equal(x, before)


def test_level_zero_holds_the_polynomials_of_the_domain():
    level, degree = 3, 2
    cells = np.arange(2**level)
    ends = (cells + np.array([[0.0], [1.0]])) / 2**level
    integrals = (ends[1] ** 3 - ends[0] ** 3) / 3  # of x^2 over each cell
    nodal = np.zeros((2**level, degree + 1))
    nodal[:, 0] = integrals * np.sqrt(2**level)
    assert to_hierarchical(nodal.ravel(), level, degree)[0] == pytest.approx(1 / 3)


@pytest.mark.parametrize("degree", DEGREES)
@pytest.mark.parametrize("level", [0, 1, 4])
def test_hierarchical_values_evaluate_an_expansion(level, degree):
    axis, n, cells = Axis("x", -0.7, 1.9), degree + 1, 2**level
    generator = np.random.default_rng(7 * level + degree)
    nodal = generator.standard_normal((cells, n))
    edges = axis.lower + axis.length * np.arange(cells + 1) / cells
    points = np.concatenate([generator.uniform(axis.lower, axis.upper, 40), edges[[0, -1]]])
    own = np.minimum(np.searchsorted(edges, points, side="right") - 1, cells - 1)
    width = axis.length / cells
    local = 2 * (points - edges[own]) / width - 1
    expected = (legendre_values(local, degree, width) * nodal[own]).sum(axis=1)

    coefficients = to_hierarchical(nodal.ravel(), level, degree).reshape(cells, n)
    found, values = hierarchical_values(points, axis, level, degree)
    assert found.shape == (points.size, level + 1)
    np.testing.assert_allclose(
        np.einsum("mli,mli->m", coefficients[found], values), expected, atol=1e-11
    )


def test_a_point_on_an_edge_belongs_to_the_right_cell_and_the_last_end_to_the_last():
    cells, _ = hierarchical_values([0.0, 0.25, 0.5, 1.0], Axis("x", 0, 1), 3, 0)
    np.testing.assert_array_equal(cells, [[0, 1, 2, 4], [0, 1, 2, 5], [0, 1, 3, 6], [0, 1, 3, 7]])


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: filters(-1), ValueError, "degree is -1; expected 0"),
        (lambda: filters(1.0), TypeError, "degree is float; expected an integer"),
        (lambda: to_nodal(np.ones(5), 1, 1), ValueError, r"expected length 4 = 2\^1 \* 2"),
        (lambda: to_nodal(np.ones(1), 99, 0), ValueError, "level is 99; expected 0"),
        (
            lambda: hierarchical_values([0.5, 1.5], Axis("x", 0, 1), 1, 0),
            ValueError,
            r"points\[1\] is 1.5; expected a point of axis 'x', \[0.0, 1.0\]",
        ),
        (
            lambda: hierarchical_values([np.nan], Axis("x", 0, 1), 1, 0),
            ValueError,
            r"points\[0\] is nan",
        ),
        (lambda: hierarchical_values(0.5, Axis("x", 0, 1), 1, 0), ValueError, r"shape \(\)"),
    ],
)
def test_wrong_arguments_are_named(call, error, text):
    with pytest.raises(error, match=text):
        call()


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ((1, 0, 1), TypeError, "name is int"),
        (("a b", 0, 1), ValueError, "expected a Python identifier"),
        (("t", 0, 1), ValueError, "which is taken"),
        (("x", "0", 1), TypeError, "lower of axis 'x' is str"),
        (("x", 1, 1), ValueError, "expected lower < upper"),
        (("x", 0, np.inf), ValueError, "expected finite ends"),
    ],
)
def test_axis_refuses(arguments, error, text):
    with pytest.raises(error, match=text):
        Axis(*arguments)


def test_axis_is_a_value():
    assert Axis("x", 0, 1) == Axis("x", 0.0, 1.0)
    assert len({Axis("x", 0, 1), Axis("x", 0, 1), Axis("x", 0, 2)}) == 2
    assert Axis("x", -1, 3).cell_width(3) == 0.5
