"""div and grad along the axis of their own field: references, conservation, order, runs."""

import warnings

import numpy as np
import pytest
from numpy.polynomial import legendre
from problem_oracle import cell_functions, dense_sum, orders, rates, rk3
from scipy.optimize import brentq

from batchkron import NotPhysicalError
from batchkron.problems import (
    PDE,
    Axis,
    Inflow,
    Mixed,
    Moment,
    NoFlux,
    Poisson,
    Separable,
    ShockWarning,
    SparseGrid,
    div,
    grad,
    load_problem,
    mass,
    penalty,
    save_problem,
    time,
)
from batchkron.problems.discretization.basis.multiwavelets import hierarchical_transform
from batchkron.problems.discretization.fields import derivatives, neighbour_blocks
from batchkron.problems.discretization.fields.points import sum_of_products
from batchkron.solvers import Adapt, EvolveStatus, Quantity, evolve

# most states of these tests have no shocks
pytestmark = pytest.mark.filterwarnings("ignore::batchkron.problems.ShockWarning")

X, V, W = Axis("x", 0.0, 2.0), Axis("v", -3.0, 3.0), Axis("w", -2.0, 2.0)
N = Moment(V)
POSITIVE = Separable(x=lambda x: 1.0 + 0.3 * np.sin(np.pi * x), v=lambda v: np.exp(-(v**2)))
FLUXES = ("upwind", "central", "downwind")


def pde_of(terms, axes=(X, V), boundary="periodic", initial=POSITIVE, **options):
    ends = {axis: boundary if axis == X else Inflow() for axis in axes}
    return PDE(list(axes), terms, boundary=ends, initial=initial, **options)


def random_state(rng, problem):
    return problem.initial + 0.2 * rng.standard_normal(problem.unknowns)


def edge_values(field, level, is_periodic):
    """Mean of the field's values on both sides of each edge, by its polynomial in each cell."""
    cells = 1 << level
    width = X.length / cells
    nodes, weights = legendre.leggauss(16)
    left, right = np.empty(cells), np.empty(cells)
    for cell in range(cells):
        values = field.evaluate(X.lower + width * (cell + (1 + nodes) / 2))
        series = legendre.legfit(nodes, values, 15, w=np.sqrt(weights))
        left[cell], right[cell] = legendre.legval([-1.0, 1.0], series)
    found = np.empty(cells + 1)
    for edge in range(cells + 1):
        sides = []
        if edge > 0 or is_periodic:
            sides.append(right[edge - 1])
        if edge < cells or is_periodic:
            sides.append(left[edge % cells])
        found[edge] = np.mean(sides)
    return found


def dense_field_div(field, level, degree, flux, ends, sign):
    """Hierarchical matrix of sign ∂(E f)/∂x, by loops over cells and edges."""
    n, cells = degree + 1, 1 << level
    width = X.length / cells
    nodes, weights = legendre.leggauss(16)
    values, slopes = cell_functions(n, width, nodes)
    (L, R), _ = cell_functions(n, width, [-1.0, 1.0])
    A = np.zeros((cells, n, cells, n))
    for cell in range(cells):
        g = sign * field.evaluate(X.lower + width * (cell + (1 + nodes) / 2))
        A[cell, :, cell] -= (slopes.T * (weights * width / 2 * g)) @ values
    at = sign * edge_values(field, level, ends == "periodic")
    for edge in range(cells + 1):
        g, below, above = at[edge], edge - 1, edge
        if ends == "periodic":
            if edge == cells:
                continue
            below %= cells
        is_left, is_right = below < 0, above == cells
        from_right = {"upwind": g > 0, "downwind": g < 0, "central": 0.5}[flux]
        if is_left or is_right:
            flows_in = g < 0 if is_left else g > 0
            if ends == "dirichlet" or (ends == "inflow" and flows_in):
                continue
            from_right = 1.0 if is_left else 0.0
        for cell, trace, share in ((below, R, 1.0 - from_right), (above, L, from_right)):
            if share == 0.0:
                continue
            if not is_left:
                A[below, :, cell] += g * share * np.outer(R, trace)
            if not is_right:
                A[above, :, cell] -= g * share * np.outer(L, trace)
    T = hierarchical_transform(level, degree)
    return T @ A.reshape(cells * n, cells * n) @ T.T


ENDS = {"periodic": "periodic", "inflow": Inflow(), "dirichlet": NoFlux(), "neumann": "neumann"}


