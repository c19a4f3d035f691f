"""Vlasov-Poisson problems: rates of waves, conservation, and the gallery's entries."""

import numpy as np
import pytest
from dispersion import Beam, dispersion, fastest_mode, slope, slope_at_maxima
from problem_oracle import orders, points_and_weights

from batchkron.problems import Axis, Mixed, Moment, Poisson, gallery, make
from batchkron.problems.gallery.vlasov import vlasov_poisson
from batchkron.solvers import Adapt, EvolveStatus, Quantity, evolve, fit_growth

NAMES = (
    "landau-1x1v",
    "landau-strong",
    "two-stream-linear",
    "two-stream",
    "two-stream-warm",
    "bump-on-tail",
    "landau-1x2v",
    "landau-1x3v",
)
MAXWELLIAN = [Beam()]
TWO_HUMPS = [Beam([0.0, 0.0, 1.0], theta=0.5)]
WARM_HUMPS = [Beam([0.0, 0.0, 1.0])]
BUMP = [Beam([2 / 7, 0.0, 10 / 7])]


X, V = Axis("x", -2 * np.pi, 2 * np.pi), Axis("v", -2 * np.pi, 2 * np.pi)


def two_beams(drift):
    return [Beam([0.5], drift), Beam([0.5], -drift)]


def run(problem, until, dt, method="rk4"):
    """Run and return times and norms of the field, of every second step."""
    x, *velocities = problem.axes
    field = Poisson(x, Moment(velocities))
    times, norms = [], []

    def record(state):
        if state.step % 2:
            return
        times.append(state.t)
        norms.append(problem.field(state.u, field).norm())

    result = evolve(problem, until=until, dt=dt, method=method, callback=record)
    assert result.status is EvolveStatus.COMPLETED
    return np.array(times), np.array(norms)


@pytest.mark.parametrize(
    ("beams", "k", "rate", "frequency"),
    [
        (MAXWELLIAN, 0.5, -0.15336, 1.41566),
        (MAXWELLIAN, 0.4, -0.06613, 1.28506),
        (MAXWELLIAN, 0.3, -0.01262, 1.15985),
        (two_beams(3.0), 0.2, 0.28451, 0.0),
        (two_beams(2.4), 0.2, 0.22584, 0.0),
        (two_beams(2.0), 0.2, 0.16201, 0.0),
        (TWO_HUMPS, 0.5, 0.18332, 0.0),
        (WARM_HUMPS, 0.5, 0.25925, 0.0),
        (BUMP, 0.5, 0.23307, 0.0),
        ([Beam([1 / 6, 0.0, 5 / 6])], 0.5, 0.16046, 0.0),
    ],
)
def test_the_dispersion_relation_has_the_known_roots(beams, k, rate, frequency):
    found = fastest_mode(beams, k)
    assert found == pytest.approx((frequency, rate), abs=6e-6)
    assert abs(dispersion(beams, k, complex(*found))) < 1e-9


def test_the_integral_of_the_dispersion_relation():
    """Against quadrature on the real axis, for z above it."""
    v = np.linspace(-30.0, 30.0, 200_001)
    for beam in (Beam([0.5, 0.3, 0.2], 1.5, 0.7), Beam([2.0]), TWO_HUMPS[0]):
        s = v - beam.drift
        f = beam.p(s) * np.exp(-(s**2) / (2 * beam.theta)) / np.sqrt(2 * np.pi * beam.theta)
        for z in (0.3 + 0.5j, -2.0 + 1.0j):
            expected = np.trapezoid(np.gradient(f, v) / (v - z), v)
            assert beam.integral(z) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("k", [0.5, 0.4, 0.45])
def test_waves_are_damped_at_landaus_rate(k):
    problem = make("landau-1x1v", (3, 5), 2, "full", k=k)
    times, norms = run(problem, 20.0, 0.05)
    rate, frequency = slope_at_maxima(times, norms, (6.0, 20.0))
    expected = fastest_mode(MAXWELLIAN, k)
    assert rate == pytest.approx(expected[1], rel=3e-3)
    assert frequency == pytest.approx(expected[0], rel=1e-3)


