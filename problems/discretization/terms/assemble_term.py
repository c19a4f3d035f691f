"""Assembly of a resolved term: its one-dimensional matrices, and its sources from boundary data.

A `ResolvedTerm` is a product of one-dimensional factors (div, grad, penalty, mass) whose fluxes and
conditions are all decided; `batchkron.problems.discretization.terms.resolve_term` makes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial, reduce
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from ...statement.axis import Axis
from ...statement.coefficients import Function
from ...statement.functions import function_of_axes
from ...statement.separable import Separable, separable_parts
from ..basis.multiwavelets import to_hierarchical, to_nodal
from ..basis.projection import differentiate, sample
from ..matrices.boundary_terms import (
    SIDES,
    Side,
    boundary_penalty_matrix,
    coefficient_at_end,
    edge_data,
    penalty_data,
    value_at_end,
)
from ..matrices.dg_matrices import (
    NodalMatrix,
    div_matrix,
    grad_matrix,
    mass_matrix,
    penalty_matrix,
)
from ..matrices.mode_operator import ModeOperator
from ..parts import EdgeFunction, OperatorTerm, SeparableVector
from ..space import DGSpace
from .edge_conditions import EdgeDatum
from .manufactured_sources import project_applied
from .resolve_term import ResolvedFactor, ResolvedTerm, coefficient_along

__all__ = ["assemble_term", "boundary_sources", "edge_functions"]


def assemble_term(term: ResolvedTerm, space: DGSpace) -> OperatorTerm:
    """Return the term as one operator per axis in the hierarchical basis; None is the identity.

    It is None, too, along the axis of a derivative that has a field, which `SampledFields` puts in.
    """
    modes = tuple(_mode(term, axis, space) for axis in space.axes)
    derivatives = [factor for factor in term.factors if factor.kind != "mass"]
    one_sided = len(derivatives) == 1 and (
        derivatives[0].flux != "central" or derivatives[0].ends_by_sign
    )
    return OperatorTerm(modes, term.scale * term.time, one_sided)


def _mode(term: ResolvedTerm, axis: Axis, space: DGSpace) -> ModeOperator | None:
    """Return a term's operator along an axis, None where it is the identity or has a field."""
    factors = term.along(axis)
    if not factors or factors[0].has_field:
        return None
    mode = ModeOperator.from_nodal(_axis_matrix(factors, space), space.degree(axis))
    return None if mode.is_identity else mode


def boundary_sources(
    term: ResolvedTerm, space: DGSpace, *, explicit: bool = False
) -> list[SeparableVector]:
    """Return the sources of a term that come from the data at the ends of the axes.

    There is one for each end with data and each separable part of the data. Along the axis of the
    end it is the vector of a unit datum (see `edge_data`) times the matrices of the factors to the
    left of the one that takes the datum; along every other axis it is the projected data times the
    term's matrices there. IMEX methods treat them explicitly if ``explicit``, as the term.
    """
    found = []
    for axis, side, datum, along in _edges(term, space):
        if callable(datum.data):
            continue
        for part in _parts(datum, space):
            value = _value_at_end(part.factor(axis), axis, side, datum, space)
            number = value * part.coefficient * term.scale
            if number != 0.0:
                source = _source(term, axis, number * along(), part, space, datum.inner)
                found.append(replace(source, explicit=explicit))
    return found


def edge_functions(
    term: ResolvedTerm, space: DGSpace, *, explicit: bool = False
) -> list[EdgeFunction]:
    """Return the sources of a term that come from data which are functions of all axes.

    They are as those of `boundary_sources`, but the data are projected on the grid of the other
    axes, where the term's operators act on them.
    """
    found = []
    for axis, side, datum, along in _edges(term, space):
        if not callable(datum.data):
            continue
        name = f"the data at the {side} end of axis {axis.name!r}"
        function = function_of_axes(name, datum.data, space.axes, in_time=True)
        modes = tuple(None if own == axis else _mode(term, own, space) for own in space.axes)
        end = axis.lower if side == "left" else axis.upper
        place, vector = space.axes.index(axis), term.scale * along()
        found.append(EdgeFunction(place, end, vector, function, modes, term.time, explicit))
    return found


def _edges(
    term: ResolvedTerm, space: DGSpace
) -> Iterator[tuple[Axis, Side, EdgeDatum, Callable[[], NDArray[np.float64]]]]:
    """Yield each end with a datum, and what makes the vector of a unit datum along its axis."""
    for axis in space.axes:
        factors = term.along(axis)
        for place, factor in enumerate(factors):
            for side, datum in zip(SIDES, factor.data, strict=True):
                if datum is not None:
                    yield axis, side, datum, partial(_along, factors, place, side, datum, space)


