import numpy as np
import pytest
from numpy.polynomial import Legendre
from scipy.linalg import eigvals

from batchkron.problems.discretization.basis.multiwavelets import to_hierarchical, to_nodal
from batchkron.problems.discretization.basis.projection import project, remainder_gram
from batchkron.problems.discretization.matrices.boundary_terms import (
    boundary_penalty_matrix,
    edge_data,
    penalty_data,
)
from batchkron.problems.discretization.matrices.dg_matrices import (
    div_matrix,
    grad_matrix,
    mass_matrix,
    penalty_matrix,
)
from batchkron.problems.statement.axis import Axis

DEGREES = [0, 1, 2, 3, 4, 8]
PERIODIC = ("periodic", "periodic")
BOUNDARIES = [
    PERIODIC,
    ("dirichlet", "dirichlet"),
    ("neumann", "neumann"),
    ("dirichlet", "neumann"),
    ("neumann", "dirichlet"),
]
SIGNS = {"upwind": -1, "central": 0, "downwind": 1}
OPPOSITE = {"upwind": "downwind", "central": "central", "downwind": "upwind"}


def changing(x):
    return np.cos(1.3 * x) + 0.2 * x**2 - 0.5


class Functions:
    """All nodal functions of an axis, one by one, as Legendre series with their own domain."""

    def __init__(self, axis, level, degree):
        self.edges = axis.lower + axis.length * np.arange(2**level + 1) / 2**level
        self.all = [
            (
                cell,
                np.sqrt((2 * j + 1) * 2**level / axis.length)
                * Legendre.basis(j, domain=self.edges[cell : cell + 2]),
            )
            for cell in range(2**level)
            for j in range(degree + 1)
        ]

    def trace(self, number, edge, cell):
        """Value at an edge, seen from a cell; zero if the function lives elsewhere."""
        own, function = self.all[number]
        return float(function(self.edges[edge])) if own == cell else 0.0


def weak_form(axis, level, degree, g, sign, boundary, *, volume=True, central=True):
    """∫ ∂(g f) ψ with numerical fluxes, edge by edge through averages and jumps."""
    functions = Functions(axis, level, degree)
    cells, size = 2**level, len(functions.all)
    matrix = np.zeros((size, size))
    nodes, weights = np.polynomial.legendre.leggauss(24)
    for row, (row_cell, test) in enumerate(functions.all):
        for column, (column_cell, trial) in enumerate(functions.all):
            if volume and row_cell == column_cell:
                a, b = functions.edges[row_cell : row_cell + 2]
                x = (a + b) / 2 + (b - a) / 2 * nodes
                integrand = g(x) * trial(x) * test.deriv()(x)
                matrix[row, column] -= (b - a) / 2 * (weights @ integrand)
            for edge in range(cells + 1):
                minus, plus, e_minus, e_plus = edge - 1, edge, edge, edge
                if edge in (0, cells):
                    if boundary == PERIODIC:
                        if edge == cells:
                            continue
                        minus, e_minus = cells - 1, cells
                    else:
                        kind = boundary[0 if edge == 0 else 1]
                        if kind == "neumann" and central:
                            inside = 0 if edge == 0 else cells - 1
                            outward = -1 if edge == 0 else 1
                            matrix[row, column] += (
                                outward
                                * g(functions.edges[edge])
                                * functions.trace(column, edge, inside)
                                * functions.trace(row, edge, inside)
                            )
                        continue
                f_minus = functions.trace(column, e_minus, minus)
                f_plus = functions.trace(column, e_plus, plus)
                g_here = g(functions.edges[edge])
                flux = sign * abs(g_here) / 2 * (f_minus - f_plus)
                if central:
                    flux += g_here / 2 * (f_minus + f_plus)
                test_jump = functions.trace(row, e_minus, minus) - functions.trace(
                    row, e_plus, plus
                )
                matrix[row, column] += flux * test_jump
    return matrix


def periodic_on_axis(x):
    return 0.3 + np.sin(2 * np.pi * (x + 0.4) / 1.7)


