"""The values of fields at the Gauss points of the finest cells, from a state."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from batchkron.arrays import array_module
from batchkron.errors import NotPhysicalError
from batchkron.operators import on_device

from ...discretization.fields.point_map import ChannelKind, PointMap
from ...discretization.fields.points import CellPoints
from ...discretization.parts import Masses
from ...grids.degrees import Degree, of_each_axis
from ...grids.sparse_grid import SparseGrid
from ...statement.axis import Axis
from ...statement.fields import (
    Arithmetic,
    FieldExpression,
    Moment,
    Poisson,
    Power,
    Resolved,
    Samples,
    Uniform,
    nodes_of,
)
from .contraction import MomentComponents, end_weights, power_weights
from .linear_part import LinearPart, MomentKey, moment_key
from .program import field_program

__all__ = ["FieldEvaluation", "resolved_level"]

Values = NDArray[np.float64]
_Moments: TypeAlias = tuple[tuple[MomentKey, float], ...]  # the summands of a linear part
_Velocities: TypeAlias = tuple[Axis, ...] | None  # those of a Resolved, see there

_UFUNCS = {"+": np.add, "-": np.subtract, "*": np.multiply}
_MAX_SUMS = 1 << 20  # entries of the matrix of a plan's sums over the state; chosen by hand
_RESOLVED_LEVEL = 2
"""Level of the velocities that a level of x needs, so that moments of it act on its collisions.

