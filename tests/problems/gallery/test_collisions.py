"""Collisions of the gallery: relaxation to a Maxwellian, and waves with collisions."""

import re
from functools import partial

import numpy as np
import pytest
from dispersion import (
    collisional_field,
    collisional_mode,
    hermite_matrix,
    wave_and_decay,
)

from batchkron.problems import Moment, Poisson, Separable, gallery, make
from batchkron.problems.gallery.collisions import _bell
from batchkron.problems.pde import PDE
from batchkron.solvers import EvolveStatus, Quantity, evolve

TEMPERATURES = {1: 2.75, 2: 2.75, 3: 2.5}
MEANS = {1: 0.5, 2: 1.5, 3: 1.0}


def final_state(problem):
    """The Maxwellian at t = ∞, projected on the grid."""
    x, *velocities = problem.axes
    d = len(velocities)
    bell = partial(_bell, MEANS[d], TEMPERATURES[d])
    pde = PDE(
        problem.axes,
        gallery.get(problem.name).pde.terms,
        boundary={x: "periodic"} | dict.fromkeys(velocities, "no-flux"),
        initial=Separable(**{v.name: bell for v in velocities}),
    )
    return pde.discretize(degree=problem.degree, grid=problem.grid, method="ark3", dt=1.0).initial


def watched_moments(problem):
    """∫∫ f, ∫∫ v_i f and ∫∫ |v|² f."""
    _, *velocities = problem.axes
    zeros = dict.fromkeys(velocities, 0)
    energy = sum(problem.moment_weights({**zeros, v: 2}) for v in velocities)
    watch = {f"u{k}": Quantity.moment(problem, {v: 1}) for k, v in enumerate(velocities)}
    return watch | {"n": Quantity.moment(problem, velocities), "energy": Quantity(energy)}


@pytest.mark.parametrize(
    ("velocities", "bound"),
    [(1, 3.63e-5), (2, 1.06e-3), pytest.param(3, 6.8e-3, marks=pytest.mark.slow)],
)
def test_mixtures_relax_to_a_maxwellian(velocities, bound):
    """The error that ASGarD has on this grid, and nothing lost."""
    problem = make(f"relaxation-1x{velocities}v")
    result = evolve(problem, until=problem.stepper.until, watch=watched_moments(problem))
    assert result.status is EvolveStatus.COMPLETED
    assert result.steps == {1: 10, 2: 10, 3: 5}[velocities]
    assert np.linalg.norm(result.u - final_state(problem)) < bound
    for quantity in result.watched.values():
        assert quantity.first > 0.4
        assert quantity.drift < 1e-12


def test_each_maxwellian_of_the_mixture_stays_one():
    """Against the exact solution, whose projection has this error."""
    problem = make("relaxation-1x1v", (2, 6), 2, "full")
    for t in (0.3e-3, 1e-3):
        result = evolve(problem, until=t, dt=2e-5)
        best = problem.l2_error(problem.exact_coefficients(t), t)
        assert problem.l2_error(result.u, t) < 2.0 * best < 1e-4


def test_the_exact_solution_has_the_known_moments():
    problem = make("relaxation-1x1v", 5)
    _, v = problem.axes
    for t in (0.0, 4e-4, 2e-3):
        u = problem.exact_coefficients(t)
        moments = [problem.moment(u, {v: k}).evaluate([0.1])[0] for k in range(3)]
        assert moments == pytest.approx([1.0, 0.5, 0.25 + 2.75], rel=1e-5)
    assert np.abs(problem.exact_coefficients(0.0) - problem.initial).max() < 1e-9


def test_methods_agree_and_converge():
    """IMEX steps with the moments of each stage have the orders of their tableaus."""
    problem = make("relaxation-1x1v", 3, nu=50.0)
    solver = {"rtol": 1e-13}
    fine = evolve(problem, until=0.02, method="rk4", dt=1e-4).u
    for method, order in (("ark2", 2), ("ark3", 3)):
        errors = [
            np.linalg.norm(
                evolve(problem, until=0.02, method=method, dt=dt, solver=solver).u - fine
            )
            for dt in (4e-3, 2e-3)
        ]
        assert np.log2(errors[0] / errors[1]) > order - 0.35
    assert errors[1] < 1e-3 * np.linalg.norm(fine)


