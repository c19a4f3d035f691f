"""Collisions as terms: what they expand to, what they conserve, and what is refused."""

import numpy as np
import pytest
from problem_oracle import dense_div, dense_grad, points_and_weights
from scipy.linalg import expm

from batchkron import NotPhysicalError
from batchkron.problems import (
    PDE,
    Axis,
    Mixed,
    Moment,
    NoFlux,
    Separable,
    SeparableSum,
    SparseGrid,
    div,
    lenard_bernstein,
    mass,
)
from batchkron.problems.semidiscrete.fields.evaluation import resolved_level
from batchkron.problems.statement.collisions import Position
from batchkron.problems.statement.fields import EndMoment
from batchkron.solvers import EvolveStatus, evolve

X, Y = Axis("x", 0.0, 4.0), Axis("y", 0.0, 1.0)
V, W = Axis("v", -4.0, 5.0), Axis("w", -3.0, 3.0)
WALLED = NoFlux()


def bell(mean, theta):
    return lambda v: np.exp(-((v - mean) ** 2) / (2 * theta))


def wavy(share, **velocities):
    return Separable(x=lambda x: 1.0 + share * np.sin(np.pi * x / 2), **velocities)


MIXED = SeparableSum(
    (
        wavy(0.5, v=bell(-1.0, 1.0)),
        wavy(-0.4, v=bell(1.5, 0.5)),
    )
)
MIXED_2 = SeparableSum(
    (
        wavy(0.5, v=bell(-1.0, 1.0), w=bell(0.5, 0.7)),
        wavy(-0.4, v=bell(1.5, 0.5), w=bell(-0.8, 1.2)),
    )
)


def problem_of(terms, velocities=(V,), initial=MIXED, level=4, degree=2, grid="sparse"):
    boundary = {X: "periodic"} | dict.fromkeys(velocities, WALLED)
    pde = PDE([X, *velocities], terms, boundary=boundary, initial=initial)
    return pde.discretize(level, degree, grid)


def rhs_of(problem, u):
    out = np.full(problem.unknowns, np.nan)
    problem.rhs(0.0, u, out)
    return out


def test_terms_have_the_position_of_the_pde():
    terms = lenard_bernstein([V, W], 3.0)
    assert len(terms) == 6
    assert all(term.stiff for term in terms)
    assert repr(terms[0]) == ("<Term 3 * div(v, _coordinate, boundary='NoFlux')>")
    assert isinstance(terms[1].fields[0][0], Position)
    pde = PDE([X, V, W], terms, boundary={X: "periodic", V: WALLED, W: WALLED}, initial=MIXED_2)
    assert [axis for term in pde.terms for axis, _ in term.fields] == [X] * 4
    assert {factor.axis for term in pde.terms for factor in term.factors} == {X, V, W}
    named = lenard_bernstein([V, W], 3.0, position=X)
    assert [axis for term in named for axis, _ in term.fields] == [X] * 4
    assert all(term.stiff for term in (-terms[0], mass(X) @ terms[2], terms[1] * 2.0))
    assert not mass(X).stiff


def test_an_axis_like_the_placeholder_is_an_axis():
    own = Axis("position", 0.0, 1.0)
    assert own != lenard_bernstein(V)[1].fields[0][0]
    pde = PDE(
        [own, V], [div(own, -1.0), *lenard_bernstein(V)], boundary={own: "periodic", V: WALLED},
        initial=Separable(v=bell(0.0, 1.0)),
    )  # fmt: skip
    assert pde.terms[0].factors[0].axis is own
    assert pde.discretize(2, 2).has_fields


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: lenard_bernstein([]), ValueError, "velocities is empty"),
        (lambda: lenard_bernstein("v"), TypeError, "velocities must be axes, got str"),
        (lambda: lenard_bernstein(V, -1.0), ValueError, "nu is -1.0; expected a rate of at least"),
        (lambda: lenard_bernstein(V, np.inf), ValueError, "nu must be finite"),
        (lambda: lenard_bernstein(V, "big"), TypeError, "nu is str; expected a number"),
        (lambda: lenard_bernstein(V, conserve="all"), ValueError, "the only word is 'exact'"),
        (lambda: lenard_bernstein(V, flux="by degree"), ValueError, "flux is 'by degree'"),
        (lambda: EndMoment(W, V), ValueError, "is not among the axes of the moment"),
    ],
)
def test_wrong_arguments(make, error, text):
    with pytest.raises(error, match=text):
        make()


