"""Functions of the state at points: right-hand sides, known solutions, files, refusals."""

import numpy as np
import pytest
from problem_oracle import rates

from batchkron import NotPhysicalError
from batchkron.problems import (
    PDE,
    Axis,
    Dirichlet,
    Inflow,
    Neumann,
    NoFlux,
    Robin,
    Separable,
    div,
    grad,
    laplacian,
    load_problem,
    mass,
    penalty,
    pointwise,
    save_problem,
    time,
)
from batchkron.solvers import EvolveStatus, evolve, gmres

TURN = 2 * np.pi
X, Y, Z = (Axis(name, 0, TURN) for name in "xyz")


def burgers_of(s, t, speed=1.0):
    """The solution of u_t + speed (u²/2)_s = 0 from sin s, before the shock at t = 1/speed."""
    u = np.sin(s)
    for _ in range(10):
        u = u - (u - np.sin(s - speed * t * u)) / (1 + speed * t * np.cos(s - speed * t * u))
    return u


def burgers_2d(degree="p+1"):
    flux = pointwise(lambda f: f**2 / 2, speed=1.0, degree=degree)
    terms = [-1 * div(X) @ flux, -1 * div(Y) @ flux]
    return PDE([X, Y], terms, boundary="periodic", initial=lambda x, y: np.sin(x + y),
               exact=lambda x, y, t: burgers_of(x + y, t, 2.0))  # fmt: skip


# Root mean square errors of 2-D Burgers at t = 0.1 on sparse grids, from level 4 on.
ERRORS = {
    (1, "p+1"): [4.9e-2, 1.6e-2, 7.3e-3],
    (2, "p+1"): [8.3e-3, 2.3e-3, 4.3e-4],
    (3, "p+1"): [1.4e-3, 2.3e-4],
    (2, "p"): [1.4e-2, 5.6e-3],
}


@pytest.mark.parametrize(("degree", "at_points"), list(ERRORS))
def test_burgers_in_two_axes(degree, at_points):
    pde = burgers_2d(at_points)
    for level, expected in enumerate(ERRORS[degree, at_points], start=4):
        problem = pde.discretize(level, degree)
        result = evolve(problem, until=0.1, method="ssp-rk3")
        assert result.status is EvolveStatus.COMPLETED
        assert problem.l2_error(result.u, 0.1) < 1.2 * expected * TURN
        assert abs(problem.integral(result.u) - problem.integral(problem.initial)) < 1e-12


@pytest.mark.parametrize(("degree", "expected"), [(1, 6.0e-4), (2, 3.0e-5)])
def test_burgers_in_one_axis(degree, expected):
    term = -1 * div(X) @ pointwise("f**2 / 2", speed=1.0)
    pde = PDE([X], term, boundary="periodic", initial=np.sin, exact=lambda x, t: burgers_of(x, t))
    problem = pde.discretize(6, degree)
    result = evolve(problem, until=0.5, method="ssp-rk3")
    assert problem.l2_error(result.u, 0.5) < 1.2 * expected * TURN**0.5
    found = problem.evaluate(result.u, [0.5, 1.5, 2.5, 3.0])
    known = [0.3291639352, 0.8738537304, 0.8835370379, 0.2759309667]
    np.testing.assert_allclose(found, known, atol=40 * expected)


@pytest.mark.parametrize(
    ("axes", "degree", "expected"),
    [
        ([X, Y], 2, [4.5e-3, 1.5e-3, 2.2e-4]),
        ([X, Y], 3, [7e-4, 1.1e-4]),
        ([X, Y, Z], 2, [5.1e-2]),
    ],
)
def test_logistic_reaction(axes, degree, expected):
    """Each point has its own equation f' = f (1 - f)."""

    def exact(*points_and_time):
        *points, t = points_and_time
        start = 0.5 + 0.3 * np.cos(sum(points))
        return start * np.exp(t) / (1 + start * (np.exp(t) - 1))

    pde = PDE(axes, mass(X) @ pointwise(lambda f: f * (1 - f)), boundary="periodic",
              initial=lambda *points: exact(*points, 0.0), exact=exact)  # fmt: skip
    for level, size in enumerate(expected, start=4):
        problem = pde.discretize(level, degree)
        result = evolve(problem, until=1.0, method="rk4", dt=0.1)
        assert problem.l2_error(result.u, 1.0) < 1.2 * size * TURN ** (len(axes) / 2)


