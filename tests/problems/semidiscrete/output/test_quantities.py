"""Quantities by their names are the integrals that their labels say."""

import numpy as np
import pytest

from batchkron.problems import (
    PDE,
    Axis,
    Mixed,
    Moment,
    Poisson,
    Separable,
    SparseGrid,
    div,
    make,
    mass,
    pointwise,
)


def normal(v):
    return np.exp(-(v**2) / 2) / np.sqrt(2 * np.pi)


@pytest.fixture(scope="module")
def landau():
    return make("landau-1x1v", (3, 5), 2, "full", amplitude=0.5)


def values_of(problem, *names, u=None, t=0.0):
    state = problem.initial if u is None else u
    return {name: measure(t, state) for name, measure in problem.quantities(*names).items()}


def test_a_plasma_has_mass_energies_and_a_field(landau):
    found = values_of(landau)
    length, k, a = 4 * np.pi, 0.5, 0.5
    expected = {
        "mass": length,
        "momentum": 0.0,
        "kinetic-energy": length / 2,
        "field": np.sqrt(length / 2) * a / k,
        "field-energy": length / 4 * (a / k) ** 2,
        "energy": length / 2 + length / 4 * (a / k) ** 2,
        "norm": np.sqrt(length * (1 + a**2 / 2) / (2 * np.sqrt(np.pi))),
    }
    assert list(found) == list(expected)
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, rel=2e-4, abs=1e-12), name


def test_moments_are_named_by_their_powers(landau):
    x, v = landau.axes
    rng = np.random.default_rng(0)
    u = rng.standard_normal(landau.unknowns)
    names = {"v": {v: 1}, "v^3": {v: 3}, "x*v^2": {x: 1, v: 2}, "v*v": {v: 2}, "x": {x: 1}}
    found = values_of(landau, *names, u=u)
    for name, powers in names.items():
        weights = landau.moment_weights({x: powers.get(x, 0), v: powers.get(v, 0)})
        assert found[name] == pytest.approx(weights @ u, rel=1e-12)
    assert landau.quantities("x*v^2")["x*v^2"].label == "∫ x v^2 f"


def test_several_velocities_have_a_momentum_each():
    problem = make("landau-1x2v", (1, 4, 4), 2, Mixed(["x"], ["v1", "v2"]))
    names = list(problem.quantities())
    assert names[:4] == ["mass", "momentum-v1", "momentum-v2", "kinetic-energy"]
    _, v1, v2 = problem.axes
    u = np.random.default_rng(1).standard_normal(problem.unknowns)
    found = values_of(problem, "momentum-v2", "kinetic-energy", u=u)
    every = dict.fromkeys(problem.axes, 0)
    assert found["momentum-v2"] == pytest.approx(problem.moment_weights(every | {v2: 1}) @ u)
    squares = sum(problem.moment_weights(every | {v: 2}) for v in (v1, v2))
    assert found["kinetic-energy"] == pytest.approx(0.5 * squares @ u)
    assert problem.quantities("kinetic-energy")["kinetic-energy"].label == "½ ∫ (v1² + v2²) f"
    with pytest.raises(ValueError, match="it has momentum-v1, momentum-v2"):
        problem.quantities("momentum")


def test_the_velocity_of_bgk_collisions_is_one():
    """Its moments are those of a Maxwellian that is added, of no term."""
    problem = make("bgk-1x1v", (2, 4), 2, "full")
    assert list(problem.quantities()) == ["mass", "momentum", "kinetic-energy", "norm"]
    _, v = problem.axes
    u = np.random.default_rng(2).standard_normal(problem.unknowns)
    found = values_of(problem, "momentum", "kinetic-energy", u=u)
    assert found["momentum"] == pytest.approx(problem.moment_weights({v: 1}) @ u, rel=1e-12)
    squares = problem.moment_weights({v: 2}) @ u
    assert found["kinetic-energy"] == pytest.approx(0.5 * squares, rel=1e-12)


def test_equal_poisson_equations_count_once():
    """Two terms, each with an expression of its own for the same field."""
    x, v = Axis("x", 0, 4 * np.pi), Axis("v", -6, 6)
    terms = [
        div(x, -1.0, others={v: lambda s: s}),
        *(div(v, -0.5, others={x: Poisson(x, Moment(v))}) for _ in range(2)),
    ]
    initial = Separable(x=lambda s: 1 + 0.5 * np.cos(s / 2), v=normal)
    pde = PDE([x, v], terms, boundary={x: "periodic", v: "inflow"}, initial=initial)
    field = values_of(pde.discretize((3, 4), 2, "full"), "field")["field"]
    assert field == pytest.approx(np.sqrt(2 * np.pi), rel=1e-3)


