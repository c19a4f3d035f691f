"""Acceleration and scattering of the pitch angle, and solutions that are functions of (z, t)."""

import math

import numpy as np
import pytest
from numpy.polynomial.legendre import Legendre
from problem_oracle import orders, points_and_weights
from scipy.linalg import expm

from batchkron.problems import (
    PDE,
    Axis,
    Dirichlet,
    ExactFunction,
    Separable,
    SparseGrid,
    div,
    gallery,
    load_problem,
    make,
    save_problem,
    time,
)
from batchkron.solvers import evolve

ACCELERATIONS = ["pitch-angle-e", "pitch-angle-e-gaussian"]


def content(u):
    """∫ f dz from the coefficients of f on [-1, 1]."""
    return u[0] * np.sqrt(2.0)


@pytest.mark.parametrize("name", ACCELERATIONS)
def test_the_solution_solves_the_equation(name):
    """∂f/∂t = -∂((1 - z²) f)/∂z by central differences of the stated solution."""
    exact = gallery.get(name).pde.exact_function
    z, t, h = np.linspace(-0.99, 0.99, 41), 0.4, 1e-4
    slope = (exact(z, t + h) - exact(z, t - h)) / (2 * h)
    flux = [(1 - s**2) * exact(s, t) for s in (z + h, z - h)]
    assert np.abs(slope).max() > 0.1
    np.testing.assert_allclose(slope, -(flux[0] - flux[1]) / (2 * h), atol=1e-4)
    points, weights = points_and_weights(Axis("z", -1, 1), 7)
    assert weights @ exact(points, 1.0) == pytest.approx(weights @ exact(points, 0.0), rel=1e-10)


@pytest.mark.parametrize("name", ACCELERATIONS)
def test_acceleration_is_carried_with_its_order(name):
    levels = (4, 5, 6) if name == "pitch-angle-e" else (5, 6, 7)
    errors = []
    for level in levels:
        problem = make(name, level, 2)
        result = evolve(problem, until=1.0)
        assert result.steps == pytest.approx(1.0 / problem.stepper.dt)
        errors.append(problem.relative_error(result.u, 1.0))
        best = problem.relative_error(problem.exact_coefficients(1.0), 1.0)
        assert best < errors[-1] < 2.0 * best
        assert content(result.u) == pytest.approx(content(problem.initial), rel=1e-12)
    assert orders(errors)[-1] == pytest.approx(3.0, abs=0.25)


@pytest.mark.parametrize("name", ACCELERATIONS)
def test_errors_against_a_function_equal_quadrature(name, rng):
    problem = make(name, 4, 2)
    exact, t = gallery.get(name).pde.exact_function, 0.7
    points, weights = points_and_weights(problem.axes[0], 4, 40)
    values = exact(points, t)
    best = problem.exact_coefficients(t)
    for u in (best, best + 1e-3 * rng.standard_normal(problem.unknowns)):
        difference = problem.evaluate(u, points[:, None]) - values
        expected = np.sqrt(weights @ difference**2)
        assert problem.l2_error(u, t) == pytest.approx(expected, rel=1e-9)
    norm = np.sqrt(weights @ values**2)
    assert problem.l2_norm_exact(t) == pytest.approx(norm, rel=1e-9)
    assert problem.relative_error(best, t) == pytest.approx(problem.l2_error(best, t) / norm)
    worse = problem.l2_error(best + 1e-3 * np.eye(problem.unknowns)[5], t)
    assert worse**2 == pytest.approx(problem.l2_error(best, t) ** 2 + 1e-6, rel=1e-9)


def test_a_function_is_left_out_of_files(tmp_path):
    problem = make("pitch-angle-e", 3, 2)
    assert isinstance(problem.exact, ExactFunction)
    save_problem(tmp_path / "e.h5", problem)
    loaded = load_problem(tmp_path / "e.h5")
    assert loaded.exact is None
    assert "function" in loaded.provenance["exact solution"]
    assert loaded.content_hash == problem.content_hash
    assert loaded.exact_coefficients(0.3) is None
    np.testing.assert_array_equal(loaded.initial, problem.initial)
    result = evolve(loaded, until=0.5)
    np.testing.assert_array_equal(result.u, evolve(problem, until=0.5).u)
    with pytest.raises(ValueError, match="exact solution of 'pitch-angle-e' is not known"):
        loaded.l2_error(result.u, 0.5)


X, Y = Axis("x", 0.0, 1.0), Axis("y", -1.0, 2.0)
WEIGHTS = {X: lambda s: s**2, Y: np.exp}