def test_linear_functions_are_operators():
    """F(f) = 3 f with a bound of 3 is the upwind div of 3 f, with coefficients in other axes."""
    others = {Y: lambda s: np.sin(s)}
    coefficient = lambda s: np.cos(s)  # noqa: E731
    tripled = pointwise(lambda f: 3 * f, speed=3.0)
    slow = time.polynomial([1.0, 0.5])
    given = -0.5 * div(X, coefficient, others=others, time=slow) @ tripled
    central = div(X, coefficient, others=others, time=slow, flux="central")
    damping = penalty(X, lambda s: abs(np.cos(s)), others={Y: lambda s: abs(np.sin(s))}, time=slow)
    expected = [-1.5 * central, 1.5 * damping]
    problems = [
        PDE([X, Y], terms, boundary="periodic", initial="x").discretize(3, 2, "full")
        for terms in (given, expected)
    ]
    u = np.random.default_rng(1).standard_normal(problems[0].unknowns)
    np.testing.assert_allclose(*(rates(p, u, 0.7) for p in problems), atol=1e-11)


def test_functions_of_the_state_and_of_places():
    """With f = 0 it is a source."""
    term = mass(X) @ pointwise(lambda t, f, y: np.exp(f) * np.cos(y) * t)
    problem = PDE([X, Y], term, boundary="periodic", initial=0.0).discretize(4, 2)
    source = PDE([X, Y], [], boundary="periodic", initial=0.0,
                 sources=Separable(y=np.cos, t=time.polynomial([0.0, 1.0])))  # fmt: skip
    u = np.zeros(problem.unknowns)
    other = source.discretize(4, 2)
    np.testing.assert_allclose(rates(problem, u, 2.0), rates(other, u, 2.0), atol=1e-3)
    mixed = PDE([X, Y], [pointwise("f * x"), div(X) @ grad(X)], boundary="periodic", initial="y")
    assert "@ pointwise('f * x')" in repr(mixed)
    assert mixed.discretize(2, 1).pointwise[0].function.text == "f * x"


@pytest.mark.parametrize("method", ["ark3", "imex-euler"])
def test_imex_methods_take_it_explicitly(method):
    """Diffusion is implicit; explicit steps that resolve it give the same."""
    terms = [0.02 * div(X) @ grad(X), -1 * div(X) @ pointwise("f**2 / 2", speed=1.0)]
    pde = PDE([X], terms, boundary="periodic", initial=np.sin)
    problem = pde.discretize(4, 2)
    result = evolve(problem, until=0.2, method=method, dt=0.0025)
    fine = evolve(problem, until=0.2, method="ssp-rk3", dt=5e-4)
    size = 1e-6 if method == "ark3" else 2e-3
    assert 0 < np.abs(result.u - fine.u).max() < size


def test_viscous_burgers_past_the_time_of_the_shock():
    """Values of the Cole-Hopf solution, ν = 0.05, t = 2."""
    terms = [0.05 * div(X) @ grad(X), -1 * div(X) @ pointwise(lambda f: f**2 / 2, speed=1.0)]
    problem = PDE([X], terms, boundary="periodic", initial=np.sin).discretize(6, 2)
    result = evolve(problem, until=2.0, method="ark3", dt=0.01)
    found = problem.evaluate(result.u, [0.5, 1.5, 2.5, 3.0])
    np.testing.assert_allclose(found, [0.16443559, 0.48555677, 0.77435474, 0.74951094], atol=1e-3)


