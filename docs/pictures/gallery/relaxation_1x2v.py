"""Two beams in two velocities become one Maxwellian."""

import numpy as np

from batchkron.problems import PDE, Axis, Separable, lenard_bernstein
from batchkron.solvers import evolve


def factor_2v(mean, theta):
    """Return the factor of a Maxwellian along one velocity."""
    return lambda s: np.exp(-((s - mean) ** 2) / (2 * theta)) / np.sqrt(2 * np.pi * theta)


def gauss_2v(u1, u2, theta):
    """Return a Maxwellian of density 1."""
    return Separable(v1=factor_2v(u1, theta), v2=factor_2v(u2, theta))


nu = 1e3
x, v1, v2 = Axis("x", -0.5, 0.5), Axis("v1", -8, 12), Axis("v2", -8, 12)
beams = 0.5 * gauss_2v(3, 0, 0.5) + 0.5 * gauss_2v(0, 3, 0.5)
collisions = lenard_bernstein([v1, v2], nu, conserve="exact")
ends = {x: "periodic", v1: "no-flux", v2: "no-flux"}
last = gauss_2v(1.5, 1.5, 2.75)
pde = PDE([x, v1, v2], collisions, boundary=ends, initial=beams, exact=last, name="relaxation-1x2v")
problem = pde.discretize(level=5, degree=2)
result = evolve(problem, until=5e-3, method="ark3", dt=5e-4)
distance = np.linalg.norm(result.u - problem.exact_coefficients(result.t))
print(f"L2 distance to the Maxwellian's projection {distance:.2e}; ASGarD 1.05e-03")
figure = result.plot(marginal=[v1, v2])
