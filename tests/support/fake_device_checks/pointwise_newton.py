"""Pointwise terms: derivatives and Newton's method with a preconditioner, as on the CPU."""

import cupy
import numpy as np

from batchkron.problems import PDE, Axis, div, grad, pointwise
from batchkron.solvers import evolve
from fake_device_checks.common import close

X = Axis("x", 0, 2 * np.pi)


def newton():
    """Derivatives, and Newton's method; of formulas, as graphs here hold no calls of NumPy's."""
    terms = [0.1 * div(X) @ grad(X), pointwise("f - f**3"), pointwise("sin(f * x)")]
    pde = PDE([X], terms, boundary="periodic", initial="0.3 * sin(x)")
    problem = pde.discretize(2, 2)
    device = problem.to("cuda")
    u, w = np.random.default_rng(1).standard_normal((2, problem.unknowns))
    found = device.jacobian(0.0, cupy.asarray(u)) @ cupy.asarray(w)
    np.testing.assert_allclose(found.get(), problem.jacobian(0.0, u) @ w, atol=1e-6)
    for options in ({"rtol": 1e-3, "method": "bdf"}, {"dt": 0.05, "method": "esdirk3"}):
        options |= {"until": 0.05, "preconditioner": "auto"}
        states = [evolve(own, **options).u for own in (device, problem)]
        np.testing.assert_allclose(states[0].get(), states[1], atol=1e-6)
    _speeds()


def _speeds():
    """α is the largest speed at the points."""
    term = -1 * div(X) @ pointwise("f**2 / 2", speed_of="f")
    problem = PDE([X], term, boundary="periodic", initial="sin(x)").discretize(2, 2)
    u = np.random.default_rng(1).standard_normal(problem.unknowns)
    found = cupy.empty(u.shape)
    problem.to("cuda").rhs(0.0, cupy.asarray(u), found)
    close(found, problem.rhs(0.0, u))