@pytest.mark.parametrize(("axes", "names"), [((V,), "none"), ((X, Y, V), "x, y")])
def test_collisions_need_one_position(axes, names):
    with pytest.raises(ValueError, match=f"not among their velocities are: {names}. Give"):
        PDE(list(axes), lenard_bernstein(V), boundary=WALLED, initial=Separable(v=bell(0.0, 1.0)))


def test_the_text_of_a_moment_at_the_ends():
    assert repr(EndMoment(V, {V: 1, W: 0})) == ("<EndMoment(v, {v: 1, w: 0})>")


def test_moments_at_the_ends_are_differences_of_traces():
    problem = problem_of(lenard_bernstein([V, W]), (V, W), MIXED_2, level=3)
    u = problem.initial
    at = np.array([0.1, 1.3, 3.9])
    points, weights = points_and_weights(W, 3)
    expected = np.zeros(3)
    for end, sign in ((V.upper, 1.0), (V.lower, -1.0)):
        sliced = problem.slice(u, {V: end})
        grid = np.stack([np.repeat(at, points.size), np.tile(points, 3)], axis=1)
        values = sliced.evaluate(grid).reshape(3, -1)
        expected += sign * end * (values * points**2) @ weights
    found = problem.field(u, EndMoment(V, {V: 1, W: 2})).evaluate(at)
    np.testing.assert_allclose(found, expected, atol=1e-13 * np.abs(u).max())


def dense_collisions(problem, u, theta, nu):
    """The matrix of the collisions along v for numbers u and θ."""
    level, degree = problem.grid.levels[1], problem.degree
    walled = ("dirichlet", "dirichlet")
    one = lambda v: np.ones_like(v)  # noqa: E731
    flux = "central" if degree % 2 == 0 else "upwind"
    opposite = "central" if degree % 2 == 0 else "downwind"
    drag = dense_div(V, level, degree, lambda v: v, "upwind", walled)
    shift = dense_div(V, level, degree, one, "central", walled)
    outer = dense_div(V, level, degree, one, flux, walled)
    inner = dense_grad(V, level, degree, one, opposite, ("neumann", "neumann"))
    return nu * (drag - u * shift + theta * outer @ inner)


