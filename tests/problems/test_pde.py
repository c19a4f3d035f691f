"""PDEs as values: what they accept, what they refuse, and how they are discretized."""

import re

import numpy as np
import pytest
from problem_oracle import dense_div, dense_mass, dense_sum, gauss2, orders, rk3, steady

from batchkron.problems import (
    PDE,
    Axis,
    Dirichlet,
    Inflow,
    Neumann,
    NoFlux,
    Separable,
    SparseGrid,
    div,
    grad,
    laplacian,
    mass,
    penalty,
    time,
)
from batchkron.solvers import evolve

X, Y = Axis("x", 0.0, 1.0), Axis("y", -1.0, 1.0)
FAR = Axis("z", 0.0, 1.0)


def one(points):
    return np.ones_like(points)


def evaluated(parts, axes, points, t):
    """Values of a sum of separable functions at points."""
    total = np.zeros(len(points))
    for part in parts:
        value = part.coefficient * part.time(t) * np.ones(len(points))
        for k, axis in enumerate(axes):
            factor = part.factor(axis)
            value = value * (factor(points[:, k]) if callable(factor) else factor)
        total += value
    return total


def test_separable_functions_add_and_scale(rng):
    f = Separable(x=np.cos, y=2.0, t=time.sin(2.0), coefficient=3.0)
    g = Separable(y=np.exp)
    points, t = rng.uniform(-1, 1, (5, 2)), 0.7
    cos, exp = 6 * np.cos(points[:, 0]) * np.sin(1.4), np.exp(points[:, 1])
    for field, expected in [
        (f + g, cos + exp),
        (f - g, cos - exp),
        (2 * f - 1.5, 2 * cos - 1.5),
        (1 - (f + g) * 2, 1 - 2 * cos - 2 * exp),
        (-(f + g), -cos - exp),
        (time.exp(1.0) * (f + g), np.exp(t) * (cos + exp)),
        (f * time.exp(1.0), np.exp(t) * cos),
    ]:
        np.testing.assert_allclose(evaluated(field.parts, (X, Y), points, t), expected)


