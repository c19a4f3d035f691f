"""A wave that is half as large as the density: particles are trapped in it, and it grows again."""

import numpy as np

from batchkron.problems import PDE, Axis, Moment, Poisson, Separable, div
from batchkron.solvers import evolve, fit_growth

k, amplitude = 0.5, 0.5
x, v = Axis("x", 0, 2 * np.pi / k), Axis("v", -6, 6)
bell = Separable(
    x=lambda s: 1 + amplitude * np.cos(k * s), v=lambda s: np.exp(-(s**2) / 2) / np.sqrt(2 * np.pi)
)
E = Poisson(x, Moment(v))
terms = [div(x, -1.0, others={v: lambda s: s}), div(v, -1.0, others={x: E})]
pde = PDE([x, v], terms, boundary={x: "periodic", v: "inflow"}, initial=bell, name="landau-strong")
problem = pde.discretize(level=(4, 7), degree=2, grid="full")
watch = problem.quantities("field")
result = evolve(problem, until=40.0, method="rk4", dt=0.02, watch=watch)
t, norms = result.recorded.t, result.recorded["field"]
falls, grows = (fit_growth(t, norms, between=ends, model="maxima") for ends in ((1, 6), (20, 40)))
print(f"decay {falls.rate:.3f}, growth {grows.rate:.3f}; published -0.28 … -0.30, 0.07 … 0.09")
figure = result.plot("field", fit=grows)