def test_steps_follow_the_speed():
    pde = PDE([X], -2 * div(X) @ pointwise("f**2", speed=3.0), boundary="periodic", initial=np.sin)
    fast = PDE([X], div(X, -6.0), boundary="periodic", initial=np.sin)
    assert pde.discretize(4, 2).stepper.dt == fast.discretize(4, 2).stepper.dt


@pytest.mark.parametrize(
    ("others", "method"),
    [
        ([], "ssp-rk3"),
        ([0.05 * div(X) @ grad(X)], "ark3"),
        ([0.05 * div(X) @ pointwise("(2 + cos(x)) * f", linear=True) @ grad(X)], "ssp-rk3"),
    ],
)
def test_default_methods_take_it(others, method):
    terms = [-1 * div(X) @ pointwise("f**2 / 2", speed=1.0), *others]
    pde = PDE([X], terms, boundary="periodic", initial=np.sin)
    problem = pde.discretize(4, 2)
    assert problem.stepper.method == method
    result = evolve(problem, until=0.2)
    assert result.status is EvolveStatus.COMPLETED
    fine = evolve(problem, until=0.2, dt=2e-4, method="rk4")
    assert np.abs(result.u - fine.u).max() < 1e-3


def test_functions_that_are_not_finite_end_a_run():
    term = mass(X) @ pointwise(lambda f: -1 / np.sqrt(f))
    problem = PDE([X], term, boundary="periodic", initial=1.0).discretize(2, 1)
    result = evolve(problem, until=1.0, method="rk4", dt=0.05)
    assert result.status is EvolveStatus.NOT_PHYSICAL
    assert "the function of mass(x) @ pointwise(<lambda>) is nan at x = " in result.message
    with pytest.raises(NotPhysicalError, match=r"is nan at x = .*, t = 0\.3"):
        rates(problem, -problem.initial, 0.3)


def test_formulas_in_files(tmp_path):
    flux = pointwise("f**2 / 2 + 0 * x", speed=1.0)
    terms = [-1 * div(X) @ flux, 0.1 * div(Y) @ grad(Y), pointwise("f - f**3", degree="p"),
             -1 * div(Y) @ flux]  # fmt: skip
    problem = PDE([X, Y], terms, boundary="periodic", initial="sin(x) * cos(y)").discretize(3, 2)
    save_problem(tmp_path / "p.h5", problem)
    again = load_problem(tmp_path / "p.h5", trusted=True)
    assert again.content_hash == problem.content_hash
    assert len(again.terms) == len(problem.terms)
    assert [(own.extra, len(own.terms)) for own in again.pointwise] == [(1, 2), (0, 1)]
    u = np.random.default_rng(1).standard_normal(problem.unknowns)
    np.testing.assert_array_equal(rates(again, u), rates(problem, u))


def test_callables_are_not_saved(tmp_path):
    problem = burgers_2d().discretize(2, 1)
    with pytest.raises(TypeError, match=r"pointwise\(<lambda>\) is the Python .*lambda>, which"):
        save_problem(tmp_path / "p.h5", problem)
    cubes = [-1 * div(axis) @ pointwise(lambda f: f**3, speed=1.0) for axis in (X, Y)]
    other = PDE([X, Y], cubes, boundary="periodic", initial="sin(x + y)").discretize(2, 1)
    assert problem.content_hash == burgers_2d().discretize(2, 1).content_hash
    assert problem.content_hash != other.content_hash


def test_other_grids_and_levels():
    coarse, fine = (burgers_2d().discretize(level, 1) for level in (2, 4))
    moved = coarse.on_grid(fine.grid)
    u = np.random.default_rng(1).standard_normal(fine.unknowns)
    np.testing.assert_array_equal(rates(moved, u), rates(fine, u))