REFUSED = [
    (lambda: PDE([], div(X), boundary="periodic", initial=0.0), ValueError, "axes is empty"),
    (
        lambda: PDE(["x"], div(X), boundary="periodic", initial=0.0),
        TypeError,
        r"axes\[0\] must be an Axis",
    ),
    (
        lambda: PDE([X, Axis("x", 0, 2)], div(X), boundary="periodic", initial=0.0),
        ValueError,
        "once only",
    ),
    (
        lambda: PDE([X], div(Y), boundary="periodic", initial=0.0),
        ValueError,
        "not among the PDE's axes",
    ),
    (lambda: PDE([X], "div", boundary="periodic", initial=0.0), TypeError, "terms holds str"),
    (
        lambda: PDE([X], [div(X), 3.0], boundary="periodic", initial=0.0),
        TypeError,
        "terms holds float",
    ),
    (
        lambda: PDE([X], div(X), boundary="open", initial=0.0),
        ValueError,
        "expected one of periodic",
    ),
    (lambda: PDE([X], div(X), boundary=3, initial=0.0), TypeError, "boundary of axis 'x' is int"),
    (
        lambda: PDE([X, Y], div(X), boundary={X: "periodic"}, initial=0.0),
        ValueError,
        "nothing about the axes y",
    ),
    (
        lambda: PDE([X], div(X), boundary={X: "periodic", FAR: "periodic"}, initial=0.0),
        ValueError,
        "boundary names the axis 'z'",
    ),
    (lambda: PDE([X], div(X), boundary={"q": "periodic"}, initial=0.0), ValueError, "the axis 'q'"),
    (
        lambda: PDE([X], div(X), boundary={X: ("periodic", "neumann")}, initial=0.0),
        ValueError,
        "one end only",
    ),
    (
        lambda: PDE([X], div(X), boundary={X: ("neumann",) * 3}, initial=0.0),
        ValueError,
        "3 entries",
    ),
    (lambda: Dirichlet("from exat"), ValueError, "only word for data"),
    (lambda: Neumann(object()), TypeError, "must be a number, a Separable"),
    (
        lambda: PDE([X], div(X), boundary=Dirichlet(Separable(q=1.0)), initial=0.0),
        ValueError,
        "left end of axis 'x' names the axis 'q'",
    ),
    (
        lambda: PDE([X], div(X), boundary=Dirichlet("from exact"), initial=0.0),
        ValueError,
        "needs exact=",
    ),
    (
        lambda: PDE([X], div(X, boundary=Dirichlet("from exact")), boundary="neumann", initial=0.0),
        ValueError,
        "needs exact=",
    ),
    (
        lambda: PDE([X], div(X), boundary="periodic", initial=0.0, sources="from exact"),
        ValueError,
        "needs exact=",
    ),
    (
        lambda: PDE([X], div(X), boundary="periodic", initial=0.0, sources="none"),
        ValueError,
        "sources: 'none' names 'none'; expected x, t",
    ),
    (lambda: PDE([X], div(X), boundary="periodic", initial="from exact"), ValueError, "needs"),
    (
        lambda: PDE([X], div(X), boundary="periodic", initial=np.hypot),
        TypeError,
        "initial is np.hypot, a function of 2 arrays",
    ),
    (
        lambda: PDE([X], div(X), boundary="periodic", initial=0.0, sources=[Separable(q=np.cos)]),
        ValueError,
        r"sources\[0\] names the axis 'q'",
    ),
    (
        lambda: PDE([X], div(X), boundary="periodic", exact=Separable(q=np.cos)),
        ValueError,
        "exact names the axis 'q'",
    ),
    (
        lambda: PDE([X], div(X), boundary=Neumann(1.0), initial=0.0),
        ValueError,
        "no second derivative",
    ),
    (
        lambda: PDE([X], div(X), boundary="periodic", initial=0.0, name=""),
        TypeError,
        "name must be",
    ),
    (
        lambda: PDE([X], div(X), boundary="periodic", initial=0.0, t0=np.nan),
        ValueError,
        "t0 must be",
    ),
    (lambda: Separable(t=np.sin), TypeError, "t must be a TimeFunction"),
    (lambda: Separable(x="cos"), TypeError, "must be a function of one array"),
    (lambda: Separable(x=time.sin(1.0)), TypeError, "is given as t="),
    (lambda: Separable(coefficient="2"), TypeError, "coefficient must be a number"),
    (lambda: div(1), TypeError, "axis must be an Axis"),
    (lambda: div(X, "fast"), TypeError, "must be a number or a function"),
    (lambda: div(X, time.sin(1.0)), TypeError, "give it as time="),
    (lambda: div(X, flux="up"), ValueError, "flux is 'up'"),
    (lambda: div(X, time=np.sin), TypeError, "time must be a TimeFunction"),
    (lambda: div(X, others={X: 1.0}), ValueError, "the axis of the term itself"),
    (lambda: div(X, others={2: 1.0}), TypeError, "keys of others must be axes"),
    (lambda: div(X, others={Y: "v"}), TypeError, "coefficient in 'y' must be"),
    (lambda: div(X, boundary="open"), ValueError, "expected one of"),
    (lambda: laplacian([]), ValueError, "axes is empty"),
    (lambda: div(X) @ 3.0, TypeError, "unsupported operand"),
    (lambda: div(X) * {}, TypeError, "unsupported operand"),
]


@pytest.mark.parametrize(("make", "error", "text"), REFUSED)
def test_what_a_pde_refuses(make, error, text):
    with pytest.raises(error, match=text):
        make()


PDE_2D = PDE([X, Y], [div(X), div(Y)], boundary="periodic", initial=0.0)


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: PDE_2D.discretize(), TypeError, "level is missing"),
        (lambda: PDE_2D.discretize([1, 2, 3]), ValueError, "3 entries; the PDE has 2 axes"),
        (lambda: PDE_2D.discretize(1.5), TypeError, "level is 1.5; expected an integer"),
        (lambda: PDE_2D.discretize(-1), ValueError, "level"),
        (lambda: PDE_2D.discretize(2, 1.5), TypeError, "degree"),
        (lambda: PDE_2D.discretize(2, 1, "dense"), ValueError, "grid is 'dense'"),
        (lambda: PDE_2D.discretize(2, 1, SparseGrid.full([1, 1])), ValueError, "left out"),
        (lambda: PDE_2D.discretize(None, 1, SparseGrid.full([1])), ValueError, "grid has 1 axes"),
        (lambda: PDE_2D.discretize(2, 1, until=-1.0), ValueError, "must lie after t0"),
        (lambda: PDE_2D.discretize(2, 1, dt=0.0), ValueError, "dt must be positive"),
        (lambda: PDE_2D.discretize(2, 1, boundary_penalty=-1.0), ValueError, "at least 0"),
    ],
)
def test_what_discretize_refuses(make, error, text):
    with pytest.raises(error, match=text):
        make()


