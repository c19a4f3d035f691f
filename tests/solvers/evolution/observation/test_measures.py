"""Quantities that belong to the grid of a problem: moments, and what flows out."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from dense_oracle import random_array

from batchkron.analysis.recorded import recorded_in
from batchkron.problems import PDE, Axis, Separable, div
from batchkron.solvers import Adapt, EvolveStatus, Quantity, evolve
from batchkron.storage import load_checkpoint, save_checkpoint


def streaming():
    """A pulse that leaves a square at its right end, and a wave along the other axis."""
    x, y = Axis("x", -1, 1), Axis("y", -1, 1)
    start = Separable(x=lambda s: np.exp(-20 * (s - 0.4) ** 2), y=lambda s: 2 + np.cos(np.pi * s))
    return PDE(
        [x, y],
        [div(x, -1), div(y, -0.5)],
        boundary={x: "inflow", y: "periodic"},
        initial=start,
    )


def flow(rate, times):
    """The outflow with this rate, until each of the times."""
    problem = SimpleNamespace(outflow_rate=lambda t, u: rate(t), integral=lambda u: 1.0)
    measure = Quantity.outflow(problem, warn_at=np.inf).measure
    return np.array([measure(t, None) for t in times])


def test_outflow_is_exact_for_cubic_rates(rng):
    times = 0.3 + np.cumsum(rng.uniform(0.5, 2.0, 12))
    cubic = np.polynomial.Polynomial(rng.uniform(-1, 1, 4))
    expected = cubic.integ()(times) - cubic.integ()(times[0])
    found = flow(cubic, times)
    assert found[0] == 0.0
    tolerance = 1e-13 * np.abs(cubic.coef) @ times[-1] ** np.arange(1, 5)
    np.testing.assert_allclose(found[3:], expected[3:], rtol=0, atol=tolerance)


def test_outflow_has_order_four():
    errors = []
    for steps in (20, 40, 80):
        times = np.linspace(0.0, 2.0, steps + 1)
        errors.append(abs(flow(np.exp, times)[-1] - np.expm1(2.0)))
    assert np.log2(np.divide(errors[:-1], errors[1:])).min() > 3.7


def lost_and_counted(adapt, **settings):
    """The mass that is lost at each step, and the outflow, of a run whose grid changes."""
    problem = streaming().discretize(2, 2)
    watch = {"mass": Quantity.moment(problem, problem.axes), "out": Quantity.outflow(problem, 2)}
    result = evolve(problem, until=0.6, adapt=adapt, watch=watch, **settings)
    assert result.status is EvolveStatus.COMPLETED
    events = [record["event"] for record in result.history]
    assert events.count("repeat") > 0 < events.count("adapt")
    mass, outflow = result.recorded["mass"], result.recorded["out"]
    assert outflow[0] == 0.0
    assert outflow[-1] > 0.3 * mass[0]
    return mass[0] - mass, outflow


def test_mass_and_outflow_are_conserved_while_the_grid_changes():
    """Also where steps are repeated: what flowed out in the first trial does not count."""
    errors = []
    for dt, every in ((0.005, 4), (0.0025, 8)):
        rule = Adapt(3e-3, every=every, max_level=5, horizon=0.02)
        lost, outflow = lost_and_counted(rule, method="rk4", dt=dt)
        np.testing.assert_allclose(outflow, lost, rtol=0, atol=3e-6)  # O(dt³) after a change
        errors.append(abs(outflow[-1] - lost[-1]))
    assert errors[0] < 1e-6
    assert np.log2(errors[0] / errors[1]) > 3.5


def test_mass_and_outflow_are_conserved_with_steps_chosen_by_errors():
    rule = Adapt(3e-3, every=4, max_level=5, horizon=0.02)
    lost, outflow = lost_and_counted(rule, method="dormand-prince", rtol=1e-7)
    np.testing.assert_allclose(outflow, lost, rtol=0, atol=5e-5)  # O(dt³) after a change


def test_a_repeated_interval_begins_with_the_outflow_so_far():
    """On another grid, where the last state has another rate."""
    rates = SimpleNamespace(outflow_rate=lambda t, u: 1.0, integral=lambda u: 1.0)
    other = SimpleNamespace(
        outflow_rate=lambda t, u: u[0], integral=lambda u: 1.0, initial=np.array([3.0])
    )
    measure = Quantity.outflow(rates, warn_at=np.inf).measure
    for t in np.arange(8.0):
        assert measure(t, None) == pytest.approx(t, abs=1e-13)
    saved = measure.save()
    for t in (8.0, 9.0):
        measure(t, None)
    measure.restore(saved)
    moved = measure.for_problem(other)
    assert moved(8.0, np.array([5.0])) == pytest.approx(7.0 + (3.0 + 5.0) / 2)
    assert moved(9.0, np.array([1.0])) == pytest.approx(7.0 + (3.0 + 4.0 * 5.0 + 1.0) / 3)
    moved.begin()
    assert moved(20.0, np.array([5.0])) == 0.0


def test_each_run_counts_its_own_outflow():
    """Also one that begins later, with the same quantity."""
    problem = streaming().discretize(2, 1)
    watch = {"outflow": Quantity.outflow(problem, 2)}
    evolve(problem, until=0.1, method="rk4", dt=0.01, watch=watch)
    later = problem.beginning_at(problem.initial, 0.3)
    result = evolve(later, until=0.4, method="rk4", dt=0.01, watch=watch)
    assert result.watched["outflow"].first == 0.0
    alone = {"outflow": Quantity.outflow(problem, 2)}
    expected = evolve(problem, until=0.1, method="rk4", dt=0.01, watch=alone)
    last = expected.watched["outflow"].last
    assert result.watched["outflow"].last == pytest.approx(last, rel=1e-12)


@pytest.mark.parametrize("adapt", [None, Adapt(1e-2, every=10, max_level=4)], ids=["", "adapt"])
@pytest.mark.parametrize("steps", [60, 2100])
def test_a_resumed_run_goes_on_with_the_outflow_so_far(steps, adapt, tmp_path):
    """Also where not every step is in the history, and the last one is not."""
    problem = streaming().discretize(2, 2)
    settings = {"until": 0.6, "method": "rk4", "dt": 0.6 / steps, "adapt": adapt}

    def run(**more):
        return evolve(problem, **settings, watch={"out": Quantity.outflow(problem, 2)}, **more)

    path, half = tmp_path / "half.h5", steps // 2 + 1
    run(checkpoint=path, callback=lambda state: state.step == half)
    history = run(resume=path).history
    assert all("norm" in record for record in history if record["event"] == "step")
    resumed, undisturbed = recorded_in(history), run().recorded
    expected = np.interp(resumed.t, undisturbed.t, undisturbed["out"])
    np.testing.assert_allclose(resumed["out"], expected, rtol=0, atol=2e-5)


@pytest.mark.parametrize("more", [1, 2])
def test_the_outflow_so_far_counts_where_a_resumed_run_drops_records(more, tmp_path):
    """It drops every second one; the last of them, too, if their number is odd."""
    problem = streaming().discretize(2, 2)
    watch, path = {"out": Quantity.outflow(problem, 2)}, tmp_path / "half.h5"
    settings = {"method": "rk4", "dt": 0.01, "watch": watch}
    evolve(problem, until=0.2, checkpoint=path, **settings)
    saved = load_checkpoint(path)
    first = saved.history[0]
    many = [first] * (2000 + more - len(saved.history)) + saved.history
    save_checkpoint(path, replace(saved, history=many))
    resumed = evolve(problem, until=0.21, resume=path, **settings)
    assert resumed.watched["out"].first == saved.history[-1]["quantities"]["out"] != 0


def test_a_problem_of_ones_own_keeps_the_measure():
    """One that only evaluates f has no grid that it could tell of."""
    problem = streaming().discretize(2, 1)
    own = SimpleNamespace(initial=problem.initial, t0=0.0, rhs=problem.rhs)
    quantities = Quantity.outflow(problem), Quantity.moment(problem, problem.axes)
    for quantity in quantities:
        assert quantity.measure.for_problem(own) is quantity.measure
        assert quantity.measure.for_problem(problem) is quantity.measure


def test_weights_of_complex_states():
    start, weights = np.array([1 + 2j, 3 - 1j]), np.array([1j, 2.0])
    run = {"until": 0.1, "method": "rk4", "dt": 0.01, "u0": start}
    result = evolve(np.diag([-1.0 + 0j, -2.0]), watch={"sum": weights}, **run)
    assert result.watched["sum"].first == (weights @ start).real
    assert result.watched["sum"].last == pytest.approx((weights @ result.u).real, rel=1e-12)


@pytest.mark.parametrize("size", [4, 10_000])
@pytest.mark.parametrize("dtype", ["f4", "f8", "c16"])
@pytest.mark.parametrize("state", [float, complex])
def test_weights_of_another_dtype(rng, state, dtype, size):
    """Long vectors are multiplied in another way."""
    weights = random_array(rng, (size,), dtype)
    u = random_array(rng, (size,), state)
    found = Quantity(weights).value(0.0, u)
    assert found == pytest.approx((weights.astype("c16") @ u).real, rel=1e-10, abs=1e-10)


def test_weights_of_another_size():
    with pytest.raises(ValueError, match="weights of size 3; expected 2, one for each unknown"):
        evolve(-np.eye(2), u0=np.ones(2), until=0.1, method="rk4", dt=0.1, watch={"sum": [1, 2, 3]})


def test_moments_follow_the_grid(rng):
    problem = streaming().discretize(3, 2)
    x, y = problem.axes
    moved = problem.on_grid(streaming().discretize(3, 2, "full").grid)
    quantity = Quantity.moment(problem, {x: 2, y: 1})
    there = Quantity(quantity.measure.for_problem(moved))
    u = rng.uniform(-1, 1, moved.unknowns)
    expected = moved.moment_weights({x: 2, y: 1}) @ u
    assert there.value(0.0, u) == pytest.approx(expected, rel=1e-13)
    with pytest.raises(ValueError, match="size"):
        quantity.value(0.0, u)