def test_problems_without_fields_have_masses_norms_and_errors():
    problem = make("continuity-2d", 4, 1)
    assert list(problem.quantities()) == ["mass", "norm", "error"]
    u = 2.0 * problem.exact_coefficients(0.3)
    found = values_of(problem, u=u, t=0.3)
    assert found["norm"] == pytest.approx(np.linalg.norm(u))
    assert found["error"] == pytest.approx(problem.l2_error(u, 0.3))
    assert values_of(problem, "outflow-rate", u=u)["outflow-rate"] == pytest.approx(
        problem.outflow_rate(0.0, u)
    )


def test_norms_and_masses_have_the_volume_element():
    problem = make("runaway-collisions", 3, 2)
    u = problem.initial
    found = values_of(problem, "mass", "norm", u=u)
    nodes, weights = np.polynomial.legendre.leggauss(12)
    p = np.concatenate([(nodes + 1) / 2 * 1.25 + 1.25 * cell for cell in range(8)])
    wp = np.tile(weights * 0.625, 8) * p**2
    z = np.concatenate([(nodes + 1) / 8 + cell / 4 - 1 for cell in range(8)])
    wz = np.tile(weights / 8, 8)
    values = problem.evaluate(u, *np.meshgrid(p, z, indexing="ij", sparse=True))
    assert found["mass"] == pytest.approx(wp @ values @ wz, rel=1e-12)
    assert found["norm"] == pytest.approx(np.sqrt(wp @ values**2 @ wz), rel=1e-12)


def test_quantities_follow_the_grid(landau):
    sparse = SparseGrid.sparse([3, 5])
    moved = landau.on_grid(sparse)
    for name, measure in landau.quantities().items():
        there = measure.for_problem(moved)
        assert there.name == name
        assert there(0.0, moved.initial) == values_of(moved, name)[name]
        assert measure.for_problem(landau) is measure


def test_the_recurrence_time_is_that_of_the_finest_cells(landau):
    width = 12.0 / 32
    assert landau.recurrence_time == pytest.approx(2 * np.pi / (0.5 * width), rel=1e-14)
    assert make("continuity-2d", 3, 1).recurrence_time is None


def test_units_are_the_problems():
    x = Axis("x", 0, 1)
    pde = PDE([x], div(x, -1.0), boundary="periodic", initial=1.0, units={"mass": "kg"})
    found = pde.discretize(2, 1).quantities("mass", "norm")
    assert (found["mass"].unit, found["norm"].unit) == ("kg", "")


@pytest.mark.parametrize(
    ("name", "error", "words"),
    [
        ("speed", ValueError, "'speed' is no quantity of continuity-2d; it has mass, norm, error"),
        ("y^0", ValueError, "moments by powers of x, y such as y\\^2"),
        ("y^99", ValueError, "no quantity"),
        ("x**y", ValueError, "no quantity"),
        ("", ValueError, "no quantity"),
        (3, TypeError, "named 3; expected a text"),
        ("momentum", ValueError, "'momentum' needs velocities.*name a moment such as y\\^2"),
        ("kinetic-energy", ValueError, "needs velocities"),
        ("energy", ValueError, "needs velocities"),
        ("field", ValueError, "'field' needs the field of a Poisson equation"),
    ],
)
def test_unknown_quantities_are_refused(name, error, words):
    with pytest.raises(error, match=words):
        make("continuity-2d", 2, 1).quantities(name)


def test_errors_need_the_exact_solution(landau):
    with pytest.raises(ValueError, match="'error' needs the exact solution"):
        landau.quantities("error")


def test_fields_of_functions_of_the_state_count():
    x, v = Axis("x", 1, 3), Axis("v", -2, 3)
    E = Poisson(x, Moment(v), potential=(1.0, 3.0), background=2.0)
    transport = div(x, -1.0, others={v: lambda s: s})
    terms = [[mass(x, -1 * E), transport], [pointwise("-E * f", E=E), transport]]
    ends = {x: "inflow", v: "no-flux"}
    both = [
        PDE([x, v], own, boundary=ends, initial="x * (1 + v / 10)").discretize(2, 2)
        for own in terms
    ]
    product, function = (values_of(problem) for problem in both)
    assert list(product) == list(function)
    assert "energy" in function
    np.testing.assert_allclose(list(function.values()), list(product.values()), rtol=1e-12)
