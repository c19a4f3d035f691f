"""Coefficients that jump at edges between cells: exact solutions, conservation, sources, ends."""

import numpy as np
import pytest

from batchkron.problems import (
    PDE,
    Axis,
    Dirichlet,
    Inflow,
    Neumann,
    NoFlux,
    Separable,
    div,
    grad,
    mass,
    penalty,
    time,
)
from batchkron.solvers import Adapt, EvolveStatus, evolve

EPS = np.finfo(np.float64).eps
X, Y = Axis("x", -1.0, 1.0), Axis("y", 0.0, 2.0)
PLACES = np.array([-0.99, -0.5, -0.01, 0.01, 0.3, 0.98])

# 1 | 2, with other values at the jump and next to it, as rounding may give them
STEPS = {
    "<": lambda s: np.where(s < 0, 1.0, 2.0),
    "<=": lambda s: np.where(s <= 0, 1.0, 2.0),
    "mean": lambda s: 1.5 + 0.5 * np.sign(s),
    "another": lambda s: np.where(s == 0, -7.0, np.where(s < 0, 1.0, 2.0)),
    "before": lambda s: np.where(s < -1e-13, 1.0, 2.0),
    "behind": lambda s: np.where(s < 1e-13, 1.0, 2.0),
}


def solve(problem):
    """Return the state in which nothing changes."""
    source = np.empty(problem.unknowns)
    problem.rhs(0.0, np.zeros(problem.unknowns), source)
    return np.linalg.solve(problem.operator_at(0.0).to_dense(), -source)


def steady(terms, boundary, level, degree, axes=(X,), grid="full", **options):
    pde = PDE(list(axes), terms, boundary=boundary, initial=0.0, sources=0.0, **options)
    problem = pde.discretize(level, degree, grid=grid)
    return problem, solve(problem)


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
@pytest.mark.parametrize("wind", [1.0, -1e-30])
def test_transport_keeps_its_flux(step, wind):
    """g f is constant, so that f is 1 | 0.5 or 2 | 1 times the inflow."""
    flux = 1.0 if wind > 0 else 2.0
    expected = np.where(PLACES < 0, flux, flux / 2)
    for level, degree in [(1, 0), (1, 3), (4, 0), (4, 1), (3, 2)]:
        problem, u = steady(div(X, lambda s: -wind * step(s)), Inflow(1.0), level, degree)
        rounding = 1e3 * (degree + 1) ** 2 * EPS
        np.testing.assert_allclose(problem.evaluate(u, PLACES), expected, rtol=0, atol=rounding)


@pytest.mark.parametrize("level", [3, 5])
def test_rounding_of_edges_does_not_matter(level):
    """The edges of this axis are no decimal numbers; the jumps are stated as ones."""
    axis, edge = Axis("x", 0.1, 0.9), 0.1 + 0.8 * 3 / 8
    for jump in (edge, 0.4, np.nextafter(edge, 0), np.nextafter(edge, 1)):
        speed = div(axis, lambda s, jump=jump: -np.where(s < jump, 1.0, 4.0))
        problem, u = steady(speed, Inflow(1.0), level, 1, axes=[axis])
        found = problem.evaluate(u, np.array([0.11, 0.399, 0.401, 0.89]))
        np.testing.assert_allclose(found, [1.0, 1.0, 0.25, 0.25], rtol=0, atol=1e-13)


DIFFUSIONS = {
    "div": lambda k: div(X, k) @ grad(X),
    "grad": lambda k: div(X) @ grad(X, k),
    "mass": lambda k: div(X) @ mass(X, k) @ grad(X),
    "roots": lambda k: div(X, lambda s: np.sqrt(k(s))) @ grad(X, lambda s: np.sqrt(k(s))),
    "upwind": lambda k: div(X, k, flux="upwind") @ grad(X),
    "downwind": lambda k: div(X, k, flux="downwind") @ grad(X),
    "central": lambda k: div(X, k) @ grad(X, flux="central"),
}


