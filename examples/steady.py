"""A steady state on a sparse grid: gmres with the combination technique, and without.

0 = ∇·(k ∇f) + s on the unit square with f = 0 on the boundary; k grows from 1 to 11 along y. The
preconditioner solves the nested full grids that the sparse grid consists of, and adds them up with
signs.
"""

import numpy as np

from batchkron.problems import PDE, Axis, Dirichlet, Separable
from batchkron.problems.statement.terms import div, grad, mass
from batchkron.solvers import gmres, preconditioners

x, y = Axis("x", 0, 1), Axis("y", 0, 1)


def conductivity(s):
    """k, a function of y."""
    return 1 + 10 * s**2


terms = [div(x) @ grad(x) @ mass(y, conductivity), div(y) @ mass(y, conductivity) @ grad(y)]
source = Separable(x=lambda s: np.sin(np.pi * s), y=lambda s: np.sin(np.pi * s))
pde = PDE([x, y], terms, boundary=Dirichlet(), initial=0.0, sources=source)

for level in (4, 6):
    problem = pde.discretize(level=level, degree=2)
    A, b = problem.operator, np.empty(problem.unknowns)
    problem.source(0.0, b)
    M = preconditioners.make("auto", A)
    with_it = gmres(A, -b, M=M, rtol=1e-8)
    without = gmres(A, -b, rtol=1e-8, restart=50, maxiter=4)
    middle = problem.evaluate(with_it.x, [[0.5, 0.5]])[0]
    print(
        f"level {level}, {problem.unknowns} unknowns: f = {middle:.6f} in the middle; "
        f"{with_it.iterations} iterations, without the preconditioner "
        f"{without.iterations} ({without.status})"
    )
