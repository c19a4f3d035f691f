"""Stiff time stepping on a sparse grid, with step-size control, beside SciPy's integrators.

The heat equation of the gallery, whose boundary data decay with the solution. Explicit methods are
bound to tiny steps here; implicit and exponential ones take those that the tolerance allows. The
states between steps, events and conserved quantities come from the same call.
"""

import numpy as np
import scipy.integrate

from batchkron.problems import gallery
from batchkron.solvers import Event, evolve, steppers

problem = gallery.make("diffusion-2d", level=4)
start = np.linalg.norm(problem.initial)
half = Event(lambda t, u: np.linalg.norm(u) - start / 2, "half of the norm", direction=-1)

for method, preconditioner in (
    ("esdirk3", "auto"),
    ("exponential-trapezoidal", None),
    ("dormand-prince", None),
):
    result = evolve(
        problem,
        until=0.1,
        method=steppers.get(method),
        rtol=1e-5,
        at=[0.05],
        events=half,
        preconditioner=preconditioner,
    )
    (time, state), event = result.samples[0], result.events[0]
    print(
        f"{method}: {result.steps} steps, {result.rejected} rejected; "
        f"L2 error {problem.l2_error(result.u, result.t):.2e} at t = {result.t}, "
        f"{problem.l2_error(state, time):.2e} at {time}; {event.name} at t = {event.t:.4f}"
    )


def rhs(t, u):
    """The right-hand side as SciPy wants it."""
    out = np.empty_like(u)
    problem.rhs(t, u, out)
    return out


scipys = scipy.integrate.solve_ivp(
    rhs, (0, 0.1), problem.initial, "BDF", jac=problem.operator.to_dense(), rtol=1e-5, atol=1e-8
)
error = problem.l2_error(np.ascontiguousarray(scipys.y[:, -1]), 0.1)
print(f"SciPy's BDF: {len(scipys.t) - 1} steps, L2 error {error:.2e}, a dense Jacobian")
