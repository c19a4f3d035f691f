"""Landau damping with all three velocities: four axes, on the sparse grid of the velocities."""

import numpy as np

from batchkron.problems import PDE, Axis, Mixed, Moment, Poisson, Separable, div
from batchkron.solvers import evolve, fit_growth


def maxwellian_3v(s):
    """Return the Maxwellian of a plasma at rest."""
    return np.exp(-(s**2) / 2) / np.sqrt(2 * np.pi)


k, amplitude = 0.5, 1e-4
x, *velocities = Axis("x", 0, 2 * np.pi / k), *(Axis(f"v{i}", -6, 6) for i in (1, 2, 3))
bell_3v = Separable(
    x=lambda s: 1 + amplitude * np.cos(k * s), v1=maxwellian_3v, v2=maxwellian_3v, v3=maxwellian_3v
)
E, v1 = Poisson(x, Moment(velocities)), velocities[0]
terms = [div(x, -1.0, others={v1: lambda s: s}), div(v1, -1.0, others={x: E})]
ends = {x: "periodic"} | dict.fromkeys(velocities, "inflow")
pde = PDE([x, *velocities], terms, boundary=ends, initial=bell_3v, name="landau-1x3v")
problem = pde.discretize(level=(2, 5, 3, 3), degree=2, grid=Mixed([x], velocities))
watch = problem.quantities("field")
result = evolve(problem, until=12.0, method="rk4", dt=0.06, watch=watch)
fit = fit_growth(result.recorded.t, result.recorded["field"], between=(3, 12))
full = np.prod([3 << level for level in problem.grid.levels])
print(f"{problem.unknowns} unknowns; the full grid has {full}")
print(f"‖E‖ ~ exp({fit.rate:.4f} t) |cos({fit.frequency:.4f} t)|; theory -0.1534, 1.4157")
figure = result.plot("field", fit=fit)
