"""Steps that a problem repeats as whole work."""

import gc
import weakref

import numpy as np
import pytest

from batchkron.solvers import steppers


class Decay:
    """u' = -u²."""

    t0 = 0.0

    def __init__(self, initial):
        self.initial = initial

    def rhs(self, t, u, out):
        np.multiply(u, u, out=out)
        np.negative(out, out=out)


class Repeating(Decay):
    """The same, whose work has vectors of its own every other time, as a graph has."""

    calls = 0

    def rhs(self, t, u, out):
        super().rhs(t, u, out)

    def repeated_work(self, work):
        def repeated(x, y):
            self.calls += 1
            if self.calls % 2:
                work(x, y)
                return
            own = np.full_like(y, np.nan)
            work(x.copy(), own)
            y[...] = own

        return repeated


class Overriding(Repeating):
    """A right-hand side that the inherited `repeated_work` does not know."""

    def rhs(self, t, u, out):
        np.multiply(t, u, out=out)


@pytest.mark.parametrize("method", ["forward-euler", "ssp-rk3", "rk4"])
def test_repeated_steps_are_the_steps(rng, method):
    initial = rng.uniform(0.5, 1.0, 7)
    plain, repeating = Decay(initial), Repeating(initial)
    one, other = (steppers.get(method)(problem, 0.1) for problem in (plain, repeating))
    u, v = initial.copy(), initial.copy()
    for k in range(6):
        one.step(u, 0.1 * k, 0.1 * (k + 1))
        other.step(v, 0.1 * k, 0.1 * (k + 1))
        np.testing.assert_array_equal(u, v)
    assert repeating.calls == 6
    known = weakref.ref(other)
    kept = other._repeated
    del other
    gc.collect()
    assert known() is None
    del kept


def test_another_right_hand_side_is_not_repeated(rng):
    problem = Overriding(rng.uniform(0.5, 1.0, 3))
    stepper, u = steppers.get("rk4")(problem, 0.1), problem.initial.copy()
    stepper.step(u, 1.0, 1.1)
    assert problem.calls == 0
    assert (u > problem.initial).all()
