"""Follow a narrow pulse with a grid that is refined and coarsened on the way.

f_t + f_x + f_y / 2 = 0 on the torus [-1, 1]². Every tenth step cells with small coefficients are
dropped, and the children of those with large ones are added. `Problem.on_grid` keeps the 1-D
operators and what is known about fibres that the new grid has as well.
"""

import numpy as np

from batchkron import SparseGridOperator
from batchkron.problems import PDE, Axis, Separable, SparseGrid, div
from batchkron.solvers import evolve

LEVEL, DEGREE, DT, STEPS, ROUNDS = 6, 2, 0.002, 10, 10
KEPT, REFINED = 1e-6, 1e-4  # norms of a cell's coefficients


def pulse(s):
    return np.exp(-40 * (1 - np.cos(np.pi * s)))


def adapted(problem, u):
    """Return the cells of large coefficients, their children, and all parents."""
    grid = problem.grid
    sizes = np.linalg.norm(u.reshape(grid.num_cells, -1), axis=1)
    found = [grid.cells[sizes > KEPT], np.zeros((1, 2), int)]
    for axis in range(grid.dimensions):
        for side in (0, 1):
            children = grid.cells[sizes > REFINED].copy()
            children[:, axis] = np.maximum(2 * children[:, axis] + side, 1)
            found.append(children[children[:, axis] < 1 << grid.levels[axis]])
    return SparseGrid.custom(np.vstack(found), grid.levels).closed()


x, y = Axis("x", -1, 1), Axis("y", -1, 1)
pde = PDE(
    [x, y], [div(x, -1), div(y, -0.5)], boundary="periodic", initial=Separable(x=pulse, y=pulse)
)
full = pde.discretize(LEVEL, DEGREE, grid="full")
problem = full.on_grid(adapted(full, full.initial))
looked_up = all_sets = 0
for _ in range(ROUNDS):
    result = evolve(problem, until=problem.t0 + STEPS * DT, method="rk4", dt=DT)
    problem = problem.on_grid(adapted(problem, result.u), result.u, result.t)
    operator = problem.operator
    assert isinstance(operator, SparseGridOperator)
    looked_up += operator.num_new_profiles
    all_sets += operator.num_profiles
    print(f"t = {problem.t0:.2f}: {problem.unknowns} of {full.unknowns} unknowns")
print(f"{looked_up} of {all_sets} sets of cells that fibres have were looked up")
expected = evolve(full, until=problem.t0, method="rk4", dt=DT).u
again = problem.on_grid(full.grid).initial
print(
    f"differs by {np.linalg.norm(again - expected) / np.linalg.norm(expected):.1e} from all cells"
)
