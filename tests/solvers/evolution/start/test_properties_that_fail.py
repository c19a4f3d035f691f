"""An AttributeError within a property is a fault, and not a missing property."""

import numpy as np
import pytest

from batchkron.attributes import attribute, has_attribute
from batchkron.solvers import evolve, gmres, steady_state

FAULT = "has no attribute 'matrx'"


class Decay:
    """u' = -u."""

    initial = np.ones(3)

    def rhs(self, t, u, out):
        np.negative(u, out=out)


def with_fault(name):
    """A problem with a property that has a misspelt attribute."""
    return type("Faulty", (Decay,), {name: property(lambda self: self.matrx)})()


def test_slots_without_a_value_are_missing():
    owner = type("WithSlots", (), {"__slots__": ("t0",)})()
    assert attribute(owner, "t0", 2.0) == 2.0
    assert not has_attribute(owner, "t0")
    owner.t0 = 1.0
    assert attribute(owner, "t0", 2.0) == 1.0


def test_lookups():
    problem = with_fault("operator")
    assert attribute(problem, "jacobian") is None
    assert attribute(problem, "jacobian", 3) == 3
    assert has_attribute(problem, "operator")
    assert not has_attribute(problem, "jacobian")
    with pytest.raises(AttributeError, match=FAULT):
        attribute(problem, "operator")


@pytest.mark.parametrize(
    ("name", "method"),
    [("operator", "backward-euler"), ("operator_at", "crank-nicolson"), ("jacobian", "bdf"),
     ("implicit_operator", "ark3"), ("whole_part", "esdirk3"), ("t0", "rk4")],
)  # fmt: skip
def test_properties_of_problems(name, method):
    """Each was taken for a problem without it."""
    steps = {"rtol": 1e-3} if method == "bdf" else {"dt": 0.1}
    for more in ({}, {"u0": np.full(3, 2.0)}):  # which puts the problem into another
        with pytest.raises((AttributeError, RuntimeError), match=FAULT):
            evolve(with_fault(name), until=0.2, method=method, **steps, **more)


def test_properties_of_problems_and_operators_elsewhere():
    with pytest.raises(AttributeError, match=FAULT):
        steady_state(with_fault("jacobian"))
    fields = {"shape": (3, 3), "matvec": lambda self, x: x, "dtype": property(lambda s: s.matrx)}
    with pytest.raises(AttributeError, match=FAULT):
        gmres(type("Faulty", (), fields)(), np.ones(3))
