"""A rod that gives off heat at its ends, as much as it is warm there."""

import numpy as np

from batchkron.problems import PDE, Axis, Robin, Separable, laplacian, time
from batchkron.solvers import evolve

x, k = Axis("x", 0, 1), 2.0
mode = Separable(x=lambda s: np.cos(k * (s - 0.5)), t=time.exp(-(k**2)))
pde = PDE([x], laplacian(x), boundary=Robin(k * np.tan(k / 2)), exact=mode, name="cooling-1d")
problem = pde.discretize(level=5, degree=2)
result = evolve(problem, until=0.5, method="esdirk3", dt=0.01)
values = problem.evaluate(result.u, [0.5, 1.0])
print(f"f(½), f(1) = {values[0]:.6f}, {values[1]:.6f}; exact {np.exp(-2):.6f}, ", end="")
print(f"{np.exp(-2) * np.cos(1):.6f}")
figure = result.plot()