@pytest.mark.parametrize("volume", [{}, {X: WEIGHTS[X]}, WEIGHTS], ids=["none", "one", "both"])
@pytest.mark.parametrize(
    "grid", ["sparse", "full", SparseGrid.custom([[0, 0], [3, 1], [0, 2], [7, 0]], [3, 2])]
)
def test_a_function_and_its_product_agree(grid, volume, rng):
    """The same solution, given as a product and as a function of (x, y, t)."""

    def function(x, y, t):
        return np.exp(-t) * np.sin(2 * x) * np.cos(y)

    product = Separable(x=lambda s: np.sin(2 * s), y=np.cos, t=time.exp(-1.0))
    levels = None if isinstance(grid, SparseGrid) else [3, 2]
    first, second = (
        PDE([X, Y], [], sources=0.0, boundary="neumann", exact=exact, volume=volume).discretize(
            levels, 1, grid
        )
        for exact in (function, product)
    )
    np.testing.assert_allclose(first.initial, second.initial, atol=1e-13)
    u, t = rng.standard_normal(first.unknowns), 0.4
    best = second.exact_coefficients(t)
    np.testing.assert_allclose(first.exact_coefficients(t), best, atol=1e-13)
    for state in (u, best, best + 1e-4 * u):
        assert first.l2_error(state, t) == pytest.approx(second.l2_error(state, t), rel=1e-8)
    assert first.l2_norm_exact(t) == pytest.approx(second.l2_norm_exact(t), rel=1e-12)


def discretized(exact, axes=(X,), level=2, degree=1):
    return PDE(axes, div(axes[0]), boundary="neumann", exact=exact).discretize(level, degree)


AXES_3D = (X, Y, Axis("z", 0.0, 1.0))


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (
            lambda: PDE([X], div(X), boundary="periodic", exact=np.hypot, sources="from exact"),
            ValueError,
            r"needs exact=Separable\(...\)",
        ),
        (
            lambda: PDE([X], div(X), boundary=Dirichlet("from exact"), exact=np.hypot),
            ValueError,
            r"needs exact=Separable\(...\)",
        ),
        (lambda: discretized(lambda x, t: 1j * x), TypeError, "exact gave dtype complex128"),
        (lambda: discretized(lambda x, t: x[:3]), ValueError, r"exact gave shape \(3,\) for 96 p"),
        (
            lambda: discretized(lambda x, t: np.where(x > 0.5, np.nan, x)),
            ValueError,
            r"exact is nan at x = 0.5\d*, t = 0.0; expected finite",
        ),
        (
            lambda: discretized(lambda x, y, z, t: x, AXES_3D, 7, degree=6),
            ValueError,
            "degrees 0, 1, 2, 3, 4, 5; got degree 6",
        ),
    ],
)
def test_what_a_function_cannot_do(call, error, text):
    with pytest.raises(error, match=text):
        call()


def test_a_function_of_scalars_is_explained():
    with pytest.raises(TypeError) as caught:
        discretized(lambda x, t: math.exp(x))
    assert "called with an array of 96 numbers, one for each point" in caught.value.__notes__[0]


@pytest.mark.parametrize("degree", [1, 2, 3])
def test_legendre_polynomials_are_the_modes_of_scattering(degree):
    A = make("pitch-angle-c", 4, degree).operator.to_dense()
    assert np.abs(A - A.T).max() < 1e-12 * np.abs(A).max()
    found = np.linalg.eigvalsh(A)[::-1]
    modes = np.arange(4)
    np.testing.assert_allclose(
        found[:4], -modes * (modes + 1), rtol=10.0 ** (-1 - degree), atol=1e-9
    )
    assert found.max() < 1e-12 * -found.min()


@pytest.mark.parametrize("mode", [1, 2, 3])
def test_a_mode_decays_at_its_rate(mode):
    """P_n, alone, becomes exp(-n(n+1)t) P_n."""
    z = gallery.get("pitch-angle-c").pde.axes[0]
    pde = gallery.get("pitch-angle-c").pde
    alone = PDE([z], pde.terms, boundary="neumann", initial=Separable(z=Legendre.basis(mode)))
    problem, t = alone.discretize(3, 3), 0.2
    u = expm(t * problem.operator.to_dense()) @ problem.initial
    np.testing.assert_allclose(u, np.exp(-mode * (mode + 1) * t) * problem.initial, atol=5e-6)


@pytest.mark.parametrize("degree", [2, 3])
def test_scattering_converges_and_keeps_its_content(degree):
    errors = []
    for level in (2, 3, 4):
        problem = make("pitch-angle-c", level, degree)
        assert content(problem.initial) == pytest.approx(1.0)
        result = evolve(problem, until=0.5)
        assert content(result.u) == pytest.approx(1.0, rel=1e-8)
        errors.append(problem.relative_error(result.u, 0.5))
    assert orders(errors).min() > 2.5
    assert errors[-1] < 5e-6
