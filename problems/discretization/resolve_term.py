"""The choices that a term leaves open: fluxes, conditions at the ends, direction of upwinding."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..statement.axis import Axis
from ..statement.boundary import (
    Condition,
    Dirichlet,
    EdgeKind,
    Inflow,
    Neumann,
    NoFlux,
    Periodic,
    chain_conditions,
)
from ..statement.coefficients import Function
from ..statement.separable import Field
from ..statement.terms import Term, TermFactor
from ..statement.time import TimeFunction
from ..statement.time_functions import split_number
from .boundary_terms import SIDES, Side, value_at_end
from .dg_matrices import (
    OPPOSITE_TRACES,
    PERIODIC,
    Edges,
    Trace,
)
from .projection import node_values
from .quadrature import evaluate
from .space import Space

__all__ = [
    "EdgeDatum",
    "ResolvedFactor",
    "ResolvedTerm",
    "Traces",
    "chain_traces",
    "coefficient_along",
    "outward_speed",
    "resolve",
]

Traces: TypeAlias = Mapping[Axis, Trace]
"""The trace that div takes in all chains along an axis; grad takes the opposite one."""


@dataclass(frozen=True, eq=False)
class EdgeDatum:
    """What is given at an end where a factor drops the trace from inside.

    Attributes
    ----------
    data : float, Separable, SeparableSum or "from exact"
        The function given there.
    slope : bool
        Whether it is ∂f/∂x, to be multiplied by the coefficients inside the div; else f.
    at_inflow : bool
        Whether it is given only if f flows in there.
    inner : bool
        Whether it is what the factors along other axes make of the exact solution: the share of a
        mixed derivative in the flux through the end.
    """

    data: Field | str
    slope: bool
    at_inflow: bool = False
    inner: bool = False


@dataclass(frozen=True, eq=False)
class ResolvedFactor:
    """A `TermFactor` with nothing left open.

    Attributes
    ----------
    kind : {"div", "grad", "penalty", "mass"}
    axis : Axis
    coefficient : callable or float
    flux : {"upwind", "central", "downwind", "left", "right"}
    edges : (left, right), each "periodic", "dirichlet" or "neumann"
    data : (left, right), each EdgeDatum or None
        There for "dirichlet" ends only.
    ends_by_sign : bool
        Whether the edges hold for this sign of the whole coefficient only.
    """

    kind: str
    axis: Axis
    coefficient: Function
    flux: Trace = "upwind"
    edges: Edges = PERIODIC
    data: tuple[EdgeDatum | None, EdgeDatum | None] = (None, None)
    ends_by_sign: bool = False

    @property
    def is_derivative(self) -> bool:
        """Whether the factor is a div or grad."""
        return self.kind in ("div", "grad")


@dataclass(frozen=True, eq=False)
class ResolvedTerm:
    """scale · time(t) · factor_1 factor_2 …, the right one applied first."""

    factors: tuple[ResolvedFactor, ...]
    scale: float
    time: TimeFunction

    def along(self, axis: Axis) -> tuple[ResolvedFactor, ...]:
        """Return the factors along one axis, in their order."""
        return tuple(factor for factor in self.factors if factor.axis == axis)


def chain_traces(terms: Sequence[Term], space: Space) -> dict[Axis, Trace]:
    """Return the trace that div takes along the axes that have mixed second derivatives.

    With the same discrete gradient G_i in all chains along axis i, and -G_iᵀ as div, the sum of
    div_i K_ij G_j is -Gᵀ K G: no eigenvalue is positive where K is positive definite.

    Parameters
    ----------
    terms : sequence of Term
        All terms of the PDE.
    space : Space
        Axes, levels and degree.

    Returns
    -------
    dict of Axis to {"left", "right", "central"}
        "right" where no factor of the axis names a flux.

    Raises
    ------
    ValueError
        If factors name fluxes that lead to different traces, or to one that changes its side with
        the sign of the coefficient.
    """
    for k, term in enumerate(terms):
        _check_partner(k, term, space)
    chains = [chain for term in terms for chain in _chains(term)]
    mixed = {factor.axis for chain in chains for factor in chain if chain[0].axis != chain[1].axis}
    found: dict[Axis, dict[Trace, str]] = {axis: {} for axis in mixed}
    for chain in chains:
        for factor in chain:
            if factor.axis in mixed and factor.flux is not None:
                trace = _side(factor, space)
                words = f"{factor.kind}(..., flux={factor.flux!r})"
                trace = trace if factor.kind == "div" else OPPOSITE_TRACES[trace]
                found[factor.axis].setdefault(trace, words)
    for axis, traces in found.items():
        if len(traces) > 1:
            raise ValueError(
                f"axis {axis.name!r} has a mixed derivative div @ grad, so all its chains must "
                f"take their traces from the same side; {' and '.join(traces.values())} do not. "
                "Leave flux= out of the chains along this axis"
            )
    return {axis: next(iter(traces), "right") for axis, traces in found.items()}


def _check_partner(k: int, term: Term, space: Space) -> None:
    """Warn of a mixed derivative whose factors are not minus adjoint to those of other chains."""
    derivatives = [factor for factor in term.factors if factor.kind != "mass"]
    axes = list(dict.fromkeys(factor.axis for factor in derivatives))
    kind = derivatives[0].kind if derivatives else "mass"
    same = all(factor.kind == kind for factor in derivatives) and kind in ("div", "grad")
    walled = any(not isinstance(space.boundary[axis][0], Periodic) for axis in axes)
    if len(derivatives) == len(axes) == 2 and same and walled:
        first, second = (axis.name for axis in axes)
        warnings.warn(
            f"terms[{k}] is a mixed derivative {kind}({first}) @ {kind}({second}), which may grow "
            f"at ends that are not periodic, even where the matrix of diffusion is positive "
            f"definite; write div({first}) @ grad({second})",
            UserWarning,
            stacklevel=4,
        )


def _chains(term: Term) -> list[tuple[TermFactor, TermFactor]]:
    """Return the pairs (div, grad) of a term: along one axis, or the one of a mixed derivative."""
    derivatives = [factor for factor in term.factors if factor.kind in ("div", "grad")]
    if _is_mixed(term.factors):
        div, grad = sorted(derivatives, key=lambda factor: factor.kind)
        return [(div, grad)]
    found = []
    for axis in dict.fromkeys(factor.axis for factor in derivatives):
        along = [factor for factor in derivatives if factor.axis == axis]
        if [factor.kind for factor in along] == ["div", "grad"]:
            found.append((along[0], along[1]))
    return found


def _is_mixed(factors: Sequence[TermFactor]) -> bool:
    """Return whether the derivatives are one div and one grad, along different axes."""
    derivatives = [factor for factor in factors if factor.kind != "mass"]
    kinds = {factor.kind for factor in derivatives}
    axes = {factor.axis for factor in derivatives}
    return len(derivatives) == len(axes) == 2 and kinds == {"div", "grad"}


def _side(factor: TermFactor, space: Space) -> Trace:
    """Return the side of a factor's own flux, by the sign of its own coefficient."""
    if factor.flux == "central":
        return "central"
    sign = _sign(factor.coefficient, factor.axis, space)
    if sign == 0.0:
        raise ValueError(
            f"{factor.kind} along {factor.axis.name!r} has flux={factor.flux!r} and a coefficient "
            "that changes sign, in an axis with a mixed derivative div @ grad, where all traces "
            "must be from the same side; leave flux= out"
        )
    return "right" if (factor.flux == "upwind") == (sign > 0.0) else "left"


