"""Find Dirichlet data given where f flows out, and decide whether they do harm."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

from ...statement.axis import Axis
from ...statement.boundary import Dirichlet
from ...statement.functions import sample_places
from ...statement.number_checks import is_number
from ...statement.pointwise import PointwiseTerm
from ...statement.pointwise_terms import damping_of, functions_of
from ...statement.statement import Statement
from ..basis.projection import node_values
from ..matrices.boundary_terms import SIDES, Side, coefficient_at_end
from ..space import DGSpace
from ..terms.resolve_term import (
    ResolvedFactor,
    ResolvedTerm,
    coefficient_along,
    outward_speed,
)
from .statement_samples import exact_at, initial_at, product_at

__all__ = ["OutflowWarning", "values_given_at_outflow", "values_given_at_outflow_of_functions"]

_SAMPLES_IN_TIME = 257  # number of times in a run at which a term's function of time is sampled
_ROUNDING = 1e-12  # a coefficient counts as zero below this share of its largest value (sin π)
_NEGLIGIBLE = 1e-6  # so does the speed of a function of the state, as that of the tail of a pulse


class OutflowWarning(UserWarning):
    """A first derivative has the condition Dirichlet at an end where f flows out."""


def values_given_at_outflow(
    terms: Sequence[ResolvedTerm], space: DGSpace, run: tuple[float, float]
) -> Iterator[str]:
    """Find first derivatives with Dirichlet data where f flows out.

    In the flux g f of such a term the datum replaces f. If the datum is zero, nothing flows out, f
    piles up at the end, and the operator may have growing modes.

    ``terms``: the right-hand side, as `resolve` splits it by the signs of coefficients.
    ``space``: axes, levels, degree, volume elements.
    ``run``: the run's beginning and end, for coefficients in time.

    Yields the text of a warning for each such end of an axis. There is no warning where nothing
    flows because the coefficient or the volume element is zero; where the datum is zero and a
    second derivative has zero flux, so that the end is a wall; or where the boundary penalty of a
    second derivative with the same condition damps f at the end more than the flow amplifies it.
    """
    for axis in space.axes:
        for side in SIDES:
            for term in terms:
                speed = _speed_against_data(term, axis, side, space, run)
                if speed <= 0.0:
                    continue
                factor = _only_derivative(term, axis)
                datum = factor.data[SIDES.index(side)] if factor else None
                is_zero = datum is not None and datum.data == 0.0
                if not _is_harmless(terms, is_zero, axis, side, space, speed, run):
                    yield _text(term, axis, side, speed, space)
                    break


def values_given_at_outflow_of_functions(
    pde: Statement, terms: Sequence[ResolvedTerm], space: DGSpace, run: tuple[float, float]
) -> Iterator[str]:
    """Find the same of functions of the state, at ends where f flows out for the initial state.

    Functions of fields are left out, and so are speeds below a millionth of the largest one.
    """
    for axis in space.axes:
        for side, end in zip(SIDES, pde.boundary[axis], strict=True):
            if not isinstance(end, Dirichlet):
                continue
            for term in pde.pointwise:
                speed = _speed_of_function(pde, term, axis, side, space, run)
                is_zero = is_number(end.data) and end.data == 0.0
                if speed > 0.0 and not _is_harmless(terms, is_zero, axis, side, space, speed, run):
                    yield (
                        f"{term.text()} has the condition Dirichlet at the {side} end of axis "
                        f"{axis.name!r}, where f flows out: for the initial state its speed there "
                        f"is up to {speed:.3g}. The given value stops the outflow, and f piles up. "
                        "Use Neumann(), which leaves f free, or NoFlux() if the end is a wall; "
                        "where second derivatives take the value, finer cells"
                    )
                    break


def _speed_of_function(
    pde: Statement,
    term: PointwiseTerm,
    axis: Axis,
    side: Side,
    space: DGSpace,
    run: tuple[float, float],
) -> float:
    """Return the largest speed, times dV, with which the initial f flows out, or 0."""
    acts = any(factor.axis == axis and factor.kind == "div" for factor in term.term.factors)
    if not acts or damping_of(term, 1.0) is None or term.function.fields:
        return 0.0
    inside = dict(zip(space.axes, sample_places(space.axes), strict=True))
    end = np.full_like(inside[axis], axis.lower if side == "left" else axis.upper)
    with suppress(Exception):  # of the user's functions: a run will say where, if it asks there
        found, others = (
            _velocity(pde, term, axis, at, space) for at in ({**inside, axis: end}, inside)
        )
        if found is not None and others is not None:
            times = term.term.time(np.linspace(*run, _SAMPLES_IN_TIME))
            outward = np.outer(found if side == "right" else -found, [times.min(), times.max()])
            size = max(np.abs(found).max(), np.abs(others).max()) * np.abs(times).max()
            speed = float(outward.max())
            return speed if speed > _NEGLIGIBLE * size else 0.0
    return 0.0


def _velocity(
    pde: Statement,
    term: PointwiseTerm,
    axis: Axis,
    places: dict[Axis, NDArray[np.float64]],
    space: DGSpace,
) -> NDArray[np.float64] | None:
    """Return the velocity, times dV, with which a flux carries the initial f; None if not known."""
    f = exact_at(pde, places, pde.t0) if pde.initial is None else initial_at(pde, places)
    if f is None:
        return None
    function, _, derivative = functions_of(term, pde.axes)
    slope = function.slope if derivative is None else derivative.of_state
    at = list(places.values())
    function.of_state(f, at, pde.t0)  # raises where the function has no value, and so no slope
    velocity = -term.term.scale * slope(f, at, pde.t0)
    for factor in term.term.factors:
        coefficient = factor.coefficient
        if factor.kind == "div":
            coefficient = space.coefficient(coefficient, axis)
        values = product_at(coefficient, 1.0, places[factor.axis])
        if values is None:
            return None
        velocity = velocity * values
    return velocity


def _text(term: ResolvedTerm, axis: Axis, side: Side, speed: float, space: DGSpace) -> str:
    factor = _only_derivative(term, axis)
    assert factor is not None
    coefficient = speed if side == "left" else -speed
    weighted = (
        "its coefficient times the volume element" if axis in space.volume else "its coefficient"
    )
    return (
        f"{factor.kind} along {axis.name!r} has the condition Dirichlet at the {side} end, where f "
        f"flows out: {weighted} is {coefficient:.3g} there. The given value stops the outflow, and "
        "f piles up. Use Inflow(data), which gives the value where f flows in and leaves it free "
        "where f flows out (as boundary= of the term if the axis has second derivatives too), or "
        "NoFlux() if the end is a wall. From the next release on this is refused."
    )


def _only_derivative(term: ResolvedTerm, axis: Axis) -> ResolvedFactor | None:
    """Return the derivative of a term that has exactly one, if it is along the axis, else None."""
    found = [factor for factor in term.factors if factor.is_derivative]
    return found[0] if len(found) == 1 and found[0].axis == axis else None


def _speed_against_data(
    term: ResolvedTerm, axis: Axis, side: Side, space: DGSpace, run: tuple[float, float]
) -> float:
    """Return the largest speed, times dV, with which f flows out where a datum is given, or 0."""
    factor = _only_derivative(term, axis)
    if factor is None or factor.data[SIDES.index(side)] is None or factor.ends_by_sign:
        return 0.0
    if factor.has_field:
        return 0.0  # where f flows out changes with the state
    masses = [other for other in term.along(axis) if not other.is_derivative]
    speed = term.scale * outward_speed(factor, side, space)
    if masses:
        speed *= coefficient_at_end(axis, coefficient_along(masses), side)
    inside = node_values(
        space.coefficient(coefficient_along(term.along(axis)), axis),
        axis,
        space.level(axis),
        space.degree(axis),
    )
    if abs(speed) <= _ROUNDING * abs(term.scale) * float(np.max(np.abs(inside))):
        return 0.0
    return max(speed * bound for bound in _range_elsewhere(term, axis, space, run))


def _is_harmless(
    terms: Sequence[ResolvedTerm],
    is_zero: bool,
    axis: Axis,
    side: Side,
    space: DGSpace,
    speed: float,
    run: tuple[float, float],
) -> bool:
    """Whether a datum at an outflow end does no harm because of second derivatives along the axis.

    Either it means a wall, or the boundary penalty outweighs the flow.
    """
    place = SIDES.index(side)
    strength = 0.0
    for other in terms:
        chain = other.along(axis)
        derivatives = [entry for entry in chain if entry.is_derivative]
        if [entry.kind for entry in derivatives] != ["div", "grad"]:
            continue
        div, grad = derivatives
        if div.edges[place] == "dirichlet":
            slope = div.data[place]
            if is_zero and (slope is None or slope.data == 0.0):
                return True
        elif grad.edges[place] == "dirichlet":
            value = coefficient_at_end(
                axis, space.coefficient(coefficient_along(chain), axis), side
            )
            bounds = _range_elsewhere(other, axis, space, run)
            strength += max(min(other.scale * value * bound for bound in bounds), 0.0)
    # rates of ½ d/dt ∫ f² at the end: the flow adds ½ |g| f², the penalty takes away (τ/h) k f²
    return space.boundary_penalty / axis.cell_width(space.level(axis)) * strength >= speed / 2


def _range_elsewhere(
    term: ResolvedTerm, axis: Axis, space: DGSpace, run: tuple[float, float]
) -> tuple[float, float]:
    """Return bounds of the product of a term's coefficients in the other axes and in time."""
    values = [term.time(np.linspace(*run, _SAMPLES_IN_TIME))]
    for other in space.axes:
        along = term.along(other)
        if other != axis and along:
            level, degree = space.level(other), space.degree(other)
            values.append(node_values(coefficient_along(along), other, level, degree))
    bounds = [1.0]
    for entry in values:
        ends = float(np.min(entry)), float(np.max(entry))
        bounds = [bound * end for bound in bounds for end in ends]
        bounds = [min(bounds), max(bounds)]
    return bounds[0], bounds[1]
