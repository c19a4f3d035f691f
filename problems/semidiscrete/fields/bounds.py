"""Bounds of the fields in a PDE's terms, from which the default time step is chosen."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from batchkron.errors import NotPhysicalError

from ...discretization.interpolation.transform import PointTransform
from ...discretization.pointwise import fields_at_points
from ...discretization.space import DGSpace
from ...discretization.terms.assemble_fields import SampledFields
from ...grids.degrees import common_or_each
from ...grids.sparse_grid import SparseGrid
from ...statement.axis import Axis
from ...statement.functions import sample_places
from ...statement.pointwise import PointwiseTerm
from ...statement.pointwise_terms import damping_of, functions_of
from ...statement.terms import Term
from .at_points import FieldsAtPoints
from .electric import ElectricValues
from .evaluation import FieldEvaluation

__all__ = ["bounded_terms", "bounds_at_points", "electric_bounds", "field_range"]

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
                electric, periodic, space.axes, grid, common_or_each(space.degrees), space.masses
            )
            scale = float(np.abs(values(initial)[term.electric.number]).max())
        found.append(replace(term, electric=None) * scale)
    return tuple(found)


def bounds_at_points(
    terms: Sequence[PointwiseTerm],
    axes: tuple[Axis, ...],
    fields: SampledFields,
    space: DGSpace,
    grid: SparseGrid,
    initial: NDArray[np.float64],
    t0: float,
) -> list[Term]:
    """Return terms that change f as fast as pointwise ones do at the start, for the default step.

    They are a chain times the largest |∂F/∂f| for reactions and diffusion, and the damping of a div
    whose speed is computed from the state. A number that is not defined counts as 1.
    """
    found = []
    for term in terms:
        function, speed, derivative = functions_of(term, axes)
        is_flux = damping_of(term, 1.0) is not None
        if is_flux and speed is None:
            continue  # its damping is among the other terms
        size = 1.0
        with contextlib.suppress(NotPhysicalError):  # a run will say where
            if term.function.linear:
                rates = function.factor(sample_places(axes), t0)
            else:
                transform = PointTransform(axes, grid, space.degrees, extra=term.function.extra)
                named = fields_at_points(term, axes, fields)
                own = FieldsAtPoints(named, transform, space.masses)(t0, initial)(named)
                rate = function.slope if derivative is None else derivative.of_state
                if is_flux and speed is not None:
                    rate = speed.of_state
                values, points = transform.values(initial), list(transform.points())
                rates = rate(values, points, t0, own)
            size = float(np.abs(rates).max())
        bound = damping_of(term, size) if is_flux else size * term.term
        assert bound is not None
        found.append(bound)
    return found


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
        yield FieldEvaluation(own, axis, space.axes, grid, space.degrees, space.masses)


def _largest(evaluate: FieldEvaluation, t0: float, initial: NDArray[np.float64]) -> float:
    """Return the largest magnitude of a field; 1 where it is not defined for the initial state.

    A run from that state ends as NOT_PHYSICAL before its first step, whatever the step is.
    """
    try:
        return float(np.abs(evaluate(t0, initial)[0]).max())
    except NotPhysicalError:
        return 1.0