@pytest.mark.slow
def test_waves_are_damped_at_landaus_rate_on_a_sparse_grid():
    problem = make("landau-1x1v", 6, 2)
    times, norms = run(problem, 20.0, 0.0075)
    rate, frequency = slope_at_maxima(times, norms, (6.0, 20.0))
    expected = fastest_mode(MAXWELLIAN, 0.5)
    assert rate == pytest.approx(expected[1], rel=0.01)
    assert frequency == pytest.approx(expected[0], rel=1e-3)


@pytest.mark.parametrize(
    ("name", "level"), [("landau-1x2v", (2, 5, 1)), ("landau-1x3v", (2, 5, 0, 0))]
)
def test_several_velocities_damp_as_one(name, level):
    """The other velocities have the Maxwellian only, for which few cells do."""
    problem = make(name, level, 2, "full")
    times, norms = run(problem, 12.0, 0.08)
    rate, _ = slope_at_maxima(times, norms, (3.0, 12.0))
    assert rate == pytest.approx(fastest_mode(MAXWELLIAN, 0.5)[1], rel=0.03)


def rate_of_waves(name, level, grid, window, *more):
    problem = make(name, level, 2, grid)
    watch = problem.quantities("mass", "field", "energy", *more)
    result = evolve(problem, until=window[1], method="rk4", dt=0.04, watch=watch)
    assert result.status is EvolveStatus.COMPLETED
    fit = fit_growth(result.recorded.t, result.recorded["field"], between=window)
    return fit.rate, result


def test_waves_along_two_positions_are_damped_as_one():
    """Each is that of the same grid in one position; the theory is met to 1 % from t = 4 on."""
    window = (4.0, 9.5)
    both = Mixed(["x", "y"], ["v1", "v2"])
    rate, result = rate_of_waves("landau-2x2v", (2, 2, 4, 4), both, window, "momentum-v2")
    alone, _ = rate_of_waves("landau-1x1v", (2, 4), "full", window)
    assert rate == pytest.approx(alone, rel=1e-4)
    assert rate == pytest.approx(fastest_mode(MAXWELLIAN, 0.5)[1], rel=0.01)
    assert result.watched["mass"].drift < 1e-8  # that is what flows out, of 158
    assert result.watched["momentum-v2"].drift < 1e-12
    assert result.watched["energy"].drift < 5e-7


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "beams", "k", "window", "settings"),
    [
        ("two-stream-linear", two_beams(3.0), 0.2, (20.0, 30.0), {"drift": 3.0}),
        ("two-stream-linear", two_beams(2.4), 0.2, (30.0, 40.0), {"drift": 2.4}),
        ("two-stream-linear", two_beams(2.7), 0.25, (22.0, 32.0), {"drift": 2.7, "k": 0.25}),
        ("two-stream-warm", WARM_HUMPS, 0.5, (18.0, 26.0), {"amplitude": 1e-5}),
        ("two-stream-warm", WARM_HUMPS, 0.4, (20.0, 28.0), {"amplitude": 1e-5, "k": 0.4}),
        ("bump-on-tail", BUMP, 0.5, (20.0, 28.0), {"amplitude": 1e-5}),
        ("bump-on-tail", BUMP, 0.4, (22.0, 30.0), {"amplitude": 1e-5, "k": 0.4}),
        ("two-stream", TWO_HUMPS, 0.5, (22.0, 30.0), {"amplitude": 1e-5}),
        ("two-stream", TWO_HUMPS, 0.6, (22.0, 30.0), {"amplitude": 1e-5, "k": 0.6}),
    ],
)
def test_growth_rates(name, beams, k, window, settings):
    problem = make(name, (3, 6), 2, "full", **settings)
    times, norms = run(problem, window[1], 0.045)
    assert slope(times, norms, window) == pytest.approx(fastest_mode(beams, k)[1], rel=0.01)