WALLED = {"boundary": "dirichlet"}


@pytest.mark.parametrize(
    ("terms", "options", "text"),
    [
        (grad(X) @ grad(X), WALLED, "leaves open which boundary conditions"),
        (div(X, flux="upwind") @ grad(X, flux="upwind"), WALLED, "from the same side"),
        (div(X, boundary=Neumann(1.0)), WALLED, "cannot be Neumann with data"),
        (div(X, boundary="periodic"), WALLED, "both must agree"),
        (div(X, time=time.cos(9.0)), {"boundary": "periodic"}, "becomes negative"),
        (
            div(X) @ grad(X) @ mass(X, np.exp),
            {"boundary": Neumann(2.0)},
            "multiplies f before it differentiates",
        ),
        (
            grad(X, boundary=Dirichlet("from exact")) @ grad(X, boundary="neumann"),
            {"boundary": "neumann", "exact": Separable(x=np.cos)},
            "give the data of that derivative",
        ),
    ],
)
def test_terms_that_cannot_be_assembled(terms, options, text):
    with pytest.raises(ValueError, match=text):
        PDE([X], terms, **{"initial": 0.0, **options}).discretize(2, 1)


def test_central_flux_allows_a_coefficient_that_changes_sign_in_time():
    pde = PDE([X], div(X, time=time.cos(9.0), flux="central"), boundary="periodic", initial=0.0)
    assert pde.discretize(2, 1).terms[0].time == time.cos(9.0)


def test_levels_per_axis_and_given_grids():
    assert PDE_2D.discretize([3, 1], 1, "full").grid.num_cells == 16
    grid = SparseGrid.custom([[0, 0], [1, 0], [0, 1]], [1, 1])
    assert PDE_2D.discretize(degree=1, grid=grid).unknowns == 12


def test_identical_axes_cost_nothing():
    terms = PDE_2D.discretize(3, 1).terms
    assert [tuple(mode is None for mode in term.modes) for term in terms] == [
        (False, True),
        (True, False),
    ]
    (reaction,) = (
        PDE([X, Y], -2.0 * mass(X), boundary="periodic", initial=0.0).discretize(2, 1).terms
    )
    assert reaction.modes == (None, None)
    assert reaction.time == time.constant(-2.0)
    (wave,) = (
        PDE([X, Y], div(X, others={Y: -3.0}), boundary="periodic", initial=0.0)
        .discretize(2, 1)
        .terms
    )
    expected = dense_div(X, 2, 1, lambda s: -3.0 * one(s))
    np.testing.assert_allclose(wave.modes[0].to_dense(), expected, atol=1e-12)
    assert wave.modes[1] is None


def test_default_step_is_the_rule():
    axes = [Axis("x", -1, 1), Axis("y", -2, 2)]
    pde = PDE(
        axes, [div(axes[0], -3.0), div(axes[1], lambda s: s)], boundary="neumann", initial=0.0
    )
    problem = pde.discretize([4, 3], 2)
    rate = 3.0 / (2.0 / 16) + 2.0 / (4.0 / 8)
    assert problem.stepper.dt == pytest.approx(0.5 / (5 * rate))
    assert problem.stepper.method == "ssp-rk3"
    assert PDE([X], laplacian(X), boundary="dirichlet", initial=0.0).discretize(
        2
    ).stepper.method == ("crank-nicolson")


@pytest.mark.parametrize("degree", [0, 1, 2, 4])
@pytest.mark.parametrize("condition", ["dirichlet", "neumann", "periodic"])
def test_default_explicit_step_of_diffusion_is_stable(degree, condition):
    pde = PDE([X], laplacian(X, 0.3), boundary=condition, initial=0.0)
    problem = pde.discretize(3, degree, method="ssp-rk3")
    fastest = np.linalg.eigvalsh(problem.operator.to_dense())[0]
    assert 0.3 < -fastest * problem.stepper.dt < 2.0


