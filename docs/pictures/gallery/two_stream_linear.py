"""Two cold beams pass through each other: small waves take their energy, and grow."""

import numpy as np

from batchkron.problems import PDE, Axis, Moment, Poisson, Separable, div
from batchkron.solvers import evolve, fit_growth

k, amplitude, drift = 0.2, 1e-5, 3.0
x, v = Axis("x", 0, 2 * np.pi / k), Axis("v", -10, 10)
beams = Separable(
    x=lambda s: 1 + amplitude * np.cos(k * s),
    v=lambda s: sum(np.exp(-((s - u) ** 2) / 2) for u in (drift, -drift)) / np.sqrt(8 * np.pi),
)
E = Poisson(x, Moment(v))
terms = [div(x, -1.0, others={v: lambda s: s}), div(v, -1.0, others={x: E})]
pde = PDE(
    [x, v], terms, boundary={x: "periodic", v: "inflow"}, initial=beams, name="two-stream-linear"
)
problem = pde.discretize(level=(3, 6), degree=2, grid="full")
watch = problem.quantities("field")
result = evolve(problem, until=45.0, method="rk4", dt=0.05, watch=watch)
fit = fit_growth(result.recorded.t, result.recorded["field"], between=(20, 30))
print(f"‖E‖ ~ exp({fit.rate:.5f} t) for t in [20, 30]; theory 0.28451")
figure = result.plot("field", fit=fit)