@pytest.mark.parametrize("make", DIFFUSIONS.values(), ids=DIFFUSIONS)
@pytest.mark.parametrize("step", ["<", "<=", "behind"])
def test_diffusion_keeps_its_flux(make, step):
    """k f_x is constant: 2/3 and 1/3 of the difference of both ends; or twice the slope at one."""
    for level, degree, end in [(1, 1, 1.0), (4, 1, 1.0), (3, 2, Neumann(0.5))]:
        ends = (Dirichlet(0.0), Dirichlet(end) if isinstance(end, float) else end)
        problem, u = steady(make(STEPS[step]), ends, level, degree)
        flux = 2 / 3 if isinstance(end, float) else 1.0
        expected = flux * np.where(PLACES < 0, PLACES + 1, 1 + PLACES / 2)
        np.testing.assert_allclose(problem.evaluate(u, PLACES), expected, rtol=0, atol=1e-12)


# ±: the flow runs together at 0, and away from it
JUMPS = [(1.0, 2.0), (-2.0, -0.5), (-1.0, 2.0), (1.0, -3.0), (0.0, 1.0), (-1.0, 0.0)]


@pytest.mark.parametrize(("before", "behind"), JUMPS)
@pytest.mark.parametrize("flux", ["upwind", "central", "downwind"])
@pytest.mark.parametrize("boundary", ["no-flux", "periodic"])
def test_the_flux_is_that_of_both_sides(before, behind, flux, boundary):
    """Finite volumes by hand, on four cells; and ∫ f is conserved whatever the signs."""

    def g(s):  # on a periodic axis at -0.5 and 0.5, else at 0
        return np.where(np.abs(s) < 0.5 if boundary == "periodic" else s < 0, before, behind)

    speeds = [before, before, behind, behind]
    if boundary == "periodic":
        speeds = [behind, before, before, behind]
    sign = {"upwind": -1.0, "central": 0.0, "downwind": 1.0}[flux]
    expected = np.zeros((4, 4))
    for left in range(4 if boundary == "periodic" else 3):
        right, width = (left + 1) % 4, 0.5
        taken = np.zeros(4)
        taken[left] = (speeds[left] + sign * abs(speeds[left])) / 2
        taken[right] = (speeds[right] - sign * abs(speeds[right])) / 2
        expected[left] += taken / width
        expected[right] -= taken / width
    pde = PDE([X], div(X, g, flux=flux), boundary=boundary, initial=1.0)
    found = pde.discretize(2, 0)
    basis = np.stack([found.evaluate(row, np.array([-0.7, -0.3, 0.3, 0.7])) for row in np.eye(4)])
    # f at the middles is basis.T @ u, which is orthogonal times 1/√h
    matrix = basis.T @ found.operator.to_dense() @ np.linalg.inv(basis.T)
    np.testing.assert_allclose(matrix, expected, rtol=0, atol=1e-13)
    for degree in (1, 2):
        problem = pde.discretize(2, degree)
        dense = problem.operator.to_dense()
        largest = np.abs(dense).max()
        ones = problem.moment_weights({X: 0})
        np.testing.assert_allclose(ones @ dense, 0.0, rtol=0, atol=1e-14 * largest)
        if flux == "upwind" and boundary == "periodic":
            assert np.linalg.eigvals(dense).real.max() < 1e-10 * largest


def test_a_jump_where_a_periodic_axis_closes():
    """It is refused where the ends have different values, and conserves where only limits do."""
    step = STEPS["<"]
    with pytest.raises(ValueError, match=r"is 1 at -1 and 2 at 1, but 'x' is periodic"):
        PDE([X], div(X, step), boundary="periodic", initial=1.0)
    pde = PDE(
        [X], div(X, lambda s: np.where(s == 1, 1.0, step(s))), boundary="periodic", initial=1.0
    )
    problem = pde.discretize(3, 2)
    dense = problem.operator.to_dense()
    atol = 1e-14 * np.abs(dense).max()
    np.testing.assert_allclose(problem.moment_weights({X: 0}) @ dense, 0.0, rtol=0, atol=atol)
    kept = PDE([X], pde.terms, boundary="periodic", initial=Separable(x=lambda s: 1 / step(s)))
    u = kept.discretize(3, 2).initial
    np.testing.assert_allclose(dense @ u, 0.0, rtol=0, atol=10 * atol)


