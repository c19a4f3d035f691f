"""A warm-up step: one step of a problem whose result is discarded, so that all plans are built."""

from __future__ import annotations

from typing import Any

from batchkron.arrays import array_module
from batchkron.cli.arguments.problem import AnyProblem
from batchkron.solvers import evolve, steppers
from batchkron.solvers.protocols import (
    implicit_operator_of,
    implicit_part_of,
    operator_of,
    whole_part_of,
)

__all__ = ["take_warm_up_step"]

# The linear solver of implicit methods: two products are enough to build all plans.
_SHORT_SOLVE = {"name": "gmres", "restart": 2, "maxiter": 1}


_SHORT_STEP = 1e-6  # of a problem that suggests none, in its unit of time; kernels do not know it


def take_warm_up_step(problem: AnyProblem, method: str) -> None:
    """Take one step, which builds and compiles everything that the steps of a run need.

    The problem is on the device of the runs. A rule of adaptation that it has is left out: it would
    change the grid between steps.

    Raises `ValueError` if the problem cannot be run with this stepper.
    """
    solver = None
    kind = steppers.get(method)
    if issubclass(kind, (steppers.ImplicitStepper, steppers.DiagonallyImplicit)):
        solver = _SHORT_SOLVE
        # The vectors of a Krylov basis are rows of one array, whose addresses have other alignments
        # and so may need another kernel. A product of such rows builds it, even if the short solve
        # ends before.
        basis = array_module(problem.initial).ones((2, problem.unknowns))
        is_imex = issubclass(kind, steppers.DiagonallyImplicit) and kind.tableau.is_imex
        _stage_operator(problem, is_imex).matvec(basis[1], out=basis[0])
    dt = _SHORT_STEP if problem.stepper is None else problem.stepper.dt
    evolve(
        problem,
        until=problem.t0 + dt,
        method=kind,
        dt=dt,
        solver=solver,
        adapt=False,
        allow_unstable=True,
    )


def _stage_operator(problem: AnyProblem, is_imex: bool) -> Any:
    """Return the operator with which a method solves its stages, at the initial state."""
    part = implicit_part_of(problem) if is_imex else whole_part_of(problem)
    if part is None:
        return (implicit_operator_of if is_imex else operator_of)(problem, problem.t0)
    part.follow(problem.t0, problem.initial)
    return part.operator
