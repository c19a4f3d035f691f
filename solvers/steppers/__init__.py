"""Time steppers: one method, one file, and a registry of their names."""

from batchkron.solvers.steppers.backward_euler import BackwardEuler
from batchkron.solvers.steppers.crank_nicolson import CrankNicolson
from batchkron.solvers.steppers.forward_euler import ForwardEuler
from batchkron.solvers.steppers.registry import get, names
from batchkron.solvers.steppers.rk4 import Rk4
from batchkron.solvers.steppers.ssp_rk3 import SspRk3
from batchkron.solvers.steppers.stepper import ImplicitStepper, Stepper

__all__ = [
    "BackwardEuler",
    "CrankNicolson",
    "ForwardEuler",
    "ImplicitStepper",
    "Rk4",
    "SspRk3",
    "Stepper",
    "get",
    "names",
]
