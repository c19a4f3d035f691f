"""A step of a problem that is taken and thrown away, so that all its plans are built."""

from __future__ import annotations

from batchkron.arrays import array_module
from batchkron.problems import Problem
from batchkron.solvers import evolve, steppers

__all__ = ["take_warm_up_step"]

_SHORT_SOLVE = {"name": "gmres", "restart": 2, "maxiter": 1}


def take_warm_up_step(problem: Problem, method: str) -> None:
    """Do once what a run does again and again.

    Parameters
    ----------
    problem : Problem
        The problem, where the runs will be.
    method : str
        Their time stepper.

    Raises
    ------
    ValueError
        If the problem cannot be run so.
    """
    solver = None
    if issubclass(steppers.get(method), (steppers.ImplicitStepper, steppers.DiagonallyImplicit)):
        solver = _SHORT_SOLVE
        # Rows of one array, as a Krylov basis is, whatever the solve makes of its right side: where
        # they begin decides which kernel takes them.
        basis = array_module(problem.initial).ones((2, problem.unknowns))
        problem.operator_at(problem.t0).matvec(basis[1], out=basis[0])
    dt = problem.stepper.dt
    evolve(problem, until=problem.t0 + dt, method=method, dt=dt, solver=solver, allow_unstable=True)
