"""Electric fields of several positions in problems: against exact fields, and what is conserved."""

import pickle

import numpy as np
import pytest
from device_check import run_check

from batchkron.problems import (
    PDE,
    Axis,
    Electric,
    Inflow,
    Mixed,
    Moment,
    Poisson,
    Separable,
    SparseGrid,
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
from batchkron.solvers import Adapt, EvolveStatus, evolve

X, Y = Axis("x", 0.0, 2 * np.pi), Axis("y", -1.0, 2.0)
V, W = Axis("v", -6.0, 6.0), Axis("w", -6.0, 6.0)
E = Electric([X, Y], Moment([V, W]))
FORCES = [div(V, -1.0, others={(X, Y): E.x}), div(W, -1.0, others={(X, Y): E.y})]
TRANSPORT = [div(X, -1.0, others={V: lambda s: s}), div(Y, -1.0, others={W: lambda s: s})]
BOUNDARY = {X: "periodic", Y: "periodic", V: "inflow", W: "inflow"}
K = 2 * np.pi / 3
BOTH = Mixed([X, Y], [V, W])


def bell(s):
    return np.exp(-(s**2) / 2) / np.sqrt(2 * np.pi)


def state(x, y, v, w):
    return (1 + 0.3 * np.cos(x) * np.sin(K * y)) * bell(v - 0.5) * bell(w)


STATE = Separable(v=lambda s: bell(s - 0.5), w=bell) + Separable(
    coefficient=0.3, x=np.cos, y=lambda s: np.sin(K * s), v=lambda s: bell(s - 0.5), w=bell
)


def problem_of(terms, level, degree=2, grid="sparse", **more):
    given = {"boundary": BOUNDARY, "initial": STATE, **more}
    return PDE([X, Y, V, W], terms, **given).discretize(level, degree, grid, dt=0.01)


def rhs_of(problem, u=None, t=0.0):
    u = problem.initial if u is None else u
    out = np.full(problem.unknowns, np.nan)
    problem.rhs(t, u, out)
    return out


def force(x, y, v, w):
    size = 0.3 / (1 + K**2)
    ex = size * np.sin(x) * np.sin(K * y)
    ey = -size * K * np.cos(x) * np.cos(K * y)
    return (ex * (v - 0.5) + ey * w) * state(x, y, v, w)


@pytest.mark.parametrize(
    ("grid", "levels", "bound"),
    [(BOTH, [(2, 2, 4, 4), (3, 3, 5, 5)], 8e-3), ("sparse", [4, 6], 2.5e-3)],
    ids=["mixed", "sparse"],
)
def test_the_force_is_that_of_the_exact_field(grid, levels, bound):
    errors = []
    for level in levels:
        problem = problem_of(FORCES, level, 3, grid)
        exact = problem.project(force)
        errors.append(np.linalg.norm(rhs_of(problem) - exact) / np.linalg.norm(exact))
    assert errors[1] < 0.2 * errors[0]
    assert errors[1] < bound


def test_the_field_of_a_state_is_that_of_poissons_equation():
    problem = problem_of(FORCES, (4, 4, 3, 3), 2, BOTH)
    field = problem.field(problem.initial, E.y)
    assert field.axes == (X, Y)
    assert field.degree == 3
    points = np.array([[0.3, 0.4], [2.0, -0.5], [5.0, 1.9]])
    size = 0.3 / (1 + K**2)
    exact = -size * K * np.cos(points[:, 0]) * np.cos(K * points[:, 1])
    n = problem.moment(problem.initial, [V, W])
    assert n.integral() == pytest.approx(X.length * Y.length, rel=1e-3)
    np.testing.assert_allclose(field.evaluate(points), exact, atol=1e-3)
    norm = size * np.sqrt(1 + K**2) * np.sqrt(X.length * Y.length / 4)
    watch = problem.quantities("field", "field-energy", "energy", "momentum-v")
    assert watch["field"](0.0, problem.initial) == pytest.approx(norm, rel=2e-3)
    half = watch["field-energy"](0.0, problem.initial)
    assert half == pytest.approx(norm**2 / 2, rel=4e-3)
    kinetic = 0.5 * sum(problem.moment_weights({a: 2}) @ problem.initial for a in (V, W))
    assert watch["energy"](0.0, problem.initial) == pytest.approx(kinetic + half, rel=1e-12)
    assert problem.recurrence_time == pytest.approx(X.length / V.cell_width(3))


@pytest.mark.parametrize("order", [[V, X, W, Y], [Y, X, W, V]], ids=["apart", "reversed"])
def test_the_order_of_axes_does_not_matter(order):
    """The coefficients are those of the same functions."""
    first = problem_of(FORCES, 3, 1)
    other = PDE(order, FORCES, boundary=BOUNDARY, initial=STATE).discretize(3, 1, dt=0.01)
    found = rhs_of(other).reshape(-1, 2, 2, 2, 2)
    places = [order.index(axis) for axis in (X, Y, V, W)]
    rows = other.grid.find(first.grid.cells[:, [[X, Y, V, W].index(axis) for axis in order]])
    moved = found[rows].transpose(0, *(1 + np.array(places)))
    np.testing.assert_allclose(moved.ravel(), rhs_of(first), atol=1e-14)


def test_a_state_that_is_uniform_in_y_has_the_field_of_one_position():
    wave = Separable(x=lambda s: 1 + 0.1 * np.cos(s), v=bell, w=bell)
    several = problem_of(FORCES, (4, 2, 4, 2), 3, BOTH, initial=wave)
    one = [div(V, -1.0, others={X: Poisson(X, Moment([V, W, Y]) * (1 / Y.length))})]
    known = problem_of(one, (4, 2, 4, 2), 3, BOTH, initial=wave)
    expected = rhs_of(known)
    np.testing.assert_allclose(rhs_of(several), expected, atol=2e-6 * np.abs(expected).max())


def test_three_positions_and_velocities():
    """The field of a wave across three positions, and its force, which keeps the density."""
    space = [Axis(name, 0.0, 2 * np.pi) for name in "xyz"]
    velocities = [Axis(f"v{k}", -6.0, 6.0) for k in (1, 2, 3)]
    field = Electric(space, Moment(velocities))
    bells = {v.name: bell for v in velocities}
    waves = Separable(**bells) + Separable(coefficient=0.1, x=np.cos, y=np.cos, z=np.sin, **bells)
    ends = dict.fromkeys(space, "periodic") | dict.fromkeys(velocities, "no-flux")
    force = div(velocities[2], -1.0, others={tuple(space): field.z})
    pde = PDE([*space, *velocities], force, boundary=ends, initial=waves)
    problem = pde.discretize((3, 3, 3, 2, 2, 2), 2, Mixed(space, velocities), dt=0.1)
    points = np.random.default_rng(2).uniform(0, 2 * np.pi, (50, 3))
    exact = -0.1 / 3 * np.cos(points[:, 0]) * np.cos(points[:, 1]) * np.cos(points[:, 2])
    found = problem.field(problem.initial, field.z).evaluate(points)
    assert np.linalg.norm(found - exact) < 0.3 * np.linalg.norm(exact)
    rate = rhs_of(problem)
    assert np.abs(rate).max() > 1e-3
    density = problem.moment(rate, velocities).coefficients
    np.testing.assert_allclose(density, 0.0, atol=1e-13)


@pytest.mark.parametrize("grid", ["sparse", "full", BOTH], ids=["sparse", "full", "mixed"])
def test_forces_keep_the_density(rng, grid):
    level = 3 if grid == "sparse" else (2, 1, 2, 1)
    problem = problem_of(FORCES, level, 2, grid)
    u = problem.initial * rng.uniform(0.5, 1.5, problem.unknowns)
    ends = problem_of(
        [div(a, -1.0, boundary="no-flux", others={(X, Y): E[b]}) for a, b in ((V, X), (W, Y))],
        level, 2, grid,
    )  # fmt: skip
    change = ends.moment(rhs_of(ends, u), [V, W]).coefficients
    np.testing.assert_allclose(change, 0.0, atol=1e-12 * np.abs(u).max())
    assert np.abs(rhs_of(problem, u)).max() > 1e-3


def test_numbers_and_functions_of_time_multiply_the_term():
    whole = problem_of(FORCES[0], 2)
    half = problem_of(0.5 * FORCES[0] * time.cos(1.0), 2)
    np.testing.assert_allclose(rhs_of(half, t=0.7), 0.5 * np.cos(0.7) * rhs_of(whole), atol=1e-14)
    assert not half.is_constant


def test_a_reaction_is_multiplied_by_the_field_itself():
    reacting = problem_of([mass(V, others={(X, Y): E.x})], (3, 3, 4, 4), 3, BOTH)
    exact = reacting.project(
        lambda x, y, v, w: 0.3 / (1 + K**2) * np.sin(x) * np.sin(K * y) * state(x, y, v, w)
    )
    error = np.linalg.norm(rhs_of(reacting) - exact) / np.linalg.norm(exact)
    assert error < 3e-3


def test_multiples_and_walls(rng):
    """-Δφ = 2 n - ½ with φ = 0 at the walls of x, and one of given potential."""
    x = Axis("x", 0.0, 1.0)
    field = Electric([x, Y], 3.0 * Moment([V, W]) - Moment([V, W]), 0.5, potential={x: (0.0, 1.0)})
    terms = [div(V, -1.0, others={(x, Y): field.x})]
    ends = {x: "neumann", Y: "periodic", V: "inflow", W: "inflow"}
    pde = PDE([x, Y, V, W], terms, boundary=ends, initial=Separable(v=bell, w=bell))
    problem = pde.discretize((2, 1, 5, 5), 2, Mixed([x, Y], [V, W]))
    found = problem.field(problem.initial, field["x"]).evaluate([[0.2, 0.0], [0.9, 1.0]])
    n = problem.moment(problem.initial, [V, W]).evaluate([[0.5, 0.5]])[0]
    exact = (2 * n - 0.5) * (np.array([0.2, 0.9]) - 0.5) - 1.0
    np.testing.assert_allclose(found, exact, atol=1e-10)


def test_runs_conserve_mass_and_momentum():
    axes = [Axis("x", 0, 4 * np.pi), Axis("y", 0, 4 * np.pi), V, W]
    x, y = axes[:2]
    wave = {"v": bell, "w": bell}
    pde = PDE(
        axes,
        [
            div(x, -1.0, others={V: lambda s: s}),
            div(y, -1.0, others={W: lambda s: s}),
            *(div(a, -1.0, others={(x, y): Electric([x, y], Moment([V, W]))[b]})
              for a, b in ((V, x), (W, y))),
        ],
        boundary={x: "periodic", y: "periodic", V: "no-flux", W: "no-flux"},
        initial=Separable(**wave)
        + Separable(coefficient=1e-3, x=lambda s: np.cos(s / 2), **wave)
        + Separable(coefficient=1e-3, y=lambda s: np.cos(s / 2), **wave),
    )  # fmt: skip
    problem = pde.discretize(3, 1)
    watch = problem.quantities("mass", "momentum-v", "energy")
    result = evolve(problem, until=1.0, method="rk4", dt=0.05, watch=watch)
    assert result.status is EvolveStatus.COMPLETED
    assert result.watched["mass"].drift < 1e-13
    assert result.watched["momentum-v"].drift < 1e-8
    assert result.watched["energy"].drift < 1e-3


def test_grids_follow_the_solution():
    problem = problem_of([*TRANSPORT, *FORCES], 2, 1)
    result = evolve(problem, until=0.04, dt=0.01, method="rk4",
                    adapt=Adapt(1e-3, every=2, max_level=3))  # fmt: skip
    assert result.status is EvolveStatus.COMPLETED
    assert result.problem.unknowns > problem.unknowns
    again = result.problem.on_grid(result.problem.grid, result.u)
    fresh = rhs_of(again, result.u)
    np.testing.assert_array_equal(rhs_of(result.problem, result.u), fresh)


def test_imex_methods_treat_the_force_explicitly():
    terms = [*FORCES, *(0.1 * term for term in laplacian([X]))]
    problem = problem_of(terms, 2, 1)
    assert problem.stepper.method == "ark3"
    fine = evolve(problem, until=0.1, method="rk4", dt=1e-3).u
    found = evolve(problem, until=0.1, method="ark3", dt=1e-2)
    assert found.status is EvolveStatus.COMPLETED
    np.testing.assert_allclose(found.u, fine, atol=1e-6)


def test_files_keep_the_problem(tmp_path):
    x = Axis("x", 0.0, 1.0)
    field = Electric([x, Y], 2.0 * Moment([V, W]) - Moment({V: 1, W: 0}), 0.5,
                     potential={x: (0.0, 1.0)})  # fmt: skip
    terms = [div(V, -1.0, others={(x, Y): field.x}), mass(W, others={(x, Y): field.y}),
             pointwise("-0.1 * f * f"), div(x, 1.0)]  # fmt: skip
    ends = {x: "neumann", Y: "periodic", V: "inflow", W: "inflow"}
    problem = PDE([x, Y, V, W], terms, boundary=ends, initial=0.1).discretize(2, 1)
    save_problem(tmp_path / "a.h5", problem)
    loaded = load_problem(tmp_path / "a.h5")
    assert loaded.content_hash == problem.content_hash
    assert loaded.electric[0].electric == field
    np.testing.assert_array_equal(rhs_of(loaded), rhs_of(problem))
    np.testing.assert_array_equal(rhs_of(pickle.loads(pickle.dumps(problem))), rhs_of(problem))
    shifted = PDE([x, Y, V, W], [*terms, div(W, -1.0, others={(x, Y): field.y})], boundary=ends,
                  initial=0.1).discretize(2, 1)  # fmt: skip
    assert shifted.content_hash != problem.content_hash


def test_descriptions_name_the_field():
    problem = problem_of(FORCES, 2, 1)
    assert "4 with an electric field" in repr(problem)
    assert "positive part of Electric([x, y], Moment({v: 0, w: 0})).x" in str(problem.describe())
    assert "Electric([x, y]" in repr(PDE([X, Y, V, W], FORCES, boundary=BOUNDARY, initial=STATE))


def test_the_default_step_resolves_the_force():
    wave = {"boundary": BOUNDARY, "initial": STATE}
    problem = PDE([X, Y, V, W], FORCES, **wave).discretize(3, 1)
    places = np.random.default_rng(1).uniform([0, -1], [6.28, 2], (2000, 2))
    fields = [problem.field(problem.initial, E[axis]).evaluate(places) for axis in (X, Y)]
    largest = [np.abs(field).max() for field in fields]
    expected = 0.5 / (3 * sum(largest) / V.cell_width(3))
    assert problem.stepper.method == "ssp-rk3"
    assert problem.stepper.dt == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Electric([X], Moment(V)), "two or three different positions"),
        (lambda: Electric([X, Y], 2.0), "expected a moment such as"),
        (lambda: Electric([X, Y], Moment(V) * Moment(W)), "sums and multiples of moments"),
        (lambda: Electric([X, Y], Moment([V, W]), "ions"), "'mean' or a number"),
        (lambda: Electric([X, Y], Moment([V, W]), potential={V: (0, 1)}), "is no position"),
        (lambda: E["z"], "'z' is no position"),
        (lambda: div(V, others={X: E.x}), r"as others=\{\(x, y\): E.x\}"),
        (lambda: div(V, others={(X, W): E.x}), "is a function of x, y"),
        (lambda: div(V, others={(X, Y): Moment([V, W])}), "expected a component of an Electric"),
        (lambda: div(V, others={(X, Y): E.x}) @ grad(V), "not chained with @"),
    ],
)  # fmt: skip
def test_wrong_fields_are_refused(make, text):
    with pytest.raises((TypeError, ValueError), match=text):
        make()