With less, the collisions' part that acts on f and the part that its moments cause do not fit each
other there, and waves grow at up to ν/5 (eigenvalues of the linear problem at ν = 1 … 100 on sparse
grids of level 4; with this level none has a positive real part).
"""


def resolved_level(grid: SparseGrid, place: int, velocities: Sequence[int]) -> int:
    """Return the largest level of an axis up to which the grid resolves velocities, see `Resolved`.

    ``place`` is the number of the axis, and ``velocities`` are those of the velocities.
    """
    levels = grid.cell_levels
    for level in range(grid.levels[place] + 1):
        own = levels[levels[:, place] == level]
        if any(
            own[:, k].max(initial=-1) < min(_RESOLVED_LEVEL, grid.levels[k]) for k in velocities
        ):
            return max(level - 1, 0)
    return grid.levels[place]


def _with_equals(
    evaluated: Sequence[FieldExpression], nodes: Sequence[FieldExpression]
) -> list[tuple[FieldExpression, FieldExpression | None]]:
    """Return some expressions, each with an earlier one of them that is the same, or None.

    ``nodes`` are all expressions, operands first.
    """
    keys: dict[int, Any] = {}  # of each expression; equal ones have one number
    numbers: dict[Any, int] = {}
    for node in nodes:
        operands = tuple(keys[id(operand)] for operand in node.operands)
        key: Any = id(node)
        if isinstance(node, Moment):
            key = moment_key(node)
        elif isinstance(node, Uniform):
            key = node.value
        elif isinstance(node, Arithmetic):
            key = node.operation
        elif isinstance(node, Power):
            key = node.exponent, node.is_polynomial
        elif isinstance(node, Resolved):
            key = node.velocities
        keys[id(node)] = numbers.setdefault((type(node), key, operands), len(numbers))
    first: dict[int, FieldExpression] = {}
    found = []
    for node in evaluated:
        known = first.setdefault(keys[id(node)], node)
        found.append((node, None if known is node else known))
    return found


def _step(node: FieldExpression, equal: FieldExpression | None) -> tuple[int, Any, Any, int, int]:
    """Return how an expression is evaluated: its id, itself, a ufunc of two values, their ids.

    Without a ufunc it has the value of the first id, or, where that is 0, one of its own.
    """
    if equal is not None:
        return id(node), node, None, id(equal), 0
    if isinstance(node, Arithmetic) and node.operation in _UFUNCS:
        first, second = node.operands
        return id(node), node, _UFUNCS[node.operation], id(first), id(second)
    return id(node), node, None, 0, 0


class FieldEvaluation:
    """Evaluates fields along one axis of a problem.

    Parameters
    ----------
    fields : sequence of FieldExpression
        The fields, without functions (`batchkron.problems.discretization.fields.sampling`).
    axis : Axis
        Their axis.
    axes : sequence of Axis
        All axes of the state.
    grid : SparseGrid
        The grid of the state.
    degree : int or tuple of int
        Polynomial degree, of all axes or of each.
    masses : sequence of (ndarray or None)
        Mass blocks of the axes with a volume element.
    device : {"cpu", "cuda"}
        Where the states are.

    Raises
    ------
    ValueError
        If a moment has too large a power for a volume element, or Poisson's equation is along an
        axis that has one.
    """

    def __init__(
        self,
        fields: Sequence[FieldExpression],
        axis: Axis,
        axes: Sequence[Axis],
        grid: SparseGrid,
        degree: Degree,
        masses: Masses,
        device: str = "cpu",
    ) -> None:
        place = list(axes).index(axis)
        level, degrees = grid.levels[place], of_each_axis(degree, len(axes))
        like = on_device(np.zeros(0), device)
        self._module = array_module(like)
        self.points = CellPoints(axis, level, degrees[place], self._module)
        self._axis, self._fields = axis, tuple(fields)
        self._nodes = list(dict.fromkeys(node for f in self._fields for node in nodes_of(f)))
        if masses[place] is not None:
            for node in self._nodes:
                if isinstance(node, Poisson):
                    raise ValueError(
                        f"{node.text()} is along {axis.name!r}, which has a volume element; "
                        "Poisson's equation is solved in Cartesian coordinates only"
                    )
        order = {own: k for k, own in enumerate(axes)}
        sets = {node.velocities for node in self._nodes if isinstance(node, Resolved)}
        self._place, self._sets = place, {own: [order[axis] for axis in own] for own in sets}
        self._use_grid(grid)
        self._given: set[FieldExpression] = set()  # what does not depend on the state
        for node in self._nodes:
            if not isinstance(node, Moment) and all(part in self._given for part in node.operands):
                self._given.add(node)
        self._known = {  # id of what is given: values
            id(node): on_device(node.values, device)
            for node in self._nodes
            if isinstance(node, Samples)
        }
        for node in self._nodes:
            if node in self._given and id(node) not in self._known:
                self._known[id(node)] = self._value(node, self._known, 0.0)
        shape = self.points.cells, self.points.count
        self._ready = {  # id of a field that is given: its values at all points
            id(field): self._module.broadcast_to(
                self._module.asarray(self._known[id(field)], dtype=np.float64), shape
            )
            for field in self._fields
            if field in self._given
        }
        self._prepare_channels(axes, grid, degrees, masses, place, device)

    def _prepare_channels(
        self,
        axes: Sequence[Axis],
        grid: SparseGrid,
        degrees: Sequence[int],
        masses: Masses,
        place: int,
        device: str,
    ) -> None:
        """Find what is linear in the state, and make the map that computes it."""
        points = self.points
        linear: dict[int, LinearPart | None] = {}
        for node in self._nodes:
            linear[id(node)] = LinearPart.of(node, linear)
        channels: list[tuple[ChannelKind, LinearPart, _Velocities]] = []
        self._channels: list[tuple[list[FieldExpression], Values | None]] = []
        values_of: dict[tuple[_Moments, _Velocities], list[FieldExpression]] = {}
        stack, needed = list(self._fields), set()
        while stack:
            node = stack.pop()
            if id(node) in needed or node in self._given:
                continue
            needed.add(id(node))
            if isinstance(node, Moment):
                values_of.setdefault((((moment_key(node), 1.0),), None), []).append(node)
                continue
            part = linear[id(node.field)] if isinstance(node, Resolved) else None
            if isinstance(node, Resolved) and part is not None and not part.given:
                known = tuple(part.moments.items()), node.velocities
                values_of.setdefault(known, []).append(node)
                continue
            density = linear[id(node.density)] if isinstance(node, Poisson) else None
            if not isinstance(node, Poisson) or density is None:
                stack.extend(node.operands)
                continue
            if node.background is not None and node.background not in self._given:
                stack.extend(node.operands)
                continue
            kind: ChannelKind = "neutral" if node.background is None else "integral"
            channels.append((kind, density, None))
            # the rest of the field, which does not depend on the state
            rest = density.constant(self._known, points.cells, points.count, self._module)
            fixed = self._poisson(node, rest)
            is_zero = node.potential is None and node.background is None and not density.given
            self._channels.append(([node], None if is_zero else fixed))
        for (summands, velocities), nodes in values_of.items():
            channels.append(("value", LinearPart(dict(summands)), velocities))
            self._channels.append((nodes, None))
        linked = {id(node) for nodes, _ in self._channels for node in nodes}
        evaluated = [node for node in self._nodes if id(node) in needed and id(node) not in linked]
        self._pairs = _with_equals(evaluated, self._nodes)
        self._steps = [_step(*pair) for pair in self._pairs]
        self._map: PointMap | None = None
        if not channels:
            return
        moments = list(dict.fromkeys(key for _, part, _ in channels for key in part.moments))
        order = {own: k for k, own in enumerate(axes)}

        def weights(own: Axis, power: int, end: Axis | None) -> Values:
            k = order[own]
            if own == end:
                return end_weights(own, grid.levels[k], degrees[k], power)
            return power_weights(own, grid.levels[k], degrees[k], power, masses[k])

        rows = [
            {order[own]: weights(own, power, end) for own, power in powers}
            for powers, end in moments
        ]
        mixed = [[part.moments.get(key, 0.0) for key in moments] for _, part, _ in channels]
        level, sizes = points.level, tuple(degree + 1 for degree in degrees)
        cells = PointMap.order(level, device)
        self._find_components = partial(
            MomentComponents, sizes=sizes, axis=place, rows=rows, cells=cells, device=device
        )
        self._components = self._find_components(grid)
        # the components once for each set of velocities, without the levels it does not resolve
        self._groups = list(dict.fromkeys(velocities for *_, velocities in channels))
        self._cells = cells
        self._use_masks()
        combined = np.array(mixed) @ self._components.weights
        self._group_of_channel = [self._groups.index(velocities) for *_, velocities in channels]
        made = []
        for (kind, *_), group, own in zip(channels, self._group_of_channel, combined, strict=True):
            whole = np.zeros((len(self._groups), len(own)))
            whole[group] = own
            made.append((kind, tuple(whole.ravel().tolist())))
        self._mixed = np.array([weights for _, weights in made])
        self._map = PointMap(points.axis, level, points.degree, made, device)

    def _use_grid(self, grid: SparseGrid) -> None:
        self._coarse = {
            own: resolved_level(grid, self._place, numbers) for own, numbers in self._sets.items()
        }

    def _use_masks(self) -> None:
        """Make what drops the levels that are not resolved, if there are any."""
        n, level = self.points.degree + 1, self.points.level
        kept = [level if own is None else self._coarse[own] for own in self._groups]
        self._masks: Values | None = None
        if len(kept) > 1 or kept[0] < level:
            rows = [np.repeat(self._cells < 1 << own, n) for own in kept]
            self._masks = self._module.asarray(np.array(rows, dtype=np.float64)[:, None])

    def plan_arrays(self) -> tuple[dict[str, Any], list[int]] | None:
        """Return what a plan of the core takes of the evaluation, and the rows of the fields.

        None if there is none: on a device, for powers and other expressions that it does not know,
        or for large sums over the state.
        """
        if self._module is not np or self._map is None or not self._map.is_product:
            return None
        points, groups = self.points, len(self._groups)
        shape, nodes = (points.cells, points.count), [own for own, _ in self._channels]
        program = field_program(self._pairs, self._known, nodes, shape, self._projection)
        sums = self._components.sparse(_MAX_SUMS)
        if program is None or sums is None:
            return None
        of_program, rows = program
        mixed = self._mixed.reshape(len(nodes), groups, -1)
        kept = np.ones((len(nodes), points.cells * (points.degree + 1)))
        if self._masks is not None:
            kept = self._masks[self._group_of_channel, 0]
        offsets = np.zeros((len(nodes), points.cells * points.count))
        for own, (_, fixed) in zip(offsets, self._channels, strict=True):
            if fixed is not None:
                own[:] = np.broadcast_to(fixed, shape).ravel()
        arrays = {
            "unknowns": sums.shape[1],
            "starts": sums.indptr.astype(np.int64),
            "columns": sums.indices.astype(np.int64),
            "weights": sums.data,
            "mix": self._map.mix_of(mixed.sum(axis=1)),
            "kept": np.ascontiguousarray(kept),
            "levels": self._map.levels,
            "offsets": offsets,
            **of_program,
        }
        return arrays, [rows[id(field)] for field in self._fields]

    def _projection(self, node: Resolved) -> Values | None:
        coarse = self._coarse[node.velocities]
        return np.zeros((0, 0)) if coarse == self.points.level else self.points.projection(coarse)

    def on_grid(self, grid: SparseGrid) -> FieldEvaluation:
        """Return the evaluation for states on another grid of the same finest levels."""
        moved = copy.copy(self)
        moved._use_grid(grid)
        if self._map is not None:
            moved._use_masks()
            moved._components = self._find_components(grid)
        return moved

    def __call__(self, t: float, u: Values) -> list[Values]:
        """Return the values (cells, q) of all fields for a state; the time is for texts of errors.

        Raises NotPhysicalError if a divisor or the base of a root is not positive; on a device the
        values there are NaN instead.
        """
        found: dict[int, Any] = dict(self._known)
        if self._map is not None:
            components = self._components(u)
            if self._masks is not None:
                components = (self._masks * components).reshape(-1, components.shape[-1])
            linear = self._map(components)
            for own, (nodes, fixed) in zip(linear, self._channels, strict=True):
                whole = own if fixed is None else own + fixed
                found.update((id(node), whole) for node in nodes)
        for key, node, operation, first, second in self._steps:
            if operation is not None:
                found[key] = operation(found[first], found[second])
            else:
                found[key] = found[first] if first else self._value(node, found, t)
        return [
            self._ready[id(field)] if id(field) in self._ready else found[id(field)]
            for field in self._fields
        ]

    def _value(self, node: FieldExpression, found: dict[int, Any], t: float) -> Any:
        """Return the values of one expression from those of its operands."""
        given = [found[id(operand)] for operand in node.operands]
        if isinstance(node, Uniform):
            return node.value
        if isinstance(node, Poisson):
            return self._poisson(node, *given)
        if isinstance(node, Resolved):
            return self._resolved(node, given[0])
        if isinstance(node, Power):
            base = given[0]
            if not node.is_polynomial:
                base = self._checked_positive(node.base, base, t)
            return base**node.exponent
        assert isinstance(node, Arithmetic)
        left, right = given
        if node.operation == "+":
            return left + right
        if node.operation == "-":
            return left - right
        if node.operation == "*":
            return left * right
        return left / self._checked_positive(node.right, right, t)

    def _resolved(self, node: Resolved, values: Any) -> Any:
        coarse = self._coarse[node.velocities]
        if coarse == self.points.level:
            return values
        shape = self.points.cells, self.points.count
        return self.points.projected(self._module.broadcast_to(values, shape), coarse)

    def _poisson(self, node: Poisson, density: Any, background: Any = None) -> Values:
        points, length = self.points, self._axis.length
        if node.background is not None and background is None:
            background = self._known[id(node.background)]
        rest = density if background is None else density - background
        rest = self._module.broadcast_to(
            self._module.asarray(rest, dtype=np.float64), (points.cells, points.count)
        )
        if node.background is None:
            rest = rest - points.integral(rest) / length
        field = points.antiderivative(rest)
        drop = 0.0 if node.potential is None else node.potential[0] - node.potential[1]
        return field + (drop - points.integral(field)) / length  # type: ignore[no-any-return]

    def _checked_positive(self, node: FieldExpression, values: Any, t: float) -> Any:
        """Return values; raise NotPhysicalError if one that depends on the state is not positive.

        On a device such values become NaN, which spreads: to look at them would take a copy to the
        host. NaN passes, too.
        """
        if node in self._given:
            return values
        if self._module is not np:
            return self._module.where(values > 0.0, values, np.nan)
        if values.min() > 0.0:  # the usual case, in one pass
            return values
        if bool((values <= 0.0).any()):
            lowest, place = float(values.min()), int(values.argmin())
            where = self.points.place(*divmod(place, self.points.count))
            raise NotPhysicalError(node.text(), self._axis.name, where, t, lowest)
        return values
