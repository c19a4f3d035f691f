"""Resolve a term: decide its fluxes, its conditions at the ends, and the direction of upwinding.

A user's `Term` may leave these to defaults that depend on the PDE's boundary conditions, on its
other terms and on the signs of coefficients. A `ResolvedTerm` leaves nothing open.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...statement.axis import Axis
from ...statement.boundary import Periodic, chain_conditions
from ...statement.coefficients import Function
from ...statement.terms import Term, TermFactor
from ...statement.time import TimeFunction, constant
from ...statement.time_functions import split_number
from ..basis.quadrature import evaluate
from ..matrices.boundary_terms import SIDES, Side, coefficient_at_end
from ..matrices.dg_matrices import PERIODIC, Edges, Trace
from ..space import DGSpace
from .edge_conditions import EdgeData, chain_ends, mixed_ends, own_ends, single_ends
from .traces import Traces, chain_fluxes, coefficient_sign, given_flux, is_mixed

__all__ = ["ResolvedFactor", "ResolvedTerm", "coefficient_along", "outward_speed", "resolve"]


@dataclass(frozen=True, eq=False)
class ResolvedFactor:
    """A `TermFactor` whose flux and treatment of the ends are decided.

    Attributes
    ----------
    kind : {"div", "grad", "penalty", "mass"}
        The operator, as of `TermFactor`.
    axis : Axis
        The axis along which it acts.
    coefficient : callable or float
        A function of the axis.
    flux : {"upwind", "central", "downwind", "left", "right"}
        From which side of an edge f is taken, as of `div_matrix`.
    edges : (left, right), each "periodic", "dirichlet" or "neumann"
        How the ends are treated, as of `div_matrix`.
    data : (left, right), each EdgeDatum or None
        The data of "dirichlet" ends; None means zero.
    ends_by_sign : bool
        Whether ``edges`` and ``data`` are right only for this sign of the whole coefficient, as
        those of Inflow are.
    has_field : bool
        Whether a field multiplies ``coefficient``, which is a number then; it decides for each
        state at which ends f flows in.
    """

    kind: str
    axis: Axis
    coefficient: Function
    flux: Trace = "upwind"
    edges: Edges = PERIODIC
    data: EdgeData = (None, None)
    ends_by_sign: bool = False
    has_field: bool = False

    @property
    def is_derivative(self) -> bool:
        """Whether the factor is a div or grad."""
        return self.kind in ("div", "grad")


@dataclass(frozen=True, eq=False)
class ResolvedTerm:
    """The product scale · time(t) · factor_1 factor_2 …; the last factor is applied first."""

    factors: tuple[ResolvedFactor, ...]
    scale: float
    time: TimeFunction

    def along(self, axis: Axis) -> tuple[ResolvedFactor, ...]:
        """Return the factors along one axis; the last one is applied first."""
        return tuple(factor for factor in self.factors if factor.axis == axis)


def before_grad(term: ResolvedTerm) -> tuple[ResolvedTerm, ResolvedTerm]:
    """Return a chain div @ grad as what is done to the gradient, and the gradient."""
    place = next(k for k, factor in enumerate(term.factors) if factor.kind == "grad")
    outer = ResolvedTerm(term.factors[:place], term.scale, term.time)
    return outer, ResolvedTerm(term.factors[place:], 1.0, constant(1.0))


def resolve(
    term: Term, space: DGSpace, traces: Traces, fields: Collection[Axis] = ()
) -> tuple[ResolvedTerm, ...]:
    """Return resolved terms whose sum is the term.

    There is more than one if coefficients in other coordinates change sign. Each of these is split
    into its positive and its negative part, so that the upwind side and the inflow end follow the
    sign of the whole coefficient. ``traces`` are those of `chain_traces` of all terms, ``fields``
    the axes along which a field multiplies the term; a derivative along one of them has the field
    as its coefficient, in place of 1. Raises ValueError if it is not clear which conditions the
    factors of a chain take.
    """
    factors, scale, time = _without_numbers(term)
    resolved: dict[int, ResolvedFactor] = {}
    mixed = is_mixed(factors)
    for axis in space.axes:
        places = [k for k, factor in enumerate(factors) if factor.axis == axis]
        along = _resolve_axis([factors[k] for k in places], axis, space, traces, mixed)
        if axis in fields:
            along = [replace(factor, has_field=True) for factor in along]
        resolved.update(zip(places, along, strict=True))
    whole = ResolvedTerm(tuple(resolved[k] for k in range(len(factors))), scale, time)
    upwinded = [factor for factor in whole.factors if factor.kind != "mass"]
    if len(upwinded) != 1 or (upwinded[0].flux == "central" and not upwinded[0].ends_by_sign):
        return (whole,)
    parts = _split_by_sign(whole, upwinded[0], space)
    return tuple(_with_free_outflow(part, space) for part in parts)


def _without_numbers(term: Term) -> tuple[list[TermFactor], float, TimeFunction]:
    """Return factors, scale and function of time, with all constant factors moved into the scale.

    So an axis whose only factors are constant masses keeps the identity, and a constant factor of
    the function of time counts for the direction of upwinding. A penalty depends on the absolute
    value of the whole coefficient.
    """
    kinds = [factor.kind for factor in term.factors if factor.kind != "mass"]
    number, time = split_number(term.time)
    kept, numbers = [], [number]
    for factor in term.factors:
        if factor.kind != "mass" or callable(factor.coefficient):
            kept.append(factor)
        else:
            numbers.append(float(factor.coefficient))
    product = math.prod(numbers)
    return kept, term.scale * (abs(product) if kinds == ["penalty"] else product), time


def _resolve_axis(
    factors: Sequence[TermFactor], axis: Axis, space: DGSpace, traces: Traces, mixed: bool
) -> list[ResolvedFactor]:
    """Resolve the factors along one axis; ``mixed`` says that the term is a mixed derivative."""
    derivatives = [factor for factor in factors if factor.kind in ("div", "grad")]
    kinds = [factor.kind for factor in derivatives]
    is_chain = kinds == ["div", "grad"]
    fluxes: dict[int, Trace] = {}
    if is_chain or mixed:
        fluxes = chain_fluxes(derivatives, axis, space, traces)
    left, right = space.boundary[axis]
    periodic = isinstance(left, Periodic)
    if is_chain:
        left, right = chain_conditions((left, right), derivatives[0].boundary)
    if len(kinds) > 1 and not is_chain and not periodic:
        for factor in derivatives:
            if factor.boundary is None:
                raise ValueError(
                    f"the chain {' @ '.join(kinds)} along {axis.name!r} leaves open which "
                    "boundary conditions its factors take; write it as div @ grad, or give each "
                    "factor boundary=..."
                )
    result = []
    for factor in factors:
        flux: Trace = fluxes.get(id(factor), given_flux(factor) or "upwind")
        ends = factor.boundary
        if factor.kind == "mass":
            result.append(ResolvedFactor("mass", axis, factor.coefficient))
            continue
        if ends is not None:
            is_inner = factor in derivatives[1:] or (mixed and factor.kind == "grad")
            edges, data = own_ends(factor.kind, axis, ends, periodic, is_inner)
        elif is_chain and factor.kind != "penalty":
            edges, data = chain_ends(factor.kind, (left, right))
        elif mixed:
            edges, data = mixed_ends(factor.kind, (left, right))
        else:
            edges, data = single_ends((left, right))
        if factor.kind == "penalty":
            data = (None, None)  # at the ends of an axis there is no jump
        by_sign = any(datum is not None and datum.at_inflow for datum in data)
        result.append(
            ResolvedFactor(
                factor.kind, axis, factor.coefficient, flux, edges, data, ends_by_sign=by_sign
            )
        )
    return result


def _with_free_outflow(term: ResolvedTerm, space: DGSpace) -> ResolvedTerm:
    """At ends where f flows out, replace the data of Inflow by the trace from inside."""
    factors = []
    for factor in term.factors:
        if factor.has_field:
            factors.append(factor)
            continue
        edges, data = list(factor.edges), list(factor.data)
        for k, side in enumerate(SIDES):
            datum = data[k]
            if datum is not None and datum.at_inflow and outward_speed(factor, side, space) >= 0.0:
                edges[k], data[k] = "neumann", None
        factors.append(replace(factor, edges=(edges[0], edges[1]), data=(data[0], data[1])))
    return ResolvedTerm(tuple(factors), term.scale, term.time)


def coefficient_along(factors: Sequence[ResolvedFactor]) -> Function:
    """Return the product of the coefficients of factors along one axis as one function."""

    def product(points: NDArray[np.float64]) -> NDArray[np.float64]:
        what = f"coefficient along {factors[0].axis.name!r}"
        values = [evaluate(factor.coefficient, points, what, finite=False) for factor in factors]
        return np.asarray(np.prod(values, axis=0))

    return product


def outward_speed(factor: ResolvedFactor, side: Side, space: DGSpace) -> float:
    """Return the velocity, times the volume element, with which f flows out through an end.

    ``factor`` is ∂(g f)/∂x or g ∂f/∂x on the right-hand side, which carries f with the velocity -g.
    It is negative where f flows in.
    """
    coefficient = space.coefficient(factor.coefficient, factor.axis)
    value = coefficient_at_end(factor.axis, coefficient, side)
    return value if side == "left" else -value


def _split_by_sign(
    term: ResolvedTerm, upwinded: ResolvedFactor, space: DGSpace
) -> tuple[ResolvedTerm, ...]:
    """Split mass coefficients into positive and negative parts; return one term per combination.

    The product of the signs and the scale is moved into the coefficient of ``upwinded``, the term's
    only derivative, whose sign then determines the upwind side. A penalty depends on the absolute
    value of the whole coefficient, so that it needs no sign.
    """
    options: list[list[tuple[ResolvedFactor, float]]] = []
    for factor in term.factors:
        if factor.kind != "mass":
            options.append([(factor, 1.0)])
            continue
        sign = coefficient_sign(factor.coefficient, factor.axis, space)
        signs = (1.0, -1.0) if sign == 0.0 else (sign,)
        options.append(
            [(replace(factor, coefficient=_part(factor.coefficient, s)), s) for s in signs]
        )
    result = []
    for choice in product(*options):
        factors = [factor for factor, _ in choice]
        sign = float(np.prod([s for _, s in choice]))
        place = term.factors.index(upwinded)
        if upwinded.kind == "penalty":
            result.append(ResolvedTerm(tuple(factors), term.scale, term.time))
            continue
        scaled = _scaled(upwinded.coefficient, sign * term.scale)
        factors[place] = replace(upwinded, coefficient=scaled)
        result.append(ResolvedTerm(tuple(factors), 1.0, term.time))
    return tuple(result)


def _part(coefficient: Function, sign: float) -> Function:
    """Return the function max(sign · coefficient, 0)."""
    if callable(coefficient):
        function: Callable[[NDArray[np.float64]], Any] = coefficient
        return lambda points: np.maximum(sign * np.asarray(function(points)), 0.0)
    return max(sign * coefficient, 0.0)


def _scaled(coefficient: Function, factor: float) -> Function:
    """Return a number times a coefficient."""
    if callable(coefficient):
        function: Callable[[NDArray[np.float64]], Any] = coefficient
        return lambda points: factor * np.asarray(function(points))
    return factor * coefficient