@pytest.mark.parametrize(
    ("terms", "text"),
    [
        (div(X, -1.0, others={(X, Y): E.x}), "acts along a position"),
        (penalty(V, others={(X, Y): E.x}), "a penalty or several derivatives"),
        (div(V, others={(X, Y): E.x, W: lambda s: s}, boundary="dirichlet") * 1.0, None),
        (div(V, others={(X, Y): E.x}, boundary=Inflow(1.0)), "data at an end of an axis"),
        (div(V, others={(X, Y): Electric([X, Y], Moment(V)).x}), "a moment over all other axes"),
        (div(V, others={(X, Y): Electric([X, Y], Moment([V, W]), 1.0).x}), "has to be neutral"),
        (
            div(V, others={(X, Y): Electric([X, Y], Moment([V, W]), potential={X: (0, 1)}).x}),
            "which is periodic",
        ),
    ],
)  # fmt: skip
def test_terms_that_are_not_possible_are_refused(terms, text):
    if text is None:
        assert problem_of(terms, 2, 1).electric
        return
    with pytest.raises(ValueError, match=text):
        problem_of(terms, 2, 1)


def test_methods_that_need_an_operator_refuse_it():
    problem = problem_of([*TRANSPORT, *FORCES], 2, 1)
    with pytest.raises(ValueError, match="electric field of several positions"):
        _ = problem.operator
    with pytest.raises(ValueError, match="electric field of several positions"):
        evolve(problem, until=0.1, dt=0.1, method="backward-euler")
    with pytest.raises(ValueError, match="cannot be frozen"):
        problem.frozen(problem.initial)
    with pytest.raises(
        TypeError, match="electric field of several positions, which cannot be spread"
    ):
        problem.system.time_parts()
    assert not problem.is_linear
    other = Electric([X, Y], 2 * Moment([V, W]))
    with pytest.raises(ValueError, match="in no term of the problem"):
        problem.field(problem.initial, other.x)


def test_grids_with_gaps_and_high_degrees_are_refused():
    holes = SparseGrid.custom([[0, 0, 0, 0], [2, 0, 0, 0]], [2, 1, 1, 1])
    with pytest.raises(ValueError, match="closed downward"):
        PDE([X, Y, V, W], FORCES, boundary=BOUNDARY, initial=0.0).discretize(
            degree=1, grid=holes, dt=0.1
        )
    with pytest.raises(ValueError, match="got degree 6"):
        problem_of(FORCES, 1, 6)


def test_on_a_device():
    run_check("electric", "right_hand_sides")
