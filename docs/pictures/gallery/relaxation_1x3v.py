"""Three beams in three velocities, on a sparse grid of four axes."""

import numpy as np

from batchkron.problems import PDE, Axis, Separable, lenard_bernstein
from batchkron.solvers import evolve


def factor_3v(mean, theta):
    """Return the factor of a Maxwellian along one velocity."""
    return lambda s: np.exp(-((s - mean) ** 2) / (2 * theta)) / np.sqrt(2 * np.pi * theta)


def gauss_3v(u1, u2, u3, theta):
    """Return a Maxwellian of density 1."""
    return Separable(v1=factor_3v(u1, theta), v2=factor_3v(u2, theta), v3=factor_3v(u3, theta))


nu = 1e3
x, *velocities = Axis("x", -0.5, 0.5), *(Axis(f"v{i}", -8, 12) for i in (1, 2, 3))
beams = (1 / 3) * (gauss_3v(3, 0, 0, 0.5) + gauss_3v(0, 3, 0, 0.5) + gauss_3v(0, 0, 3, 0.5))
collisions = lenard_bernstein(velocities, nu, conserve="exact")
ends = {x: "periodic"} | dict.fromkeys(velocities, "no-flux")
last = gauss_3v(1, 1, 1, 2.5)
pde = PDE(
    [x, *velocities], collisions, boundary=ends, initial=beams, exact=last, name="relaxation-1x3v"
)
problem = pde.discretize(level=4, degree=2)
result = evolve(problem, until=2.5e-3, method="ark3", dt=5e-4)
distance = np.linalg.norm(result.u - problem.exact_coefficients(result.t))
print(f"L2 distance to the Maxwellian's projection {distance:.2e}; ASGarD 6.72e-03")
figure = result.plot(marginal=velocities[:2])
