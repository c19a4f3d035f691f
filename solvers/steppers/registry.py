"""The time steppers by name."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any

from batchkron.solvers.steppers.backward_euler import BackwardEuler
from batchkron.solvers.steppers.crank_nicolson import CrankNicolson
from batchkron.solvers.steppers.forward_euler import ForwardEuler
from batchkron.solvers.steppers.rk4 import Rk4
from batchkron.solvers.steppers.ssp_rk3 import SspRk3
from batchkron.solvers.steppers.stepper import Stepper

_STEPPERS: dict[str, type[Stepper]] = {
    stepper.name: stepper for stepper in (ForwardEuler, SspRk3, Rk4, BackwardEuler, CrankNicolson)
}


def names() -> tuple[str, ...]:
    """Return the names of the steppers, as `evolve` takes them for ``method``.

    Returns
    -------
    tuple of str
        The names, explicit methods first.

    Examples
    --------
    >>> from batchkron.solvers import steppers
    >>> steppers.names()
    ('forward-euler', 'ssp-rk3', 'rk4', 'backward-euler', 'crank-nicolson')
    """
    return tuple(_STEPPERS)


def get(name: Any) -> type[Stepper]:
    """Return the stepper class with a name.

    Parameters
    ----------
    name : str
        One of `names`.

    Returns
    -------
    type
        A subclass of `Stepper`.

    Raises
    ------
    ValueError
        If there is none of that name; the text offers close ones.

    Examples
    --------
    >>> from batchkron.solvers import steppers
    >>> steppers.get("crank-nicolson").order
    2
    """
    if isinstance(name, str) and name in _STEPPERS:
        return _STEPPERS[name]
    close = get_close_matches(str(name).lower().replace("_", "-"), _STEPPERS, cutoff=0.5)
    hint = f" Did you mean {' or '.join(repr(match) for match in close)}?" if close else ""
    raise ValueError(f"method is {name!r}; expected one of {', '.join(_STEPPERS)}.{hint}")