def resolve(term: Term, space: Space, traces: Traces) -> tuple[ResolvedTerm, ...]:
    """Return resolved terms whose sum is the term.

    Parameters
    ----------
    term : Term
        The term.
    space : Space
        Axes, levels, degree and boundary conditions.
    traces : mapping of Axis to {"left", "right", "central"}
        `chain_traces` of all terms.

    Returns
    -------
    tuple of ResolvedTerm
        More than one where coefficients in other coordinates change sign: they are split into
        positive and negative parts, so that the upwinding, and which end is the inflow, follow the
        sign of the whole coefficient.

    Raises
    ------
    ValueError
        If a chain leaves open which conditions its factors take.
    """
    factors, scale, time = _without_numbers(term)
    resolved: dict[int, ResolvedFactor] = {}
    mixed = _is_mixed(factors)
    for axis in space.axes:
        places = [k for k, factor in enumerate(factors) if factor.axis == axis]
        along = _resolve_axis([factors[k] for k in places], axis, space, traces, mixed)
        resolved.update(zip(places, along, strict=True))
    whole = ResolvedTerm(tuple(resolved[k] for k in range(len(factors))), scale, time)
    upwinded = [factor for factor in whole.factors if factor.kind != "mass"]
    if len(upwinded) != 1 or (upwinded[0].flux == "central" and not upwinded[0].ends_by_sign):
        return (whole,)
    parts = _split_by_sign(whole, upwinded[0], space)
    return tuple(_with_free_outflow(part, space) for part in parts)