def _along(
    factors: Sequence[ResolvedFactor], place: int, side: Side, datum: EdgeDatum, space: DGSpace
) -> NDArray[np.float64]:
    """Return the hierarchical coefficients along the axis of a unit datum."""
    vector = _edge_vector(factors, place, side, space)
    if datum.share is not None:
        vector = _outward(side) * vector
    vector = vector * _inner_coefficient(factors[place + 1 :], datum, side)
    axis = factors[place].axis
    return to_hierarchical(vector, space.level(axis), space.degree(axis))


def _source(
    term: ResolvedTerm,
    axis: Axis,
    along: NDArray[np.float64],
    part: Separable,
    space: DGSpace,
    exact: bool,
) -> SeparableVector:
    """Return one source: the vector `along` on ``axis``, projected data on the other axes.

    ``part`` is one separable part of the data. The term's factors on the other axes act on it by
    their matrices; if it is the exact solution (``exact``), they are applied to the function before
    it is projected, because the matrices of derivatives would need data at the ends of those axes.
    """
    vectors = []
    for other in space.axes:
        if other == axis:
            vectors.append(along)
            continue
        level, degree = space.level(other), space.degree(other)
        factors = term.along(other)
        if exact:
            vectors.append(project_applied(factors, part.factor(other), other, space))
            continue
        vector = space.project(part.factor(other), other)
        if factors:
            nodal = _axis_matrix(factors, space) @ to_nodal(vector, level, degree)
            vector = to_hierarchical(nodal, level, degree)
        vectors.append(vector)
    return SeparableVector(tuple(vectors), part.time * term.time)


def _parts(datum: EdgeDatum, space: DGSpace) -> Sequence[Separable]:
    if isinstance(datum.data, str):
        return space.exact
    assert not callable(datum.data)
    return separable_parts("boundary data", datum.data, space.axes)


def _value_at_end(
    function: Function, axis: Axis, side: Side, datum: EdgeDatum, space: DGSpace
) -> float:
    """Return the value of a data's factor at an end of the axis, or its slope if that is the datum.

    A factor that is a number is itself the value or the slope. Of Robin it is the value; of the
    exact solution the outward slope and the share of the value.
    """
    is_exact = isinstance(datum.data, str)
    if datum.share is not None and not is_exact:
        return value_at_end(axis, function, side)
    if datum.share is not None:
        share = datum.share * value_at_end(axis, function, side)
        return share + (_outward(side) * _slope(function, axis, side, space))
    if datum.slope and callable(function):
        return _slope(function, axis, side, space)
    return value_at_end(axis, function, side)


def _slope(function: Function, axis: Axis, side: Side, space: DGSpace) -> float:
    """Return the derivative of a function at an end of the axis, 0 of a number."""
    if not callable(function):
        return 0.0
    samples = sample(function, axis, space.level(axis), space.degree(axis))
    return float(differentiate(samples, axis)[(0, 0) if side == "left" else (-1, -1)])


def _outward(side: Side) -> float:
    """Return the direction of the outward normal along the axis."""
    return -1.0 if side == "left" else 1.0


def _inner_coefficient(inner: Sequence[ResolvedFactor], datum: EdgeDatum, side: Side) -> float:
    """Return the number that multiplies a datum because the factor acts on ``inner`` factors of f.

    ``inner`` are the factors along the axis that are applied before the one that takes the datum.
    A datum for the slope of f is multiplied by the coefficients of grad and of the masses between
    div and grad, a datum for f by those of the masses that are applied to f first. If other
    derivatives are inside, the datum is given for their result and the number is 1.
    """
    derivatives = [factor for factor in inner if factor.is_derivative]
    if datum.slope and inner[-1].kind != "grad":
        raise ValueError(
            f"the chain along {inner[-1].axis.name!r} multiplies f before it differentiates, and "
            "cannot take the slope of f as Neumann or Robin data; write the product's derivative "
            "out"
        )
    if datum.slope or not derivatives:
        return _coefficient_at(inner, side)
    if isinstance(datum.data, str):
        raise ValueError(
            f"a factor along {derivatives[0].axis.name!r} acts on a derivative and cannot take its "
            f"own boundary data {datum.data!r}; give the data of that derivative"
        )
    return 1.0


def _coefficient_at(factors: Sequence[ResolvedFactor], side: Side) -> float:
    """Return the product of the factors' coefficients at an end."""
    values = [coefficient_at_end(factor.axis, factor.coefficient, side) for factor in factors]
    return float(np.prod(values))


def _axis_matrix(factors: Sequence[ResolvedFactor], space: DGSpace) -> NodalMatrix:
    """Return the matrix of all factors along one axis, with what they add at ends.

    These are the boundary penalties of Dirichlet, and the shares of f in the slopes of Robin.
    """
    matrix = _product([_matrix(factor, space) for factor in factors])
    at_ends = [
        (_chain_start(factors, place), place, side, space.boundary_penalty)
        for place, side in _penalised(factors, space)
    ]
    for start, place, side, tau in [*at_ends, *_robin(factors, space)]:
        axis, level = factors[place].axis, space.level(factors[place].axis)
        before = [_matrix(factor, space) for factor in factors[:start]]
        after = [_matrix(factor, space) for factor in factors[place + 1 :]]
        penalty = boundary_penalty_matrix(
            axis,
            level,
            space.degree(axis),
            _strength(factors[start : place + 1], side, space),
            sides=(side,),
            tau=tau,
        )
        matrix = matrix + _product([*before, _divided(penalty, axis, space), *after])
    return csr_array(matrix)


