"""A right-hand side that is not defined for a state ends the run with the last good state."""

from types import SimpleNamespace

import numpy as np
import pytest
from methods import EQUAL_STEPS

from batchkron import NotPhysicalError
from batchkron.solvers import Event, EvolveStatus, Quantity, evolve, steppers
from batchkron.storage import load_checkpoint

EXPLICIT = [name for name in EQUAL_STEPS if not steppers.get(name).implicit]
ADAPTIVE = [name for name in EXPLICIT if steppers.get(name).error_order]


class Emptying:
    """u' = -1 from 1: a density that is no longer positive at t = 1."""

    def __init__(self):
        self.initial = np.ones(3)

    def rhs(self, t, u, out):
        if not u.min() > 0.0:
            raise NotPhysicalError("the density", "x", 0.25, t, float(u.min()))
        out[...] = -1.0


@pytest.mark.parametrize("name", EXPLICIT)
def test_the_run_ends_with_the_last_good_state(tmp_path, name):
    path = tmp_path / "run.h5"
    options = {"until": 2.0, "dt": 0.3, "method": name}
    result = evolve(Emptying(), **options, checkpoint=path)
    assert result.status is EvolveStatus.NOT_PHYSICAL
    assert str(result.status) == "not-physical"
    assert result.t < 1.3
    np.testing.assert_allclose(result.u, 1.0 - result.t, atol=1e-14)
    assert "the density is" in result.message
    assert "at x = 0.25, t = " in result.message
    assert load_checkpoint(path).step == result.steps
    assert result.history[-1]["event"] == "not-physical"
    with pytest.raises(RuntimeError, match=r"not-physical at step .* the density is"):
        evolve(Emptying(), **options, raise_on_failure=True)


@pytest.mark.parametrize("name", ADAPTIVE)
def test_adaptive_steps_are_shortened_first(name):
    result = evolve(Emptying(), until=2.0, method=name, rtol=1e-3)
    assert result.status is EvolveStatus.NOT_PHYSICAL
    assert result.t == pytest.approx(1.0, abs=1e-6)
    assert result.rejected > 3
    np.testing.assert_allclose(result.u, 1.0 - result.t, atol=1e-12)


@pytest.mark.parametrize("options", [{"dt": 0.1}, {"rtol": 1e-3}])
def test_an_initial_state_that_is_not_physical_is_a_status(options):
    problem = Emptying()
    problem.initial = np.array([1.0, -0.5, 1.0])
    result = evolve(problem, until=1.0, method="bogacki-shampine", **options)
    assert (result.status, result.steps) == (EvolveStatus.NOT_PHYSICAL, 0)
    assert "the density is -0.5" in result.message
    np.testing.assert_array_equal(result.u, problem.initial)


def test_events_and_guards_do_not_raise_it():
    """Step 32 ends where f is not defined, and so does the half step that it is compared with."""
    passed = Event(lambda t, u: u[0] + 0.005)
    dt = 1 / 31.3
    result = evolve(
        Emptying(), until=63 * dt, method="forward-euler", dt=dt, events=passed, at=[0.05, 1.001]
    )
    assert (result.status, result.steps) == (EvolveStatus.NOT_PHYSICAL, 32)
    assert result.t == pytest.approx(32 / 31.3)
    assert [t for t, _ in result.samples] == [0.05, 1.001]
    np.testing.assert_allclose(result.samples[1][1], -0.001, atol=1e-12)
    assert result.events[0].t == pytest.approx(1.005, abs=1e-9)


def test_the_error_has_its_numbers():
    error = NotPhysicalError("n", "x", 0.5, 2.0, -1e-3)
    assert (error.quantity, error.axis) == ("n", "x")
    assert (error.place, error.time, error.value) == (0.5, 2.0, -1e-3)
    assert str(error).startswith("n is -0.001 at x = 0.5, t = 2, and a term divides by it")


def test_a_moment_needs_a_problem_that_has_moments():
    with pytest.raises(TypeError, match=r"SimpleNamespace without moment_weights\(powers\)"):
        Quantity.moment(SimpleNamespace(), {})
    counted = SimpleNamespace(moment_weights=lambda powers: np.array([1.0, powers]))
    quantity = Quantity.moment(counted, 3.0, tolerance=0.5)
    assert quantity.value(0.0, np.array([2.0, 1.0])) == 5.0
    assert quantity.tolerance == 0.5
