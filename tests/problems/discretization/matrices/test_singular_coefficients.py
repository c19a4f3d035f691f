"""Coefficients that are infinite where a volume element vanishes, as 1/r² at the origin."""

import numpy as np
import pytest
from numpy.polynomial import Polynomial
from problem_oracle import gauss2, orders

from batchkron.problems import (
    PDE,
    Axis,
    Inflow,
    Neumann,
    Separable,
    div,
    grad,
    laplacian,
    mass,
    time,
)
from batchkron.solvers import evolve

R, S, T = Axis("r", 0.0, 1.0), Axis("s", 0.5, 2.0), Axis("theta", 0.0, np.pi)


def square(r):
    return r**2


def one_over_square(r):
    return r**-2.0


ORIGIN = {
    "a multiplication": -mass(R, one_over_square),
    "a flow": div(R, lambda r: -(r**-2.0)),
    "angles of a ball": mass(R, one_over_square) @ div(S) @ grad(S),
    "angles of a cylinder": mass(T, lambda t: 1 / np.sin(t)) @ div(S) @ grad(S),
}


@pytest.mark.parametrize("degree", [1, 4])
@pytest.mark.parametrize("case", ORIGIN)
def test_default_steps_are_not_taken_from_the_origin(case, degree):
    """dt times the largest |eigenvalue| is below ssp-rk3's limit 2.5, and not far below it."""
    term = ORIGIN[case]
    axes = list(dict.fromkeys(factor.axis for factor in term.factors))
    volume = {R: square, T: np.sin} if R in axes else {T: np.sin}
    volume = {axis: volume[axis] for axis in axes if axis in volume}
    problem = PDE(
        axes, term, boundary="inflow" if len(axes) == 1 else "neumann", initial=0.0, volume=volume
    )
    problem = problem.discretize([2, 1][: len(axes)], degree, "full", method="ssp-rk3")
    fastest = np.abs(np.linalg.eigvals(problem.operator.to_dense())).max()
    assert 0.02 < fastest * problem.stepper.dt < 2.5


def test_bounds_of_a_coefficient_do_not_make_the_step_tiny():
    def bounded(r):
        return np.maximum(r, 1e-12) ** -2

    steps = [
        PDE([R], -mass(R, g), boundary="neumann", initial=0.0, volume={R: square})
        .discretize(4, 2)
        .stepper.dt
        for g in (one_over_square, bounded)
    ]
    assert steps[1] == pytest.approx(steps[0])
    assert steps[0] > 1e-6


@pytest.mark.parametrize("degree", [1, 2, 3])
def test_a_flow_out_of_the_origin(degree):
    """f_t = -(1/r²) ∂(r² f/r²)/∂r with f(0, t) = exp(-t): f = exp(r³/3 - t)."""
    exact = Separable(r=lambda r: np.exp(r**3 / 3), t=time.exp(-1.0))
    errors = []
    for level in (1, 2, 3):
        problem = PDE(
            [R],
            -div(R, one_over_square),
            boundary=Inflow("from exact"),
            exact=exact,
            volume={R: square},
        ).discretize(level, degree)
        errors.append(problem.l2_error(gauss2(problem, 0.5, 60), 0.5))
        assert np.linalg.eigvals(problem.operator.to_dense()).real.max() < 0.0
    assert orders(errors)[-1] > degree + 0.8
    assert errors[-1] < 2e-3


def test_a_ball_has_the_known_modes():
    """The spherical Laplacian, with spherical Bessel functions of orders 0, 1, 2 in r."""
    ball = Axis("r", 0.0, 4.493409457909064)  # the first zero of j_1
    terms = [laplacian(ball), mass(ball, one_over_square) @ div(T) @ grad(T)]
    ends = {ball: ("no-flux", "dirichlet"), T: "no-flux"}
    problem = PDE([ball, T], terms, boundary=ends, initial=0.0, volume={ball: square, T: np.sin})
    A = problem.discretize([3, 2], 2, "full").operator.to_dense()
    found = np.sort(-np.linalg.eigvals(A).real)[:4]
    zeros = np.array([np.pi, ball.upper, 5.763459196894550, 2 * np.pi])
    np.testing.assert_allclose(found, (zeros / ball.upper) ** 2, rtol=1e-3)