def landau(amplitude, level, top=9.0):
    """Landau damping with so large a v_max that nothing leaves."""
    x, v = Axis("x", 0.0, 4.0 * np.pi), Axis("v", -top, top)
    pde = vlasov_poisson(
        "landau",
        x,
        lambda s: 1.0 + amplitude * np.cos(0.5 * s),
        {v: lambda s: np.exp(-(s**2) / 2) / np.sqrt(2 * np.pi)},
    )
    return pde.discretize(level, 2, "full")


def energy_of(problem):
    x, v = problem.axes
    field, weights = Poisson(x, Moment(v)), problem.moment_weights({v: 2})
    return lambda t, u: 0.5 * problem.field(u, field).norm() ** 2 + 0.5 * weights @ u


def test_mass_and_momentum_are_conserved_and_the_norm_does_not_grow():
    problem = landau(1e-2, (3, 5))
    _, v = problem.axes
    norms = [np.linalg.norm(problem.initial)]
    result = evolve(
        problem,
        until=20.0,
        dt=0.03,
        method="rk4",
        watch={
            "mass": Quantity.moment(problem, v),
            "momentum": Quantity.moment(problem, {v: 1}),
            "energy": energy_of(problem),
        },
        callback=lambda state: norms.append(np.linalg.norm(state.u)),
    )
    assert result.status is EvolveStatus.COMPLETED
    watched = result.watched
    assert watched["mass"].drift < 1e-13 * watched["mass"].first
    assert watched["momentum"].drift < 1e-13
    assert watched["energy"].drift < 1e-7 * watched["energy"].first
    assert np.diff(norms).max() < 1e-14 * norms[0]


def test_momentum_is_conserved_without_symmetry():
    """Two different beams carry momentum; the field's force on all of f is zero."""
    x, v = Axis("x", 0.0, 4.0 * np.pi), Axis("v", -8.0, 9.0)
    pde = vlasov_poisson(
        "beam",
        x,
        lambda s: 1.0 + 0.3 * np.cos(0.5 * s) + 0.1 * np.sin(s),
        {v: lambda s: np.exp(-((s - 1.0) ** 2)) + 0.3 * np.exp(-2.0 * (s + 2.0) ** 2)},
    )
    problem = pde.discretize((4, 6), 2, "full")
    watch = {"mass": Quantity.moment(problem, v), "momentum": Quantity.moment(problem, {v: 1})}
    result = evolve(problem, until=1.0, dt=0.01, method="ssp-rk3", watch=watch)
    momentum = result.watched["momentum"]
    assert momentum.first > 10.0
    assert momentum.drift < 1e-13 * momentum.first
    assert result.watched["mass"].drift < 1e-13 * result.watched["mass"].first


@pytest.mark.parametrize(("level", "grid"), [(5, "sparse"), ((3, 4), Mixed([X], [V]))])
def test_momentum_is_conserved_on_every_grid(level, grid):
    """On coarse sparse grids f is not small at the ends of v: mass and outflow are conserved."""
    problem = make("two-stream", level, 2, grid)
    _, v = problem.axes
    watch = {
        "mass": Quantity.moment(problem, v),
        "outflow": Quantity.outflow(problem),
        "momentum": Quantity.moment(problem, {v: 1}),
    }
    norms = [np.linalg.norm(problem.initial)]
    result = evolve(
        problem,
        until=1.0,
        dt=0.01,
        method="rk4",
        watch=watch,
        callback=lambda state: norms.append(np.linalg.norm(state.u)),
    )
    mass, outflow = result.watched["mass"], result.watched["outflow"]
    assert result.watched["momentum"].drift < 1e-13
    lost = mass.first - mass.last
    assert lost == pytest.approx(outflow.last, rel=1e-6, abs=1e-13)
    assert np.diff(norms).max() < 1e-14 * norms[0]


