"""A wave that becomes steeper until it breaks at t = 1; here it is half way."""

import numpy as np

from batchkron.problems import PDE, Axis, div, pointwise
from batchkron.solvers import evolve

x = Axis("x", 0, 2 * np.pi)
term = -1 * div(x) @ pointwise("f**2 / 2", speed=1.0)
pde = PDE([x], term, boundary="periodic", initial="sin(x)", name="burgers-1d")
problem = pde.discretize(level=6, degree=2)
result = evolve(problem, until=0.5)
values = problem.evaluate(result.u, [0.5, 1.5])
print(f"f(0.5), f(1.5) = {values[0]:.5f}, {values[1]:.5f}; exact 0.32916, 0.87385")
figure = result.plot()
