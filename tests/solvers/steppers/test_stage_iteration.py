"""Implicit methods for operators that depend on the state: the equations of their stages."""

import numpy as np
import pytest

from batchkron.problems import make
from batchkron.solvers import EvolveStatus, evolve, steppers
from batchkron.solvers.steppers.stage_iteration import Acceleration


class Logistic:
    """u' = (1 - u/K) u as A(u) u, with K = 2, for several u at once; and a source."""

    t0 = 0.0
    is_linear = False

    def __init__(self, initial, source=0.0):
        self.initial, self._source = np.asarray(initial, dtype=float), source

    def rhs(self, t, u, out):
        out[...] = (1.0 - u / 2.0) * u + self._source

    def whole_part(self):
        return self.Part(self)

    class Part:
        def __init__(self, problem):
            self._problem = problem
            self.operator = np.diag(np.ones(problem.initial.size))

        def follow(self, t, w):
            np.fill_diagonal(self.operator, 1.0 - w / 2.0)

        def source(self, t, out):
            out[...] = self._problem._source


def exact(u0, t):
    return 2.0 / (1.0 + (2.0 / u0 - 1.0) * np.exp(-t))


def test_a_step_of_backward_euler_is_the_root_of_its_equation():
    problem, dt = Logistic([0.3, 1.0, 3.0], 0.1), 0.2
    u = problem.initial.copy()
    assert steppers.get("backward-euler")(problem, dt).step(u, 0.0, dt) is None
    f = np.empty(3)
    problem.rhs(dt, u, f)
    np.testing.assert_allclose(u, problem.initial + dt * f, rtol=1e-8)


@pytest.mark.parametrize("dtype", ["f8", "c16", "f4"])
def test_acceleration_solves_linear_equations_that_plain_iteration_does_not(rng, dtype):
    """Eigenvalues of modulus 2: n + 1 moves are enough for n unknowns."""
    turn = np.linalg.qr(rng.standard_normal((4, 4)))[0]
    map_ = (turn @ np.diag([2.0, -2.0, 1.5, -1.5]) @ turn.T).astype(dtype)
    right = rng.standard_normal(4).astype(dtype)
    right = right + 1j * right[::-1] if dtype == "c16" else right
    expected = np.linalg.solve(np.eye(4) - map_, right)
    delta = right.copy()
    acceleration = Acceleration(lambda: np.full(4, np.nan, dtype))
    for _ in range(2):  # what the first use has left does not matter
        delta[...] = right
        acceleration.begin(delta)
        for _ in range(6):
            acceleration.move(delta, right + map_ @ delta - delta)
        np.testing.assert_allclose(delta, expected, rtol=0, atol=200 * np.finfo(dtype).eps)


def test_stages_of_stiff_collisions_take_few_solves():
    problem, dt = make("relaxation-1x1v", 3, 2), 5e-4  # collisions of rate 1000
    stepper, u = steppers.get("backward-euler")(problem, dt), problem.initial.copy()
    calls, solve = [], stepper._iteration._solver.solve
    stepper._iteration._solver.solve = lambda *given, **own: calls.append(1) or solve(*given, **own)
    assert stepper.step(u, 0.0, dt) is None
    assert 1 < len(calls) <= 8  # 21 without acceleration


@pytest.mark.parametrize("method", ["backward-euler", "crank-nicolson"])
def test_corrections_are_solved_as_accurately_as_the_stage_needs(method):
    """Each solve alone would meet the stage's tolerance; none is more accurate than the first."""
    problem, dt = make("relaxation-1x1v", 3, 2), 5e-4
    stepper, u = steppers.get(method)(problem, dt), problem.initial.copy()
    stepper.step(u, 0.0, dt)
    calls, inner = [], stepper._solver.solve

    def solve(t, scale, right, out, rtol=None):
        calls.append((np.linalg.norm(right), rtol))
        return inner(t, scale, right, out, rtol=rtol)

    stepper._solver.solve = solve
    assert stepper.step(u, dt, 2 * dt) is None
    (first, given), *others = calls
    assert given is None
    assert others
    for size, rtol in others:
        assert 1e-9 < rtol <= 1e-2
        assert rtol * size <= 0.11 * 1e-9 * first