@pytest.mark.parametrize("ends", ENDS)
@pytest.mark.parametrize("flux", FLUXES)
@pytest.mark.parametrize(
    ("axes", "level", "degree", "grid"),
    [
        ((X, V), 3, 0, "sparse"),
        ((X, V), (2, 3), 1, "full"),
        ((V, X), 3, 2, "sparse"),
        ((X, V), (1, 2), 3, "full"),
        ((X, V, W), 2, 1, "sparse"),
        ((X, V, W), (3, 1, 1), 1, Mixed([X], [V, W])),
    ],
)
def test_the_operator_is_the_dense_product_for_the_states_field(
    rng, axes, level, degree, grid, flux, ends
):
    """E changes sign along x, and so do the upwind sides, together with those of the factor v."""
    shared = Moment({axis: 1 if axis == V else 0 for axis in axes if axis != X})
    E = shared + (lambda x: 0.4 - x)
    term = div(X, E, flux=flux, others={V: lambda v: v - 0.5})
    names = {axis.name: np.cos for axis in axes}
    problem = pde_of(term, axes, ENDS[ends], Separable(**names)).discretize(
        level, degree, grid=grid, dt=0.01
    )
    place = axes.index(X)
    finest = problem.grid.levels[axes.index(V)]
    for _ in range(2):  # the second state replaces the first one's blocks
        u = rng.uniform(-1.0, 1.0, problem.unknowns)
        field = problem.field(u, E)
        terms = []
        for sign in (1.0, -1.0):
            modes = [None] * len(axes)
            modes[place] = dense_field_div(
                field, problem.grid.levels[place], degree, flux, ends, sign
            )
            modes[axes.index(V)] = _half_line(finest, degree, sign)
            terms.append(modes)
        A = dense_sum(terms, problem.grid, degree)
        atol = 1e-12 * np.abs(A).max() * np.abs(u).max() * 10
        np.testing.assert_allclose(rates(problem, u), A @ u, rtol=0, atol=atol)
        np.testing.assert_allclose(rates(problem.frozen(u), u), A @ u, rtol=0, atol=atol)


def _half_line(level, degree, sign):
    """The part max(±(v - ½), 0), by the 16 or more nodes that the library has for it."""
    n, cells = degree + 1, 1 << level
    width = V.length / cells
    nodes, weights = legendre.leggauss(16)
    values, _ = cell_functions(n, width, nodes)
    A = np.zeros((cells, n, cells, n))
    for cell in range(cells):
        v = V.lower + width * (cell + (1 + nodes) / 2)
        g = np.maximum(sign * (v - 0.5), 0.0)
        A[cell, :, cell] = (values.T * (weights * width / 2 * g)) @ values
    T = hierarchical_transform(level, degree)
    return T @ A.reshape(cells * n, cells * n) @ T.T


@pytest.mark.parametrize("degree", range(4))
@pytest.mark.parametrize("flux", FLUXES)
@pytest.mark.parametrize("make", [div, grad])
@pytest.mark.parametrize("boundary", ["periodic", Inflow(), "dirichlet", "neumann", NoFlux()])
def test_a_field_that_is_a_function_is_that_coefficient(rng, make, boundary, flux, degree):
    """Polynomials are known at the edges to rounding."""

    def cubic(x):
        return x * (2.0 - x) * (x - 0.9) + 0.1

    own = None if degree % 2 else {V: lambda v: v + 0.3}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Dirichlet at ends where f flows out
        plain, follows = (
            pde_of(make(X, g, flux=flux, others=own), boundary=boundary).discretize(
                (3, 2), degree, grid="full"
            )
            for g in (cubic, 0.0 * N + cubic)
        )
    u = rng.standard_normal(plain.unknowns)
    expected = rates(plain, u)
    atol = 1e-12 * np.abs(expected).max()
    np.testing.assert_allclose(rates(follows, u), expected, rtol=0, atol=atol)
    np.testing.assert_allclose(rates(follows.frozen(u), u), expected, rtol=0, atol=atol)
    assert [t.one_sided for t in follows.terms] == [t.one_sided for t in plain.terms]
    assert follows.stepper.dt == pytest.approx(plain.stepper.dt, rel=0.1)


@pytest.mark.parametrize("make", [div, grad])
def test_a_moment_of_a_known_state_is_its_function_up_to_projection(make):
    """The density of a state is a known function g; the difference falls as h^(p + 1)."""

    def g(x):
        return np.exp(np.sin(np.pi * x))

    initial, differences = Separable(x=g, v=1.0 / V.length), []
    for level in (3, 4, 5):
        plain, follows = (
            pde_of(make(X, c), initial=initial).discretize((level, 0), 2, grid="full")
            for c in (g, N)
        )
        difference = rates(plain, plain.initial) - rates(follows, plain.initial)
        differences.append(np.linalg.norm(difference))
    assert differences[-1] < 2e-3
    assert orders(differences).min() > 1.8  # a derivative of what is off by h^3


