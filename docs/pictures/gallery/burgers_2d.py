"""A wave along the diagonal that becomes steeper, shortly before its shock."""

import numpy as np

from batchkron.problems import PDE, Axis, div, pointwise
from batchkron.solvers import evolve

x, y = Axis("x", 0, 2 * np.pi), Axis("y", 0, 2 * np.pi)
flux = pointwise("f**2 / 2", speed=1.0)


def exact(x, y, t):
    """Return f by Newton's method for f = sin(x + y - 2 t f)."""
    f = np.sin(x + y)
    for _ in range(20):
        g = np.sin(x + y - 2 * t * f)
        f = f - (f - g) / (1 + 2 * t * np.cos(x + y - 2 * t * f))
    return f


pde = PDE(
    [x, y],
    [-1 * div(x) @ flux, -1 * div(y) @ flux],
    boundary="periodic",
    initial="sin(x + y)",
    exact=exact,
    name="burgers-2d",
)
problem = pde.discretize(level=7, degree=2)
result = evolve(problem, until=0.1)
error = problem.l2_error(result.u, 0.1) / (2 * np.pi)
print(f"root mean square error {error:.2e} with {problem.unknowns} unknowns; expected 8.8e-05")
print(f"∫∫ f dx dy changes by {problem.integral(result.u) - problem.integral(problem.initial):.0e}")
figure = evolve(problem, until=0.3).plot(slice={"y": 0.0})
