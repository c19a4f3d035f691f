"""Runs that begin at another state: evolve(problem, u0=...)."""

from types import SimpleNamespace

import numpy as np
import pytest

from batchkron.problems import make
from batchkron.solvers import Adapt, evolve

STEPS = {"until": 0.1, "method": "rk4", "dt": 0.01}


def decay():
    def rhs(t, u, out):
        np.negative(u, out=out)

    return SimpleNamespace(initial=np.ones(3), rhs=rhs, t0=0.0)


def test_any_problem_begins_at_u0():
    u0 = np.array([1.0, -2.0, 3.0])
    result = evolve(decay(), u0=u0, **STEPS)
    np.testing.assert_allclose(result.u, u0 * np.exp(-0.1), rtol=1e-9)
    np.testing.assert_array_equal(u0, [1.0, -2.0, 3.0])
    assert result.problem.t0 == 0.0


@pytest.mark.parametrize("method", ["rk4", "crank-nicolson", "ark2"])
def test_a_discretized_problem_begins_at_u0(method, rng):
    problem = make("continuity-2d", 3, 1)
    u0 = rng.standard_normal(problem.unknowns)
    steps = {**STEPS, "method": method}
    result = evolve(problem, u0=u0, **steps)
    expected = evolve(problem.on_grid(problem.grid, u0), **steps)
    np.testing.assert_array_equal(result.u, expected.u)
    assert result.problem.initial is not problem.initial
    np.testing.assert_array_equal(result.problem.initial, u0)


def test_a_run_goes_on_from_the_end_of_another():
    problem = make("landau-1x1v", (2, 3), 2, "full", amplitude=0.1)
    whole = evolve(problem, until=0.2, method="rk4", dt=0.01)
    half = evolve(problem, until=0.1, method="rk4", dt=0.01)
    there = problem.beginning_at(half.u, half.t)
    assert there.t0 == 0.1
    rest = evolve(there, until=0.2, method="rk4", dt=0.01)
    np.testing.assert_allclose(rest.u, whole.u, atol=1e-14)


def test_it_can_be_resumed_with_the_same_state_only(tmp_path):
    problem = make("continuity-2d", 3, 1)
    u0 = problem.exact_coefficients(0.7)
    path = tmp_path / "run.checkpoint.h5"
    evolve(problem, u0=u0, checkpoint=path, callback=lambda state: state.step == 5, **STEPS)
    resumed = evolve(problem, u0=u0, until=0.1, resume=path)
    np.testing.assert_array_equal(resumed.u, evolve(problem, u0=u0, **STEPS).u)
    with pytest.raises(ValueError, match="not of the same run"):
        evolve(problem, until=0.1, resume=path)


def test_grids_follow_from_u0():
    problem = make("continuity-2d", 3, 2)
    u0 = problem.exact_coefficients(1.0)
    result = evolve(problem, u0=u0, adapt=Adapt(1e-2, every=2), **STEPS)
    assert str(result.status) == "completed"
    assert result.problem.unknowns != problem.unknowns


@pytest.mark.parametrize(
    ("u0", "error", "words"),
    [
        ([1.0, 2.0, 3.0], TypeError, "u0 is a list; expected a numpy array"),
        (np.ones(2), ValueError, r"u0 has shape \(2,\); expected \(3,\)"),
        (np.ones(3, dtype=int), TypeError, "u0 has dtype int64"),
        (np.array([1.0, np.nan, 0.0]), ValueError, "NaN or infinite"),
    ],
)
def test_wrong_states_are_refused(u0, error, words):
    with pytest.raises(error, match=words):
        evolve(decay(), u0=u0, **STEPS)
    with pytest.raises(TypeError, match="expected an object with initial"):
        evolve(SimpleNamespace(), u0=u0, **STEPS)


def test_a_right_hand_side_that_reads_its_own_state_still_sees_that():
    class Relaxing:
        initial = property(lambda self: np.ones(3))  # cannot be replaced

        def rhs(self, t, u, out):
            np.subtract(self.initial, u, out=out)

    result = evolve(Relaxing(), u0=np.full(3, 3.0), **STEPS)
    assert 1.0 < result.u[0] < 3.0
    np.testing.assert_allclose(result.u, 1.0 + 2.0 * np.exp(-result.t), rtol=1e-3)


def test_the_problem_itself_keeps_its_state_and_what_it_says_of_its_right_hand_side():
    problem = decay()
    problem.is_linear, problem.operator = True, -np.eye(3)
    result = evolve(problem, u0=np.full(3, 2.0), **STEPS)
    np.testing.assert_array_equal(problem.initial, np.ones(3))
    np.testing.assert_array_equal(result.problem.initial, np.full(3, 2.0))
    assert result.problem.is_linear