@pytest.mark.parametrize("curved", [False, True])
@pytest.mark.parametrize("make", [div, grad])
@pytest.mark.parametrize("boundary", ["periodic", Inflow()])
def test_volume_elements_and_frozen_fields(rng, make, boundary, curved):
    volume = {X: lambda x: 2.0 + np.cos(np.pi * x), V: lambda v: 4.0 + v} if curved else None

    def known(x):
        return 0.2 + np.sin(np.pi * x)

    plain, follows = (
        pde_of([make(X, g)], boundary=boundary, volume=volume).discretize(3, 3)
        for g in (known, 0.0 * N + known)
    )
    u = rng.standard_normal(plain.unknowns)
    expected = rates(plain, u)
    np.testing.assert_allclose(
        rates(follows, u), expected, rtol=0, atol=1e-11 * np.abs(expected).max()
    )
    moving = pde_of([make(X, N), mass(X, N)], boundary=boundary, volume=volume).discretize(3, 2)
    u = random_state(rng, moving)
    expected = rates(moving, u)
    np.testing.assert_allclose(
        rates(moving.frozen(u), u), expected, rtol=0, atol=1e-12 * np.abs(expected).max()
    )


def test_the_sign_of_a_field_of_another_axis_and_of_time(rng):
    """Two fields in one term: along its own axis, and along v, whose sign splits the term."""
    other = Moment({X: 0}) + (lambda v: v)
    u_of_x = Moment({V: 1}) + (lambda x: 0.2 + 0.0 * x)
    decay = time.exp(-1.0)
    problem = pde_of([div(X, u_of_x, others={V: other}), div(X, u_of_x) * decay]).discretize(3, 2)
    assert len(problem.terms) == 3
    u = random_state(rng, problem)
    for t in (0.0, 0.7):
        field, along_v = problem.field(u, u_of_x), problem.field(u, other)
        lx, lv = problem.grid.levels
        modes = []
        for sign in (1.0, -1.0):
            A = dense_field_div(field, lx, 2, "upwind", "periodic", sign)
            # a field of v has 16 points in a cell, as this part of it
            modes.append([A, _part_of(along_v, lv, 2, sign)])
        modes.append([np.exp(-t) * dense_field_div(field, lx, 2, "upwind", "periodic", 1.0), None])
        expected = dense_sum(modes, problem.grid, 2) @ u
        atol = 1e-11 * np.abs(expected).max()
        np.testing.assert_allclose(rates(problem, u, t), expected, rtol=0, atol=atol)


def _part_of(field, level, degree, sign):
    n, cells = degree + 1, 1 << level
    width = V.length / cells
    nodes, weights = legendre.leggauss(16)
    values, _ = cell_functions(n, width, nodes)
    A = np.zeros((cells, n, cells, n))
    for cell in range(cells):
        v = V.lower + width * (cell + (1 + nodes) / 2)
        g = np.maximum(sign * field.evaluate(v), 0.0)
        A[cell, :, cell] = (values.T * (weights * width / 2 * g)) @ values
    T = hierarchical_transform(level, degree)
    return T @ A.reshape(cells * n, cells * n) @ T.T


@pytest.mark.parametrize("flux", FLUXES)
@pytest.mark.parametrize("grid", ["sparse", "full"])
def test_mass_is_conserved_up_to_what_leaves_at_the_ends(rng, grid, flux):
    u_of_x = Moment({V: 1}) / (2.0 + N**2)
    ones = {X: 0, V: 0}
    for boundary in ("periodic", NoFlux()):
        problem = pde_of(div(X, u_of_x, flux=flux), boundary=boundary).discretize(4, 2, grid=grid)
        u = random_state(rng, problem)
        rate = problem.moment_weights(ones) @ rates(problem, u)
        assert abs(rate) < 1e-13 * np.abs(rates(problem, u)).max() * problem.unknowns**0.5
    # the fluxes at the ends, by the traces from inside
    for boundary in ("neumann", Inflow()):
        problem = pde_of(div(X, u_of_x, flux=flux), boundary=boundary).discretize(4, 2, grid=grid)
        u = random_state(rng, problem)
        at = edge_values(problem.field(u, u_of_x), problem.grid.levels[0], False)
        density = problem.moment(u, {V: 0})
        inside = np.array([X.lower + 1e-13, X.upper - 1e-13])
        traces = density.evaluate(inside)
        flow = np.array([-at[0] * traces[0], at[-1] * traces[1]])
        if boundary != "neumann":
            flow *= [at[0] > 0, at[-1] < 0]  # f flows out there, as f_t = ∂(u f)/∂x
        rate = problem.moment_weights(ones) @ rates(problem, u)
        assert rate == pytest.approx(flow.sum(), rel=1e-9, abs=1e-10)


