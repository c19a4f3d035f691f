"""Krylov solvers, preconditioners, time steppers, and runs in time (`evolve`)."""

from batchkron.analysis.growth_fit import GrowthFit, fit_growth
from batchkron.analysis.recorded import Recorded

from . import preconditioners, steppers
from .evolution.adapt.adapt import Adapt
from .evolution.adapt.outcome import AdaptOutcome
from .evolution.checkpoints import CheckpointError, CheckpointWarning
from .evolution.evolve import evolve
from .evolution.observation.events import Event, EventRecord
from .evolution.observation.observers import Quantity, Watched
from .evolution.result import EvolveState, EvolveStatus, Result
from .evolution.run import Run
from .evolution.start.resume import ResumeWarning
from .krylov.bicgstab import Bicgstab, bicgstab
from .krylov.block.block_cg import block_cg
from .krylov.block.block_gmres import block_gmres
from .krylov.cg import Cg, cg
from .krylov.fgmres import Fgmres, fgmres
from .krylov.gmres import Gmres, gmres
from .krylov.iteration.workspace_cache import free_workspaces
from .krylov.minres import Minres, minres
from .krylov.systems.result import KrylovResult, Status
from .lanczos import LogdetEstimate, logdet_slq
from .least_squares.lsmr import LsmrResult, lsmr
from .least_squares.lsqr import LsqrResult, lsqr
from .matrix_equations import solve_lyapunov, solve_sylvester
from .matrix_functions.expm_multiply import expm_multiply
from .matrix_functions.matrix_function import matrix_function
from .matrix_functions.phi_multiply import phi_multiply
from .matrix_functions.result import FunctionResult
from .preconditioners.choice import PreconditionerWarning
from .spectra.eigs import eigs
from .spectra.eigsh import eigsh
from .spectra.lobpcg import lobpcg
from .spectra.result import ConvergenceWarning, EigenResult
from .steady_state import SteadyState, SteadyStatus, steady_state

__all__ = [
    "Adapt",
    "AdaptOutcome",
    "Bicgstab",
    "Cg",
    "CheckpointError",
    "CheckpointWarning",
    "ConvergenceWarning",
    "EigenResult",
    "Event",
    "EventRecord",
    "EvolveState",
    "EvolveStatus",
    "Fgmres",
    "FunctionResult",
    "Gmres",
    "GrowthFit",
    "KrylovResult",
    "LogdetEstimate",
    "LsmrResult",
    "LsqrResult",
    "Minres",
    "PreconditionerWarning",
    "Quantity",
    "Recorded",
    "Result",
    "ResumeWarning",
    "Run",
    "Status",
    "SteadyState",
    "SteadyStatus",
    "Watched",
    "bicgstab",
    "block_cg",
    "block_gmres",
    "cg",
    "eigs",
    "eigsh",
    "evolve",
    "expm_multiply",
    "fgmres",
    "fit_growth",
    "free_workspaces",
    "gmres",
    "lobpcg",
    "logdet_slq",
    "lsmr",
    "lsqr",
    "matrix_function",
    "minres",
    "phi_multiply",
    "preconditioners",
    "solve_lyapunov",
    "solve_sylvester",
    "steady_state",
    "steppers",
]
