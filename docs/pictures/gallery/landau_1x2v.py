"""Landau damping with a second velocity, on the sparse grid of the velocities."""

import numpy as np

from batchkron.problems import PDE, Axis, Mixed, Moment, Poisson, Separable, div
from batchkron.solvers import evolve, fit_growth


def maxwellian(s):
    """Return the Maxwellian of a plasma at rest."""
    return np.exp(-(s**2) / 2) / np.sqrt(2 * np.pi)


k, amplitude = 0.5, 1e-4
x, v1, v2 = Axis("x", 0, 2 * np.pi / k), Axis("v1", -6, 6), Axis("v2", -6, 6)
bell = Separable(x=lambda s: 1 + amplitude * np.cos(k * s), v1=maxwellian, v2=maxwellian)
E = Poisson(x, Moment([v1, v2]))
terms = [div(x, -1.0, others={v1: lambda s: s}), div(v1, -1.0, others={x: E})]
ends = {x: "periodic", v1: "inflow", v2: "inflow"}
pde = PDE([x, v1, v2], terms, boundary=ends, initial=bell, name="landau-1x2v")
problem = pde.discretize(level=(2, 5, 3), degree=2, grid=Mixed([x], [v1, v2]))
watch = problem.quantities("field")
result = evolve(problem, until=12.0, method="rk4", dt=0.06, watch=watch)
fit = fit_growth(result.recorded.t, result.recorded["field"], between=(3, 12))
print(f"‖E‖ ~ exp({fit.rate:.4f} t) |cos({fit.frequency:.4f} t)|; theory -0.1534, 1.4157")
figure = result.plot("field", fit=fit)
