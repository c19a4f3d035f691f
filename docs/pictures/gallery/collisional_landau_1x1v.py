"""Collisions weaken Landau damping, and leave a second mode that does not oscillate."""

import numpy as np

from batchkron.problems import PDE, Axis, Moment, Poisson, Separable, div, lenard_bernstein
from batchkron.solvers import evolve, fit_growth

k, nu, amplitude = 0.5, 1.0, 1e-4
x, v = Axis("x", -np.pi / k, np.pi / k), Axis("v", -6, 6)
bell = Separable(
    x=lambda s: 1 + amplitude * np.cos(k * s), v=lambda s: np.exp(-(s**2) / 2) / np.sqrt(2 * np.pi)
)
E = Poisson(x, Moment(v))
terms = [
    div(x, -1.0, others={v: lambda s: s}),
    div(v, -1.0, others={x: E}),
    *lenard_bernstein(v, nu, conserve="exact"),
]
ends = {x: "periodic", v: "inflow"}
pde = PDE([x, v], terms, boundary=ends, initial=bell, name="collisional-landau-1x1v")
problem = pde.discretize(level=(3, 5), degree=2, grid="full")
watch = problem.quantities("field")
result = evolve(problem, until=20.0, method="ark3", dt=0.04, watch=watch)
t, norms = result.recorded.t, result.recorded["field"]
fit = fit_growth(t, norms, between=(4, 20), model="mode")
print(f"the wave falls as exp({fit.rate:.5f} t), ω = {fit.frequency:.5f}; theory -0.03161, 1.33106")
figure = result.plot("field", fit=fit)
