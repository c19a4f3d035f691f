"""Landau damping of waves along two positions: four axes, with the field of Poisson's equation."""

import numpy as np

from batchkron.problems import PDE, Axis, Electric, Mixed, Moment, Separable, div
from batchkron.solvers import evolve, fit_growth


def maxwellian_2v(s):
    """Return the Maxwellian of a plasma at rest."""
    return np.exp(-(s**2) / 2) / np.sqrt(2 * np.pi)


def wave_2x(s):
    """Return the wave along a position."""
    return amplitude * np.cos(k * s)


k, amplitude = 0.5, 1e-4
x, y = Axis("x", 0, 2 * np.pi / k), Axis("y", 0, 2 * np.pi / k)
v1, v2 = Axis("v1", -6, 6), Axis("v2", -6, 6)
rest = Separable(v1=maxwellian_2v, v2=maxwellian_2v)
along_x = Separable(x=wave_2x, v1=maxwellian_2v, v2=maxwellian_2v)
along_y = Separable(y=wave_2x, v1=maxwellian_2v, v2=maxwellian_2v)
start = rest + along_x + along_y
E = Electric([x, y], Moment([v1, v2]))
terms = [
    div(x, -1.0, others={v1: lambda s: s}),
    div(y, -1.0, others={v2: lambda s: s}),
    div(v1, -1.0, others={(x, y): E.x}),
    div(v2, -1.0, others={(x, y): E.y}),
]
ends = {x: "periodic", y: "periodic", v1: "inflow", v2: "inflow"}
pde = PDE([x, y, v1, v2], terms, boundary=ends, initial=start, name="landau-2x2v")
problem = pde.discretize(level=(2, 2, 4, 4), degree=3, grid=Mixed([x, y], [v1, v2]))
watch = problem.quantities("field", "field-energy", "energy")
result = evolve(problem, until=12.0, method="rk4", dt=0.04, watch=watch)
fit = fit_growth(result.recorded.t, result.recorded["field"], between=(4, 12))
full = np.prod([4 << level for level in problem.grid.levels])
print(f"{problem.unknowns} unknowns; the full grid has {full}")
print(f"‖E‖ ~ exp({fit.rate:.4f} t) |cos({fit.frequency:.4f} t)|; theory -0.1534, 1.4157")
total, small = result.watched["energy"], result.watched["field-energy"].first
print(f"energy {total.first:.2f}, changed by {total.drift:.0e}; {small:.0e} is that of the waves")
figure = result.plot("field", fit=fit)