def burgers(make, level, degree, grid="full"):
    """f = w(x, t) on v in [0, 1], so that w_t + (½ w²)_x = 0."""
    w = Axis("v", 0.0, 1.0)
    speed = -0.5 * Moment(w) if make is div else -Moment(w)
    initial = Separable(x=lambda x: 0.2 + 0.5 * np.sin(np.pi * x), v=1.0)
    return PDE(
        [X, w], make(X, speed), boundary={X: "periodic", w: Inflow()}, initial=initial
    ).discretize(level, degree, grid=grid, dt=1e-3)


def characteristics(x, t):
    """The exact w, from x = y + t w_0(y)."""

    def start(y):
        return 0.2 + 0.5 * np.sin(np.pi * y)

    def at(place):
        y = brentq(lambda y: y + t * start(y) - place, place - 2 * t, place + 2 * t, xtol=1e-14)
        return start(y)

    return np.vectorize(at)(x)


@pytest.mark.parametrize("degree", [0, 1, 2, 3])
@pytest.mark.parametrize("make", [div, grad])
def test_burgers_equation_before_the_shock(make, degree):
    """The shock forms at t = 2/π; the sign of w changes twice, with upwind sides."""
    until, errors = 0.3, []
    nodes, weights = legendre.leggauss(6)
    for level in (4, 5, 6):
        problem = burgers(make, (level, 0), degree)
        u = rk3(problem, until, 60 * 2 ** (level - 4) if degree < 3 else 400)
        cells = 1 << level
        x = (X.length / cells * (np.arange(cells)[:, None] + (1 + nodes) / 2)).ravel()
        density = problem.moment(u, {problem.axes[1]: 0}).evaluate(x)
        squares = (density - characteristics(x, until)) ** 2
        errors.append(np.sqrt(np.tile(weights, cells) @ squares * X.length / cells / 2))
    assert orders(errors)[-1] > degree + 0.7
    assert errors[-1] < [3e-2, 2e-3, 2e-5, 5e-7][degree]


def test_adaptive_runs_follow_the_wave_and_keep_its_mass():
    problem = burgers(div, (6, 0), 2, grid="sparse")
    coarse = burgers(div, (4, 0), 2, grid="sparse")
    before = coarse.integral(coarse.initial)
    result = evolve(coarse, until=0.3, adapt=Adapt(1e-5, every=10, max_level=(7, 0)))
    assert result.status is EvolveStatus.COMPLETED
    final = result.problem
    assert max(final.grid.levels) > 4
    assert final.integral(result.u) == pytest.approx(before, rel=1e-12)
    x = np.linspace(0.011, 1.987, 50)
    found = final.moment(result.u, {final.axes[1]: 0}).evaluate(x)
    assert np.abs(found - characteristics(x, 0.3)).max() < 2e-3
    cells = problem.grid.cells
    moved = problem.on_grid(SparseGrid.custom(cells[cells.max(axis=1) < 8], problem.grid.levels))
    expected = rates(moved.frozen(moved.initial), moved.initial)
    atol = 1e-13 * np.abs(expected).max()
    np.testing.assert_allclose(rates(moved, moved.initial), expected, rtol=0, atol=atol)


@pytest.mark.parametrize("method", ["backward-euler", "crank-nicolson", "sdirk2", "ark3"])
def test_implicit_methods_go_to_the_same_state(method):
    problem = burgers(div, (4, 0), 1)
    explicit = rk3(problem, 0.1, 100)
    errors = [
        np.linalg.norm(evolve(problem, until=0.1, method=method, dt=dt).u - explicit)
        for dt in (0.02, 0.01)
    ]
    assert errors[1] < 0.65 * errors[0]
    assert errors[1] < 2e-2


def test_the_device_formulas_give_the_same(rng, monkeypatch):
    """Without matrix products, which no CUDA graph may capture; the fields stay linked."""
    terms = [div(X, -N), div(V, -1.0, others={X: N}), grad(X, N, others={V: lambda v: v})]
    problem = pde_of(terms, boundary=Inflow(), volume={X: lambda x: 1.0 + x}).discretize(3, 2)
    u = random_state(rng, problem)
    expected = rates(problem, u)
    assert problem.system._field_terms.is_repeatable
    for module in (derivatives, neighbour_blocks):
        monkeypatch.setattr(module, "product", sum_of_products)
    np.testing.assert_allclose(
        rates(problem, u), expected, rtol=0, atol=1e-13 * np.abs(expected).max()
    )


