"""Diffusion with a coefficient that is no product; the steady state by GMRES, without time."""

import numpy as np

from batchkron.problems import PDE, Axis, div, grad, mass, pointwise
from batchkron.solvers import evolve, gmres

x, y = Axis("x", 0, 2 * np.pi), Axis("y", 0, 2 * np.pi)
diffusivity = pointwise("(2 + sin(x) * cos(y)) * f", linear=True)
source = (
    "sin(x + 2*y) * (1 + 5 * (2 + sin(x) * cos(y))) - cos(x) * cos(y) * cos(x + 2*y) "
    "+ 2 * sin(x) * sin(y) * cos(x + 2*y)"
)
pde = PDE(
    [x, y],
    [*(div(axis) @ diffusivity @ grad(axis) for axis in (x, y)), mass(x, -1.0)],
    boundary="periodic",
    sources=source,
    exact="sin(x + 2*y)",
    name="diffusivity-2d",
)
problem = pde.discretize(level=5, degree=2)
s = np.empty(problem.unknowns)
problem.source(0.0, s)
found = gmres(problem.operator, -s, rtol=1e-8, restart=200, maxiter=4000)
error = problem.l2_error(found.x, 0.0) / (2 * np.pi)
print(f"root mean square error {error:.1e}; with k as a sum of products 1.9e-03")
result = evolve(problem, u0=found.x, until=0.1, method="crank-nicolson", dt=0.01)
figure = result.plot(slice={"y": 1.0})
