"""Bounds of the fields in a PDE's terms, from which the default time step is chosen."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from batchkron.errors import NotPhysicalError

from ...discretization.space import Space
from ...discretization.terms.assemble_fields import SampledFields
from ...grids.sparse_grid import SparseGrid
from ...statement.terms import Term
from .evaluation import FieldEvaluation

__all__ = ["bounded_terms"]


def bounded_terms(
    terms: Sequence[Term],
    fields: SampledFields,
    space: Space,
    grid: SparseGrid,
    initial: NDArray[np.float64] | None,
    t0: float,
) -> tuple[Term, ...]:
    """Return the terms without fields, each times the largest values of its fields at the start.

    Parameters
    ----------
    terms : sequence of Term
        The PDE's terms.
    fields : SampledFields
        Their fields.
    space : Space
        Axes, levels, degree, volume elements.
    grid : SparseGrid
        The grid.
    initial : ndarray, shape (N,), float64, or None
        The state at t0. With None the fields are checked, but not evaluated: they count as 1.
    t0 : float
        The initial time.

    Returns
    -------
    tuple of Term

    Raises
    ------
    ValueError
        If a moment has too large a power for a volume element.
    """
    found = []
    for term in terms:
        scale = term.scale
        for axis, field in term.fields:
            evaluate = FieldEvaluation(
                [fields.field(field, axis)], axis, space.axes, grid, space.degree, space.masses
            )
            if initial is not None:
                scale *= _largest(evaluate, t0, initial)
        found.append(Term(term.factors, scale, term.time, stiff=term.stiff))
    return tuple(found)


def _largest(evaluate: FieldEvaluation, t0: float, initial: NDArray[np.float64]) -> float:
    """Return the largest magnitude of a field; 1 where it is not defined for the initial state.

    A run from that state ends as NOT_PHYSICAL before its first step, whatever the step is.
    """
    try:
        return float(np.abs(evaluate(t0, initial)[0]).max())
    except NotPhysicalError:
        return 1.0
