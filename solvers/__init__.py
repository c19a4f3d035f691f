"""Krylov solvers and time steppers."""

from batchkron.solvers import preconditioners, steppers
from batchkron.solvers.bicgstab import Bicgstab, bicgstab
from batchkron.solvers.cg import Cg, cg
from batchkron.solvers.checkpointing import ResumeWarning
from batchkron.solvers.evolve import evolve
from batchkron.solvers.evolve_result import EvolveState, EvolveStatus, Result
from batchkron.solvers.gmres import Gmres, gmres
from batchkron.solvers.krylov_result import KrylovResult, Status

__all__ = [
    "Bicgstab",
    "Cg",
    "EvolveState",
    "EvolveStatus",
    "Gmres",
    "KrylovResult",
    "Result",
    "ResumeWarning",
    "Status",
    "bicgstab",
    "cg",
    "evolve",
    "gmres",
    "preconditioners",
    "steppers",
]