def test_initial_state_given_or_exact():
    exact = Separable(x=lambda s: np.cos(2 * np.pi * s), t=time.cos(1.0))
    periodic = {"boundary": "periodic", "exact": exact}
    by_default = PDE([X], div(X), **periodic, t0=0.4).discretize(3)
    np.testing.assert_allclose(by_default.initial, by_default.exact_coefficients(0.4))
    by_name = PDE([X], div(X), **periodic, initial="from exact").discretize(3)
    np.testing.assert_allclose(by_name.initial, by_name.exact_coefficients(0.0))
    with pytest.warns(UserWarning, match="initial is 2.5 at x = "):
        constant = PDE([X], div(X), **periodic, initial=2.5).discretize(3)
    assert constant.initial[0] == pytest.approx(2.5)
    assert np.abs(constant.initial[1:]).max() < 1e-14
    assert not PDE([X], div(X), boundary="periodic", initial=0.0).discretize(3).initial.any()


def test_upwinding_follows_the_sign_of_the_whole_coefficient():
    """v f_x with v of both signs: positive and negative part have opposite upwind sides."""
    axes = (Axis("x", 0.0, 1.0), Axis("v", -1.0, 1.0))
    pde = PDE(
        axes, -2.0 * div(axes[0], others={axes[1]: lambda v: v}), boundary="periodic", initial=0.0
    )
    problem = pde.discretize([2, 3], 1, "full")
    expected = dense_sum(
        [
            (
                dense_div(axes[0], 2, 1, lambda s, sign=sign: -2.0 * sign * one(s)),
                dense_mass(axes[1], 3, 1, lambda v, sign=sign: np.maximum(sign * v, 0.0)),
            )
            for sign in (1.0, -1.0)
        ],
        problem.grid,
        1,
    )
    A = problem.operator.to_dense()
    np.testing.assert_allclose(A, expected, atol=1e-12 * np.abs(expected).max())


def test_a_sign_change_inside_a_cell_is_stable():
    axes = (Axis("x", 0.0, 1.0), Axis("v", -1.0, 1.0), Axis("w", -1.0, 1.0))
    term = div(axes[0], others={axes[1]: lambda v: 0.3 + v, axes[2]: np.sin})
    problem = PDE(axes, term, boundary="periodic", initial=0.0).discretize(2, 1)
    assert len(problem.terms) == 4
    A = problem.operator.to_dense()
    assert np.linalg.eigvals(A).real.max() <= 1e-10 * np.linalg.norm(A, 2)


def test_negative_coefficients_need_no_splitting():
    axes = (Axis("x", 0.0, 1.0), Axis("v", -1.0, 1.0))
    pde = PDE(
        axes, div(axes[0], others={axes[1]: lambda v: v - 2.0}), boundary="periodic", initial=0.0
    )
    problem = pde.discretize(2, 1, "full")
    assert len(problem.terms) == 1
    along_x = dense_div(axes[0], 2, 1, lambda s: -one(s))
    along_v = dense_mass(axes[1], 2, 1, lambda v: 2.0 - v)
    expected = dense_sum([(along_x, along_v)], problem.grid, 1)
    np.testing.assert_allclose(problem.operator.to_dense(), expected, atol=1e-11)


def test_penalty_is_what_upwinding_adds():
    axes = (Axis("x", 0.0, 1.0), Axis("v", -1.0, 1.0))
    others = {axes[1]: np.sin}

    def wave(points):
        return 0.5 + np.cos(2 * np.pi * points)

    def dense(terms):
        return (
            PDE(axes, terms, boundary="periodic", initial=0.0)
            .discretize(2, 2, "full")
            .operator.to_dense()
        )

    upwind = dense(div(axes[0], wave, others=others))
    central = dense(div(axes[0], wave, others=others, flux="central"))
    added = dense(penalty(axes[0], wave, others=others))
    np.testing.assert_allclose(upwind, central + added, atol=1e-12 * np.abs(upwind).max())
    assert np.linalg.eigvalsh(added).max() <= 1e-12 * np.abs(added).max()


def test_sign_changing_transport_converges():
    axes = (Axis("x", 0.0, 1.0), Axis("v", -1.0, 1.0))
    exact = Separable(x=lambda s: np.sin(2 * np.pi * s), v=np.cos, t=time.cos(2.0))
    pde = PDE(
        axes,
        -div(axes[0], others={axes[1]: lambda v: v}),
        boundary="periodic",
        exact=exact,
        sources="from exact",
    )
    errors = []
    for level in (2, 3, 4):
        problem = pde.discretize(level, 1, "full")
        steps = int(np.ceil(0.5 / problem.stepper.dt))
        errors.append(problem.l2_error(rk3(problem, 0.5, steps), 0.5))
    assert orders(errors).min() > 1.85


