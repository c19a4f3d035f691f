"""Time steppers: methods of their own, Runge-Kutta methods by tableaus, and their names."""

from batchkron.solvers.steppers.backward_euler import BackwardEuler
from batchkron.solvers.steppers.crank_nicolson import CrankNicolson
from batchkron.solvers.steppers.dirk import DiagonallyImplicit
from batchkron.solvers.steppers.embedded import EmbeddedStepper
from batchkron.solvers.steppers.exponential import ExponentialEuler, ExponentialTrapezoidal
from batchkron.solvers.steppers.forward_euler import ForwardEuler
from batchkron.solvers.steppers.from_tableau import stepper_of
from batchkron.solvers.steppers.registry import get, names
from batchkron.solvers.steppers.rk4 import Rk4
from batchkron.solvers.steppers.runge_kutta import RungeKutta
from batchkron.solvers.steppers.ssp_rk3 import SspRk3
from batchkron.solvers.steppers.stepper import ImplicitStepper, Stepper
from batchkron.solvers.steppers.tableau import Tableau
from batchkron.solvers.steppers.tableaus import TABLEAUS

__all__ = [
    "TABLEAUS",
    "BackwardEuler",
    "CrankNicolson",
    "DiagonallyImplicit",
    "EmbeddedStepper",
    "ExponentialEuler",
    "ExponentialTrapezoidal",
    "ForwardEuler",
    "ImplicitStepper",
    "Rk4",
    "RungeKutta",
    "SspRk3",
    "Stepper",
    "Tableau",
    "get",
    "names",
    "stepper_of",
]