@pytest.mark.parametrize("degree", [1, 2, 3])
@pytest.mark.parametrize("conserve", [None, "exact"])
def test_the_operator_is_that_of_the_moments(degree, conserve):
    """For f = n(x) g(v) u and θ are numbers, here from sums over Gauss points."""
    nu, level = 2.5, 3
    problem = problem_of(
        lenard_bernstein(V, nu, conserve=conserve),
        initial=wavy(0.5, v=lambda v: bell(-1.0, 1.0)(v) + bell(2.0, 0.5)(v) + 0.1),
        level=(2, level),
        degree=degree,
        grid="full",
    )
    f = problem.initial.reshape(problem.grid.num_cells, degree + 1, degree + 1)
    where = {tuple(cell): k for k, cell in enumerate(problem.grid.cells)}
    whole = np.array([[f[where[i, j]] for j in range(8)] for i in range(4)])
    matrix = whole.transpose(0, 2, 1, 3).reshape(4 * (degree + 1), -1)
    points, weights = points_and_weights(V, level)
    at = [[1.0, s] for s in points]
    g = problem.evaluate(problem.initial, at)
    m0, m1 = (weights * points**k @ g for k in (0, 1))
    # ∫ v² f dv is that of the library, which needs no more than f's own coefficients
    m2 = problem.moment(problem.initial, {V: 2}).evaluate([1.0])[0]
    u, theta = m1 / m0, (m2 - m1**2 / m0) / m0
    if conserve:
        lower, upper = problem.evaluate(problem.initial, [[1.0, V.lower], [1.0, V.upper]])
        B, E = upper - lower, V.upper * upper - V.lower * lower
        theta = (m2 - m1**2 / m0) / (m0 - E + B * m1 / m0)
        u = (m1 + theta * B) / m0
    product = matrix @ dense_collisions(problem, u, theta, nu).T
    expected = product.reshape(4, degree + 1, 8, degree + 1).transpose(0, 2, 1, 3)
    found = rhs_of(problem, problem.initial).reshape(f.shape)
    result = np.array([[found[where[i, j]] for j in range(8)] for i in range(4)])
    np.testing.assert_allclose(result, expected, atol=1e-12 * np.abs(expected).max())


def drifts(problem, u, velocities):
    """Largest |∫ v^k C dv| over x, for 1, v_i and |v|², relative to ∫ |v|^k f dv."""
    rate = rhs_of(problem, u)
    powers = [dict.fromkeys(velocities, 0)]
    powers += [{**powers[0], axis: 1} for axis in velocities]
    squares = [{**powers[0], axis: 2} for axis in velocities]
    found = [
        np.abs(problem.moment(rate, p).coefficients).max()
        / np.abs(problem.moment(u, p).coefficients).max()
        for p in powers
    ]
    total = sum(problem.moment(rate, p).coefficients for p in squares)
    whole = sum(problem.moment(u, p).coefficients for p in squares)
    return [*found, np.abs(total).max() / np.abs(whole).max()]


CASES = [
    ((V,), MIXED, (3, 4), 2, "full"),
    ((V,), MIXED, (2, 4), 3, "full"),
    ((V, W), MIXED_2, 3, 2, Mixed([X], [V, W])),
]


@pytest.mark.parametrize(("velocities", "initial", "level", "degree", "grid"), CASES)
@pytest.mark.parametrize("nu", [7.0, lambda x: 2.0 + np.sin(np.pi * x / 2), "field"])
def test_moments_are_conserved_at_every_place(velocities, initial, level, degree, grid, nu):
    """f is large at the ends of the velocities, so that it needs the values there."""
    if nu == "field":
        nu = 3.0 * Moment(list(velocities))
    exact = problem_of(
        lenard_bernstein(velocities, nu, conserve="exact"), velocities, initial, level, degree, grid
    )
    assert max(drifts(exact, exact.initial, velocities)) < 1e-11
    plain = problem_of(lenard_bernstein(velocities, nu), velocities, initial, level, degree, grid)
    number, *others = drifts(plain, plain.initial, velocities)
    assert number < 1e-11
    assert max(others) > 1e-5


@pytest.mark.parametrize(("velocities", "initial"), [((V,), MIXED), ((V, W), MIXED_2)])
def test_totals_are_conserved_on_sparse_grids(rng, velocities, initial):
    problem = problem_of(lenard_bernstein(velocities, 7.0, conserve="exact"), velocities, initial)
    u = problem.initial + 1e-3 * rng.standard_normal(problem.unknowns)
    rate = rhs_of(problem, u)
    zeros = dict.fromkeys(velocities, 0)
    weights = [problem.moment_weights({**zeros, v: 1}) for v in velocities]
    weights.append(problem.moment_weights(zeros))
    weights.append(sum(problem.moment_weights({**zeros, v: 2}) for v in velocities))
    for weight in weights:
        assert abs(weight @ rate) < 1e-12 * np.linalg.norm(weight) * np.linalg.norm(rate)
    assert max(drifts(problem, u, velocities)) > 1e-3  # but not at every place


