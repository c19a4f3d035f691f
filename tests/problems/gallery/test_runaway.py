"""Runaway electrons in a field: reference values, conservation, coefficients."""

import numpy as np
import pytest
from scipy import integrate, linalg
from scipy.special import erf

from batchkron.problems import make
from batchkron.problems.gallery import runaway
from batchkron.solvers import EvolveStatus, Quantity, evolve

PLACES = [(p, z) for p in (0.3, 0.7, 1.3, 2.0) for z in (-0.9, 0.9)]
VALUES = [0.94647, 0.94979, 0.61727, 0.65867, 0.17833, 0.22996, 0.02063, 0.03220]


def direct():
    """A solver that factorises I - c A once."""
    known = {}

    def solve(A, b, M=None):
        if A.scale not in known:
            dense = np.eye(b.size) - A.scale * A.operator.to_dense()
            known[A.scale] = linalg.lu_factor(dense)
        return linalg.lu_solve(known[A.scale], b), 0

    return solve


def run(problem, until, solver=None):
    number = Quantity.moment(problem, list(problem.axes))
    result = evolve(problem, until=until, solver=solver or direct(), watch={"number": number})
    assert result.status is EvolveStatus.COMPLETED
    return result


def test_the_reference_values_and_the_number():
    problem = make("runaway")
    assert problem.unknowns == 1792
    result = run(problem, 0.2)
    assert result.steps == 20
    np.testing.assert_allclose(problem.evaluate(result.u, PLACES), VALUES, rtol=0, atol=1e-4)
    number = result.watched["number"]
    assert number.first == pytest.approx(1.0, abs=1e-12)
    assert number.drift < 1e-12


def test_krylov_methods_find_the_same():
    """The operator is stiff at p = 0, so that GMRES must not be restarted early."""
    problem = make("runaway", 4, 2)
    expected = run(problem, 0.05)
    result = run(problem, 0.05, {"restart": 432, "rtol": 1e-11})
    np.testing.assert_allclose(result.u, expected.u, atol=1e-8)


def test_a_field_above_the_critical_one_makes_ever_more_runaways():
    problem = make("runaway", (5, 3), 2)
    p, _ = problem.axes
    points = np.linspace(5.0, 10.0, 801)[:-1] + 2.5 / 800
    fast = []

    def record(state):
        density = problem.marginal(state.u, p).evaluate(points)
        fast.append(density @ points**2 * 5.0 / 800)

    solver = direct()
    result = evolve(problem, until=20.0, dt=0.25, solver=solver, callback=record)
    assert result.status is EvolveStatus.COMPLETED
    assert (np.diff(fast[20:]) > 0.0).all()
    assert fast[-1] > 1e-3


def test_radiation_takes_energy_and_keeps_the_number():
    plain, radiating = make("runaway", 4, 2), make("runaway", 4, 2, radiation=1.0)
    results = [run(problem, 0.1) for problem in (plain, radiating)]
    energies = [
        problem.moment_weights({problem.axes[0]: 2}) @ result.u
        for problem, result in zip((plain, radiating), results, strict=True)
    ]
    assert energies[1] < 0.99 * energies[0]
    assert results[1].watched["number"].drift < 1e-12


def test_coefficients():
    """Against the formulas, and ψ by its integral ψ(v) = (2/√π) v⁻² ∫_0^v s² exp(-s²) ds."""
    delta, charge = 0.3, 5.0
    for p in (1e-9, 1e-3, 0.3, 2.0, 9.0):
        v = p / np.sqrt(1.0 + (delta * p) ** 2)
        inner = integrate.quad(lambda s: s**2 * np.exp(-(s**2)), 0.0, v, epsabs=0.0)[0]
        psi = 2.0 / np.sqrt(np.pi) * inner / v**2
        at = np.array([p])
        assert runaway._energy_diffusion(delta, at)[0] == pytest.approx(psi / v, rel=1e-11)
        assert runaway._friction(delta, at)[0] == pytest.approx(2.0 * psi, rel=1e-11)
        if p > 0.1:
            whole = charge + erf(v) - psi + 0.5 * delta**4 * v**2
            found = runaway._pitch_scattering(delta, charge, at)[0]
            assert found == pytest.approx(0.5 * whole / v / p**2, rel=1e-12)
    zero = np.zeros(1)
    assert runaway._energy_diffusion(delta, zero)[0] == pytest.approx(2 / (3 * np.sqrt(np.pi)))


def test_without_a_field_the_thermal_electrons_stay():
    problem = make("runaway", (5, 1), 3, field=0.0)
    result = run(problem, 0.2)
    assert np.abs(result.u - problem.initial).max() < 1e-4 * np.abs(problem.initial).max()
