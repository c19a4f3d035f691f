"""Find Dirichlet data given where f flows out, and decide whether they do harm."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ...statement.axis import Axis
from ..basis.projection import node_values
from ..matrices.boundary_terms import SIDES, Side, coefficient_at_end
from ..space import DGSpace
from ..terms.resolve_term import (
    ResolvedFactor,
    ResolvedTerm,
    coefficient_along,
    outward_speed,
)

__all__ = ["OutflowWarning", "values_given_at_outflow"]

_SAMPLES_IN_TIME = 257  # number of times in a run at which a term's function of time is sampled
_ROUNDING = 1e-12  # a coefficient counts as zero below this share of its largest value (sin π)


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
                if speed > 0.0 and not _is_harmless(terms, term, axis, side, space, speed, run):
                    yield _text(term, axis, side, speed, space)
                    break


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
    term: ResolvedTerm,
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
    factor = _only_derivative(term, axis)
    datum = factor.data[place] if factor else None
    strength = 0.0
    for other in terms:
        chain = other.along(axis)
        derivatives = [entry for entry in chain if entry.is_derivative]
        if [entry.kind for entry in derivatives] != ["div", "grad"]:
            continue
        div, grad = derivatives
        if div.edges[place] == "dirichlet":
            slope = div.data[place]
            if datum is not None and datum.data == 0.0 and (slope is None or slope.data == 0.0):
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
