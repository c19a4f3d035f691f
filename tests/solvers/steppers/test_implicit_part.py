"""IMEX methods with an implicit part that follows the state."""

import numpy as np
import pytest

from batchkron.solvers import EvolveStatus, evolve
from batchkron.solvers.steppers import get

RATE = 400.0  # of the relaxation
SPEED = 3.0


class Relaxation:
    """Two components that relax to the same share of their sum, which moves them: u' = C(s) u + g.

    C(s) u = -r(s) (u - s/2) with s = u_1 + u_2 and a rate that depends on it, and so conserves s.
    """

    initial = np.array([0.9, 0.3])

    def __init__(self):
        self.states = []

    def matrix(self, u):
        rate = RATE * (1.0 + u.sum() ** 2)
        return rate * np.array([[-0.5, 0.5], [0.5, -0.5]])

    def rhs(self, t, u, out):
        out[...] = self.matrix(u) @ u + np.cos(SPEED * t) * np.array([1.0, 0.5])

    def implicit_part(self):
        return Part(self)


class Part:
    def __init__(self, problem):
        self.problem = problem
        self.operator = np.full((2, 2), np.nan)

    def follow(self, t, u):
        self.problem.states.append((t, u.copy()))
        self.operator[...] = self.problem.matrix(u)

    def source(self, t, out):
        out[...] = 0.0


def sum_at(t):
    return 1.2 + 1.5 * np.sin(SPEED * t) / SPEED


@pytest.mark.parametrize(("method", "order"), [("ark2", 2), ("ark3", 3)])
def test_large_steps_are_stable_and_the_sum_is_exact(method, order):
    """dt times the rate is 20 to 40; the sum's equation has no stiffness, and its order."""
    solver = {"rtol": 1e-13}
    errors = []
    for dt in (0.05, 0.025):
        result = evolve(Relaxation(), until=1.0, method=method, dt=dt, solver=solver)
        assert result.status is EvolveStatus.COMPLETED
        errors.append(abs(result.u.sum() - sum_at(1.0)))
        assert abs(result.u[0] - result.u[1]) < 0.01
    assert np.log2(errors[0] / errors[1]) > order - 0.2


@pytest.mark.parametrize(("method", "order"), [("ark2", 2), ("ark3", 3)])
def test_order_for_short_steps(method, order):
    fine = evolve(Relaxation(), until=0.01, method="rk4", dt=1e-5).u
    errors = [
        np.linalg.norm(evolve(Relaxation(), until=0.01, method=method, dt=dt).u - fine)
        for dt in (4e-4, 2e-4)
    ]
    assert np.log2(errors[0] / errors[1]) > order - 0.3


@pytest.mark.parametrize("method", ["ark2", "ark3"])
def test_a_part_that_is_all_of_f_stands_for_it(method):
    """Then rhs is not evaluated in steps; steps are those of a part that does not say so."""

    class Alone(Relaxation):
        is_whole, calls = False, 0

        def rhs(self, t, u, out):
            self.calls += 1
            out[...] = self.matrix(u) @ u

        def implicit_part(self):
            part = Part(self)
            part.is_whole = self.is_whole
            return part

    states, calls = [], []
    for is_whole in (False, True):
        problem = Alone()
        problem.is_whole = is_whole
        stepper, u = get(method)(problem, 0.05, solver={"rtol": 1e-13}), problem.initial.copy()
        for step in range(3):
            assert stepper.step(u, 0.05 * step, 0.05 * (step + 1)) is None
        states.append(u)
        calls.append(problem.calls)
    np.testing.assert_allclose(states[1], states[0], rtol=1e-11)
    assert calls[0] > 0
    assert calls[1] == 0


def test_it_is_given_the_explicit_part_of_each_stage():
    problem = Relaxation()
    get("ark2")(problem, 0.05).step(problem.initial.copy(), 0.0, 0.05)
    times = [t for t, _ in problem.states]
    assert len(times) == 3
    assert times[0] == 0.0
    np.testing.assert_array_equal(problem.states[0][1], problem.initial)
    assert times == sorted(times)
    assert times[-1] == 0.05


def test_a_preconditioner_sees_the_operator_of_the_initial_state():
    made = []

    def make(A, scale):
        made.append((np.array(A), scale))
        return np.linalg.inv(np.eye(2) - scale * A)

    problem = Relaxation()
    evolve(problem, until=0.1, method="ark2", dt=0.05, preconditioner=make)
    np.testing.assert_array_equal(made[0][0], problem.matrix(problem.initial))


def test_problems_that_have_none_need_an_operator():
    class Plain(Relaxation):
        def implicit_part(self):
            return None

    with pytest.raises(TypeError, match="has neither operator nor operator_at"):
        evolve(Plain(), until=0.1, method="ark2", dt=0.05)
