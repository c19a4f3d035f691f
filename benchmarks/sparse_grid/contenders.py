"""What is timed: a right-hand side and a step, ours and ASGarD's, after both are found right."""

import numpy as np

from batchkron.problems import Problem
from batchkron.solvers.steppers.ssp_rk3 import SspRk3
from benchmarks.core.timing import Call
from benchmarks.sparse_grid.asgard import AsgardProblem
from benchmarks.sparse_grid.cases import Case

TIME = 0.1  # t at which right-hand sides are taken
CHECKED_STEPS = 3


def ours(problem: Problem) -> dict[str, Call]:
    u = np.array(problem.exact_coefficients(TIME))
    out, state = np.empty_like(u), u.copy()
    stepper = SspRk3(problem, problem.stepper.dt)
    after = TIME + problem.stepper.dt
    return {
        "right-hand side": lambda: problem.rhs(TIME, u, out),
        "step": lambda: stepper.step(state, TIME, after),
    }


def asgards(problem: AsgardProblem) -> dict[str, Call]:
    return {
        "right-hand side": lambda: problem.right_hand_side(TIME),
        "step": lambda: problem.advance(1),
    }


def disagreement(case: Case, theirs: AsgardProblem) -> str | None:
    """Return what is not the same problem, or None: bases are orthonormal, norms are the same."""
    problem = case.problem
    if theirs.unknowns != problem.unknowns:
        return f"ASGarD has {theirs.unknowns} unknowns, batchkron {problem.unknowns}"
    dt = problem.stepper.dt
    stepper, state = SspRk3(problem, dt), np.array(problem.initial)
    for step in range(CHECKED_STEPS):
        stepper.step(state, step * dt, (step + 1) * dt)
    theirs.advance(CHECKED_STEPS)
    own, other = np.linalg.norm(state), np.linalg.norm(theirs.state)
    # the two methods of order 3 differ by their errors in time
    if not np.isclose(own, other, rtol=1e-4):
        return f"after {CHECKED_STEPS} steps the norm is {other:.8e}, batchkron's {own:.8e}"
    theirs.argument[...] = theirs.state
    theirs.right_hand_side(TIME)
    slope = np.empty_like(state)
    problem.rhs(TIME, state, slope)
    own, other = np.linalg.norm(slope), np.linalg.norm(theirs.result)
    if not np.isclose(own, other, rtol=1e-4):
        return f"the right-hand side's norm is {other:.8e}, batchkron's {own:.8e}"
    return None