DIFFUSIONS = {
    "dirichlet": ({"x": Dirichlet("from exact")}, {}),
    "neumann": ({"x": Neumann("from exact")}, {}),
    "mixed": ({"x": (Neumann("from exact"), Dirichlet("from exact"))}, {}),
    "downwind": ({"x": (Neumann("from exact"), Dirichlet("from exact"))}, {"flux": "downwind"}),
}


@pytest.mark.parametrize("case", DIFFUSIONS)
@pytest.mark.parametrize("degree", [1, 2])
def test_diffusion_with_data_in_time_converges(case, degree):
    """Variable diffusivity, data at both ends, a solution of two parts that vary in time."""
    boundary, options = DIFFUSIONS[case]
    exact = Separable(x=np.exp, t=time.cos(3.0)) + Separable(x=np.sin, t=time.exp(-1.0))
    pde = PDE(
        [X],
        div(X, lambda s: 1 + s**2, **options) @ grad(X, 0.5),
        boundary=boundary,
        exact=exact,
        sources="from exact",
    )
    errors = []
    for level in (2, 3, 4):
        problem = pde.discretize(level, degree)
        errors.append(problem.l2_error(gauss2(problem, 0.2, 40), 0.2))
    assert orders(errors)[-1] == pytest.approx(degree + 1, abs=0.15)


def test_boundary_data_in_two_dimensions_converges():
    """Dirichlet and Neumann data that vary along the other axis, which has a coefficient."""
    exact = Separable(x=np.exp, y=lambda s: np.cos(np.pi * s), t=time.sin(2.0))
    pde = PDE(
        [X, Y],
        [div(X, others={Y: lambda s: 2 + s}) @ grad(X), laplacian(Y, 0.5)],
        boundary={X: Neumann("from exact"), Y: (Dirichlet("from exact"), Neumann("from exact"))},
        exact=exact,
        sources="from exact",
    )
    errors = []
    for level in (2, 3):
        problem = pde.discretize(level, 1, "full")
        errors.append(problem.l2_error(gauss2(problem, 0.2, 10), 0.2))
    assert orders(errors).min() > 1.8


def test_advection_with_diffusion_and_an_outflow_slope_converges():
    exact = Separable(x=np.exp, t=time.cos(2.0))
    pde = PDE(
        [X],
        [div(X, -1.0), laplacian(X, 0.1)],
        boundary=(Dirichlet("from exact"), Neumann("from exact")),
        exact=exact,
        sources="from exact",
    )
    errors = []
    for level in (3, 4):
        problem = pde.discretize(level, 2)
        errors.append(problem.l2_error(gauss2(problem, 0.3, 40), 0.3))
    assert orders(errors)[0] == pytest.approx(3.0, abs=0.2)


def test_given_data_equals_data_from_the_exact_solution():
    def wave(s):
        return np.cos(np.pi * s)

    exact = Separable(x=np.exp, y=wave, t=time.exp(-1.0))
    e = float(np.e)
    given = {
        X: (Dirichlet(Separable(y=wave, t=time.exp(-1.0))), Neumann(exact)),
        Y: "neumann",
    }
    slope = {
        X: (Dirichlet("from exact"), Neumann(Separable(y=wave, t=time.exp(-1.0), coefficient=e))),
        Y: "neumann",
    }
    sources = []
    for boundary in (given, slope):
        problem = PDE([X, Y], laplacian([X, Y]), boundary=boundary, exact=exact).discretize(2, 2)
        sources.append(np.full(problem.unknowns, np.nan))
        problem.source(0.3, sources[-1])
    np.testing.assert_allclose(*sources, atol=1e-11 * np.abs(sources[0]).max())


