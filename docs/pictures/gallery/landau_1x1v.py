"""A small wave of a plasma at rest is damped, although nothing collides."""

import numpy as np

from batchkron.problems import PDE, Axis, Moment, Poisson, Separable, div
from batchkron.solvers import evolve, fit_growth

k, amplitude = 0.5, 1e-4
x, v = Axis("x", 0, 2 * np.pi / k), Axis("v", -6, 6)
bell = Separable(
    x=lambda s: 1 + amplitude * np.cos(k * s), v=lambda s: np.exp(-(s**2) / 2) / np.sqrt(2 * np.pi)
)
E = Poisson(x, Moment(v))
terms = [div(x, -1.0, others={v: lambda s: s}), div(v, -1.0, others={x: E})]
pde = PDE([x, v], terms, boundary={x: "periodic", v: "inflow"}, initial=bell, name="landau-1x1v")
problem = pde.discretize(level=(3, 6), degree=2, grid="full")
watch = problem.quantities("field")
result = evolve(problem, until=20.0, method="rk4", dt=0.04, watch=watch)
fit = fit_growth(result.recorded.t, result.recorded["field"], between=(6, 20))
print(f"‖E‖ ~ exp({fit.rate:.5f} t) |cos({fit.frequency:.5f} t)|; theory -0.15336, 1.41566")
figure = result.plot("field", fit=fit)