def _without_numbers(term: Term) -> tuple[list[TermFactor], float, TimeFunction]:
    """Return factors, scale and function of time, all plain numbers moved into the scale.

    So axes of masses that are numbers keep the identity, and the sign of a function of time counts
    for the direction of upwinding. A penalty depends on the absolute value of the whole
    coefficient.
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
    factors: Sequence[TermFactor], axis: Axis, space: Space, traces: Traces, mixed: bool
) -> list[ResolvedFactor]:
    """Resolve the factors along one axis; the whole term may be a mixed derivative."""
    derivatives = [factor for factor in factors if factor.kind in ("div", "grad")]
    kinds = [factor.kind for factor in derivatives]
    is_chain = kinds == ["div", "grad"]
    fluxes: dict[int, Trace] = {}
    if is_chain or mixed:
        fluxes = _chain_fluxes(derivatives, axis, space, traces)
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
        flux: Trace = fluxes.get(id(factor), factor.flux or "upwind")
        ends = factor.boundary
        if factor.kind == "mass":
            result.append(ResolvedFactor("mass", axis, factor.coefficient))
            continue
        if ends is not None:
            is_inner = factor in derivatives[1:] or (mixed and factor.kind == "grad")
            edges, data = _own_ends(factor.kind, axis, ends, periodic, is_inner)
        elif is_chain and factor.kind != "penalty":
            edges, data = _chain_ends(factor.kind, (left, right))
        elif mixed:
            edges, data = _mixed_ends(factor.kind, (left, right))
        else:
            edges, data = _single_ends((left, right))
        if factor.kind == "penalty":
            data = (None, None)  # at the ends of an axis there is no jump
        by_sign = any(datum is not None and datum.at_inflow for datum in data)
        result.append(
            ResolvedFactor(
                factor.kind, axis, factor.coefficient, flux, edges, data, ends_by_sign=by_sign
            )
        )
    return result


def _chain_fluxes(
    derivatives: Sequence[TermFactor], axis: Axis, space: Space, traces: Traces
) -> dict[int, Trace]:
    """Return the fluxes of div and grad along one axis, by identity: traces from opposite sides.

    Without a flux of theirs the side does not depend on the coefficients' signs, so that chains
    add up to one with the sum of the coefficients.
    """
    own = {factor.kind: factor for factor in derivatives}
    if axis in traces or all(factor.flux is None for factor in derivatives):
        side = traces.get(axis, "right")
        sides = {"div": side, "grad": OPPOSITE_TRACES[side]}
        return {id(factor): sides[factor.kind] for factor in derivatives}
    div, grad = own["div"], own["grad"]
    same_sign = _sign(div.coefficient, axis, space) * _sign(grad.coefficient, axis, space) >= 0
    inner = grad.flux or _facing(div.flux, same_sign)
    outer = div.flux or _facing(grad.flux, same_sign)
    if inner != _facing(outer, same_sign):
        raise ValueError(
            f"the chain div @ grad along {axis.name!r} has flux {outer!r} in div and "
            f"{inner!r} in grad, which take traces from the same side; leave grad's out, or "
            f"give {_facing(outer, same_sign)!r}"
        )
    return {id(div): outer, id(grad): inner}


def _facing(flux: Trace | None, same_sign: bool) -> Trace:
    """Return the flux whose trace is from the other side than that of a factor's flux."""
    assert flux is not None
    return OPPOSITE_TRACES[flux] if same_sign else flux


Data = tuple[EdgeDatum | None, EdgeDatum | None]


def _chain_ends(kind: str, ends: tuple[Condition, Condition]) -> tuple[Edges, Data]:
    """Return what div or grad of a chain takes where the PDE's conditions are given.

    Dirichlet: grad takes the value, div the trace from inside. Neumann: grad takes the trace
    from inside, div the slope. NoFlux is Neumann without a slope.
    """
    edges: list[EdgeKind] = []
    data: list[EdgeDatum | None] = []
    for condition in ends:
        if isinstance(condition, Periodic):
            edges.append("periodic")
            data.append(None)
        elif isinstance(condition, Dirichlet) == (kind == "grad"):
            edges.append("dirichlet")
            data.append(
                None
                if isinstance(condition, NoFlux)
                else EdgeDatum(condition.data, slope=isinstance(condition, Neumann))
            )
        else:
            edges.append("neumann")
            data.append(None)
    return (edges[0], edges[1]), (data[0], data[1])


def _mixed_ends(kind: str, ends: tuple[Condition, Condition]) -> tuple[Edges, Data]:
    """Return what div or grad of a mixed derivative takes: what it takes in a chain of its axis.

    The share of a mixed derivative in the flux through a Neumann end is zero, so that the
    condition is of the co-normal derivative; with an exact solution it is taken from there.
    """
    edges, data = _chain_ends(kind, ends)
    if kind == "grad":
        return edges, data
    shares = [
        EdgeDatum(datum.data, slope=False, inner=True)
        if datum is not None and isinstance(datum.data, str)
        else None
        for datum in data
    ]
    return edges, (shares[0], shares[1])