def test_the_energy_converges_faster_than_the_solution():
    """Fluxes in x damp the waves a little: of the order 2p + 1 = 5 in the width of a cell."""
    drifts = []
    for level, dt in ((2, 0.04), (3, 0.03), (4, 0.016)):
        problem = landau(0.5, (level, 5))
        watch = {"energy": energy_of(problem)}
        result = evolve(problem, until=1.0, dt=dt, method="rk4", watch=watch)
        drifts.append(result.watched["energy"].drift)
    assert orders(drifts).min() > 4.5


@pytest.mark.parametrize(
    ("method", "order", "steps"),
    [("ssp-rk3", 3, (0.05, 0.025, 0.0125)), ("rk4", 4, (0.06, 0.03, 0.015))],
)
def test_the_energy_converges_with_the_step(method, order, steps):
    """At the order of the method, apart from what the grid alone loses."""
    problem = landau(0.5, (2, 4), top=6.0)
    energy = energy_of(problem)
    expected, *found = (
        energy(1.5, evolve(problem, until=1.5, dt=dt, method=name).u)
        for name, dt in [("rk4", 0.004), *((method, dt) for dt in steps)]
    )
    errors = np.abs(np.array(found) - expected)
    assert orders(errors).min() > order - 0.3


def adapted(amplitude, level, until, dt, every):
    """Return the run of a plasma whose grid changes, with its conserved quantities."""
    problem = landau(amplitude, level)
    _, v = problem.axes
    watch = {
        "mass": Quantity.moment(problem, v),
        "momentum": Quantity.moment(problem, {v: 1}),
        "outflow": Quantity.outflow(problem, warn_at=1e-5),
        **problem.quantities("energy"),
    }
    rule = Adapt(1e-3, every=every, max_level=6, keep=[v])
    result = evolve(problem, until=until, dt=dt, method="rk4", watch=watch, adapt=rule)
    assert result.status is EvolveStatus.COMPLETED
    changes = [record for record in result.history if record["event"] == "adapt"]
    assert sum(record["added"] for record in changes) > 10
    assert sum(record["removed"] for record in changes) > 10
    return result, v.upper


def test_an_adaptive_plasma_conserves_mass_momentum_and_energy():
    """Coarse cells at ±v_max let some of f leave: each part of it takes v²/2 along."""
    result, top = adapted(0.3, (2, 4), 1.0, 0.005, 5)
    recorded, watched = result.recorded, result.watched
    whole, energy = recorded["mass"][0], recorded["energy"][0]
    outflow = watched["outflow"].last
    assert watched["momentum"].drift < 1e-13
    assert watched["mass"].last + outflow == pytest.approx(whole, rel=1e-13)
    np.testing.assert_allclose(recorded["mass"] + recorded["outflow"], whole, rtol=1e-12)
    assert watched["energy"].last + 0.5 * top**2 * outflow == pytest.approx(energy, rel=1e-5)
    assert watched["energy"].drift > 1e-5 * energy  # without what left


@pytest.mark.slow
def test_an_adaptive_plasma_conserves_them_until_20():
    result, top = adapted(1e-2, (3, 5), 20.0, 0.01, 10)
    recorded, outflow = result.recorded, result.recorded["outflow"]
    whole, energy = recorded["mass"][0], recorded["energy"][0]
    assert result.watched["momentum"].drift < 1e-13
    np.testing.assert_allclose(recorded["mass"] + outflow, whole, rtol=5e-13)
    np.testing.assert_allclose(recorded["energy"] + 0.5 * top**2 * outflow, energy, rtol=2e-8)


def test_what_flows_out_is_counted():
    """Mass and outflow together are conserved; the outflow is that of the traces at ±v_max."""
    problem = make("landau-1x1v", (3, 4), 2, "full", amplitude=0.5)
    x, v = problem.axes
    watch = {"mass": Quantity.moment(problem, v), "outflow": Quantity.outflow(problem)}
    result = evolve(problem, until=2.0, dt=0.02, method="rk4", watch=watch)
    mass, outflow = result.watched["mass"], result.watched["outflow"]
    assert outflow.first == 0.0
    assert outflow.last > 1e-9
    assert mass.last + outflow.last == pytest.approx(mass.first, abs=1e-3 * outflow.last)
    u, E = result.u, problem.field(result.u, Poisson(x, Moment(v)))
    points, weights = points_and_weights(x, 3, 16)
    force = E.evaluate(points)
    upper, lower = (problem.slice(u, {v: end}).evaluate(points) for end in (6.0, -6.0))
    flux = np.maximum(force, 0.0) * upper + np.maximum(-force, 0.0) * lower
    assert problem.outflow_rate(2.0, u) == pytest.approx(weights @ flux, abs=1e-15)


