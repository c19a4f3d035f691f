import numpy as np
import pytest

from batchkron.problems.discretization.basis.multiwavelets import to_nodal
from batchkron.problems.discretization.basis.projection import (
    differentiate,
    project,
    project_derivative,
    project_samples,
    projection_nodes,
    remainder_gram,
    sample,
    sample_points,
)
from batchkron.problems.discretization.basis.quadrature import cell_points, gauss_rule
from batchkron.problems.statement.axis import Axis

DEGREES = [0, 1, 2, 3, 4, 8]


def fine_quadrature(integrand, axis, cells):
    """∫ of the integrand, a function of points and cell numbers, by 40 nodes a cell."""
    nodes, weights = np.polynomial.legendre.leggauss(40)
    width = axis.length / cells
    own = np.repeat(np.arange(cells), 40)
    x = axis.lower + width * (own + (1 + np.tile(nodes, cells)) / 2)
    return width / 2 * (integrand(x, own) @ np.tile(weights, cells))


@pytest.mark.parametrize("degree", DEGREES)
@pytest.mark.parametrize("level", [0, 1, 4])
def test_smooth_functions_are_projected_to_rounding(level, degree):
    axis, cells = Axis("x", -2, 1.5), 2**level
    nodal = to_nodal(project(lambda s: np.cos(2 * np.pi * s), axis, level, degree), level, degree)
    width = axis.length / cells
    for j in range(degree + 1):
        legendre = np.polynomial.Legendre.basis(j)
        for cell in {0, cells // 2, cells - 1}:

            def integrand(x, own, legendre=legendre, j=j, cell=cell):
                s = 2 * (x - axis.lower) / width - 2 * own - 1
                function = np.sqrt((2 * j + 1) / width) * legendre(s)
                return np.where(own == cell, np.cos(2 * np.pi * x) * function, 0.0)

            expected = fine_quadrature(integrand, axis, cells)
            assert nodal[cell * (degree + 1) + j] == pytest.approx(expected, abs=1e-13)


@pytest.mark.parametrize("degree", DEGREES)
def test_samples_project_as_their_function(degree):
    axis, level = Axis("x", -1, 1), 3
    samples = sample(np.exp, axis, level, degree)
    assert samples.shape == (8, projection_nodes(level, degree) + 2)
    expected = project(np.exp, axis, level, degree)
    samples[:, [0, -1]] = np.nan  # the ends of the cells do not enter
    np.testing.assert_array_equal(project_samples(samples, axis, degree), expected)


@pytest.mark.parametrize("degree", DEGREES)
@pytest.mark.parametrize("level", [0, 2, 5])
def test_weak_derivatives_are_exact_to_rounding(level, degree):
    axis = Axis("x", -1, 1)

    def g(s):
        return 1.5 - s**2

    samples = sample(g, axis, level, degree) * sample(lambda s: np.sin(5 * s), axis, level, degree)
    expected = project(
        lambda s: -2 * s * np.sin(5 * s) + 5 * g(s) * np.cos(5 * s), axis, level, degree
    )
    found = project_derivative(samples, axis, degree)
    np.testing.assert_allclose(found, expected, atol=2e-15 * 2**level * (degree + 1) ** 2 + 1e-13)


@pytest.mark.parametrize("level", [0, 1, 5])
def test_spectral_derivative(level):
    axis = Axis("x", -1, 3)
    points = sample_points(axis, level, 2)
    slope = differentiate(sample(lambda s: np.sin(2 * s), axis, level, 2), axis)
    np.testing.assert_allclose(slope, 2 * np.cos(2 * points), atol=2e-11)
    highest = points.shape[1] - 1
    middle = (points[:, :1] + points[:, -1:]) / 2
    half = (points[:, -1:] - points[:, :1]) / 2
    local = (points - middle) / half
    np.testing.assert_allclose(
        differentiate(local**highest, axis) * half, highest * local ** (highest - 1), atol=1e-9
    )
    np.testing.assert_allclose(differentiate(np.ones_like(points), axis), 0, atol=1e-9)


def test_second_derivatives_in_weak_form():
    axis, level, degree = Axis("x", 0, 1), 3, 2
    slope = differentiate(sample(lambda s: np.cos(np.pi * s), axis, level, degree), axis)
    expected = project(lambda s: -(np.pi**2) * np.cos(np.pi * s), axis, level, degree)
    np.testing.assert_allclose(project_derivative(slope, axis, degree), expected, atol=1e-10)


@pytest.mark.parametrize("degree", [0, 1, 2, 3, 4])
def test_remainders_do_not_cancel(degree):
    axis, level = Axis("x", -1, 1), 3
    functions = [lambda s: np.sin(2 * s), lambda s: np.exp(-(s**2)), 2.0]
    gram = remainder_gram(functions, axis, level, degree)
    np.testing.assert_array_equal(gram, gram.T)
    for a, f in enumerate(functions[:2]):
        nodal = to_nodal(project(f, axis, level, degree), level, degree).reshape(8, -1)

        def integrand(x, own, f=f, nodal=nodal):
            s = 2 * (x - axis.lower) / 0.25 - 2 * own - 1
            scaled = nodal * np.sqrt((2 * np.arange(degree + 1) + 1) / 0.25)
            inside = np.polynomial.legendre.legvander(s, degree)
            return (f(x) - (inside * scaled[own]).sum(axis=1)) ** 2

        assert gram[a, a] == pytest.approx(fine_quadrature(integrand, axis, 8), rel=1e-7)
    assert gram[2, 2] <= 1e-29
    assert np.linalg.eigvalsh(gram).min() >= -1e-15 * gram.max()


def test_a_tiny_remainder_is_seen():
    """‖f‖² - ‖Pf‖² would lose it: it is 1e-23 of the norm."""
    axis = Axis("x", -1, 1)
    gram = remainder_gram(
        [lambda s: 1 + 1e-11 * np.polynomial.Legendre.basis(3)(s)], axis, level=0, degree=2
    )
    assert gram[0, 0] == pytest.approx(1e-22 * 2 / 7, rel=1e-4)


def test_projection_never_touches_the_ends_of_the_axis():
    coefficients = project(lambda s: np.arctanh(s) ** 2, Axis("z", -1, 1), 2, 1)
    assert np.isfinite(coefficients).all()
    with (
        pytest.raises(ValueError, match=r"function of 'z' is inf at -1\.0"),
        np.errstate(divide="ignore"),
    ):
        sample(lambda s: np.arctanh(s) ** 2, Axis("z", -1, 1), 2, 1)


def test_points_stay_on_the_axis_and_edges_agree():
    axis = Axis("x", 0.1, 0.7)
    points = cell_points(axis, 6, [-1.0, 0.3, 1.0])
    assert points.min() == axis.lower
    assert points.max() == axis.upper
    np.testing.assert_array_equal(points[1:, 0], points[:-1, 2])


def test_gauss_rule_is_exact():
    nodes, weights = gauss_rule(7)
    for power in range(0, 14, 2):
        assert weights @ nodes**power == pytest.approx(2 / (power + 1), rel=1e-14)


def test_no_functions_give_an_empty_gram_matrix():
    assert remainder_gram([], Axis("x", 0, 1), 1, 1).shape == (0, 0)


def test_samples_of_a_wrong_shape_are_refused():
    with pytest.raises(ValueError, match=r"samples have shape \(3, 20\); expected \(2\^level"):
        project_samples(np.ones((3, 20)), Axis("x", 0, 1), 1)