def test_gradients_of_constants_vanish_and_those_of_jumps_have_their_sides_coefficient():
    for flux in ("upwind", "central", "downwind"):
        pde = PDE([X], grad(X, STEPS["<"], flux=flux), boundary="neumann", initial=1.0)
        problem = pde.discretize(3, 1)
        atol = 1e-13 * np.abs(problem.operator.to_dense()).max()
        np.testing.assert_allclose(problem.operator @ problem.initial, 0.0, rtol=0, atol=atol)
    jump = Separable(x=lambda s: np.where(s < 0, 0.0, 1.0))
    for side, expected in ((1.0, 1.0), (-1.0, -2.0)):  # f_t = g f_x: g > 0 carries it to the left
        terms = grad(X, lambda s, side=side: side * STEPS["<="](s))
        problem = PDE([X], terms, boundary="neumann", initial=jump).discretize(3, 1)
        ones = problem.moment_weights({X: 0})
        assert ones @ (problem.operator @ problem.initial) == pytest.approx(expected, rel=1e-13)


@pytest.mark.parametrize(("before", "behind"), JUMPS[:4])
def test_a_penalty_damps_jumps_only(before, behind):
    terms = penalty(X, lambda s: np.where(s < 0, before, behind))
    problem = PDE([X], terms, boundary="no-flux", initial=1.0).discretize(3, 1)
    dense = problem.operator.to_dense()
    largest = np.abs(dense).max()
    np.testing.assert_allclose(dense, dense.T, rtol=0, atol=1e-15 * largest)
    assert np.linalg.eigvalsh(dense).max() < 1e-13 * largest
    line = PDE([X], terms, boundary="no-flux", initial=Separable(x=lambda s: 2 + s))
    u = line.discretize(3, 1).initial
    np.testing.assert_allclose(dense @ u, 0.0, rtol=0, atol=1e-14 * largest)
    jump = PDE([X], terms, boundary="no-flux", initial=Separable(x=np.sign)).discretize(3, 1)
    # ½ |g| times the square of the jump, which is 2
    damping = jump.initial @ dense @ jump.initial
    assert damping == pytest.approx(-2 * max(abs(before), abs(behind)), rel=1e-13)


BOUNDARIES = {
    "inflow": (Inflow(3.0), lambda g: div(X, g)),
    "outflow": (Inflow(3.0), lambda g: div(X, lambda s: -g(s))),
    "neumann": ("neumann", lambda g: div(X, g)),
    "gradient": (Inflow(3.0), lambda g: grad(X, g)),
    "chain": ((Dirichlet(1.0), Neumann(2.0)), lambda g: div(X, g) @ grad(X)),
    "inner": ((Neumann(2.0), Dirichlet(1.0)), lambda g: div(X) @ mass(X, g) @ grad(X, g)),
}


@pytest.mark.parametrize(("ends", "make"), BOUNDARIES.values(), ids=BOUNDARIES)
def test_at_the_ends_the_inside_counts(ends, make):
    """A coefficient that is another one just at the ends is the same as without that."""
    given, plain = (
        PDE([X], make(g), boundary=ends, initial=1.0).discretize(2, 1)
        for g in (lambda s: np.where(np.abs(s) == 1, -9.0, 2.0 + s), lambda s: 2.0 + s)
    )
    u = np.random.default_rng(1).standard_normal(given.unknowns)
    found, expected = np.empty_like(u), np.empty_like(u)
    given.rhs(0.0, u, found)
    plain.rhs(0.0, u, expected)
    atol = 1e-13 * np.abs(expected).max()  # the limits are extrapolated
    np.testing.assert_allclose(found, expected, rtol=0, atol=atol)


def test_data_are_those_exactly_at_the_ends():
    data = Separable(x=lambda s: np.where(np.abs(s) == 1, s, 77.0))
    problem, u = steady(div(X) @ grad(X), Dirichlet(data), 2, 1)
    np.testing.assert_allclose(problem.evaluate(u, PLACES), PLACES, rtol=0, atol=1e-13)


