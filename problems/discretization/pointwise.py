"""The pointwise terms of a PDE as operators on a DG space."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ..statement.axis import Axis
from ..statement.boundary import Condition, Dirichlet
from ..statement.field_axes import check_field
from ..statement.functions import FunctionOfAxes, sample_places
from ..statement.number_checks import is_number
from ..statement.pointwise import PointwiseTerm
from ..statement.pointwise_terms import (
    central,
    damping_of,
    flux_at_ends,
    functions_of,
    with_axes,
)
from ..statement.separable import SeparableOnAxes, SeparableSum
from ..statement.statement import Statement
from ..statement.terms import Term
from .checks.coefficients import check_coefficients
from .checks.well_posed import refuse_backward_diffusion_at_points
from .parts import EdgeFunction, FieldAtPoints, OperatorTerm, PointwiseOperator
from .space import DGSpace
from .terms.assemble_fields import SampledFields
from .terms.assemble_term import assemble_term, edge_functions
from .terms.resolve_term import ResolvedTerm, before_grad, resolve
from .terms.traces import chain_traces

__all__ = ["fields_at_points", "pointwise_operators"]


def pointwise_operators(
    pde: Statement, space: DGSpace, fields: SampledFields
) -> tuple[tuple[PointwiseOperator, ...], list[EdgeFunction]]:
    """Return the pointwise terms of a PDE, and F of its boundary data.

    Terms of the same function of f are one operator.
    """
    members: dict[object, list[PointwiseTerm]] = {}
    for term in pde.pointwise:
        alone = term.inner is not None or term.is_second_derivative
        members.setdefault(term if alone else term.function, []).append(term)
    found, edges = [], []
    for own in members.values():
        operator, data = _operator(pde, own, space, fields)
        found.append(operator)
        edges += data
    return tuple(found), edges


def fields_at_points(
    term: PointwiseTerm, axes: tuple[Axis, ...], fields: SampledFields
) -> tuple[FieldAtPoints, ...]:
    """Return the fields of a term, with functions sampled."""
    found = []
    for name, field in term.function.fields:
        axis = check_field(field, axes)
        found.append(FieldAtPoints(name, axis, fields.field(field, axis)))
    return tuple(found)


def _operator(
    pde: Statement, own: Sequence[PointwiseTerm], space: DGSpace, fields: SampledFields
) -> tuple[PointwiseOperator, list[EdgeFunction]]:
    """Return terms of one function as an operator, and F of boundary data."""
    first, pointwise = own[0], own[0].function
    with_axes(first, pde.axes)
    function, speed, derivative = functions_of(first, pde.axes)
    if pointwise.linear:
        function.factor(sample_places(pde.axes), pde.t0)
        refuse_backward_diffusion_at_points([first], pde.axes, (pde.t0, pde.t0))
    grows = first.is_second_derivative
    plain = grows or first.inner is not None
    chains = [term.term if plain else central(term.term) for term in own]
    check_coefficients(chains, space)
    with_flux = replace(space, boundary=_fluxes_at_ends(pde, function, own))
    parts = _resolved(chains, with_flux)
    inner: tuple[OperatorTerm, ...] = ()
    if first.inner is not None:
        (whole,) = parts
        outer, gradient = before_grad(whole)
        parts, inner = [outer], (assemble_term(gradient, space),)
    edges = [edge for part in parts for edge in edge_functions(part, with_flux, explicit=True)]
    penalties = [] if speed is None else [damping_of(term, 1.0) for term in own]
    damping = _resolved([term for term in penalties if term is not None], space)
    operator = PointwiseOperator(
        function,
        tuple(assemble_term(part, space) for part in parts),
        pointwise.extra,
        pointwise.linear,
        inner,
        speed,
        tuple(assemble_term(part, space) for part in damping),
        derivative,
        fields_at_points(first, pde.axes, fields),
        grows,
    )
    return operator, edges


def _resolved(chains: Sequence[Term], space: DGSpace) -> list[ResolvedTerm]:
    traces = chain_traces(chains, space)
    return [part for chain in chains for part in resolve(chain, space, traces)]


def _fluxes_at_ends(
    pde: Statement, function: FunctionOfAxes, terms: Sequence[PointwiseTerm]
) -> dict[Axis, tuple[Condition, Condition]]:
    """Return the conditions with F of the values that are given."""
    exact = pde.exact_function
    if pde.exact:
        parts = SeparableSum(pde.exact)
        exact = SeparableOnAxes(lambda _: parts, pde.axes)
    if function.fields:
        _refuse_data(pde, function, terms)
        return dict(pde.boundary)
    return {axis: flux_at_ends(function, ends, exact) for axis, ends in pde.boundary.items()}


def _refuse_data(pde: Statement, function: FunctionOfAxes, terms: Sequence[PointwiseTerm]) -> None:
    """Refuse values at ends for a function of fields, unless they are 0 and so is F there."""
    axes = {f.axis for term in terms for f in term.term.factors if f.kind != "mass"}
    given = [
        (axis, end) for axis in axes for end in pde.boundary[axis] if isinstance(end, Dirichlet)
    ]
    if not given:
        return
    places = sample_places(pde.axes)
    shares = np.random.default_rng(8).uniform(size=(len(function.fields), places[0].size))
    fields = dict(zip(function.fields, shares, strict=True))
    vanishes = not function.of_state(np.zeros_like(places[0]), places, pde.t0, fields).any()
    for axis, end in given:
        if not (vanishes and is_number(end.data) and end.data == 0.0):
            raise ValueError(
                f"{terms[0].text()} has fields and meets data at an end of axis {axis.name!r}, "
                "where its flux would depend on the state; expected Dirichlet(0.0) and a function "
                "that is 0 for f = 0, Neumann() or NoFlux()"
            )
