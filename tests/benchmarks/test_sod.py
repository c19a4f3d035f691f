"""Sod's tubes: the exact states, and those of a kinetic gas with many collisions."""

import pytest
import source_benchmarks


@pytest.fixture
def sod(pytestconfig, monkeypatch):
    return source_benchmarks.module("sod")


@pytest.mark.parametrize(
    ("velocities", "pressure", "velocity", "densities", "shock", "tail"),
    [
        (1, 0.272909, 0.608567, (0.648644, 0.170704), 2.273005, -0.514917),
        (2, 0.285975, 0.760062, (0.534767, 0.204344), 1.957474, -0.274120),
        (3, 0.293945, 0.841195, (0.479689, 0.229806), 1.844473, -0.169401),
    ],
)
def test_exact_states(sod, velocities, pressure, velocity, densities, shock, tail):
    found = sod.exact(velocities)
    assert found["pressure"] == pytest.approx(pressure, abs=1e-6)
    assert found["velocity"] == pytest.approx(velocity, abs=1e-6)
    assert found["densities"] == pytest.approx(densities, abs=1e-6)
    assert (found["shock"], found["tail"]) == pytest.approx((shock, tail), abs=1e-6)


def test_one_velocity(sod):
    """The limiter keeps the means of cells, and with it mass, but adds to the energy."""
    plain, limited = sod.run(1, (5, 4)), sod.run(1, (5, 4), limiter=True)
    assert plain["away"] < 0.03
    assert max(plain["mass"], plain["energy"], limited["mass"]) < 1e-12
    assert 1e-4 < limited["energy"] < 1e-2


@pytest.mark.slow
def test_one_velocity_on_a_finer_grid(sod):
    assert sod.run(1, (6, 4))["away"] < 0.01


@pytest.mark.slow
def test_three_velocities_on_a_coarse_grid(sod):
    run = sod.run(3, (4, 3))
    assert run["away"] < 0.05
    assert max(run["mass"], run["energy"]) < 1e-10