@pytest.mark.parametrize(
    ("grid", "level"),
    [
        (SparseGrid.sparse([4, 4]), 2),
        (SparseGrid.sparse([6, 6]), 4),
        (SparseGrid.full([5, 1]), 5),
        (SparseGrid.sparse([3, 1]), 0),
        (SparseGrid.custom([[0, 0], [1, 0], [2, 0], [3, 0]], [2, 3]), 0),
    ],
)
def test_levels_that_are_resolved_in_the_velocity(grid, level):
    assert resolved_level(grid, 0, [1]) == level


@pytest.mark.parametrize("nu", [1.0, 10.0])
def test_small_waves_do_not_grow_on_sparse_grids(nu):
    """The Jacobian at the Maxwellian; with moments of all levels of x it has Re λ = ν/5."""
    still = Separable(v=lambda v: np.exp(-(v**2) / 2) / np.sqrt(2.0 * np.pi))
    v = Axis("v", -6.0, 6.0)
    terms = [div(X, -1.0, others={v: lambda s: s}), *lenard_bernstein(v, nu, conserve="exact")]
    pde = PDE([X, v], terms, boundary={X: "periodic", v: "inflow"}, initial=still)
    problem = pde.discretize(4, 2)
    u, size = problem.initial, 1e-5
    columns = [
        (rhs_of(problem, u + step) - rhs_of(problem, u - step)) / (2.0 * size)
        for step in size * np.eye(problem.unknowns)
    ]
    growth = np.linalg.eigvals(np.array(columns).T).real.max()
    assert growth < 1e-4


def test_default_fluxes_are_central_for_even_degrees():
    """They are better there than the alternating ones; for odd degrees those are."""
    final, errors = Separable(v=bell(0.5, 1.0)), {}
    for degree in (2, 3):
        for flux in (None, "central", "upwind"):
            terms = lenard_bernstein(V, flux=flux)
            problem = problem_of(terms, initial=final, level=(0, 5), degree=degree, grid="full")
            u = problem.initial
            steady = expm(30.0 * problem.frozen(u).operator.to_dense()) @ u
            errors[degree, flux] = np.linalg.norm(steady - u)
    assert errors[2, None] == errors[2, "central"] < 0.6 * errors[2, "upwind"]
    assert errors[3, None] == errors[3, "upwind"] < errors[3, "central"]


def test_a_temperature_that_is_not_positive_ends_the_run():
    problem = problem_of(lenard_bernstein(V))
    cold = SeparableSum((wavy(0.0, v=bell(0.0, 0.3)), wavy(0.0, v=lambda v: -0.2 * (abs(v) > 2))))
    state = problem_of(lenard_bernstein(V), initial=MIXED).initial * 0.0
    boundary = {X: "periodic", V: WALLED}
    pde = PDE([X, V], lenard_bernstein(V), boundary=boundary, initial=cold)
    cold_problem = pde.discretize(4, 2, dt=0.01, method="ark3")
    with pytest.raises(NotPhysicalError, match=r"\(Moment\({v: 2}\) - .* is -.*expected positive"):
        rhs_of(cold_problem, cold_problem.initial)
    for method in ("ark3", "rk4"):
        result = evolve(cold_problem, until=0.1, method=method, dt=0.01)
        assert result.status is EvolveStatus.NOT_PHYSICAL
        assert result.steps == 0
    with pytest.raises(NotPhysicalError, match=r"Moment\({v: 0}\) is 0"):
        rhs_of(problem, state)


def test_the_default_method_is_imex():
    stepper = problem_of(lenard_bernstein(V, 100.0)).stepper
    assert stepper.method == "ark3"
    faster = problem_of(lenard_bernstein(V, 200.0)).stepper
    assert faster.dt == pytest.approx(stepper.dt / 2)
