"""A bump of fast particles on each side of a plasma drives waves."""

import numpy as np

from batchkron.problems import PDE, Axis, Moment, Poisson, Separable, div
from batchkron.solvers import evolve, fit_growth

amplitude = 1e-5
x, v = Axis("x", 0, 4 * np.pi), Axis("v", -8, 8)
bumps = Separable(
    x=lambda s: 1 + amplitude * np.cos(s / 2),
    v=lambda s: 2 / 7 * (1 + 5 * s**2) * np.exp(-(s**2) / 2) / np.sqrt(2 * np.pi),
)
E = Poisson(x, Moment(v))
terms = [div(x, -1.0, others={v: lambda s: s}), div(v, -1.0, others={x: E})]
pde = PDE([x, v], terms, boundary={x: "periodic", v: "inflow"}, initial=bumps, name="bump-on-tail")
problem = pde.discretize(level=(3, 6), degree=2, grid="full")
watch = problem.quantities("field")
result = evolve(problem, until=50.0, method="rk4", dt=0.04, watch=watch)
fit = fit_growth(result.recorded.t, result.recorded["field"], between=(20, 28))
print(f"‖E‖ ~ exp({fit.rate:.5f} t) for t in [20, 28]; theory 0.23307")
figure = result.plot("field", fit=fit)
