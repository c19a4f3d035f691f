"""Bounds of the fields in a PDE's terms, from which the default time step is chosen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from batchkron.errors import NotPhysicalError

from ...discretization.space import DGSpace
from ...discretization.terms.assemble_fields import SampledFields
from ...grids.sparse_grid import SparseGrid
from ...statement.terms import Term
from .electric import ElectricValues
from .evaluation import FieldEvaluation

__all__ = ["bounded_terms", "electric_bounds", "field_range"]

_ZERO = 1e-12  # a product of fields of at most this size may be 0 up to rounding


def bounded_terms(
    terms: Sequence[Term],
    fields: SampledFields,
    space: DGSpace,
    grid: SparseGrid,
    initial: NDArray[np.float64] | None,
    t0: float,
) -> tuple[Term, ...]:
    """Return the terms without fields, each times the largest values of its fields at the start.

    With ``initial`` None the fields are checked, but not evaluated: they count as 1. Raises
    ValueError if a moment has too large a power for a volume element.
    """
    found = []
    for term in terms:
        scale = term.scale
        for evaluate in _evaluations(term, fields, space, grid):
            if initial is not None:
                scale *= _largest(evaluate, t0, initial)
        found.append(Term(term.factors, scale, term.time, stiff=term.stiff))
    return tuple(found)


def electric_bounds(
    terms: Sequence[Term],
    space: DGSpace,
    grid: SparseGrid,
    initial: NDArray[np.float64] | None,
) -> tuple[Term, ...]:
    """Return terms with electric fields without, each times the largest value at the start.

    With ``initial`` None the fields count as 1.
    """
    found = []
    for term in terms:
        assert term.electric is not None
        scale, electric = 1.0, term.electric.electric
        if initial is not None:
            periodic = [space.boundary[axis][0].kind == "periodic" for axis in electric.positions]
            values = ElectricValues(
                electric, periodic, space.axes, grid, space.degree, space.masses
            )
            scale = float(np.abs(values(initial)[term.electric.number]).max())
        found.append(replace(term, electric=None) * scale)
    return tuple(found)


def field_range(
    term: Term,
    fields: SampledFields,
    space: DGSpace,
    grid: SparseGrid,
    initial: NDArray[np.float64],
    t0: float,
) -> tuple[float, float] | None:
    """Return numbers between which the product of a term's fields is for the initial state.

    It is None where a field is not defined; arguments are those of `bounded_terms`.
    """
    lower = upper = 1.0
    for evaluate in _evaluations(term, fields, space, grid):
        try:
            values = evaluate(t0, initial)[0]
        except NotPhysicalError:
            return None
        ends = np.outer([lower, upper], [values.min(), values.max()])
        lower, upper = float(ends.min()), float(ends.max())
    if not np.isfinite([lower, upper]).all():
        return None
    return (lower, upper) if max(-lower, upper) > _ZERO else (0.0, 0.0)


def _evaluations(
    term: Term, fields: SampledFields, space: DGSpace, grid: SparseGrid
) -> Iterator[FieldEvaluation]:
    """Yield the evaluation of each field of a term."""
    for axis, field in term.fields:
        own = [fields.field(field, axis)]
        yield FieldEvaluation(own, axis, space.axes, grid, space.degree, space.masses)


def _largest(evaluate: FieldEvaluation, t0: float, initial: NDArray[np.float64]) -> float:
    """Return the largest magnitude of a field; 1 where it is not defined for the initial state.

    A run from that state ends as NOT_PHYSICAL before its first step, whatever the step is.
    """
    try:
        return float(np.abs(evaluate(t0, initial)[0]).max())
    except NotPhysicalError:
        return 1.0