def test_the_outflow_is_what_the_mass_loses():
    problem = pde_of(div(X, -0.5 * N), boundary=Inflow()).discretize(3, 2)
    outflow = Quantity.outflow(problem, warn_at=1.0)
    result = evolve(problem, until=0.2, dt=1e-3, watch={"outflow": outflow})
    left = problem.integral(problem.initial) - problem.integral(result.u)
    assert left > 0.1
    assert result.recorded["outflow"][-1] == pytest.approx(left, rel=1e-7)


def test_the_default_step_knows_the_speed():
    """|u| / h of the field at the start, as of a function with its size."""
    problems = [
        pde_of(div(X, g), initial=Separable(x=1.0, v=1.0 / V.length)).discretize(4, 2)
        for g in (3.0, 3.0 * N, 6.0 * N)
    ]
    plain, same, twice = (problem.stepper.dt for problem in problems)
    assert same == pytest.approx(plain, rel=1e-12)
    assert twice == pytest.approx(plain / 2, rel=1e-12)


@pytest.mark.parametrize("trusted", [True, False])
def test_files_hold_derivatives_of_fields(rng, tmp_path, trusted):
    terms = [
        div(X, Moment({V: 1}) / N, others={V: lambda v: v}),
        0.5 * grad(X, N * np.cos, flux="central"),
        div(X, -1.0 * N, flux="downwind", boundary="neumann"),
        mass(X, N),
    ]
    problem = pde_of(terms, boundary=Inflow()).discretize(3, 1)
    save_problem(tmp_path / "a.h5", problem)
    loaded = load_problem(tmp_path / "a.h5", trusted=trusted)
    assert loaded.content_hash == problem.content_hash
    assert [repr(t) for t in loaded.terms] == [repr(t) for t in problem.terms]
    expected = rates(problem, problem.initial)
    atol = 1e-14 * np.abs(expected).max()
    np.testing.assert_allclose(rates(loaded, problem.initial), expected, rtol=0, atol=atol)
    for text in ("div(x, ", "flux='central'", "flux='downwind'"):
        assert text in problem.describe()


def test_poissons_equation_and_failures():
    drift = pde_of(grad(X, Poisson(X, N))).discretize(3, 2)
    assert np.isfinite(rates(drift, drift.initial)).all()
    problem = pde_of(div(X, Moment({V: 1}) / N)).discretize(2, 1)
    with pytest.raises(NotPhysicalError, match="Moment"):
        problem.rhs(0.0, -problem.initial, np.empty(problem.unknowns))


@pytest.mark.parametrize("make", [div, grad])
def test_what_is_refused(make):
    for chain in (
        make(X, N) @ mass(X, lambda x: x),
        mass(X, N) @ make(X, N),
        div(X, N) @ grad(X),
        div(X) @ grad(X, N),
        div(X) @ mass(X, N) @ grad(X),
        make(X, N) @ grad(V),
        make(X, N) @ penalty(V),
    ):
        with pytest.raises(ValueError, match=r"terms\[0\].* acts along 'x' beside other factors"):
            PDE([X, V], chain, boundary={X: "periodic", V: "neumann"}, initial=POSITIVE)
    with pytest.raises(ValueError, match="penalty: the coefficient in 'x' is a field"):
        penalty(X, N)
    with pytest.raises(ValueError, match="that is a function of 'x'"):
        pde_of(make(V, N))
    with pytest.raises(ValueError, match="expected one coordinate"):
        pde_of(make(X, N), axes=(X, V, W))
    exact = Separable(x=lambda x: 1.0 + x, v=1.0)
    for pde in (
        pde_of([mass(V, -0.1), make(X, N)], boundary=Inflow(0.5)),
        pde_of(
            [mass(V, -0.1), make(X, N)], boundary=Inflow("from exact"), initial=None, exact=exact
        ),
    ):
        text = r"terms\[1\], (div|grad)\(x, .*, has a field .* meets data at an end of an axis"
        with pytest.raises(ValueError, match=text):
            pde.discretize(2, 1)


def test_ends_of_an_exact_solution_are_not_looked_at_where_the_state_decides():
    """An exact solution that is not zero where f flows out does not contradict Inflow(0)."""
    exact = Separable(x=lambda x: x, v=1.0)
    problem = pde_of(div(X, -1.0 * N), boundary=Inflow(), initial=None, exact=exact)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", ShockWarning)
        problem.discretize(2, 1)
