"""The public names of batchkron.problems, which the package itself imports on first use."""

from batchkron.storage import load_checkpoint, load_result

from . import gallery, time
from .discretization.checks.jumps import JumpWarning
from .discretization.checks.outflow import OutflowWarning
from .discretization.checks.shocks import ShockWarning
from .discretization.matrices.mode_operator import ModeOperator
from .discretization.parts import (
    AdaptSettings,
    ExactSolution,
    OperatorTerm,
    SeparableVector,
    StepperSettings,
)
from .files.asgard.file import load_asgard
from .files.asgard.state import AsgardField, AsgardState
from .gallery import make
from .grids.choice import Mixed
from .grids.sparse_grid import SparseGrid
from .linear.problem import LinearProblem
from .pde import PDE
from .semidiscrete.exact.function import ExactFunction
from .semidiscrete.fields.field import Field
from .semidiscrete.problem import Problem
from .semidiscrete.problem_file import load_problem, save_problem
from .statement.axis import Axis
from .statement.bgk import bgk
from .statement.boundary import Dirichlet, Inflow, Neumann, NoFlux, Periodic, Robin
from .statement.collisions import lenard_bernstein
from .statement.electric import Electric
from .statement.fields import FieldExpression, Moment, Poisson
from .statement.pointwise import pointwise
from .statement.separable import Separable, SeparableAt, SeparableSum
from .statement.terms import Term, div, grad, laplacian, mass, penalty
from .statement.time_functions import TimeFunction

__all__ = [
    "PDE",
    "AdaptSettings",
    "AsgardField",
    "AsgardState",
    "Axis",
    "Dirichlet",
    "Electric",
    "ExactFunction",
    "ExactSolution",
    "Field",
    "FieldExpression",
    "Inflow",
    "JumpWarning",
    "LinearProblem",
    "Mixed",
    "ModeOperator",
    "Moment",
    "Neumann",
    "NoFlux",
    "OperatorTerm",
    "OutflowWarning",
    "Periodic",
    "Poisson",
    "Problem",
    "Robin",
    "Separable",
    "SeparableAt",
    "SeparableSum",
    "SeparableVector",
    "ShockWarning",
    "SparseGrid",
    "StepperSettings",
    "Term",
    "TimeFunction",
    "bgk",
    "div",
    "gallery",
    "grad",
    "laplacian",
    "lenard_bernstein",
    "load_asgard",
    "load_checkpoint",
    "load_problem",
    "load_result",
    "make",
    "mass",
    "penalty",
    "pointwise",
    "save_problem",
    "time",
]