def test_heat_in_a_ball_of_two_coordinates():
    """exp(-t) j_1(r) cos θ is the exact solution."""
    ball = Axis("r", 0.0, 4.493409457909064)
    pde = PDE(
        [ball, T],
        [laplacian(ball), mass(ball, lambda r: r**-2.0) @ div(T) @ grad(T)],
        boundary={ball: ("no-flux", "dirichlet"), T: "no-flux"},
        exact=Separable(
            r=lambda r: (np.sin(r) / r - np.cos(r)) / r, theta=np.cos, t=time.exp(-1.0)
        ),
        volume={ball: square, T: np.sin},
    )
    problem = pde.discretize([4, 3], 2, "full")
    result = evolve(problem, until=0.1, method="crank-nicolson", dt=0.02, preconditioner="auto")
    best = problem.l2_error(problem.exact_coefficients(0.1), 0.1)
    assert best < problem.l2_error(result.u, 0.1) < 3.0 * best
    assert problem.relative_error(result.u, 0.1) < 1e-3


def test_sources_of_coefficients_at_the_origin():
    """-(f/r²) and the flow (1/r²) ∂f/∂r of f = r² + r³ are polynomials."""
    exact = Separable(r=Polynomial([0.0, 0.0, 1.0, 1.0]))
    terms = [-mass(R, one_over_square), div(R, one_over_square), grad(R, lambda r: 1 / r)]
    problem = PDE(
        [R], terms, boundary="neumann", exact=exact, sources="from exact", volume={R: square}
    ).discretize(2, 3)
    slope = np.full(problem.unknowns, np.nan)
    problem.rhs(0.0, problem.initial, slope)
    np.testing.assert_allclose(slope, 0.0, atol=1e-9)
    chain = div(R) @ mass(R, one_over_square) @ grad(R)
    pde = PDE(
        [R],
        chain,
        boundary=("neumann", Neumann("from exact")),
        exact=Separable(r=np.exp),
        sources="from exact",
        volume={R: square},
    )
    with pytest.raises(ValueError, match="infinite at an end; give sources="):
        pde.discretize(2, 2)


@pytest.mark.parametrize(
    ("term", "volume", "text"),
    [
        (mass(R, lambda r: r**-3.0), {R: square}, "is inf at 0.0, and has no limit there even"),
        (mass(R, lambda r: r**-2.5), {R: square}, "has no limit"),
        (mass(R, lambda r: np.log(r) / r**2), {R: square}, "has no limit"),
        (mass(R, lambda r: (1 - r) ** -0.5), {R: square}, "is inf at 1.0, and has no limit"),
        (mass(R, lambda r: 1 / (r - 0.5)), {R: square}, "is inf at 0.5"),
        (mass(R, lambda r: np.sqrt(r - 0.1) / r), {R: square}, "is nan at 0.0"),
        (mass(R, one_over_square), {}, "is inf at 0.0"),
        (div(R, lambda r: 1 / r), {}, "is inf at 0.0"),
        (mass(S) @ div(S, 1.0, others={R: lambda r: r**-3.0}), {R: square}, "no limit"),
    ],
)
def test_what_the_volume_element_does_not_make_up_for_is_refused(term, volume, text):
    pde = PDE([R, S], term, boundary="neumann", initial=0.0, volume=volume)
    with pytest.raises(ValueError, match=text):
        pde.discretize(2, 1, method="ssp-rk3", dt=0.1)


@pytest.mark.parametrize("ends", [(0.0, np.pi / 2), (np.pi / 2, np.pi), (2 * np.pi, 2.5 * np.pi)])
def test_ends_where_rounding_hides_a_zero(ends):
    """sin π is 1.2e-16: 1/sin² is as infinite there as at 0, and 1/sin is as harmless."""
    axis = Axis("th", *ends)

    def make(coefficient):
        pde = PDE(
            [axis], mass(axis, coefficient), boundary="neumann", initial=0.0, volume={axis: np.sin}
        )
        return pde.discretize(3, 2, method="ssp-rk3", dt=0.1)

    with pytest.raises(ValueError, match="has no limit"):
        make(lambda th: -1 / np.sin(th) ** 2)
    norms = [
        np.linalg.norm(make(g).operator.to_dense(), 2) for g in (np.cos, lambda th: 1 / np.sin(th))
    ]
    assert norms[0] <= 1.0 < norms[1] < 100.0
    bounded = make(lambda th: np.maximum(np.abs(np.sin(th)), 1e-6) ** -3)
    assert np.isfinite(bounded.operator.to_dense()).all()
