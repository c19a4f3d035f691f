"""A PDE of one's own in ten lines: advection, diffusion and decay in a channel.

f_t = -y (2 - y) f_x + 0.05 Δf - f + s on [-1, 1] × [0, 2], periodic along the channel, with the
value given at one wall and the slope at the other. The source s follows from the solution that
we ask for, so that the error is known.
"""

import numpy as np

from batchkron.problems import PDE, Axis, Dirichlet, Neumann, Separable, div, laplacian, mass, time
from batchkron.solvers import evolve

x, y = Axis("x", -1, 1), Axis("y", 0, 2)
wanted = Separable(x=lambda s: np.sin(np.pi * s), y=lambda s: np.exp(-s), t=time.cos(3))
terms = [div(x, -1, others={y: lambda s: s * (2 - s)}), laplacian([x, y], 0.05), -mass(x)]
pde = PDE(
    [x, y],
    terms,
    boundary={x: "periodic", y: (Dirichlet("from exact"), Neumann("from exact"))},
    exact=wanted,
    sources="from exact",
    name="channel",
)
for level in (2, 3, 4):
    problem = pde.discretize(level, degree=2, grid="full")
    result = evolve(problem, until=0.2, method="crank-nicolson", dt=0.001)
    error = problem.relative_error(result.u, result.t)
    print(f"{problem.unknowns:6d} unknowns, {result.status}, relative error {error:.2e}")