PLAIN = pointwise("f**2")
FAST = pointwise("f**2", speed=1.0)


@pytest.mark.parametrize(
    ("terms", "boundary", "error", "text"),
    [
        (div(X) @ PLAIN, "periodic", ValueError, "speed=.*a central flux alone damps nothing"),
        (grad(X) @ FAST, "periodic", ValueError, "is not possible yet; a pointwise function takes"),
        (div(X) @ grad(X) @ FAST, "periodic", ValueError, "takes no linear=, speed="),
        (div(X, flux="upwind") @ FAST, "periodic", ValueError, "leave out flux="),
        (mass(X) @ pointwise(lambda x: x), "periodic", TypeError, "not of the state, which has"),
        (mass(X) @ pointwise(lambda a, b: a), "periodic", TypeError, "a function of \\(a, b\\)"),
        (mass(X) @ pointwise("f + g"), "periodic", ValueError, "names 'g'; expected f, x, y, t"),
        (mass(Z) @ PLAIN, "periodic", ValueError, "acts along .*z"),
    ],
)
def test_refusals(terms, boundary, error, text):
    with pytest.raises(error, match=text):
        PDE([X, Y], terms, boundary=boundary, initial=0.0)


@pytest.mark.parametrize(
    ("scaled", "plain"),
    [
        (-pointwise("f**2"), pointwise("-f**2")),
        (2 * pointwise("f**2") * time.cos(3.0), pointwise("2 * cos(3*t) * f**2")),
        (-1 * div(X) @ (2 * pointwise("f**2", speed=1.0)),
         -1 * div(X) @ pointwise("2 * f**2", speed=2.0)),
        (div(X) @ (0.5 * pointwise("(2 + sin(y)) * f", linear=True)) @ grad(X),
         div(X) @ pointwise("(1 + sin(y)/2) * f", linear=True) @ grad(X)),
    ],
)  # fmt: skip
def test_products_with_numbers_and_functions_of_time(scaled, plain):
    problems = [
        PDE([X, Y], own, boundary="periodic", initial="sin(x) + cos(y)").discretize(3, 1)
        for own in (scaled, plain)
    ]
    u = problems[0].initial
    found, expected = (rates(problem, u, 0.3) for problem in problems)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12 * np.abs(expected).max())


def test_one_function_is_computed_once_for_all_its_multiples():
    flux = pointwise("f**2", speed=1.0)
    terms = [-1 * div(X) @ flux, div(Y) @ (-2 * flux)]
    problem = PDE([X, Y], terms, boundary="periodic", initial=0.0).discretize(2, 1)
    assert len(problem.pointwise) == 1


def test_refusals_of_arguments_and_methods():
    for call, text in (
        (lambda: pointwise(3.0), "the function is float"),
        (lambda: pointwise("f", speed=-1.0), "speed is -1.0; expected a positive"),
        (lambda: pointwise("f", degree="2p"), "degree is '2p'"),
        (lambda: PDE([Axis("f", 0, 1)], PLAIN, boundary="periodic", initial=0.0), "named 'f'"),
    ):
        with pytest.raises((TypeError, ValueError), match=text):
            call()
    problem = burgers_2d().discretize(2, 1)
    with pytest.raises(ValueError, match=r"a term has a pointwise function\. Explicit methods"):
        evolve(problem, until=0.1, dt=0.01, method="exponential-euler")
    for call in (
        lambda: problem.operator,
        problem.time_parts,
        lambda: problem.frozen(problem.initial),
    ):
        with pytest.raises((TypeError, ValueError), match="pointwise"):
            call()


def swirl(degree="p+1", form="auto"):
    """Transport by a velocity that is no product, decay, and diffusion."""
    terms = [
        -1 * div(X) @ pointwise(lambda f, x, y: np.sin(x + y) * f, speed=1.0, degree=degree,
                                linear=True),
        -1 * div(Y) @ pointwise("exp(sin(x - y)) * f", speed=np.e, degree=degree, linear=True),
        pointwise("-f / (2 + cos(x + 2 * y))", linear=True),
        0.1 * div(X) @ grad(X),
    ]  # fmt: skip
    pde = PDE([X, Y], terms, boundary="periodic", initial="exp(cos(x) * sin(y))")
    return pde.discretize(3, 1).with_form(form)