def _single_ends(ends: tuple[Condition, Condition], is_inner: bool = False) -> tuple[Edges, Data]:
    """Return what a first derivative alone takes: Neumann is outflow, whatever its slope.

    Inner derivatives are those that another one is applied to: what passes through an end is the
    outer one's flux, which is the one that NoFlux closes.
    """
    edges: list[EdgeKind] = []
    data: list[EdgeDatum | None] = []
    for condition in ends:
        if isinstance(condition, (Dirichlet, Inflow)):
            edges.append("dirichlet")
            at_inflow = isinstance(condition, Inflow)
            data.append(EdgeDatum(condition.data, slope=False, at_inflow=at_inflow))
        elif isinstance(condition, NoFlux):
            edges.append("neumann" if is_inner else "dirichlet")
            data.append(None)
        else:
            edges.append(condition.kind)
            data.append(None)
    return (edges[0], edges[1]), (data[0], data[1])


def _own_ends(
    kind: str, axis: Axis, ends: tuple[Condition, Condition], periodic: bool, is_inner: bool
) -> tuple[Edges, Data]:
    """Return a factor's own conditions, taken as they are."""
    if isinstance(ends[0], Periodic) != periodic:
        raise ValueError(
            f"{kind} along {axis.name!r} has its own boundary {ends[0].kind!r}, but the PDE's "
            f"axis is {'' if periodic else 'not '}periodic; both must agree"
        )
    for condition in ends:
        if isinstance(condition, Neumann) and condition.data != 0.0:
            raise ValueError(
                f"{kind} along {axis.name!r} has its own boundary, which cannot be Neumann with "
                "data; where it takes the trace from inside, write Neumann() without data"
            )
    return _single_ends(ends, is_inner)


def _with_free_outflow(term: ResolvedTerm, space: Space) -> ResolvedTerm:
    """Drop inflow data at ends where the term's flow leaves, and keep the trace from inside."""
    factors = []
    for factor in term.factors:
        edges, data = list(factor.edges), list(factor.data)
        for k, side in enumerate(SIDES):
            datum = data[k]
            if datum is not None and datum.at_inflow and outward_speed(factor, side, space) >= 0.0:
                edges[k], data[k] = "neumann", None
        factors.append(replace(factor, edges=(edges[0], edges[1]), data=(data[0], data[1])))
    return ResolvedTerm(tuple(factors), term.scale, term.time)


def coefficient_along(factors: Sequence[ResolvedFactor]) -> Function:
    """Return the product of the coefficients of factors along one axis, as one function.

    Parameters
    ----------
    factors : sequence of ResolvedFactor
        At least one.

    Returns
    -------
    callable
    """

    def product(points: NDArray[np.float64]) -> NDArray[np.float64]:
        what = f"coefficient along {factors[0].axis.name!r}"
        values = [evaluate(factor.coefficient, points, what, finite=False) for factor in factors]
        return np.asarray(np.prod(values, axis=0))

    return product


def outward_speed(factor: ResolvedFactor, side: Side, space: Space) -> float:
    """Return the velocity, times the volume element, with which f leaves through an end.

    Parameters
    ----------
    factor : ResolvedFactor
        ∂(g f)/∂x or g ∂f/∂x on the right-hand side, which carry f with the velocity -g.
    side : {"left", "right"}
        The end.
    space : Space
        Axes and volume elements.

    Returns
    -------
    float
        Negative where f flows in.
    """
    coefficient = space.coefficient(factor.coefficient, factor.axis)
    value = value_at_end(factor.axis, coefficient, side, "coefficient")
    return value if side == "left" else -value


def _split_by_sign(
    term: ResolvedTerm, upwinded: ResolvedFactor, space: Space
) -> tuple[ResolvedTerm, ...]:
    """Split coefficients in other coordinates by sign, and move the signs into the div.

    A penalty depends on the absolute value of the whole coefficient.
    """
    options: list[list[tuple[ResolvedFactor, float]]] = []
    for factor in term.factors:
        if factor.kind != "mass":
            options.append([(factor, 1.0)])
            continue
        sign = _sign(factor.coefficient, factor.axis, space)
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


def _sign(coefficient: Function, axis: Axis, space: Space) -> float:
    """Return 1 where a coefficient is never negative, -1 where never positive, else 0."""
    values = node_values(coefficient, axis, space.level(axis), space.degree)
    if np.all(values >= 0.0):
        return 1.0
    return -1.0 if np.all(values <= 0.0) else 0.0


def _part(coefficient: Function, sign: float) -> Function:
    """Return the positive part of sign times a coefficient."""
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