def test_neumann_data_within_chains_of_masses():
    """(2 (1 + x) f_x)_x written three ways."""
    exact = Separable(x=np.exp)
    boundary = (Dirichlet("from exact"), Neumann("from exact"))
    results = []
    for term in (
        div(X, lambda s: 2 * (1 + s)) @ grad(X),
        2.0 * (div(X) @ mass(X, lambda s: 1 + s) @ grad(X)),
        -div(X, lambda s: 1 + s) @ grad(X, -2.0),
    ):
        pde = PDE([X], term, boundary=boundary, exact=exact, sources="from exact")
        problem = pde.discretize(4, 2)
        results.append(problem.l2_error(steady(problem), 0.0))
        assert np.linalg.eigvals(problem.operator.to_dense()).real.max() < 0.0
    assert max(results) < 2e-5


def test_steady_heat_in_a_rod():
    """u'' = -π² cos πx: full rank, and the errors in docs/background/discretization.md."""
    exact = Separable(x=lambda s: np.cos(np.pi * s))
    pde = PDE(
        [X], laplacian(X), boundary=Dirichlet("from exact"), exact=exact, sources="from exact"
    )
    for level, expected in ((3, 1.76e-4), (4, 2.02e-5), (5, 2.50e-6)):
        problem = pde.discretize(level, 2)
        difference = steady(problem) - problem.exact_coefficients(0.0)
        assert np.linalg.norm(difference) == pytest.approx(expected, rel=5e-3)
    bare = pde.discretize(3, 2, boundary_penalty=0.0).operator.to_dense()
    assert np.linalg.matrix_rank(bare) == len(bare) - 1
    assert np.linalg.matrix_rank(pde.discretize(3, 2).operator.to_dense()) == len(bare)


def test_inflow_data_at_each_end():
    """The wave runs in at the left for one sign and at the right for the other."""
    exact = Separable(x=np.exp, t=time.cos(1.0))
    for velocity, boundary in (
        (1.0, (Dirichlet("from exact"), Neumann())),
        (-1.0, (Neumann(), Dirichlet("from exact"))),
    ):
        for term in (div(X, -velocity), grad(X, -velocity)):
            pde = PDE([X], term, boundary=boundary, exact=exact, sources="from exact")
            errors = []
            for level in (3, 4):
                problem = pde.discretize(level, 1)
                errors.append(problem.l2_error(rk3(problem, 0.5, 200), 0.5))
            assert orders(errors)[0] > 1.85


def test_sources_from_exact_for_every_kind_of_term():
    """At the exact solution the right-hand side is its derivative in time, up to truncation."""
    axes = (Axis("x", 0.0, 2 * np.pi), Axis("y", 0.0, 2 * np.pi))
    x, y = axes
    exact = Separable(x=np.sin, y=lambda s: 2 + np.cos(s), t=time.cos(2.0), coefficient=1.5)
    terms = [
        div(x, np.cos, others={y: np.sin}),
        grad(y, np.sin, time=time.polynomial([1.0, 1.0])),
        div(x) @ grad(y),
        div(y, lambda s: 2 + np.sin(s)) @ mass(y, np.cos) @ grad(y),
        laplacian([x, y], 0.1, time=time.exp(-1.0)),
        mass(x, np.cos, others={y: np.sin}),
        penalty(x, 3.0),
    ]
    pde = PDE(axes, terms, boundary="periodic", exact=exact, sources="from exact")
    problem = pde.discretize(5, 4, "full", allow_ill_posed=True)
    t, step = 0.4, 1e-4
    out = np.full(problem.unknowns, np.nan)
    problem.rhs(t, problem.exact_coefficients(t), out)
    slope = problem.exact_coefficients(t + step) - problem.exact_coefficients(t - step)
    slope /= 2 * step
    # without one of the terms the difference would be of the size of the slope itself
    assert np.linalg.norm(out - slope) < 2e-3 * np.linalg.norm(slope)


@pytest.mark.parametrize(
    "term",
    [
        div(X, 1.0, time=time.constant(-1.0)),
        div(X, -1.0) * time.constant(-1.0) * -1.0,
        div(X, 1.0, time=time.polynomial([-1.0])),
        div(X, 1.0, time=time.sin(0.0, -np.pi / 2)),
        div(X, 1.0, time=-1.0 * time.exp(-1.0)),
    ],
)
def test_the_sign_of_a_function_of_time_counts_for_upwinding(term):
    """Upwinding takes the sign of the whole coefficient, its factor in time included."""
    problem = PDE([X], term, boundary="periodic", initial=0.0).discretize(4, 2, until=1.0)
    matrix = problem.operator_at(0.0).to_dense()
    growth = np.linalg.eigvals(matrix).real.max()
    assert growth <= 1e-10 * np.linalg.norm(matrix, 2)


