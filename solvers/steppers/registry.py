"""The registry of time steppers: names and classes."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any

from batchkron.plugins import loaded_plugin, with_plugins

from .backward_euler import BackwardEuler
from .bdf import Bdf
from .crank_nicolson import CrankNicolson
from .exponential import ExponentialEuler, ExponentialTrapezoidal
from .forward_euler import ForwardEuler
from .from_tableau import stepper_of
from .rk4 import Rk4
from .rkc2 import Rkc2
from .ssp_rk3 import SspRk3
from .stepper import Stepper
from .tableau import Tableau
from .tableaus import TABLEAUS

_EXPLICIT: tuple[type[Stepper], ...] = (ForwardEuler, SspRk3, Rk4, Rkc2)
_IMPLICIT: tuple[type[Stepper], ...] = (BackwardEuler, CrankNicolson, Bdf)
_EXPONENTIAL: tuple[type[Stepper], ...] = (ExponentialEuler, ExponentialTrapezoidal)
_ALL = sorted(
    (*_EXPLICIT, *_IMPLICIT, *map(stepper_of, TABLEAUS), *_EXPONENTIAL),
    key=lambda stepper: stepper.implicit,
)
_STEPPERS: dict[str, type[Stepper]] = {stepper.name: stepper for stepper in _ALL}

_GROUP = "batchkron.steppers"
_OF_SCIPY = {  # what stands for methods of scipy.integrate.solve_ivp
    "RK45": ["dormand-prince"],
    "RK23": ["bogacki-shampine"],
    "Radau": ["esdirk3", "bdf"],
    "LSODA": ["bdf"],
}


def names() -> tuple[str, ...]:
    """Return the names of the steppers, as `evolve` takes them for ``method``.

    Returns
    -------
    tuple of str
        The names, explicit methods first, and then those that other distributions bring by entry
        points of the group "batchkron.steppers".

    Examples
    --------
    >>> from batchkron.solvers import steppers
    >>> steppers.names()[:4]
    ('forward-euler', 'ssp-rk3', 'rk4', 'rkc2')
    """
    return with_plugins(_STEPPERS, _GROUP, _checked)


def _checked(name: str, value: Any) -> type[Stepper]:
    """Return the stepper that an entry point is; raise TypeError if it is none."""
    made = stepper_of(value) if isinstance(value, Tableau) else value
    if not (isinstance(made, type) and issubclass(made, Stepper)):
        raise TypeError(f"expected a Tableau or a subclass of Stepper, got {value!r}")
    if made.name != name:
        raise TypeError(f"the method is named {made.name!r}; expected the entry point's name")
    return made


def get(name: Any) -> type[Stepper]:
    """Return the stepper class with a name, or of a tableau.

    Parameters
    ----------
    name : str, Tableau or type
        One of `names`, the coefficients of a method, or a subclass of `Stepper` itself.

    Returns
    -------
    type
        A subclass of `Stepper`.

    Raises
    ------
    ValueError
        If the name is unknown; the text suggests similar names.

    Examples
    --------
    >>> from batchkron.solvers import steppers
    >>> steppers.get("crank-nicolson").order
    2
    """
    if isinstance(name, str) and name in _STEPPERS:
        return _STEPPERS[name]
    if isinstance(name, Tableau):
        return stepper_of(name)
    if isinstance(name, type) and issubclass(name, Stepper):
        return name
    if isinstance(name, str) and (found := loaded_plugin(_GROUP, name, _checked)) is not None:
        return found  # type: ignore[no-any-return]
    known = names()
    close = _OF_SCIPY.get(name) if isinstance(name, str) else None
    close = close or get_close_matches(str(name).lower().replace("_", "-"), known, cutoff=0.5)
    hint = f" Did you mean {' or '.join(repr(match) for match in close)}?" if close else ""
    raise ValueError(f"method is {name!r}; expected one of {', '.join(known)}.{hint}")