def test_preconditioners_do_not_change_the_result():
    problem = make("relaxation-1x1v", 3)
    plain, helped = (
        evolve(problem, until=2e-3, solver={"rtol": 1e-12}, preconditioner=name)
        for name in (None, "auto")
    )
    assert helped.status is EvolveStatus.COMPLETED
    np.testing.assert_allclose(helped.u, plain.u, atol=1e-9)


def test_steps_chosen_by_errors():
    problem = make("relaxation-1x1v", 4)
    result = evolve(problem, until=2e-3, rtol=1e-5, watch=watched_moments(problem))
    assert result.status is EvolveStatus.COMPLETED
    assert max(quantity.drift for quantity in result.watched.values()) < 1e-12
    assert np.linalg.norm(result.u - evolve(problem, until=2e-3, dt=2e-5).u) < 1e-4


@pytest.mark.parametrize(
    ("nu", "rate", "frequency"),
    [
        (0.05, -0.12431, 1.40125),
        (0.1, -0.10537, 1.38873),
        (0.25, -0.07460, 1.36361),
        (1.0, -0.03161, 1.33106),
        (10.0, -0.00357, 1.32298),
        (100.0, -0.000357, 1.32288),
    ],
)
def test_the_modes_of_waves_with_collisions(nu, rate, frequency):
    assert collisional_mode(0.5, nu) == pytest.approx((frequency, rate), abs=6e-6)
    times = np.linspace(0.0, 20.0, 401)
    fitted = wave_and_decay(
        times, collisional_field(0.5, nu, times), (4.0, 20.0), (1.3, -0.05, -0.3)
    )
    assert fitted == pytest.approx((rate, frequency), rel=2e-4, abs=6e-6)


def test_the_hermite_functions_of_a_wave_without_collisions():
    """Of the density's equation, c_0' = -ik c_1, and of Landau's damping at small ν."""
    matrix = hermite_matrix(0.5, 0.0, 4)
    np.testing.assert_allclose(matrix[0], [0.0, -0.5j, 0.0, 0.0])
    np.testing.assert_allclose(matrix[1], [-2.5j, 0.0, -0.5j * np.sqrt(2.0), 0.0])
    assert collisional_mode(0.5, 0.01, 400) == pytest.approx((1.41566, -0.15336), abs=0.01)


def wave(problem, until, dt, method):
    """Times and the amplitude of the field of a wave, as a multiple of that at t = 0."""
    x, v = problem.axes
    field, quarter = Poisson(x, Moment(v)), [x.length / 4 + x.lower + x.length / 2]
    times, found = [0.0], [problem.field(problem.initial, field).evaluate(quarter)[0]]

    def record(state):
        times.append(state.t)
        found.append(problem.field(state.u, field).evaluate(quarter)[0])

    settings = {"preconditioner": "auto"} if method == "ark3" else {}
    result = evolve(problem, until=until, dt=dt, method=method, callback=record, **settings)
    assert result.status is EvolveStatus.COMPLETED
    return np.array(times), np.array(found) / found[0]


def check_wave(problem, k, nu, until, dt, method="ark3"):
    times, found = wave(problem, until, dt, method)
    frequency, rate = collisional_mode(k, nu)
    fitted = wave_and_decay(times, found, (4.0, until), (frequency, rate, -0.2))
    assert abs(fitted[0] - rate) < max(0.01 * abs(rate), 1.5e-3)
    assert fitted[1] == pytest.approx(frequency, rel=3e-3)
    grid = np.linspace(0.0, until, 401)
    exact = np.interp(times, grid, collisional_field(k, nu, grid))
    return np.abs(found - exact).max(), fitted[0] / rate - 1.0


@pytest.mark.parametrize(
    ("k", "nu", "method", "dt"), [(0.5, 1.0, "ark3", 0.06), (0.4, 0.3, "rk4", 0.04)]
)
def test_waves_with_collisions_are_damped(k, nu, method, dt):
    problem = make("collisional-landau-1x1v", (2, 4), 2, "full", k=k, nu=nu)
    error, defect = check_wave(problem, k, nu, 12.0, dt, method)
    assert error < 0.02
    assert abs(defect) < 0.04