@pytest.mark.parametrize("form", ["auto", "batch", "dense"])
@pytest.mark.parametrize("degree", ["p", "p+1"])
def test_linear_terms_are_an_operator(degree, form):
    """The right-hand side calls the functions, the operator has their factors."""
    problem = swirl(degree, form)
    assert problem.is_linear
    assert problem.operator is problem.operator_at(0.3)
    u, v = np.random.default_rng(1).standard_normal((2, problem.unknowns))
    np.testing.assert_allclose(problem.operator @ u, rates(problem, u), rtol=0, atol=1e-11)
    np.testing.assert_allclose(v @ (problem.operator @ u), u @ (problem.operator.T @ v), rtol=1e-11)


@pytest.mark.parametrize("method", ["crank-nicolson", "esdirk3", "ark3", "exponential-trapezoidal"])
def test_implicit_methods_take_linear_terms(method):
    problem = swirl()
    result = evolve(problem, until=0.1, method=method, dt=0.005)
    fine = evolve(problem, until=0.1, method="rk4", dt=0.0025)
    assert np.abs(result.u - fine.u).max() < (2e-4 if method == "crank-nicolson" else 2e-5)


def test_linear_terms_in_time(tmp_path):
    term = pointwise("cos(x - y + t) * f", linear=True)
    pde = PDE([X, Y], [term, div(X, -1.0)], boundary="periodic", initial="sin(x)")
    problem = pde.discretize(3, 2)
    assert not problem.is_constant
    u = np.random.default_rng(1).standard_normal(problem.unknowns)
    np.testing.assert_allclose(problem.operator_at(0.4) @ u, rates(problem, u, 0.4), atol=1e-11)
    save_problem(tmp_path / "p.h5", problem)
    again = load_problem(tmp_path / "p.h5", trusted=True)
    np.testing.assert_array_equal(again.operator_at(0.4) @ u, problem.operator_at(0.4) @ u)
    runs = [evolve(problem, until=0.2, dt=0.01, method=own).u for own in ("rk4", "esdirk3")]
    np.testing.assert_allclose(*runs, atol=1e-5)


@pytest.mark.parametrize("function", ["f**2", "f + 1", "sin(f)", lambda f: abs(f)])
def test_functions_that_are_not_linear_are_found(function):
    pde = PDE([X], pointwise(function, linear=True), boundary="periodic", initial=1.0)
    with pytest.raises(ValueError, match=r"is not linear: .*leave out linear="):
        pde.discretize(2, 1)


@pytest.mark.parametrize("text", ["f - 4*x*f", "0.7*f - 2.8*x*f + y*f - y*f", "0*f"])
def test_linear_functions_that_vanish_at_edges_of_cells(text):
    """Points lie beside edges, where differences leave rounding errors of what is subtracted."""
    x, y = Axis("x", 0, 1), Axis("y", 0, 1)
    pde = PDE([x, y], pointwise(text, linear=True), boundary="periodic", initial=1.0)
    problem = pde.discretize(3, 2)
    u = np.random.default_rng(1).standard_normal(problem.unknowns)
    np.testing.assert_allclose(problem.operator @ u, rates(problem, u), rtol=0, atol=1e-11)


