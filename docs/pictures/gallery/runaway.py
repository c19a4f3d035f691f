"""Electrons of a hot plasma in a field: collisions slow them, and the field makes some run away."""

from batchkron.problems import make
from batchkron.solvers import evolve

problem = make("runaway", level=5, degree=3)
watch = problem.quantities("mass")
solver = {"name": "gmres", "restart": 1792, "rtol": 1e-12}  # stiff at p = 0: no early restarts
result = evolve(problem, until=0.2, solver=solver, watch=watch)
values = problem.evaluate(result.u, [[0.7, -0.9], [0.7, 0.9]])
print(f"f(0.7, ∓0.9) = {values[0]:.5f}, {values[1]:.5f}; converged 0.61727, 0.65867")
print(f"∫∫ f p² dp dz changes by {result.watched['mass'].drift:.0e}")
figure = result.plot(slice={"z": 0.9})
