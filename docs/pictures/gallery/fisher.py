"""A front of a species that spreads and grows, by an IMEX method: diffusion is implicit."""

from batchkron.problems import PDE, Axis, laplacian, pointwise
from batchkron.solvers import evolve

x = Axis("x", -12, 14)
pde = PDE(
    [x],
    [laplacian(x), pointwise("f * (1 - f)")],
    boundary="no-flux",
    initial="(1 + exp(x / sqrt(6)))**(-2)",
    name="fisher",
)
problem = pde.discretize(level=6, degree=2)
result = evolve(problem, until=1.0, method="ark3", dt=0.01)
values = problem.evaluate(result.u, [0.0, 2.0])
print(f"f(0), f(2) = {values[0]:.6f}, {values[1]:.6f}; Ablowitz and Zeppetella 0.485892, 0.254227")
figure = result.plot()