def test_steady_states_of_equations_with_coefficients_that_are_no_products():
    """f = sin(x + 2 y) solves c f = s with c = 2 + sin x cos y, by GMRES on the operator."""
    term = pointwise("-(2 + sin(x) * cos(y)) * f", linear=True)
    source = "(2 + sin(x) * cos(y)) * sin(x + 2 * y)"
    pde = PDE([X, Y], term, boundary="periodic", initial=0.0, sources=source,
              exact=lambda x, y, t: np.sin(x + 2 * y))  # fmt: skip
    problem = pde.discretize(5, 2)
    s = np.empty(problem.unknowns)
    problem.source(0.0, s)
    solved = gmres(problem.operator, -s, rtol=1e-10)
    assert problem.relative_error(solved.x, 0.0) < 5e-3


K = "(2 + sin(x) * cos(y)) * f"
S = "sin(x + 2*y) * (1 + 5 * (2 + sin(x)*cos(y))) - cos(x)*cos(y)*cos(x + 2*y)"
S += " + 2 * sin(x)*sin(y)*cos(x + 2*y)"


def elliptic(terms, level, grid):
    """The relative error of f = sin(x + 2 y) from f - ∇·(k ∇f) = s with k = 2 + sin x cos y."""
    pde = PDE([X, Y], [*terms, mass(X, -1.0)], boundary="periodic", initial=0.0, sources=S,
              exact=lambda x, y, t: np.sin(x + 2 * y))  # fmt: skip
    problem = pde.discretize(level, 2, grid)
    s = np.empty(problem.unknowns)
    problem.source(0.0, s)
    solved = gmres(problem.operator, -s, rtol=1e-8, restart=200, maxiter=4000)
    assert solved.converged
    return problem.l2_error(solved.x, 0.0) / TURN


@pytest.mark.parametrize(
    ("grid", "expected"), [("sparse", {3: 3.6e-1, 4: 7.0e-2, 5: 7.1e-3}), ("full", {3: 1.4e-2})]
)
def test_coefficients_of_diffusion_that_are_no_products(grid, expected):
    """Next to the same coefficient as a sum of products."""
    k = pointwise(K, linear=True)
    at_points = [div(axis) @ k @ grad(axis) for axis in (X, Y)]
    waves = {X: lambda s: np.sin(s), Y: lambda s: np.cos(s)}
    products = [
        chain
        for axis, other in ((X, Y), (Y, X))
        for chain in (
            2.0 * div(axis) @ grad(axis),
            div(axis, waves[axis], others={other: waves[other]}) @ grad(axis),
        )
    ]
    for level, size in expected.items():
        found, known = (elliptic(terms, level, grid) for terms in (at_points, products))
        assert found < 1.2 * size
        assert found < 1.4 * known


@pytest.mark.parametrize("method", ["crank-nicolson", "rk4"])
def test_diffusion_with_a_coefficient_in_time(method, tmp_path):
    """f = exp(-t) cos(x + y): f_t = ∇·(k ∇f) + s, in files, too."""
    k = pointwise("(1.5 + 0.5 * sin(x + y + t)) * f", linear=True)
    # ∇·(k ∇f) = 2 exp(-t) (-k cos θ - k' sin θ) with θ = x + y
    rest = "2*(1.5 + 0.5*sin(x+y+t))*cos(x+y) + cos(x+y+t)*sin(x+y) - cos(x+y)"
    pde = PDE([X, Y], [1 * div(axis) @ k @ grad(axis) for axis in (X, Y)], boundary="periodic",
              initial="cos(x + y)", sources=f"exp(-t) * ({rest})",
              exact="exp(-t) * cos(x + y)")  # fmt: skip
    problem = pde.discretize(3, 2, "full", until=0.1, method=method)
    dt = 0.01 if method == "crank-nicolson" else None
    result = evolve(problem, until=0.1, method=method, dt=dt)
    assert problem.l2_error(result.u, 0.1) / TURN < 2e-2
    save_problem(tmp_path / "p.h5", problem)
    again = load_problem(tmp_path / "p.h5", trusted=True)
    assert again.content_hash == problem.content_hash
    np.testing.assert_array_equal(rates(again, result.u, 0.1), rates(problem, result.u, 0.1))