def _edge_vector(
    factors: Sequence[ResolvedFactor], place: int, side: Side, space: DGSpace
) -> NDArray[np.float64]:
    """Return the nodal vector of a unit datum at one end, taken by the factor at ``place``."""
    factor = factors[place]
    axis, level = factor.axis, space.level(factor.axis)
    coefficient = space.coefficient(factor.coefficient, axis)
    vector = _divided(edge_data(axis, level, space.degree(axis), side, coefficient), axis, space)
    for earlier in reversed(factors[:place]):
        vector = _matrix(earlier, space) @ vector
    if (place, side) in _penalised(factors, space):
        start = _chain_start(factors, place)
        strength = _strength(factors[start : place + 1], side, space)
        tau = space.boundary_penalty
        extra = penalty_data(axis, level, space.degree(axis), side, strength, tau=tau)
        extra = _divided(extra, axis, space)
        for earlier in reversed(factors[:start]):
            extra = _matrix(earlier, space) @ extra
        vector = vector + extra
    return np.asarray(vector, dtype=np.float64)


def _strength(factors: Sequence[ResolvedFactor], side: Side, space: DGSpace) -> float:
    """Return the coefficient of a boundary penalty.

    It is the product of the chain's coefficients and the volume element at the end.
    """
    axis = factors[0].axis
    return coefficient_at_end(axis, space.coefficient(coefficient_along(factors), axis), side)


def _penalised(factors: Sequence[ResolvedFactor], space: DGSpace) -> list[tuple[int, Side]]:
    """Return (place of grad, side) for every chain div … grad and end with Dirichlet data."""
    found: list[tuple[int, Side]] = []
    if space.boundary_penalty == 0.0:
        return found
    for place, factor in enumerate(factors):
        start = _chain_start(factors, place)
        if factor.kind != "grad" or start == place:
            continue
        for k, side in enumerate(SIDES):
            if factor.edges[k] == "dirichlet" and factors[start].edges[k] != "dirichlet":
                found.append((place, side))
    return found


def _robin(
    factors: Sequence[ResolvedFactor], space: DGSpace
) -> Iterator[tuple[int, int, Side, float]]:
    """Yield (place of div, place of grad, side, r h) for every chain and end with Robin data."""
    for start, factor in enumerate(factors):
        for side, datum in zip(SIDES, factor.data, strict=True):
            if datum is None or datum.share is None:
                continue
            _inner_coefficient(factors[start + 1 :], datum, side)  # refuses a mass before grad
            width = factor.axis.cell_width(space.level(factor.axis))
            yield start, len(factors) - 1, side, datum.share * width


def _chain_start(factors: Sequence[ResolvedFactor], place: int) -> int:
    """Return the place of the div to the left of a grad with nothing but masses between them.

    Without such a div return ``place``.
    """
    for earlier in range(place - 1, -1, -1):
        if factors[earlier].kind == "div":
            return earlier
        if factors[earlier].kind != "mass":
            break
    return place


def _product(matrices: Sequence[NodalMatrix]) -> NodalMatrix:
    return reduce(lambda left, right: left @ right, matrices)


def _matrix(factor: ResolvedFactor, space: DGSpace) -> NodalMatrix:
    """Return the nodal matrix of one factor, times the inverse mass matrix of a volume element."""
    axis, level, degree = factor.axis, space.level(factor.axis), space.degree(factor.axis)
    if factor.kind == "mass" and not callable(factor.coefficient):
        return mass_matrix(axis, level, degree, factor.coefficient)
    coefficient = space.coefficient(factor.coefficient, axis)
    if factor.kind == "mass":
        return _divided(mass_matrix(axis, level, degree, coefficient), axis, space)
    builders: dict[str, Callable[..., NodalMatrix]] = {
        "div": div_matrix,
        "grad": grad_matrix,
        "penalty": penalty_matrix,
    }
    matrix = builders[factor.kind](
        axis, level, degree, coefficient, flux=factor.flux, boundary=factor.edges
    )
    return _divided(matrix, axis, space)


Nodal = TypeVar("Nodal", NodalMatrix, NDArray[np.float64])


def _divided(values: Nodal, axis: Axis, space: DGSpace) -> Nodal:
    """Return the inverse mass matrix of an axis times a nodal matrix or vector.

    Without a volume element the nodal basis is orthonormal and the mass matrix the identity.
    """
    if axis not in space.volume:
        return values
    result: Nodal = space.volume[axis].inverse_mass @ values
    return result
