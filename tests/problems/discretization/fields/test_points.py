"""Values, integrals and antiderivatives at the Gauss points of the finest cells."""

import numpy as np
import pytest
from numpy.polynomial import legendre
from problem_oracle import cell_functions, dense_mass

from batchkron.problems import Axis
from batchkron.problems.discretization.basis.multiwavelets import hierarchical_transform
from batchkron.problems.discretization.fields.points import CellPoints
from batchkron.problems.discretization.matrices.dg_matrices import mass_blocks
from batchkron.problems.discretization.matrices.mode_operator import ModeOperator

X = Axis("x", -1.0, 2.0)
SIZES = [(0, 0), (0, 3), (1, 0), (1, 2), (3, 0), (3, 1), (4, 2), (2, 7)]


def nodes_in_cells(level, count):
    nodes, weights = legendre.leggauss(count)
    width = X.length / 2**level
    cells = np.arange(2**level)[:, None]
    return X.lower + width * (cells + (1 + nodes) / 2), nodes, weights * width / 2


@pytest.mark.parametrize(("level", "degree"), SIZES)
def test_values_of_random_coefficients(rng, level, degree):
    points = CellPoints(X, level, degree)
    n = degree + 1
    given = rng.uniform(0.5, 1.5, (3, n << level))
    places, nodes, _ = nodes_in_cells(level, points.count)
    shapes, _ = cell_functions(n, X.length / 2**level, nodes)
    nodal = given @ hierarchical_transform(level, degree)
    expected = nodal.reshape(3, 2**level, n) @ shapes.T
    found = points.values(given)
    assert found.shape == (3, 2**level, points.count)
    np.testing.assert_allclose(found, expected, atol=1e-14 * 2**level * n**2)
    np.testing.assert_allclose(
        [[points.place(c, q) for q in range(points.count)] for c in range(2**level)],
        places,
        atol=1e-15 * X.length * 2,
    )


@pytest.mark.parametrize(("level", "degree"), SIZES)
def test_mass_blocks_are_those_of_a_function(level, degree):
    points = CellPoints(X, level, degree)
    blocks = points.mass_blocks(points.sample(np.exp, "exp"))
    np.testing.assert_allclose(
        blocks, mass_blocks(X, level, degree, np.exp), rtol=1e-13, atol=1e-14
    )
    W = hierarchical_transform(level, degree)
    cells, n = 2**level, degree + 1
    nodal = np.zeros((cells, n, cells, n))
    nodal[np.arange(cells), :, np.arange(cells), :] = blocks
    dense = W @ nodal.reshape(cells * n, cells * n) @ W.T
    np.testing.assert_allclose(dense, dense_mass(X, level, degree, np.exp), atol=1e-12)
    assert ModeOperator.from_dense(dense, n).cells == cells


@pytest.mark.parametrize("level", [0, 1, 3, 6])
def test_integrals_are_exact_for_polynomials_in_each_cell(rng, level):
    """Of degree 15, which a derivative of degree 14 in each cell continues."""
    points = CellPoints(X, level, 2)
    assert points.count == 16
    nodes, _ = legendre.leggauss(16)
    coefficients = rng.uniform(-1.0, 1.0, (2**level, 15))
    values = legendre.legval(nodes, coefficients.T)
    width = X.length / 2**level
    inside = legendre.legval(nodes, legendre.legint(coefficients.T, lbnd=-1)) * width / 2
    whole = 2.0 * coefficients[:, 0] * width / 2
    expected = inside + np.concatenate([[0.0], np.cumsum(whole)[:-1]])[:, None]
    np.testing.assert_allclose(points.antiderivative(values), expected, atol=1e-13)
    assert float(points.integral(values)) == pytest.approx(whole.sum(), abs=1e-13)


def test_a_function_that_is_not_finite_is_refused():
    points = CellPoints(X, 2, 1)
    with np.errstate(all="ignore"), pytest.raises(ValueError, match="what is inf at"):
        points.sample(lambda x: 0.0 * x + np.inf, "what")


@pytest.mark.parametrize(
    ("level", "coarse", "degree"), [(3, 0, 2), (4, 2, 1), (2, 2, 3), (5, 4, 0), (7, 1, 1)]
)
def test_projections_on_coarser_cells(level, coarse, degree):
    points = CellPoints(X, level, degree)
    values = points.sample(np.exp, "exp")
    found = points.projected(values, coarse)
    n, gap, cells = degree + 1, 2 ** (level - coarse), 2**coarse
    # least squares in each coarse cell, with the Gauss weights of the fine ones
    places, _, weights = nodes_in_cells(level, points.count)
    within = places.reshape(cells, -1)
    root = np.sqrt(np.tile(weights, gap))
    for cell in range(cells):
        middle = within[cell] - within[cell].mean()
        basis = np.vander(middle, n)
        exact = np.exp(within[cell])
        fitted = np.linalg.lstsq(basis * root[:, None], exact * root, rcond=None)[0]
        own = found.reshape(cells, -1)[cell]
        np.testing.assert_allclose(own, basis @ fitted, rtol=1e-11)
    np.testing.assert_allclose(points.projected(found, coarse), found, rtol=1e-13)


@pytest.mark.parametrize(("level", "degree"), SIZES)
def test_traces_are_those_of_the_polynomials_through_the_values(rng, level, degree):
    """Exact up to degree q - 1 = 15 and more; each cell has a polynomial of its own."""
    points = CellPoints(X, level, degree)
    nodes, _ = legendre.leggauss(points.count)
    series = rng.standard_normal((points.count, 2, 2**level)) / points.count
    values = legendre.legval(nodes, series)
    left, right = points.traces(values)
    np.testing.assert_allclose(left, legendre.legval(-1.0, series), atol=1e-13)
    np.testing.assert_allclose(right, legendre.legval(1.0, series), atol=1e-13)