@pytest.mark.parametrize(
    ("term", "text"),
    [
        (div(X) @ pointwise("f**2") @ grad(X), "between derivatives a pointwise function is a coe"),
        (div(X) @ pointwise("f", linear=True) @ grad(Y), "is a mixed derivative"),
        (pointwise("f", linear=True) @ grad(X), "has one div on its left and one grad on its ri"),
        (div(X) @ grad(X) @ pointwise("f", linear=True), "takes no linear="),
        (div(X) @ grad(Y) @ pointwise("f"), "not possible yet"),
    ],
)
def test_chains_that_are_refused(term, text):
    with pytest.raises(ValueError, match=text):
        PDE([X, Y], term, boundary="periodic", initial=0.0)


def test_backward_diffusion_is_refused():
    k = pointwise("sin(x + y) * f", linear=True)
    pde = PDE([X, Y], div(X) @ k @ grad(X), boundary="periodic", initial=0.0)
    with pytest.raises(ValueError, match="backward diffusion at some place"):
        pde.discretize(2, 1)


@pytest.mark.parametrize(
    "term",
    [
        div(X) @ pointwise("(1 - 4*t) * f", linear=True) @ grad(X),
        div(X) @ (pointwise("f", linear=True) * time.cos(2 * np.pi)) @ grad(X),
    ],
)
def test_diffusion_that_becomes_backward_at_a_quarter(term, tmp_path):
    pde = PDE([X, Y], term, boundary="periodic", initial="cos(x)")
    with pytest.raises(ValueError, match=r"backward diffusion at some place, at t = 0\.25"):
        pde.discretize(2, 1)
    problem = pde.discretize(2, 1, until=0.2)
    run = {"method": "backward-euler", "dt": 0.05}
    assert evolve(problem, until=0.2, **run).status is EvolveStatus.COMPLETED
    with pytest.raises(ValueError, match="backward diffusion at some place"):
        evolve(problem, until=0.4, **run)
    save_problem(tmp_path / "p.h5", problem)
    again = load_problem(tmp_path / "p.h5", trusted=True)
    assert evolve(again, until=0.2, **run).status is EvolveStatus.COMPLETED
    with pytest.raises(ValueError, match=r"well-posed until t = 0\.2"):
        evolve(again, until=0.4, **run)
    wild = pde.discretize(2, 1, allow_ill_posed=True)
    assert evolve(wild, until=0.4, **run).status is EvolveStatus.COMPLETED


FLUX = pointwise(lambda f: f**2 / 2, speed=2.5)
A, B = Axis("x", 0.5, 1.5), Axis("y", 0.0, 1.0)
TERMS = [-1 * div(axis) @ FLUX for axis in (A, B)]


@pytest.mark.parametrize("method", ["ssp-rk3", "ark3"])
def test_what_flows_in_and_out_in_two_axes(method):
    """f = (x + y) / (1 + 2 t) solves Burgers' equation; it and its flux are of degree 2."""
    boundary = {axis: (Dirichlet(lambda x, y, t: (x + y) / (1 + 2 * t)), Neumann())
                for axis in (A, B)}  # fmt: skip
    pde = PDE([A, B], TERMS, boundary=boundary, exact="(x + y) / (1 + 2 * t)")
    problem = pde.discretize(3, 2)
    result = evolve(problem, until=0.2, dt=0.005, method=method)
    assert problem.relative_error(result.u, 0.2) < 1e-5


RAMP = Separable(x=lambda s: s, t=time.exp(-1.0))


@pytest.mark.parametrize("data", ["from exact", RAMP, lambda x, t: x * np.exp(-t)])
def test_values_that_are_products(data):
    """f = x exp(-t), driven by a source; what flows in at the left end is F of the data."""
    driving = -1.0 * RAMP + Separable(x=lambda s: s, t=time.exp(-2.0))
    pde = PDE([A], TERMS[0], boundary=(Dirichlet(data), Neumann()), exact=RAMP, sources=driving)
    problem = pde.discretize(3, 2)
    result = evolve(problem, until=0.5, dt=0.01, method="rk4")
    assert problem.relative_error(result.u, 0.5) < 1e-7