def test_a_step_computes_the_fields_of_a_state_once():
    problem, dt = make("relaxation-1x1v", 3, 2), 5e-4
    stepper, u = steppers.get("backward-euler")(problem, dt), problem.initial.copy()
    states, follow = [], stepper._part.follow
    stepper._part.follow = lambda t, w: states.append(w.tobytes()) or follow(t, w)
    assert stepper.step(u, 0.0, dt) is None
    assert states[0] == problem.initial.tobytes()
    assert len(set(states)) == len(states)


def test_a_step_of_crank_nicolson_is_the_root_of_its_equation():
    problem, dt = Logistic([0.3, 1.0, 3.0], 0.1), 0.2
    u, f, g = problem.initial.copy(), np.empty(3), np.empty(3)
    assert steppers.get("crank-nicolson")(problem, dt).step(u, 0.0, dt) is None
    problem.rhs(0.0, problem.initial, f)
    problem.rhs(dt, u, g)
    np.testing.assert_allclose(u, problem.initial + 0.5 * dt * (f + g), rtol=1e-8)


@pytest.mark.parametrize("method", ["backward-euler", "crank-nicolson", "sdirk2", "esdirk3"])
def test_the_order(method):
    u0, errors = np.array([0.3, 1.0, 3.0]), []
    for steps in (8, 16, 32):
        result = evolve(Logistic(u0), until=1.0, method=method, dt=1.0 / steps)
        assert result.status is EvolveStatus.COMPLETED
        errors.append(np.abs(result.u - exact(u0, 1.0)).max())
    slope = np.log2(errors[-2] / errors[-1])
    assert slope > steppers.get(method).order - 0.2


@pytest.mark.parametrize("method", ["backward-euler", "crank-nicolson", "esdirk3"])
def test_vlasov_follows_its_field(method):
    """The states of an explicit method of much smaller steps, to the order of the method."""
    problem = make("two-stream", 3, 2)
    expected = evolve(problem, until=0.4, method="rk4", dt=0.005).u
    errors = []
    for dt in (0.04, 0.02):
        found = evolve(problem, until=0.4, method=method, dt=dt, raise_on_failure=True).u
        errors.append(np.linalg.norm(found - expected))
    order = steppers.get(method).order
    assert errors[1] < errors[0] * 2.0 ** (0.35 - order)
    # the charge is conserved, but for what leaves this coarse grid
    assert problem.integral(found) == pytest.approx(problem.integral(expected), rel=1e-5)


def test_preconditioners_are_those_of_the_start():
    problem = make("two-stream", 3, 1)
    plain = evolve(problem, until=0.1, method="backward-euler", dt=0.05)
    better = evolve(
        problem, until=0.1, method="backward-euler", dt=0.05, preconditioner="block-jacobi"
    )
    scale = np.abs(plain.u).max()
    np.testing.assert_allclose(better.u, plain.u, atol=1e-7 * scale)


def test_a_step_that_is_too_long_fails_with_a_status():
    problem = Logistic([-1.0], -5.0)  # u + 10 f(u) = -1 has no root
    result = evolve(problem, until=20.0, method="backward-euler", dt=10.0)
    assert result.status in (EvolveStatus.SOLVER_FAILED, EvolveStatus.NOT_FINITE)


def test_exponential_methods_refuse_fields():
    problem = make("two-stream", 2, 1)
    with pytest.raises(ValueError, match=r"implicit ones \(backward-euler, esdirk3"):
        evolve(problem, until=0.1, method="exponential-euler", dt=0.05)


@pytest.mark.parametrize("method", ["backward-euler", "sdirk2", "esdirk3"])
def test_stages_near_an_equilibrium_end_at_rounding_errors(method):
    """Right-hand sides of the stages fall to 1e-9 of the first; residuals cannot fall as far."""
    problem, dt = make("relaxation-1x1v", 3, 2), 5e-4
    result = evolve(problem, until=40 * dt, dt=dt, method=method, preconditioner="auto")
    assert (result.status, result.steps) == (EvolveStatus.COMPLETED, 40)
    f = np.full(problem.unknowns, np.nan)
    problem.rhs(result.t, result.u, f)
    assert dt * np.linalg.norm(f) < 1e-6 * np.linalg.norm(result.u)
