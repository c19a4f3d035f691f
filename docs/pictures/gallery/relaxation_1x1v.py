"""Collisions drive two beams to the Maxwellian that has their momentum and energy."""

import numpy as np

from batchkron.problems import PDE, Axis, Separable, lenard_bernstein
from batchkron.solvers import evolve


def gauss_1v(mean, theta):
    """Return a Maxwellian of density 1."""
    size = np.sqrt(2 * np.pi * theta)
    return Separable(v=lambda s: np.exp(-((s - mean) ** 2) / (2 * theta)) / size)


nu = 1e3
x, v = Axis("x", -0.5, 0.5), Axis("v", -8, 12)
beams = 0.5 * gauss_1v(-1, 0.5) + 0.5 * gauss_1v(2, 0.5)
collisions = lenard_bernstein(v, nu, conserve="exact")
ends = {x: "periodic", v: "no-flux"}
pde = PDE(
    [x, v],
    collisions,
    boundary=ends,
    initial=beams,
    exact=gauss_1v(0.5, 2.75),
    name="relaxation-1x1v",
)
problem = pde.discretize(level=5, degree=2)
watch = problem.quantities("mass", "momentum", "kinetic-energy")
result = evolve(problem, until=5e-3, method="ark3", dt=5e-4, watch=watch)
distance = np.linalg.norm(result.u - problem.exact_coefficients(result.t))
print(f"L2 distance to the Maxwellian's projection {distance:.2e}; ASGarD 3.59e-05")
print(*(f"{name} changes by {q.drift:.0e}" for name, q in result.watched.items()), sep=", ")
figure = result.plot(marginal=v)
