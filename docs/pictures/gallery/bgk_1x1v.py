"""Sound in a gas whose collisions are those of Bhatnagar, Gross and Krook."""

import numpy as np

from batchkron.problems import PDE, Axis, Separable, bgk, div
from batchkron.solvers import evolve, fit_growth

k, nu, amplitude = np.pi, 10.0, 1e-4
x, v = Axis("x", -np.pi / k, np.pi / k), Axis("v", -6, 6)
bell = Separable(
    x=lambda s: 1 + amplitude * np.cos(k * s), v=lambda s: np.exp(-(s**2) / 2) / np.sqrt(2 * np.pi)
)
terms = [div(x, -1.0, others={v: lambda s: s}), *bgk(v, nu)]
ends = {x: "periodic", v: "no-flux"}
pde = PDE([x, v], terms, boundary=ends, initial=bell, name="bgk-1x1v")
problem = pde.discretize(level=(3, 5), degree=2, grid="full")
watch = {"wave": lambda t, u: problem.moment(u, v).evaluate([0.0])[0] - 1.0}  # n - 1 at x = 0
result = evolve(problem, until=2.5, method="ark3", dt=0.01, watch=watch)
t, wave = result.recorded.t, result.recorded["wave"]
fit = fit_growth(t, wave, between=(0.5, 2.5), model="mode")
print(f"n - 1 ~ exp({fit.rate:.4f} t) cos({fit.frequency:.4f} t); theory -0.8240, 5.5807")
figure = result.plot("wave", fit=fit, log=False)
