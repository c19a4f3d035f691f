"""PDEs, their sparse-grid discretizations, the gallery and problem files."""

from batchkron.problems import gallery, time
from batchkron.problems.asgard_file import load_asgard
from batchkron.problems.asgard_state import AsgardField, AsgardState
from batchkron.problems.axis import Axis
from batchkron.problems.boundary import Dirichlet, Inflow, Neumann, NoFlux, Periodic
from batchkron.problems.exact_function import ExactFunction
from batchkron.problems.gallery import make
from batchkron.problems.grid import SparseGrid
from batchkron.problems.grid_choice import Mixed
from batchkron.problems.mode_operator import ModeOperator
from batchkron.problems.outflow import OutflowWarning
from batchkron.problems.pde import PDE
from batchkron.problems.problem import Problem
from batchkron.problems.problem_file import load_problem, save_problem
from batchkron.problems.problem_parts import (
    ExactSolution,
    OperatorTerm,
    SeparableVector,
    StepperSettings,
)
from batchkron.problems.separable import Separable, SeparableSum
from batchkron.problems.terms import Term, div, grad, laplacian, mass, penalty
from batchkron.problems.time_functions import TimeFunction
from batchkron.storage import load_checkpoint, load_result

__all__ = [
    "PDE",
    "AsgardField",
    "AsgardState",
    "Axis",
    "Dirichlet",
    "ExactFunction",
    "ExactSolution",
    "Inflow",
    "Mixed",
    "ModeOperator",
    "Neumann",
    "NoFlux",
    "OperatorTerm",
    "OutflowWarning",
    "Periodic",
    "Problem",
    "Separable",
    "SeparableSum",
    "SeparableVector",
    "SparseGrid",
    "StepperSettings",
    "Term",
    "TimeFunction",
    "div",
    "gallery",
    "grad",
    "laplacian",
    "load_asgard",
    "load_checkpoint",
    "load_problem",
    "load_result",
    "make",
    "mass",
    "penalty",
    "save_problem",
    "time",
]