def test_walls():
    """Nothing passes, though the flux that is interpolated is not zero there."""
    flux = pointwise("(x - 0.4) * (1.6 - x) * f**2", speed=1.0)
    pde = PDE([A, B], -1 * div(A) @ flux, boundary="no-flux", initial="1 + 0.2 * sin(6*x) * y")
    problem = pde.discretize(4, 2)
    result = evolve(problem, until=0.05, dt=0.002, method="ssp-rk3")
    assert result.status is EvolveStatus.COMPLETED
    assert np.abs(result.u - problem.initial).max() > 0.001
    assert abs(problem.integral(result.u) - problem.integral(problem.initial)) < 1e-13


def test_walls_of_a_diffusivity():
    k = pointwise("(1 + x * y) * f", linear=True)
    terms = [div(axis) @ k @ grad(axis) for axis in (A, B)]
    pde = PDE([A, B], terms, boundary={A: "no-flux", B: "neumann"}, initial="x**2 * y")
    problem = pde.discretize(3, 2, "full")
    result = evolve(problem, until=5.0, dt=0.25, method="sdirk3")
    mean = problem.integral(problem.initial)
    assert abs(problem.integral(result.u) - mean) < 1e-9
    np.testing.assert_allclose(
        problem.evaluate(result.u, [[0.6, 0.1], [1.4, 0.9]]), mean, rtol=1e-6
    )


K_OF_A = div(A) @ pointwise("f", linear=True) @ grad(A)
SECOND = div(A) @ grad(A) @ pointwise("f + f**3")


@pytest.mark.parametrize(
    ("term", "boundary", "text"),
    [
        (TERMS[0], Inflow(), "the condition Inflow: where f flows in depends on the state"),
        (-1 * div(A, boundary=NoFlux()) @ FLUX, "neumann", "with conditions of its own"),
        (
            K_OF_A,
            "dirichlet",
            "the condition Dirichlet; .*Expected periodic, Neumann\\(\\) without",
        ),
        (K_OF_A, Robin(1.0, 2.0), "the condition Robin; of pointwise terms none takes it, only"),
        ([K_OF_A, laplacian(A)], Neumann(0.5), "the condition Neumann with data; of pointwise"),
        (
            [TERMS[0], laplacian(A)],
            Robin(1.0),
            "Robin; .*Expected periodic, Dirichlet\\(data\\), N",
        ),
        # once data of the slope were lost, or taken for the slope of the function
        ([SECOND, laplacian(A)], Neumann(0.5), "Neumann with data; .*periodic, Dirichlet\\(data"),
        ([SECOND, laplacian(A)], Neumann("t"), "Neumann with data"),
        (SECOND, Robin(1.0), "the condition Robin; of pointwise terms none takes it"),
    ],
)
def test_conditions_that_are_refused(term, boundary, text):
    with pytest.raises(ValueError, match=text):
        PDE([A], term, boundary=boundary, initial=0.0)


def test_values_that_exact_has_not_are_refused():
    ends = Dirichlet(lambda x, y, t: 2 * x + y), Neumann()
    pde = PDE([A, B], TERMS[0], boundary={A: ends, B: "neumann"}, exact="(x + y) / (1 + 2 * t)")
    with pytest.raises(
        ValueError, match=r"where Dirichlet gives .*; give the data that exact has$"
    ):
        pde.discretize(2, 1)
    for given in (Dirichlet("from exact"), Neumann("from exact")):
        with pytest.raises(ValueError, match=r"or a sum of them; for other .*Dirichlet\(f\)"):
            PDE([A], laplacian(A), boundary=given, exact=lambda x, t: x * t)
