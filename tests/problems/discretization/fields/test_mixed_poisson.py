"""The electric field of a density on the full grid of positions against exact fields."""

import numpy as np
import pytest

from batchkron.problems import Axis
from batchkron.problems.discretization.basis.multiwavelets import to_nodal
from batchkron.problems.discretization.basis.projection import project
from batchkron.problems.discretization.fields.mixed_poisson import MixedPoisson
from batchkron.problems.discretization.fields.points import CellPoints

X, Y, Z = Axis("x", 0.0, 2 * np.pi), Axis("y", -1.0, 2.0), Axis("z", 0.0, 1.5)


def one(s):
    return np.ones_like(s)


def density(parts, axes, levels, degree):
    """Return the coefficients of a sum of products, in the order of all combinations."""
    total = 0.0
    for part in parts:
        product = np.ones(1)
        for function, axis, level in zip(part, axes, levels, strict=True):
            product = np.multiply.outer(product, project(function, axis, level, degree)).ravel()
        total = total + product
    return total


def solution(axes, levels, degree, periodic=None, background=None, potential=None):
    points = [np.linspace(a.lower + 0.01, a.upper - 0.02, 17) for a in axes]
    ends = potential or [(0.0, 0.0)] * len(axes)
    periodic = [True] * len(axes) if periodic is None else periodic
    return MixedPoisson(axes, levels, degree, periodic, background, ends, points), points


def errors_of_two_modes(level, degree):
    k = 2 * np.pi / 3
    solve, points = solution([X, Y], [level, level], degree)
    given = [(np.cos, lambda s: np.sin(k * s)), (one, lambda s: 0.5 * np.sin(k * s))]
    found = solve(density(given, [X, Y], [level, level], degree))
    x, y = (own.ravel() for own in np.meshgrid(*points, indexing="ij"))
    exact = (
        np.sin(x) * np.sin(k * y) / (1 + k**2),
        -k * np.cos(x) * np.cos(k * y) / (1 + k**2) - 0.5 * np.cos(k * y) / k,
    )
    return [np.abs(a - b).max() for a, b in zip(found, exact, strict=True)]


@pytest.mark.parametrize("degree", [0, 1, 2, 3])
def test_the_field_converges_at_the_order_of_states(degree):
    coarse, fine = (max(errors_of_two_modes(level, degree)) for level in (3, 5))
    assert np.log2(coarse / fine) / 2 > degree + 0.8
    assert fine < [4e-2, 1.5e-3, 3e-5, 4e-7][degree]


@pytest.mark.parametrize("background", [None, 0.3])
def test_walls_have_their_potential(background):
    solve, points = solution([Z, Y], [4, 2], 2, [False, True], background, [(1.0, 3.0), (0.0, 0.0)])
    along, across = solve(density([(np.exp, one)], [Z, Y], [4, 2], 2))
    n_0 = np.expm1(1.5) / 1.5 if background is None else background
    z = points[0]
    constant = (-2.0 - np.expm1(1.5) + n_0 * 1.5**2 / 2) / 1.5  # ∫ E dz = φ(0) - φ(1.5)
    exact = np.exp(z) - n_0 * z + constant
    np.testing.assert_allclose(along.reshape(17, 17), exact[:, None] + 0 * z, atol=1e-6)
    np.testing.assert_allclose(across, 0.0, atol=1e-11)


def test_a_box_at_potential_zero():
    a, b = np.pi / 1.5, np.pi / 3
    solve, points = solution([Z, Y], [4, 4], 2, [False, False], 0.0)
    given = [(lambda s: (a**2 + b**2) * np.sin(a * s), lambda s: np.sin(b * (s + 1)))]
    n = density(given, [Z, Y], [4, 4], 2)
    z, y = np.meshgrid(*points, indexing="ij")
    found = [own.reshape(17, 17) for own in solve(n)]
    np.testing.assert_allclose(found[0], -a * np.cos(a * z) * np.sin(b * (y + 1)), atol=2e-4)
    np.testing.assert_allclose(found[1], -b * np.sin(a * z) * np.cos(b * (y + 1)), atol=2e-4)
    size = a * np.sqrt(0.25 * Z.length * Y.length)
    assert np.linalg.norm(solve.coefficients(n, 0)) == pytest.approx(size, rel=1e-5)


