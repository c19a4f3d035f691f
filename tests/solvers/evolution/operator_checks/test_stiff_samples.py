"""States between steps (samples, events) where steps are long beside the solution's scales."""

from types import SimpleNamespace

import numpy as np
import pytest

import batchkron as bk
from batchkron.solvers import Event, evolve
from batchkron.solvers.steppers import exponential


def linear(A, initial):
    A = np.asarray(A)
    return SimpleNamespace(
        initial=np.asarray(initial), operator=A, rhs=lambda t, u, out: np.dot(A, u, out=out)
    )


@pytest.mark.parametrize("method", ["exponential-euler", "exponential-trapezoidal"])
def test_exponential_methods_are_as_exact_between_steps(method):
    problem = linear(np.diag([-1.0, -1e6]), np.ones(2))
    samples = evolve(problem, until=1.0, method=method, dt=0.5, at=[0.25, 0.8]).samples
    for t, u in samples:
        assert u == pytest.approx([np.exp(-t), 0.0], abs=1e-8)


def test_events_of_exponential_methods_are_where_the_state_is_zero():
    problem = linear([[0.0, 1.0], [-1.0, 0.0]], [1.0, 0.0])
    result = evolve(
        problem, until=4.0, method="exponential-euler", dt=2.0,
        events=[Event(lambda t, u: u[0], "zero")],
    )  # fmt: skip
    assert [record.t for record in result.events] == pytest.approx([np.pi / 2], abs=1e-8)


@pytest.mark.parametrize("method", ["exponential-euler", "exponential-trapezoidal"])
def test_events_right_behind_the_beginning_of_a_step(method):
    problem = linear(np.diag([-1.0, -2.0]), np.ones(2))
    for step in range(1, 10):
        after = np.nextafter(step * 0.1, 9.0)
        result = evolve(
            problem, until=1.0, method=method, dt=0.1, events=[lambda t, u, at=after: t - at]
        )
        assert [record.t for record in result.events] == pytest.approx([after])


def test_samples_leave_the_propagators_of_steps_alone(monkeypatch):
    made = []
    kind = exponential.PhiFunctions
    monkeypatch.setattr(
        exponential, "PhiFunctions", lambda whole, dt: made.append(dt) or kind(whole, dt)
    )
    problem = SimpleNamespace(
        initial=np.ones(4), operator=bk.KroneckerSum([np.diag([-1.0, -2.0])] * 2)
    )
    problem.rhs = lambda t, u, out: np.copyto(out, problem.operator @ u)
    samples = evolve(
        problem, until=1.0, method="exponential-euler", dt=0.25, at=np.linspace(0, 1, 33)
    ).samples
    assert sum(dt == 0.25 for dt in made) == 1
    for t, u in samples:
        assert u == pytest.approx(np.exp(t * np.array([-2.0, -3.0, -3.0, -4.0])))


@pytest.mark.parametrize("power", [1, 2, 3])
def test_a_start_from_zero_is_resolved(power):
    problem = SimpleNamespace(initial=np.zeros(1), rhs=lambda t, u, out: out.fill(t**power))
    ((_, u),) = evolve(problem, until=0.1, method="rk4", dt=0.1, at=[0.05]).samples
    error = 0.0 if power < 3 else 0.1**4 / 64  # of a cubic interpolant
    assert u[0] == pytest.approx(0.05 ** (power + 1) / (power + 1), abs=error + 1e-15)


def test_slopes_that_a_step_does_not_resolve_are_left_out():
    problem = linear(np.diag([-1.0, -1e6]), np.ones(2))
    ((_, u),) = evolve(problem, until=1.0, method="backward-euler", dt=0.1, at=[0.05]).samples
    assert 0.0 <= u[1] <= 1.0
    assert u[0] == pytest.approx(np.exp(-0.05), abs=0.01)


@pytest.mark.parametrize("method", ["exponential-euler", "exponential-trapezoidal"])
def test_operators_may_be_updated_in_place(method):
    def factors(t):
        return [np.diag([-1.0 - t, -2.0]), np.diag([-0.5, -3.0 * (1 + t)])]

    kept = bk.KroneckerSum(factors(0.0))

    def in_place(t):
        kept.update(factors(t))
        return kept

    def evolved(operator_at):
        def rhs(t, u, out):
            out[:] = operator_at(t) @ u

        problem = SimpleNamespace(initial=np.ones(4), operator_at=operator_at, rhs=rhs)
        return evolve(problem, until=1.0, method=method, dt=0.1).u

    expected = evolved(lambda t: bk.KroneckerSum(factors(t)))
    np.testing.assert_array_equal(evolved(in_place), expected)


def test_an_event_sees_a_state_that_it_cannot_change():
    problem = linear(np.diag([-1.0, -2.0]), np.ones(2))

    def event(t, u):
        u *= 2.0
        return 1.0

    with pytest.raises(ValueError, match="read-only"):
        evolve(problem, until=1.0, dt=0.1, method="rk4", events=[event])
    assert (problem.initial == 1.0).all()


def test_an_event_ends_the_run_at_once_or_never():
    with pytest.raises(ValueError, match="terminal is 2"):
        Event(lambda t, u: u[0], "zero", terminal=2)
