"""Krylov solvers and time steppers."""

from batchkron.solvers import preconditioners, steppers
from batchkron.solvers.bicgstab import Bicgstab, bicgstab
from batchkron.solvers.block_cg import block_cg
from batchkron.solvers.block_gmres import block_gmres
from batchkron.solvers.cg import Cg, cg
from batchkron.solvers.checkpointing import CheckpointError, CheckpointWarning, ResumeWarning
from batchkron.solvers.evolve import evolve
from batchkron.solvers.evolve_result import EvolveState, EvolveStatus, Result
from batchkron.solvers.fgmres import Fgmres, fgmres
from batchkron.solvers.gmres import Gmres, gmres
from batchkron.solvers.kept_solvers import free_workspaces
from batchkron.solvers.krylov_result import KrylovResult, Status
from batchkron.solvers.minres import Minres, minres
from batchkron.solvers.observing import Event, EventRecord, Quantity, Watched

__all__ = [
    "Bicgstab",
    "Cg",
    "CheckpointError",
    "CheckpointWarning",
    "Event",
    "EventRecord",
    "EvolveState",
    "EvolveStatus",
    "Fgmres",
    "Gmres",
    "KrylovResult",
    "Minres",
    "Quantity",
    "Result",
    "ResumeWarning",
    "Status",
    "Watched",
    "bicgstab",
    "block_cg",
    "block_gmres",
    "cg",
    "evolve",
    "fgmres",
    "free_workspaces",
    "gmres",
    "minres",
    "preconditioners",
    "steppers",
]
