"""Stepper classes from tableaus."""

from __future__ import annotations

import math
from weakref import WeakKeyDictionary

from .dirk import DiagonallyImplicit
from .runge_kutta import RungeKutta
from .stepper import Stepper
from .tableau import Tableau

_MADE: WeakKeyDictionary[Tableau, type[Stepper]] = WeakKeyDictionary()


def stepper_of(tableau: Tableau) -> type[Stepper]:
    """Return the stepper class of a Runge-Kutta method.

    Parameters
    ----------
    tableau : Tableau
        The method's coefficients.

    Returns
    -------
    type
        A subclass of `RungeKutta` or `DiagonallyImplicit`, the same for the same tableau.

    Examples
    --------
    >>> from batchkron.solvers.steppers import Tableau, stepper_of
    >>> stepper_of(Tableau("heun", 2, [0.5, 0.5], explicit=[[0, 0], [1, 0]])).real_limit
    1.999999999
    """
    if tableau not in _MADE:
        base = RungeKutta if tableau.implicit is None else DiagonallyImplicit
        text = f"The method {tableau.name!r}, of order {tableau.order}; see `{base.__name__}`."
        attributes = {
            "__doc__": f"{text}\n\nSource: {tableau.source}." if tableau.source else text,
            "__module__": __name__,
            "tableau": tableau,
            "name": tableau.name,
            "order": tableau.order,
            "stages": tableau.stages,
            "error_order": tableau.error_order,
            "real_limit": _rounded(tableau.stable_until(-1.0)),
            "imaginary_limit": _rounded(tableau.stable_until(1j)),
            "stability_polynomial": tableau.stability_polynomial,
        }
        _MADE[tableau] = type(tableau.name, (base,), attributes)
    return _MADE[tableau]


def _rounded(limit: float) -> float:
    """Return a stability limit, rounded down to nine decimals."""
    return math.floor(limit * 1e9 - 1.0) / 1e9 if 0.0 < limit < math.inf else limit