def test_three_positions():
    axes, levels = [X, Y, Z], [3, 3, 3]
    k, q = 2 * np.pi / 3, 2 * np.pi / 1.5
    solve, points = solution(axes, levels, 2)
    given = (np.cos, lambda s: np.cos(k * s), lambda s: np.sin(q * s))
    found = solve(density([given], axes, levels, 2))
    x, y, z = (own.ravel() for own in np.meshgrid(*points, indexing="ij"))
    size = 1 + k**2 + q**2
    exact = (
        np.sin(x) * np.cos(k * y) * np.sin(q * z) / size,
        k * np.cos(x) * np.sin(k * y) * np.sin(q * z) / size,
        -q * np.cos(x) * np.cos(k * y) * np.cos(q * z) / size,
    )
    for own, known in zip(found, exact, strict=True):
        np.testing.assert_allclose(own, known, atol=1e-3)


def test_gauss_law_holds_in_every_cell(rng):
    """The flux through the faces of a cell is its charge, also of rough densities."""
    level, degree = 2, 1
    cells = 1 << level
    width = X.length / cells, Y.length / cells
    eps = 1e-9
    places = []
    for axis, h in zip((X, Y), width, strict=True):
        edges = axis.lower + h * np.arange(cells)
        gauss = np.polynomial.legendre.leggauss(3)[0]
        inside = (edges[:, None] + h * (gauss + 1) / 2).ravel()
        places.append(np.concatenate([edges + eps * h, inside, edges + h * (1 - eps)]))
    solve = MixedPoisson([X, Y], [level] * 2, degree, [True] * 2, None, [(0, 0)] * 2, places)
    n = rng.standard_normal(((cells * (degree + 1)) ** 2,))
    ex, ey = (own.reshape(5 * cells, 5 * cells) for own in solve(n))
    weights = np.polynomial.legendre.leggauss(3)[1] / 2
    middle = slice(cells, 4 * cells)
    through_x = (ex[4 * cells :, middle] - ex[:cells, middle]).reshape(cells, cells, 3) @ weights
    through_y = (ey[middle, 4 * cells :] - ey[middle, :cells]).reshape(cells, 3, cells)
    through_y = np.einsum("iqj,q->ij", through_y, weights)
    flux = through_x * width[1] + through_y * width[0]
    nodal = to_nodal(to_nodal(n.reshape(8, 8), level, degree).T.copy(), level, degree).T
    charge = nodal.reshape(cells, 2, cells, 2)[:, 0, :, 0] * np.sqrt(width[0] * width[1])
    np.testing.assert_allclose(flux, charge - charge.mean(), atol=1e-7)


def test_one_position_gives_the_exact_integral(rng):
    """E = ∫ (n - mean) dx of the polynomials, as of Poisson in one coordinate."""
    inside = CellPoints(X, 3, 2)
    places = np.array([[inside.place(c, q) for q in range(inside.count)] for c in range(8)])
    solve = MixedPoisson(
        [X, Y], [3, 0], 2, [True] * 2, None, [(0, 0)] * 2, [places.ravel(), np.zeros(1)]
    )
    n = rng.standard_normal(8 * 3)
    values = inside.values(n[None])[0]
    field = inside.antiderivative(values - inside.integral(values) / X.length)
    field -= inside.integral(field) / X.length
    uniform = np.outer(n, [np.sqrt(Y.length), 0.0, 0.0]).ravel()
    np.testing.assert_allclose(solve(uniform)[0], field.ravel(), atol=1e-12)
    np.testing.assert_allclose(solve(uniform)[1], 0.0, atol=1e-12)


def test_too_many_functions_are_refused():
    with pytest.raises(ValueError, match=r"level 11 along 'x', 6144 functions; expected at most"):
        solution([X, Y], [11, 2], 2)
