"""Collisions of particles: terms whose drag and diffusion are computed from the solution."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from .axis import Axis
from .boundary import NoFlux
from .coefficients import BY_DEGREE, FLUX_SIGNS, Flux, Function
from .fields import EndMoment, FieldExpression, Moment, Resolved
from .number_checks import finite_number, is_number
from .terms import Term, TermFactor, div, grad

__all__ = ["Position", "lenard_bernstein", "position_among", "with_position"]


@dataclass(frozen=True)
class Position(Axis):
    """Stands for the one axis beside some velocities, until the terms are put into a PDE."""

    velocities: tuple[Axis, ...] = ()


Conserve = Literal["exact"]


def lenard_bernstein(
    velocities: Axis | Sequence[Axis],
    nu: Function | FieldExpression = 1.0,
    *,
    position: Axis | None = None,
    conserve: Conserve | None = None,
    flux: Flux | None = None,
) -> tuple[Term, ...]:
    """Return the terms ν Σ_i ∂((v_i - u_i) f + θ ∂f/∂v_i)/∂v_i, with u and θ of f itself.

    These collisions, of Lenard and Bernstein or Dougherty, drive f to the Maxwellian that has its
    density n = ∫ f dv, mean velocity u = ∫ v f dv / n and temperature
    θ = (Σ_i ∫ v_i² f dv / n - |u|²) / d.

    Parameters
    ----------
    velocities : Axis or sequence of Axis
        All d velocities v_i.
    nu : float, callable or FieldExpression
        The rate ν: a number ≥ 0, or a function of the position that is nowhere negative, given or
        computed from moments.
    position : Axis, optional
        The axis that n, u and θ are functions of; by default the PDE's only other axis.
    conserve : "exact", optional
        Conserve ∫ v_i f dv (for degrees of at least 1) and ∫ |v|² f dv (of at least 2) to rounding,
        too. Without it they change by the values of f at the ends of the velocities, see the notes.
    flux : {"central", "upwind", "downwind"}, optional
        The flux of the chains div @ grad. By default it is "central" for even degrees, and the
        alternating one of the local discontinuous Galerkin method for odd degrees, where that is
        the more accurate of the two.

    Returns
    -------
    tuple of Term
        A drag ∂(v_i f)/∂v_i with upwind flux, a drag -u_i ∂f/∂v_i with central flux, and a
        diffusion for each velocity. IMEX methods treat all of them implicitly.

    Raises
    ------
    TypeError, ValueError
        If an argument is of another kind, ν is a negative number, or a word is unknown.

    Notes
    -----
    Nothing flows through the ends of the velocities, whatever the conditions of the PDE are there,
    so that ∫ f dv is conserved to rounding. Integrating by parts, for each x,

        ∫ v_i C dv = -ν (∫ v_i f dv - u_i n + θ B_i),    B_i = ∫ ∂f/∂v_i dv,
        ∫ |v|² C dv = -2ν Σ_i (∫ v_i² f dv - u_i ∫ v_i f dv - θ (n - E_i)),
        E_i = ∫ ∂(v_i f)/∂v_i dv,

    where B_i and E_i are integrals over the ends of v_i. With ``conserve="exact"``, u_i and θ are
    the numbers for which both are zero. The equations hold for the discrete operator as well,
    because 1, v_i and |v|² are continuous and among the functions of the coarsest cells.

    That is so at every place on full grids, on grids that are mixed of positions and velocities,
    and for states that are the same everywhere. On sparse grids, u and θ are the projections on the
    levels of x that have velocities of level 2, and are computed from the projections of the
    moments: with finer ones waves would grow at up to ν/5. If ν is a number, ∫∫ v_i C and
    ∫∫ |v|² C over x and v are still zero; momentum and energy on finer levels of x relax.

    Where n or θ is not positive, the evaluation raises `batchkron.NotPhysicalError`.

    References
    ----------
    A. Lenard, I. B. Bernstein, Phys. Rev. 112 (1958) 1456; J. P. Dougherty, Phys. Fluids 7 (1964)
    1788.

    Examples
    --------
    >>> from batchkron.problems import PDE, Axis, Separable, lenard_bernstein
    >>> x, v = Axis("x", -0.5, 0.5), Axis("v", -6, 6)
    >>> start = Separable(v=lambda s: (abs(s) < 3) / 6)
    >>> pde = PDE([x, v], lenard_bernstein(v, 10.0), boundary={x: "periodic", v: "no-flux"},
    ...           initial=start)
    >>> len(pde.terms)
    3
    """
    axes = (velocities,) if isinstance(velocities, Axis) else tuple(velocities)
    _check(axes, nu, conserve, flux)
    place = Position("position", 0.0, 1.0, axes) if position is None else position
    drift, theta = _drift_and_temperature(axes, conserve)
    found: list[Term] = []
    for axis, u in zip(axes, drift, strict=True):
        drag = div(
            axis, _coordinate, boundary=NoFlux(), others={} if is_number(nu) else {place: nu}
        )
        mean = {place: _times(nu, u)}
        shift = div(axis, -1.0, flux="central", boundary=NoFlux(), others=mean)
        spread = {place: _times(nu, theta)}
        chain = div(axis, flux=flux, boundary=NoFlux(), others=spread) @ grad(axis)
        if flux is None:
            chain = replace(chain, factors=tuple(map(_by_degree, chain.factors)))
        found += [replace(term, stiff=True) for term in (drag, shift, chain)]
    return tuple(term * float(nu) if is_number(nu) else term for term in found)


def with_position(term: Term, axes: Sequence[Axis]) -> Term:
    """Return a term of a PDE in which the position is the one axis beside its velocities."""
    places = [factor.axis for factor in term.factors if isinstance(factor.axis, Position)]
    if not places:
        return term
    known: dict[Axis, Axis] = {places[0]: position_among(places[0], axes)}
    factors = tuple(
        replace(factor, axis=known.get(factor.axis, factor.axis)) for factor in term.factors
    )
    fields = tuple((known.get(axis, axis), field) for axis, field in term.fields)
    return replace(term, factors=factors, fields=fields)


def position_among(place: Position, axes: Sequence[Axis]) -> Axis:
    """Return the one axis of a PDE that is none of the velocities of a position."""
    left = [axis for axis in axes if axis not in place.velocities]
    if len(left) != 1:
        names = ", ".join(axis.name for axis in left) or "none"
        raise ValueError(
            f"collisions have moments that are functions of one position, and the axes that are "
            f"not among their velocities are: {names}. Give collisions all velocities of the PDE, "
            "and the PDE one position: for a state that is the same everywhere a periodic axis of "
            "level 0"
        )
    return left[0]


def _check(
    axes: Sequence[Axis], nu: Function | FieldExpression, conserve: str | None, flux: str | None
) -> None:
    if not axes:
        raise ValueError("lenard_bernstein: velocities is empty; give at least one axis")
    for axis in axes:
        if not isinstance(axis, Axis):
            raise TypeError(f"lenard_bernstein: velocities must be axes, got {type(axis).__name__}")
    if is_number(nu) and finite_number("nu", nu) < 0.0:
        raise ValueError(f"lenard_bernstein: nu is {nu!r}; expected a rate of at least 0")
    if not (is_number(nu) or callable(nu) or isinstance(nu, FieldExpression)):
        raise TypeError(
            f"lenard_bernstein: nu is {type(nu).__name__}; expected a number, a function of the "
            "position or a field"
        )
    if conserve not in (None, "exact"):
        raise ValueError(f"lenard_bernstein: conserve is {conserve!r}; the only word is 'exact'")
    if flux is not None and flux not in FLUX_SIGNS:
        raise ValueError(
            f"lenard_bernstein: flux is {flux!r}; expected one of {', '.join(FLUX_SIGNS)}"
        )


def _drift_and_temperature(
    axes: Sequence[Axis], conserve: Conserve | None
) -> tuple[list[FieldExpression], FieldExpression]:
    """Return u_i and θ, the solution of the equations in the notes of `lenard_bernstein`."""
    zeros = dict.fromkeys(axes, 0)

    def resolved(field: FieldExpression) -> FieldExpression:
        return Resolved(field, tuple(axes))

    density = resolved(Moment(zeros))
    first = [resolved(Moment({**zeros, axis: 1})) for axis in axes]
    drift = [moment / density for moment in first]
    energy = resolved(_sum([Moment({**zeros, axis: 2}) for axis in axes]))
    inner = energy - _sum([u * moment for u, moment in zip(drift, first, strict=True)])
    norm = density * float(len(axes))
    if conserve is None:
        return [resolved(u) for u in drift], resolved(_quotient(inner, norm))
    gains = [resolved(EndMoment(axis, zeros)) for axis in axes]
    norm = norm - resolved(_sum([EndMoment(axis, {**zeros, axis: 1}) for axis in axes]))
    norm = norm + _sum([u * gain for u, gain in zip(drift, gains, strict=True)])
    theta = _quotient(inner, norm)
    drift = [u + theta * gain / density for u, gain in zip(drift, gains, strict=True)]
    return [resolved(u) for u in drift], resolved(theta)


def _quotient(above: FieldExpression, below: FieldExpression) -> FieldExpression:
    """Return above / below, which is an error at points where one of the two is not positive."""
    return 1.0 / (below / above)


def _sum(parts: Sequence[FieldExpression]) -> FieldExpression:
    return reduce(add, parts)


def _times(nu: Function | FieldExpression, field: FieldExpression) -> FieldExpression:
    """Return ν times a field; a number is left for the term."""
    return field if is_number(nu) else nu * field


def _by_degree(factor: TermFactor) -> TermFactor:
    return factor if factor.kind == "mass" else replace(factor, flux=BY_DEGREE)


def _coordinate(v: NDArray[np.float64]) -> NDArray[np.float64]:
    return v
