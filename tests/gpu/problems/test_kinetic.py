"""Collisions on the device: the right-hand side, implicit parts and runs are those of the CPU."""

import numpy as np
import pytest

from batchkron.problems import make
from batchkron.solvers import EvolveStatus, Quantity, evolve

pytestmark = pytest.mark.gpu

CASES = [
    ("relaxation-1x1v", 4, "sparse"),
    ("relaxation-1x2v", 3, "sparse"),
    ("collisional-landau-1x1v", 5, "sparse"),
    ("collisional-landau-1x1v", (3, 4), "full"),
    ("bgk-1x1v", 4, "sparse"),
    ("bgk-1x1v", (2, 3), "full"),
]


@pytest.mark.parametrize(("name", "level", "grid"), CASES)
def test_the_right_hand_side_and_the_implicit_part(cupy, name, level, grid):
    problem = make(name, level, 2, grid)
    device = problem.to("cuda")
    expected = np.full((2, problem.unknowns), np.nan)
    found = cupy.full((2, problem.unknowns), np.nan)
    problem.rhs(0.0, problem.initial, expected[0])
    device.rhs(0.0, device.initial, found[0])
    parts = problem.implicit_part(), device.implicit_part()
    for part, own, out in zip(parts, (problem, device), (expected, found), strict=True):
        part.follow(0.0, own.initial)
        part.operator.matvec(own.initial, out=out[1])
        gain = out[1].copy()
        part.source(0.0, gain)
        out[1] += gain
    scale = np.abs(expected).max(axis=1, keepdims=True)
    for gain in problem.gains:  # nearly cancels with the loss
        scale = np.maximum(scale, gain.nu * np.abs(problem.initial).max())
    np.testing.assert_allclose(found.get() / scale, expected / scale, rtol=0, atol=1e-12)


@pytest.mark.parametrize("preconditioner", [None, "auto"])
def test_relaxation_conserves_its_moments(cupy, preconditioner):
    problem = make("relaxation-1x1v", 4)
    device = problem.to("cuda")
    _, v = device.axes
    watch = {str(k): Quantity.moment(device, {v: k}) for k in range(3)}
    settings = {"until": 2e-3, "preconditioner": preconditioner}
    result = evolve(device, watch=watch, **settings)
    assert isinstance(result.u, cupy.ndarray)
    assert result.status is EvolveStatus.COMPLETED
    assert max(quantity.drift for quantity in result.watched.values()) < 1e-12
    expected = evolve(problem, **settings).u
    np.testing.assert_allclose(result.u.get(), expected, rtol=0, atol=1e-9)


def test_a_state_that_is_not_physical(cupy):
    device = make("relaxation-1x1v", 3, 2).to("cuda")
    u, out = cupy.zeros_like(device.initial), cupy.zeros_like(device.initial)
    device.rhs(0.0, u, out)  # the host does not look at values that must be positive
    assert cupy.isnan(out).any()
