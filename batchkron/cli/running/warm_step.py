"""A warm-up step: one step of a problem whose result is discarded, so that all plans are built."""

from __future__ import annotations

from batchkron.arrays import array_module
from batchkron.problems import Problem
from batchkron.solvers import evolve, steppers

__all__ = ["take_warm_up_step"]

# The linear solver of implicit methods: two products are enough to build all plans.
_SHORT_SOLVE = {"name": "gmres", "restart": 2, "maxiter": 1}


def take_warm_up_step(problem: Problem, method: str) -> None:
    """Take one step, which builds and compiles everything that the steps of a run need.

    A rule of adaptation that the problem has is left out: it would change the grid between steps.

    Parameters
    ----------
    problem : Problem
        The problem, on the device of the runs.
    method : str
        The time stepper of the runs.

    Raises
    ------
    ValueError
        If the problem cannot be run with this stepper.
    """
    solver = None
    if issubclass(steppers.get(method), (steppers.ImplicitStepper, steppers.DiagonallyImplicit)):
        solver = _SHORT_SOLVE
        # The vectors of a Krylov basis are rows of one array, whose addresses have other alignments
        # and so may need another kernel. A product of such rows builds it, even if the short solve
        # ends before.
        basis = array_module(problem.initial).ones((2, problem.unknowns))
        problem.operator_at(problem.t0).matvec(basis[1], out=basis[0])
    dt = problem.stepper.dt
    evolve(
        problem,
        until=problem.t0 + dt,
        method=method,
        dt=dt,
        solver=solver,
        adapt=False,
        allow_unstable=True,
    )