@pytest.mark.parametrize("flux", SIGNS)
@pytest.mark.parametrize("boundary", BOUNDARIES)
@pytest.mark.parametrize(("level", "degree"), [(0, 2), (1, 1), (2, 0), (2, 3)])
def test_div_and_grad_equal_the_weak_form(level, degree, boundary, flux):
    axis = Axis("x", -0.4, 1.3)
    g = periodic_on_axis if boundary == PERIODIC else changing
    expected = weak_form(axis, level, degree, g, SIGNS[flux], boundary)
    found = div_matrix(axis, level, degree, g, flux=flux, boundary=boundary).toarray()
    np.testing.assert_allclose(found, expected, atol=1e-12 * np.abs(expected).max())

    exchanged = {"dirichlet": "neumann", "neumann": "dirichlet", "periodic": "periodic"}
    opposite = tuple(exchanged[kind] for kind in boundary)
    transposed = -weak_form(axis, level, degree, g, -SIGNS[flux], opposite).T
    grad = grad_matrix(axis, level, degree, g, flux=flux, boundary=boundary).toarray()
    np.testing.assert_allclose(grad, transposed, atol=1e-12 * np.abs(transposed).max())


@pytest.mark.parametrize("flux", SIGNS)
@pytest.mark.parametrize("boundary", BOUNDARIES)
@pytest.mark.parametrize(("level", "degree"), [(0, 1), (2, 2)])
def test_penalty_equals_the_one_sided_part_of_the_weak_form(level, degree, boundary, flux):
    axis = Axis("x", -0.4, 1.3)
    g = periodic_on_axis if boundary == PERIODIC else changing
    expected = weak_form(axis, level, degree, g, SIGNS[flux], boundary, volume=False, central=False)
    found = penalty_matrix(axis, level, degree, g, flux=flux, boundary=boundary).toarray()
    np.testing.assert_allclose(found, expected, atol=1e-12 * max(1.0, np.abs(expected).max()))
    np.testing.assert_allclose(found, found.T, atol=1e-12 * max(1.0, np.abs(expected).max()))
    assert flux != "upwind" or np.linalg.eigvalsh(found).max() <= 1e-12 * np.abs(found).max()


@pytest.mark.parametrize("degree", DEGREES)
def test_mass_equals_quadrature_and_is_the_identity_for_one(degree):
    axis, level = Axis("x", -0.4, 1.3), 2
    functions = Functions(axis, level, degree)
    nodes, weights = np.polynomial.legendre.leggauss(24)
    expected = np.zeros((len(functions.all),) * 2)
    for row, (row_cell, test) in enumerate(functions.all):
        for column, (column_cell, trial) in enumerate(functions.all):
            if row_cell == column_cell:
                a, b = functions.edges[row_cell : row_cell + 2]
                x = (a + b) / 2 + (b - a) / 2 * nodes
                expected[row, column] = (b - a) / 2 * (weights @ (changing(x) * test(x) * trial(x)))
    found = mass_matrix(axis, level, degree, changing).toarray()
    np.testing.assert_allclose(found, expected, atol=1e-12)
    one = mass_matrix(axis, level, degree).toarray()
    np.testing.assert_array_equal(one, np.eye(len(functions.all)))
    np.testing.assert_array_equal(mass_matrix(axis, level, degree, -2.5).toarray(), -2.5 * one)


@pytest.mark.parametrize("degree", DEGREES)
@pytest.mark.parametrize("speed", [1.7, -0.6])
@pytest.mark.parametrize("flux", SIGNS)
def test_periodic_advection_grows_only_against_the_wind(flux, speed, degree):
    matrix = div_matrix(Axis("x", -1, 1), 4, degree, speed, flux=flux).toarray()
    growth = eigvals(matrix).real.max()
    if flux == "downwind":
        assert growth > 1.0
    else:
        assert growth <= 1e-10 * np.linalg.norm(matrix, 2)


def test_the_wrong_sign_grows_as_fast_as_is_known():
    matrix = div_matrix(Axis("x", 0, 1), 4, 2, flux="downwind").toarray()
    assert eigvals(matrix).real.max() > 90


@pytest.mark.parametrize("degree", [0, 1, 2, 3, 4])
def test_derivatives_of_polynomials_are_exact_with_their_data(degree):
    axis, level = Axis("x", -0.4, 1.3), 3
    f = Legendre(np.random.default_rng(degree).standard_normal(degree + 1))
    nodal = to_nodal(project(f, axis, level, degree), level, degree)
    slope = to_nodal(project(f.deriv(), axis, level, degree), level, degree)
    for boundary in BOUNDARIES[1:]:
        for build in (div_matrix, grad_matrix):
            result = build(axis, level, degree, 2.5, boundary=boundary) @ nodal
            for side, kind, end in zip(
                ("left", "right"), boundary, (axis.lower, axis.upper), strict=True
            ):
                if kind == "dirichlet":
                    result += f(end) * edge_data(axis, level, degree, side, 2.5)
            np.testing.assert_allclose(result, 2.5 * slope, atol=1e-10)


