"""Find coefficients that jump inside a finest cell, where polynomials do not follow them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ...statement.axis import Axis
from ...statement.coefficients import Function
from ...statement.fields import FunctionOf, nodes_of
from ...statement.statement import Statement
from ...statement.terms import term_text
from ...statement.text import count
from ..basis.edge_values import distance_beside
from ..basis.quadrature import cell_points, evaluate, gauss_rule
from ..matrices.dg_matrices import volume_nodes
from ..space import DGSpace

__all__ = ["JumpWarning", "jumps_inside_cells"]

Values = NDArray[np.float64]

_MAX_INTERVALS = 64  # number of intervals between samples in which a jump is looked for
_PARTS = 16  # number of parts into which such an interval is cut, again and again
_SMALL = 1e-4  # a jump that is not looked for, relative to the larger value beside it
_ROUNDING = 1e-12  # and relative to the largest value on the axis
# The change within the last interval is a jump if it is this many times the changes beside it, over
# as many such intervals on both sides: a continuous function, resolved, has 1/32 of them.
_STEEPNESS, _FURTHER = 4.0, 16.0


class JumpWarning(UserWarning):
    """A coefficient jumps inside a cell, so that the order of convergence falls."""


def jumps_inside_cells(pde: Statement, space: DGSpace) -> Iterator[str]:
    """Find coefficients and volume elements that jump inside a finest cell.

    ``pde``: the PDE.
    ``space``: axes and finest levels.

    Yields the text of a warning for each function with such a jump: where it is, and how an edge
    comes there. A jump at an edge is none of these: derivatives take both sides' values there.

    A function is sampled at the Gauss points of the finest cells. Between those samples whose
    difference does not follow from their neighbours', the place of the largest change is looked for
    until its interval is as small as the distance up to which a jump belongs to an edge. Layers of
    continuous functions, however steep, are resolved before that.
    """
    seen: set[tuple[int, Axis]] = set()
    for what, function, axis in _functions(pde):
        if not callable(function) or (id(function), axis) in seen:
            continue
        seen.add((id(function), axis))
        found = _jumps(function, axis, space.level(axis), space.degree(axis))
        if found:
            yield _text(what, axis, space.level(axis), found)


def _functions(pde: Statement) -> Iterator[tuple[str, Function, Axis]]:
    """Yield names, functions and axes of all coefficients, those inside fields included."""
    for k, term in enumerate(pde.terms):
        for factor in term.factors:
            what = f"the coefficient of {factor.kind} in terms[{k}], {term_text(term)},"
            yield what, factor.coefficient, factor.axis
        for axis, field in term.fields:
            for node in nodes_of(field):
                if isinstance(node, FunctionOf):
                    yield f"a function in the field of terms[{k}]", node.function, axis
    for axis, volume in pde.volume.items():
        yield "the volume element", volume, axis


def _text(what: str, axis: Axis, level: int, found: list[tuple[float, float, float]]) -> str:
    place, before, behind = found[0]
    more = f" (and at {count(len(found) - 1, 'more place')})" if len(found) > 1 else ""
    share = (place - axis.lower) / axis.length
    finer = [m for m in range(level + 1, 31) if abs(share * 2**m - round(share * 2**m)) < 1e-6]
    if finer and finer[0] <= level + 10:
        advice = f"from level {finer[0]} on it is an edge"
    else:
        cells = 1 << max(level, 1)
        edge = min(max(round(share * cells), 1), cells - 1)
        upper = axis.lower + (place - axis.lower) * cells / edge
        advice = (
            f"the edges are at {axis.lower:.6g} + k * {axis.length:.6g} / 2**level; with another "
            f"end, such as Axis({axis.name!r}, {axis.lower:.10g}, {upper:.10g}), one is there at "
            f"level {max(level, 1)}"
        )
    return (
        f"{what} jumps from {before:.6g} to {behind:.6g} at {axis.name} = {place:.10g}{more}, "
        f"inside a finest cell of level {level}. Errors there fall with the first power of the "
        f"cell's width or less, whatever the degree. Let an edge between cells lie at the jump: "
        f"{advice}. Or make the coefficient continuous"
    )


def _jumps(
    function: Function, axis: Axis, level: int, degree: int
) -> list[tuple[float, float, float]]:
    """Return place, value before and value behind of each jump inside a cell, the largest first."""
    near, what = distance_beside(axis), f"function of {axis.name!r}"
    nodes = np.concatenate(([-1.0], gauss_rule(volume_nodes(degree))[0], [1.0]))
    points = cell_points(axis, level, nodes)
    points[:, 0] += 2.0 * near  # jumps that belong to an edge are outside
    points[:, -1] -= 2.0 * near
    values = evaluate(function, points, what, finite=False)
    rounding = _ROUNDING * float(np.abs(values[np.isfinite(values)]).max(initial=0.0))
    with np.errstate(all="ignore"):  # a function may be infinite somewhere
        lower, upper = _suspicious(points, values, rounding)
        if not lower.size:
            return []
        left, right = _largest_changes(function, lower, upper, near, what)
        width = _FURTHER * near
        beside = np.maximum(left - width, lower), np.minimum(right + width, upper)
        places = np.stack([beside[0], left, right, beside[1]], axis=1)
        around = evaluate(function, places, what, finite=False)
        before, jump, behind = np.abs(np.diff(around, axis=1)).T
        small = rounding + _SMALL * np.abs(around[:, 1:3]).max(axis=1)
        wrong = np.flatnonzero((jump > _STEEPNESS * (before + behind)) & (jump > small))
    order = wrong[np.argsort(-jump[wrong], kind="stable")]
    return [(float(right[k]), float(around[k, 1]), float(around[k, 2])) for k in order]


def _largest_changes(
    function: Function, lower: Values, upper: Values, near: float, what: str
) -> tuple[Values, Values]:
    """Return the ends of an interval as short as ``near`` in each of some, where it changes most.

    In each step it is the part in which the function's change differs most from that in the others.
    """
    left, right, rows = lower, upper, np.arange(len(lower))
    while float((right - left).max()) > near:
        inside = left[:, None] + (right - left)[:, None] * np.linspace(0.0, 1.0, _PARTS + 1)
        inside[:, -1] = right
        change = np.diff(evaluate(function, inside, what, finite=False), axis=1)
        change[~np.isfinite(change)] = 0.0
        part = np.abs(change - np.median(change, axis=1, keepdims=True)).argmax(axis=1)
        left, right = inside[rows, part], inside[rows, part + 1]
    return left, right


def _suspicious(points: Values, values: Values, rounding: float) -> tuple[Values, Values]:
    """Return the ends of intervals between samples in which a function may jump.

    These are the intervals where its change differs most from that which its slopes in the
    neighbouring intervals of the cell give, and those where it does relative to the function.
    """
    gaps = np.diff(points, axis=1)
    change = np.diff(values, axis=1)
    slopes = np.pad(change / gaps, ((0, 0), (1, 1)), mode="edge")
    excess = np.abs(change - gaps * (slopes[:, :-2] + slopes[:, 2:]) / 2)
    size = np.maximum(np.abs(values[:, :-1]), np.abs(values[:, 1:]))
    small = rounding + _SMALL * size
    rows, columns = np.nonzero((excess > small) & (np.abs(change) > small))
    found = excess[rows, columns]
    orders = [np.argsort(-found, kind="stable"), np.argsort(-found / size[rows, columns])]
    order = np.unique(np.concatenate([one[: _MAX_INTERVALS // 2] for one in orders]))
    rows, columns = rows[order], columns[order]
    return points[rows, columns], points[rows, columns + 1]
