"""Follow a narrow pulse with a grid that is refined and coarsened on the way.

f_t + f_x + f_y / 2 = 0 on the torus [-1, 1]². `evolve` looks at the grid every tenth step.
"""

import numpy as np

from batchkron.problems import PDE, Axis, Separable, div
from batchkron.solvers import Adapt, evolve


def pulse(s):
    return np.exp(-40 * (1 - np.cos(np.pi * s)))


x, y = Axis("x", -1, 1), Axis("y", -1, 1)
pde = PDE(
    [x, y], [div(x, -1), div(y, -0.5)], boundary="periodic", initial=Separable(x=pulse, y=pulse)
)
problem = pde.discretize(level=3, degree=2)
result = evolve(
    problem, until=0.2, method="rk4", dt=0.002, adapt=Adapt(1e-4, every=10, max_level=6)
)
full = pde.discretize(level=6, degree=2, grid="full")
for record in result.history:
    if record["event"] == "adapt":
        print(f"t = {record['t']:.2f}: {record['unknowns']} of {full.unknowns} unknowns")
expected = evolve(full, until=0.2, method="rk4", dt=0.002).u
u = result.problem.on_grid(full.grid, result.u).initial
print(f"differs by {np.linalg.norm(u - expected) / np.linalg.norm(expected):.1e} from all cells")
