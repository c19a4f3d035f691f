"""The names of batchkron's own steppers, solvers and preconditioners, as types.

With them type checkers find names that are misspelt. They know no names that other distributions
bring: `batchkron.solvers.steppers.get(name)` returns the class of such a method, which is taken in
the place of a name. Tests compare the names with the registries.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

__all__ = ["PreconditionerName", "SolverName", "StepperName"]

StepperName: TypeAlias = Literal[
    "forward-euler",
    "ssp-rk3",
    "rk4",
    "rkc2",
    "ssp-rk2",
    "ssp-rk43",
    "bogacki-shampine",
    "dormand-prince",
    "dop853",
    "backward-euler",
    "crank-nicolson",
    "bdf",
    "sdirk2",
    "sdirk3",
    "esdirk2",
    "esdirk3",
    "wso-sdirk3",
    "imex-euler",
    "ark2",
    "ark3",
    "exponential-euler",
    "exponential-trapezoidal",
]
"""Time steppers, explicit ones first."""

SolverName: TypeAlias = Literal[
    "gmres", "fgmres", "cg", "minres", "bicgstab", "krylov", "kronecker", "auto"
]
"""Linear solvers of implicit steppers, and then those of exponential ones."""

PreconditionerName: TypeAlias = Literal[
    "auto",
    "symmetric-combination",
    "multiplicative-combination",
    "combination",
    "factorised-combination",
    "kronecker-sum",
    "kronecker-product",
    "unmixed-sum",
    "scaled-sum",
    "fibre-inverse",
    "block-jacobi",
    "none",
]
"""Preconditioners of implicit steppers."""