def projected_error(coefficients, function, axis, level, degree):
    return np.linalg.norm(
        to_hierarchical(coefficients, level, degree) - project(function, axis, level, degree)
    )


@pytest.mark.parametrize("degree", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("build", [div_matrix, grad_matrix])
def test_first_derivatives_converge(build, degree):
    axis = Axis("x", -1, 1)
    wave = 2 * np.pi if degree > 2 else np.pi
    errors = []
    for level in (4, 5):
        nodal = to_nodal(project(lambda s: np.sin(wave * s), axis, level, degree), level, degree)
        matrix = build(axis, level, degree, -1.5)
        errors.append(
            projected_error(
                matrix @ nodal,
                lambda s: -1.5 * wave * np.cos(wave * s),
                axis,
                level,
                degree,
            )
        )
    # the derivative of a projection loses one order
    assert errors[1] <= 1e-9 or np.log2(errors[0] / errors[1]) >= max(degree, 1) - 0.15


def solve_dirichlet(axis, level, degree, f, second, *, tau=1.0, k=1.0, flux="upwind"):
    """Nodal coefficients of k u'' = second, u = f at both ends."""
    div = div_matrix(axis, level, degree, flux=flux, boundary=("neumann", "neumann"))
    grad = grad_matrix(
        axis, level, degree, k, flux=OPPOSITE[flux], boundary=("dirichlet", "dirichlet")
    )
    matrix = div @ grad + boundary_penalty_matrix(axis, level, degree, k, tau=tau)
    data = np.zeros(matrix.shape[0])
    for side, end in (("left", axis.lower), ("right", axis.upper)):
        data += f(end) * (
            div @ edge_data(axis, level, degree, side, k)
            + penalty_data(axis, level, degree, side, k, tau=tau)
        )
    source = to_nodal(project(second, axis, level, degree), level, degree)
    return np.linalg.solve(matrix.toarray(), source - data), matrix.toarray()


@pytest.mark.parametrize("flux", ["upwind", "downwind"])
def test_the_steady_solve_has_its_known_errors(flux):
    # distances to the projection of the exact solution: docs/background/discretization.md
    axis = Axis("x", 0, 1)
    for level, known in ((3, 1.76e-4), (4, 2.02e-5), (5, 2.50e-6)):
        solution, matrix = solve_dirichlet(
            axis,
            level,
            2,
            lambda s: np.cos(np.pi * s),
            lambda s: -(np.pi**2) * np.cos(np.pi * s),
            flux=flux,
        )
        error = projected_error(solution, lambda s: np.cos(np.pi * s), axis, level, 2)
        assert error == pytest.approx(known, rel=3e-3)
        assert np.linalg.eigvalsh(matrix).max() < -1.0  # full rank, and dissipative


@pytest.mark.parametrize("degree", [0, 1, 2, 3, 4])
def test_the_bare_dirichlet_chain_lacks_one_rank_and_the_penalty_brings_it(degree):
    axis, level = Axis("x", -1, 2), 3
    solve_arguments = (axis, level, degree, np.cos, lambda s: -np.cos(s))
    _, matrix = solve_dirichlet(*solve_arguments)
    bare = matrix - boundary_penalty_matrix(axis, level, degree).toarray()
    size = matrix.shape[0]
    assert np.linalg.matrix_rank(bare, tol=1e-9 * np.linalg.norm(bare, 2)) == size - 1
    assert np.linalg.matrix_rank(matrix, tol=1e-9 * np.linalg.norm(matrix, 2)) == size


@pytest.mark.parametrize("degree", [1, 2, 3, 4])
def test_diffusion_with_a_flux_at_one_end_converges(degree):
    """(k u')' on [0, 1], u given at 0, k u' given at 1, k = 1 + x."""
    axis, errors = Axis("x", 0, 1), []

    def k(s):
        return 1 + s

    for level in (2, 3):
        div = div_matrix(axis, level, degree, boundary=("neumann", "dirichlet"))
        grad = grad_matrix(
            axis, level, degree, k, flux="downwind", boundary=("dirichlet", "neumann")
        )
        matrix = div @ grad + boundary_penalty_matrix(axis, level, degree, k, sides=("left",))
        data = np.sin(0.5) * (
            div @ edge_data(axis, level, degree, "left", k)
            + penalty_data(axis, level, degree, "left", k)
        ) + 2 * 3 * np.cos(3.5) * edge_data(axis, level, degree, "right")
        source = project(
            lambda s: 3 * np.cos(3 * s + 0.5) - 9 * k(s) * np.sin(3 * s + 0.5),
            axis,
            level,
            degree,
        )
        solution = np.linalg.solve(matrix.toarray(), to_nodal(source, level, degree) - data)
        errors.append(projected_error(solution, lambda s: np.sin(3 * s + 0.5), axis, level, degree))
    assert np.log2(errors[0] / errors[1]) >= degree + 0.5


def test_boundary_penalty_and_its_data_agree():
    axis, level, degree = Axis("x", -0.4, 1.3), 2, 2
    f = Legendre([0.3, -1.1, 0.7])
    nodal = to_nodal(project(f, axis, level, degree), level, degree)
    for side, end in (("left", axis.lower), ("right", axis.upper)):
        matrix = boundary_penalty_matrix(axis, level, degree, changing, sides=(side,), tau=2.0)
        data = penalty_data(axis, level, degree, side, changing, tau=2.0)
        assert np.abs(data).max() > 0.1
        np.testing.assert_allclose(matrix @ nodal + f(end) * data, 0, atol=1e-12)
    both = boundary_penalty_matrix(axis, level, degree, tau=0.0)
    assert both.nnz == 0


def test_the_remainder_completes_the_error():
    axis, level, degree = Axis("x", 0, 1), 3, 2
    solution, _ = solve_dirichlet(
        axis, level, degree, lambda s: np.cos(np.pi * s), lambda s: -(np.pi**2) * np.cos(np.pi * s)
    )
    squared = projected_error(solution, lambda s: np.cos(np.pi * s), axis, level, degree) ** 2
    squared += remainder_gram([lambda s: np.cos(np.pi * s)], axis, level, degree)[0, 0]
    functions = Functions(axis, level, degree)
    nodes, weights = np.polynomial.legendre.leggauss(30)
    independent = 0.0
    for cell in range(2**level):
        a, b = functions.edges[cell : cell + 2]
        x = (a + b) / 2 + (b - a) / 2 * nodes
        values = sum(
            coefficient * function(x)
            for coefficient, (own, function) in zip(solution, functions.all, strict=True)
            if own == cell
        )
        independent += (b - a) / 2 * (weights @ (values - np.cos(np.pi * x)) ** 2)
    assert squared == pytest.approx(independent, rel=1e-9)


X = Axis("x", 0, 1)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: div_matrix(X, 1, 1, flux="up"), ValueError, "flux is 'up'; expected one of"),
        (
            lambda: div_matrix(X, 1, 1, boundary=("periodic", "neumann")),
            ValueError,
            "periodic at both ends or at neither",
        ),
        (lambda: div_matrix(X, 1, 1, boundary="neumann"), ValueError, "expected a pair"),
        (lambda: grad_matrix(X, 1, 1, boundary=("neumann", "no")), ValueError, "right boundary"),
        (lambda: edge_data(X, 1, 1, "top"), ValueError, "side is 'top'"),
        (lambda: mass_matrix(X, 1, 1, "2"), TypeError, "coefficient of mass in 'x' is str"),
        (
            lambda: mass_matrix(X, 1, 1, lambda s: s * 1j),
            TypeError,
            "gave dtype complex128; expected real",
        ),
        (
            lambda: div_matrix(X, 1, 1, lambda s: s[:3]),
            ValueError,
            "gave shape .3,. for 32 points",
        ),
        (
            lambda: div_matrix(X, 1, 1, lambda s: np.where(s == 1, np.inf, s)),
            ValueError,
            "coefficient of div in 'x' is inf at 1.0",
        ),
        (lambda: mass_matrix(X, -1, 1), ValueError, "level is -1"),
    ],
)
def test_wrong_arguments_are_named(call, error, text):
    with pytest.raises(error, match=text):
        call()


def test_a_function_that_takes_no_arrays_is_explained():
    with pytest.raises(ValueError, match="ambiguous") as caught:
        mass_matrix(X, 1, 1, lambda s: 1.0 if s > 0 else 0.0)
    assert "it is called with an array of points" in caught.value.__notes__[0]