def test_a_run_may_not_outlast_the_sign_of_an_upwind_coefficient():
    """cos(t) is positive up to t = 1.57 only; the discretization is for until = 1."""
    pde = PDE([X], div(X, -1.0, time=time.cos(1.0)), boundary="periodic", initial=1.0)
    problem = pde.discretize(3, 1, until=1.0)
    problem.check_interval(0.0, 1.5)
    with pytest.raises(ValueError, match=r"in time of terms\[0\] becomes negative .* until = 2.2"):
        problem.check_interval(0.0, 2.2)
    with pytest.raises(ValueError, match=r"terms\[0\] becomes negative"):
        evolve(problem, until=2.2)


def test_a_run_may_not_outlast_a_table():
    table = time.spline([0.0, 1.0, 2.0, 3.0], [1.0, 2.0, 1.0, 2.0])
    pde = PDE([X], div(X, -1.0), boundary="periodic", initial=0.0, sources=Separable(t=table))
    problem = pde.discretize(2, 1, until=3.0)
    with pytest.raises(ValueError, match=r"the function of time of sources\[0\]: .*3"):
        evolve(problem, until=3.5)


def named_and_plain():
    """Terms by the names of axes, and the same ones by axes."""
    x, v = Axis("x", 0.0, 1.0), Axis("v", -1.0, 1.0)
    named = [
        div("x", -1.0, others={"v": lambda s: s}),
        div("v", -1.0, others={"x": np.cos}, boundary=NoFlux()),
        0.1 * div("v", boundary=NoFlux()) @ grad("v"),
        mass("x", np.sin),
        *laplacian(["x"], 0.01),
    ]
    plain = [
        div(x, -1.0, others={v: lambda s: s}),
        div(v, -1.0, others={x: np.cos}, boundary=NoFlux()),
        0.1 * div(v, boundary=NoFlux()) @ grad(v),
        mass(x, np.sin),
        *laplacian([x], 0.01),
    ]
    return (x, v), named, plain


def test_terms_take_names_of_axes(rng):
    (x, v), named, plain = named_and_plain()
    setting = {"boundary": {"x": "periodic", "v": NoFlux()}, "initial": 1.0}
    problems = [PDE([x, v], terms, **setting).discretize(3, 2) for terms in (named, plain)]
    u = rng.standard_normal(problems[0].unknowns)
    first, second = (problem.rhs(0.0, u) for problem in problems)
    assert np.linalg.norm(first) > 1.0
    assert first.tobytes() == second.tobytes()
    assert problems[0].content_hash == problems[1].content_hash


def test_names_that_are_no_axes():
    x = Axis("x", 0.0, 1.0)
    for term in (div("q", -1.0), div(x, -1.0, others={"q": np.cos})):
        with pytest.raises(ValueError, match=r"terms\[1\] acts along 'q'.*these are x"):
            PDE([x], [div("x", -1.0), term], boundary="periodic", initial=1.0)
    with pytest.raises(ValueError, match="others names 'x', the axis of the term itself"):
        div(x, others={"x": np.cos})


@pytest.mark.parametrize(
    ("place", "text"),
    [
        ("initial", "is in initial"),
        ("exact", "is in exact"),
        ("sources", "is in sources"),
        ("terms", r"is in terms\[1\], mass\(y, scalar\)"),
        ("boundary", "is in the data of boundary"),
    ],
)
def test_functions_of_single_numbers_are_named_with_their_argument_and_axis(place, text):
    x, y = Axis("x", 0.0, 1.0), Axis("y", 0.0, 1.0)

    def scalar(s):
        return 1.0 if s > 0.5 else 2.0

    given = {"boundary": {"x": Inflow(), "y": "periodic"}, "initial": 1.0}
    if place == "exact":
        del given["initial"]
    terms = [div(x, -1.0)]
    if place == "terms":
        terms.append(mass(y, scalar))
    elif place == "boundary":
        given["boundary"]["x"] = Inflow(Separable(y=scalar)), Inflow()
    else:
        given[place] = Separable(y=scalar)
    with pytest.raises(ValueError, match="truth value") as caught:
        PDE([x, y], terms, **given).discretize(3, 1)
    notes = "\n".join(caught.value.__notes__)
    assert "function of 'y': it is called with an array of points" in notes
    assert re.search(text, notes), notes
