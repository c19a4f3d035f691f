"""Time steppers: single methods, Runge-Kutta methods given by tableaus, and their names."""

from .backward_euler import BackwardEuler
from .bdf import Bdf
from .crank_nicolson import CrankNicolson
from .dirk import DiagonallyImplicit
from .embedded import EmbeddedStepper
from .exponential import ExponentialEuler, ExponentialTrapezoidal
from .forward_euler import ForwardEuler
from .from_tableau import stepper_of
from .registry import get, names
from .rk4 import Rk4
from .rkc2 import Rkc2
from .runge_kutta import RungeKutta
from .ssp_rk3 import SspRk3
from .stepper import ImplicitStepper, Stepper
from .tableau import Tableau
from .tableaus import TABLEAUS

__all__ = [
    "TABLEAUS",
    "BackwardEuler",
    "Bdf",
    "CrankNicolson",
    "DiagonallyImplicit",
    "EmbeddedStepper",
    "ExponentialEuler",
    "ExponentialTrapezoidal",
    "ForwardEuler",
    "ImplicitStepper",
    "Rk4",
    "Rkc2",
    "RungeKutta",
    "SspRk3",
    "Stepper",
    "Tableau",
    "get",
    "names",
    "stepper_of",
]