@pytest.mark.parametrize("grid", ["sparse", "full"])
def test_two_axes_other_coefficients_and_time(grid):
    """The flux g(x) h(y) f is constant along x for every y; h changes its sign, and so the wind."""

    def h(s):
        return np.where(s < 1, -1.0, 3.0)

    terms = div(X, lambda s: -STEPS["<"](s), others={Y: h}, time=time.exp(0.5))
    data = (Inflow(1.0), Inflow(0.5))
    problem, u = steady(terms, {X: data, Y: "neumann"}, (3, 2), 1, axes=(X, Y), grid=grid)
    y = np.array([0.1, 0.9, 1.1, 1.9])
    points = np.stack([a.ravel() for a in np.meshgrid(PLACES, y, indexing="ij")], axis=1)
    expected = np.where(points[:, 0] < 0, 1.0, 0.5)
    np.testing.assert_allclose(problem.evaluate(u, points), expected, rtol=0, atol=1e-12)


def test_a_volume_element_that_jumps():
    """(dV f)_x / dV = 0 has dV f constant; the gradient of a constant is zero."""
    problem, u = steady(div(X, -1.0), Inflow(1.0), 3, 1, volume={X: STEPS["<"]})
    expected = np.where(PLACES < 0, 1.0, 0.5)
    np.testing.assert_allclose(problem.evaluate(u, PLACES), expected, rtol=0, atol=1e-12)
    problem, u = steady(grad(X, -1.0), Inflow(2.0), 3, 1, volume={X: STEPS["<"]})
    np.testing.assert_allclose(problem.evaluate(u, PLACES), 2.0, rtol=0, atol=1e-12)


def test_grids_that_adapt_keep_the_steady_state():
    pde = PDE([X], div(X, lambda s: -STEPS["<"](s)), boundary=Inflow(1.0), initial=1.0)
    problem = pde.discretize(2, 1)
    result = evolve(problem, until=4.0, adapt=Adapt(1e-4, every=5, max_level=5))
    assert result.status is EvolveStatus.COMPLETED
    assert result.problem.grid.levels != problem.grid.levels
    expected = np.where(PLACES < 0, 1.0, 0.5)
    found = result.problem.evaluate(result.u, PLACES)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-3)


def from_exact(terms, exact, level, degree, boundary):
    pde = PDE(
        [X], terms, boundary=boundary, exact=Separable(x=exact), sources="from exact"
    ).discretize(level, degree)
    return pde, solve(pde)


def test_sources_of_exact_solutions_take_both_sides():
    flow = div(X, lambda s: -STEPS["<"](s))
    problem, u = from_exact(flow, lambda s: 1 / STEPS["<="](s), 3, 2, Inflow("from exact"))
    assert problem.l2_error(u, 0.0) < 1e-13
    change = np.empty_like(u)
    problem.rhs(0.0, problem.initial, change)
    np.testing.assert_allclose(change, 0.0, rtol=0, atol=1e-12)

    def kinked(s):
        return np.sin(2 * s) / STEPS["<"](s)

    for step in ("<", "<="):
        errors = []
        for level in (3, 4):
            ends = Dirichlet("from exact")
            problem, u = from_exact(div(X, STEPS[step]) @ grad(X), kinked, level, 2, ends)
            errors.append(problem.l2_error(u, 0.0))
        assert np.log2(errors[0] / errors[1]) > 2.8


def test_the_impulse_of_a_flux_that_jumps_has_its_integral():
    """(g f)_x with f = 2 + s: half of the impulse in each cell, and ∫ s dx = [g f]."""
    flow = div(X, lambda s: -STEPS["<"](s))
    problem, u = from_exact(flow, lambda s: 2 + s, 5, 1, Inflow("from exact"))
    assert problem.evaluate(u, PLACES[[0, 1, 4, 5]]) == pytest.approx(
        2 + PLACES[[0, 1, 4, 5]], abs=1e-12
    )


@pytest.mark.parametrize("wall", [NoFlux(), "periodic"])
def test_continuous_coefficients_are_read_at_edges_alone(wall):
    """The same bits as with a table of the values at the edges, and none beside them."""
    axis = Axis("x", 0.0, 1.0)

    def smooth(s):
        return np.cos(2 * np.pi * s) + 0.1

    def table(s):  # another slope beside the edges, too small for a jump
        edges = np.isclose(s * 8, np.round(s * 8), rtol=0, atol=1e-8)
        return np.where(edges, smooth(np.round(s * 8) / 8), smooth(s))

    first, second = (
        PDE([axis], div(axis, g), boundary=wall, initial=1.0).discretize(3, 2).operator.to_dense()
        for g in (smooth, table)
    )
    np.testing.assert_array_equal(first, second)