@pytest.mark.slow
@pytest.mark.parametrize("nu", [10.0])
def test_waves_with_collisions_on_a_finer_grid(nu):
    """Within 1 % of the theory. `python -m benchmarks.kinetic_rates` does so on sparse grids."""
    problem = make("collisional-landau-1x1v", (3, 5), 2, "full", nu=nu)
    error, defect = check_wave(problem, 0.5, nu, 16.0, 0.03)
    assert error < 2e-3
    assert abs(defect) < 0.01


def test_the_exact_solution_of_three_velocities():
    """Its error is that of quadrature over all four axes, which a coarse grid allows."""
    problem = make("relaxation-1x3v", 2, 1)
    names = [axis.name for axis in problem.axes[1:]]
    t = 4e-4
    decay = np.exp(-1e3 * t)
    theta, nodes = 2.5 - 2.0 * decay**2, 12 << 2

    points, weights = np.polynomial.legendre.leggauss(12)
    cells = -8.0 + 5.0 * (np.arange(4)[:, None] + (1.0 + points) / 2.0)
    v, w = cells.ravel(), np.tile(weights * 2.5, 4)

    def bell(mean):
        return np.exp(-((v - mean) ** 2) / (2.0 * theta)) / np.sqrt(2.0 * np.pi * theta)

    near, far = bell(1.0 - decay), bell(1.0 + 2.0 * decay)
    exact = np.zeros((nodes,) * 3)
    for own in range(3):
        factors = [far if k == own else near for k in range(3)]
        exact += np.einsum("i,j,k->ijk", *factors) / 3.0
    mesh = np.meshgrid(*[v] * 3, indexing="ij")
    u = problem.initial
    found = problem.evaluate(u, np.zeros(1), *(part.ravel() for part in mesh)).reshape(exact.shape)
    expected = np.sqrt(np.einsum("ijk,i,j,k->", (found - exact) ** 2, w, w, w))
    assert names == ["v1", "v2", "v3"]
    assert problem.l2_error(u, t) == pytest.approx(expected, rel=1e-8)
    assert gallery.get("relaxation-1x3v").is_known


@pytest.mark.parametrize(
    "name", ["relaxation-1x1v", "relaxation-1x2v", "relaxation-1x3v", "collisional-landau-1x1v"]
)
def test_entries(name):
    entry = gallery.get(name)
    assert "  parameters " in entry.describe()
    assert not re.search(r"[;,:] *\n", entry.describe())
    assert entry.is_known == (entry.pde.exact_function is not None)
    assert "nu" in entry.parameters
    problem = make(name, 3, 2, nu=7.0)
    assert problem.name == name
    assert problem.stepper.method == "ark3"
    x = problem.axes[0]
    assert problem.integral(problem.initial) / x.length == pytest.approx(1.0, rel=1e-3)
    out = np.full((2, problem.unknowns), np.nan)
    problem.rhs(0.0, problem.initial, out[0])
    part = problem.implicit_part()
    part.follow(0.0, problem.initial)
    part.source(0.0, out[1])
    assert not out[1].any()
    implicit = part.operator @ problem.initial
    if name.startswith("relaxation"):
        np.testing.assert_allclose(implicit, out[0], atol=1e-12 * np.abs(implicit).max())


def test_bgk_waves_are_those_of_the_linear_theory():
    problem = make("bgk-1x1v", (3, 4), 2, "full")
    _, v = problem.axes
    times, found = [], []

    def record(state):
        times.append(state.t)
        found.append(problem.moment(state.u, v).evaluate([0.0])[0] - 1.0)

    watch = {str(k): Quantity.moment(problem, {v: k}) for k in range(3)}
    result = evolve(problem, until=1.0, dt=0.01, callback=record, watch=watch)
    assert result.status is EvolveStatus.COMPLETED
    assert max(quantity.drift for quantity in result.watched.values()) < 1e-13
    grid = np.linspace(0.0, 1.0, 401)
    exact = np.interp(times, grid, collisional_field(np.pi, 10.0, grid, kind="bgk"))
    np.testing.assert_allclose(np.array(found) / 1e-4, exact, atol=6e-3)
    assert collisional_mode(np.pi, 10.0, kind="bgk") == pytest.approx((5.58073, -0.824), abs=1e-5)
