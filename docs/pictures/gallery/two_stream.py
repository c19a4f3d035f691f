"""Two streams roll up into a vortex in phase space, with mass, momentum and energy conserved."""

import numpy as np

from batchkron.problems import PDE, Axis, Moment, Poisson, Separable, div
from batchkron.solvers import evolve

amplitude = -0.5
x, v = Axis("x", -2 * np.pi, 2 * np.pi), Axis("v", -2 * np.pi, 2 * np.pi)
humps = Separable(
    x=lambda s: 1 + amplitude * np.cos(s / 2), v=lambda s: s**2 * np.exp(-(s**2)) / np.sqrt(np.pi)
)
E = Poisson(x, Moment(v))
terms = [div(x, -1.0, others={v: lambda s: s}), div(v, -1.0, others={x: E})]
pde = PDE([x, v], terms, boundary={x: "periodic", v: "inflow"}, initial=humps, name="two-stream")
problem = pde.discretize(level=(5, 6), degree=2, grid="full")
watch = problem.quantities("mass", "momentum", "energy")
result = evolve(problem, until=20.0, method="rk4", dt=0.0125, watch=watch)
drift = {name: abs(quantity.drift) for name, quantity in result.watched.items()}
print(", ".join(f"{name} changes by {change:.0e}" for name, change in drift.items()))
figure = result.plot()
