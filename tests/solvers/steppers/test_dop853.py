"""DOP853: order of the states inside steps, its two error estimates, its cost."""

import numpy as np
import pytest

from batchkron.problems import make
from batchkron.solvers import evolve, steppers


class Rotation:
    """u' = i cos(t) u, u = exp(i sin t)."""

    initial = np.ones(1, dtype=complex)

    def __init__(self):
        self.calls = 0

    def rhs(self, t, u, out):
        self.calls += 1
        np.multiply(u, 1j * np.cos(t), out=out)

    @staticmethod
    def exact(t):
        return np.exp(1j * np.sin(t))


def error_inside(dt):
    problem, times = Rotation(), np.linspace(0.05, 2.3, 41)
    result = evolve(problem, until=2.4, method="dop853", dt=dt, at=times)
    return max(abs(u[0] - problem.exact(t)) for t, u in result.samples)


def test_states_inside_steps_have_order_7():
    errors = [error_inside(0.4), error_inside(0.2)]
    assert errors[0] < 1e-5
    assert np.log2(errors[0] / errors[1]) == pytest.approx(8.0, abs=0.6)  # O(dt⁸)


def test_three_more_evaluations_in_steps_with_states_inside():
    plain, watched = Rotation(), Rotation()
    whole = evolve(plain, until=1.0, method="dop853", dt=0.25)
    other = evolve(watched, until=1.0, method="dop853", dt=0.25, at=[0.3, 0.4, 0.5, 0.6])
    assert watched.calls == plain.calls + 2 * 3  # 0.5 is the end of a step
    np.testing.assert_array_equal(whole.u, other.u)


def test_error_estimate_is_that_of_both_methods():
    problem, u = Rotation(), np.array([0.3 + 0.4j])
    tableau = steppers.get("dop853").tableau
    sizes = []
    for dt in (0.8, 0.4):
        stepper = steppers.get("dop853")(problem, dt)
        stepper.attempt(u, 0.2, 0.2 + dt, dt, np.empty_like(u))
        slopes = np.array([slope[0] for slope in stepper._slopes])
        first, second = (
            abs(dt * (tableau.weights - other) @ slopes)
            for other in (tableau.embedded, tableau.second_embedded)
        )
        assert abs(stepper.error[0]) == pytest.approx(first, rel=1e-9)
        assert abs(stepper.second_error[0]) == pytest.approx(second, rel=1e-9)
        sizes.append(first**2 / np.hypot(first, 0.1 * second))
    assert np.log2(sizes[0] / sizes[1]) == pytest.approx(8.0, abs=0.7)
    result = evolve(problem, until=0.4, method="dop853", dt=0.4, rtol=1.0)
    stepper = steppers.get("dop853")(problem, 0.4)
    out = np.empty(1, complex)
    stepper.attempt(problem.initial, 0.0, 0.4, 0.4, out)
    first, second = abs(stepper.error[0]), abs(stepper.second_error[0])
    largest = max(1.0, abs(out[0]))
    expected = first**2 / np.hypot(first, 0.1 * second) / largest
    assert expected < 1e-4  # the control keeps no smaller one
    assert result.steps == 1


def test_events_between_steps_are_as_exact_as_steps():
    def zero(t, u):
        return u.imag[0] - 0.5

    result = evolve(Rotation(), until=1.0, method="dop853", rtol=1e-10, events=zero)
    (event,) = result.events
    assert event.t == pytest.approx(np.arcsin(np.pi / 6), abs=1e-8)


def test_transport_at_5e_10_takes_at_most_200_products():
    """SciPy's RK45 takes some 370, dormand-prince 440 to 500."""
    problem = make("continuity-2d", level=4, degree=2)
    until = problem.stepper.until
    fine = evolve(problem, until=until, method="dop853", rtol=1e-13).u
    counted = [0]

    class Counted:
        initial, is_linear = problem.initial, True
        operator, source = problem.operator, problem.source

        def rhs(self, t, u, out):
            counted[0] += 1
            problem.rhs(t, u, out)

    found = evolve(Counted(), until=until, method="dop853", rtol=2e-9).u
    assert counted[0] <= 200
    assert np.linalg.norm(found - fine) <= 5.1e-10