def test_much_outflow_is_warned_of():
    problem = make("landau-1x1v", (3, 4), 2, "full", amplitude=0.5)
    watch = {"outflow": Quantity.outflow(problem, warn_at=1e-12)}
    with pytest.warns(
        UserWarning, match=r"of ∫ f has flowed out at the ends of the axes by t = "
    ) as seen:
        evolve(problem, until=0.5, dt=0.02, method="rk4", watch=watch)
    assert len(seen) == 1
    with pytest.raises(TypeError, match="without outflow_rate"):
        Quantity.outflow(object())


def test_a_small_wave_is_conserved_until_20():
    """Energy to 1e-8, momentum, and mass with what leaves at ±v_max, to rounding."""
    problem = make("landau-1x1v", (3, 6), 2, "full")
    watch = problem.quantities("momentum", "energy") | {
        "mass": Quantity.moment(problem, problem.axes[1]),
        "outflow": Quantity.outflow(problem),
    }
    result = evolve(problem, until=20.0, dt=0.04, method="rk4", watch=watch)
    recorded, watched = result.recorded, result.watched
    assert watched["energy"].drift < 5e-7 * watched["energy"].first
    assert watched["momentum"].drift < 1e-13
    assert watched["outflow"].last > 1e-12 * watched["mass"].first
    whole = recorded["mass"] + recorded["outflow"]
    np.testing.assert_allclose(whole, whole[0], rtol=1e-13)


@pytest.mark.parametrize("name", NAMES)
def test_entries(name):
    entry = gallery.get(name)
    assert not entry.is_known
    assert entry.solution.startswith("not known; ‖E‖ ~ exp(")
    assert "  parameters " in entry.describe()
    problem = make(name, 3, 1)
    assert problem.name == name
    assert (problem.stepper.method, problem.stepper.until) == ("rk4", entry.until)
    x, *velocities = problem.axes
    mean = problem.integral(problem.initial) / x.length
    density = {"two-stream": 0.5, "bump-on-tail": 12 / 7}.get(name, 1.0)
    assert mean == pytest.approx(density, rel=0.01)
    assert problem.moment(problem.initial, velocities).axes == (x,)


def test_parameters_are_given_by_name():
    assert make("landau-1x1v", 2, 1, k=0.25).axes[0].length == pytest.approx(8 * np.pi)
    strong = make("landau-1x1v", 4, 2, amplitude=0.5)
    expected = make("landau-strong", 4, 2)
    np.testing.assert_array_equal(strong.initial, expected.initial)
    for name in ("two-stream", "two-stream-warm", "bump-on-tail"):
        assert make(name, 2, 1).axes[0].length == 4 * np.pi
        assert make(name, 2, 1, k=0.25).axes[0].length == pytest.approx(8 * np.pi)
    with pytest.raises(
        TypeError, match="landau-1x1v has no parameter 'alpha'; its parameters are: k, "
    ):
        make("landau-1x1v", 2, 1, alpha=0.5)
    with pytest.raises(
        TypeError, match="continuity-1d has no parameter 'k'; its parameters are: none"
    ):
        make("continuity-1d", 2, 1, k=0.5)
    with pytest.raises(TypeError, match="the parameter 'k' must be a real number"):
        make("landau-1x1v", 2, 1, k="0.5")
    with pytest.raises(ValueError, match="the parameter 'k' must be finite"):
        make("landau-1x1v", 2, 1, k=np.inf)
