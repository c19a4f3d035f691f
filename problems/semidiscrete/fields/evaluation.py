"""The values of fields at the Gauss points of the finest cells, from a state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from batchkron.arrays import array_module
from batchkron.errors import NotPhysicalError
from batchkron.operators import BatchedKron, on_device

from ...discretization.fields.points import CellPoints
from ...discretization.parts import Masses
from ...grids.sparse_grid import SparseGrid
from ...statement.axis import Axis
from ...statement.fields import (
    Arithmetic,
    EndMoment,
    FieldExpression,
    Moment,
    Poisson,
    Power,
    Resolved,
    Samples,
    Uniform,
    nodes_of,
)
from .contraction import contraction, end_weights, power_weights

__all__ = ["FieldEvaluation", "resolved_level"]

Values = NDArray[np.float64]

_RESOLVED_LEVEL = 2
"""Level of the velocities that a level of x needs, so that moments of it act on its collisions.

With less, the collisions' part that acts on f and the part that its moments cause do not fit each
other there, and waves grow at up to ν/5 (eigenvalues of the linear problem at ν = 1 … 100 on sparse
grids of level 4; with this level none has a positive real part).
"""

_MomentKey: TypeAlias = tuple[tuple[tuple[Axis, int], ...], Axis | None]  # powers, end


def _key(node: Moment) -> _MomentKey:
    return node.powers, node.end if isinstance(node, EndMoment) else None


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
    degree : int
        Polynomial degree.
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
        degree: int,
        masses: Masses,
        device: str = "cpu",
    ) -> None:
        place = list(axes).index(axis)
        level = grid.levels[place]
        like = on_device(np.zeros(0), device)
        self.points = CellPoints(axis, level, degree, array_module(like))
        self._axis, self._fields = axis, tuple(fields)
        self._nodes = list(dict.fromkeys(node for f in self._fields for node in nodes_of(f)))
        if masses[place] is not None:
            for node in self._nodes:
                if isinstance(node, Poisson):
                    raise ValueError(
                        f"{node.text()} is along {axis.name!r}, which has a volume element; "
                        "Poisson's equation is solved in Cartesian coordinates only"
                    )
        self._moments: dict[_MomentKey, int] = {}
        for node in self._nodes:
            if isinstance(node, Moment):
                self._moments.setdefault(_key(node), len(self._moments))
        self._given: set[FieldExpression] = set()  # what does not depend on the state
        for node in self._nodes:
            if not isinstance(node, Moment) and all(part in self._given for part in node.operands):
                self._given.add(node)
        self._known = {
            id(node): on_device(node.values, device)
            for node in self._nodes
            if isinstance(node, Samples)
        }
        order = {own: k for k, own in enumerate(axes)}

        def weights(own: Axis, power: int, end: Axis | None) -> Values:
            k = order[own]
            if own == end:
                return end_weights(own, grid.levels[k], degree, power)
            return power_weights(own, grid.levels[k], degree, power, masses[k])

        rows = [
            {order[own]: weights(own, power, end) for own, power in powers}
            for powers, end in self._moments
        ]
        self._level = level
        sets = {node.velocities for node in self._nodes if isinstance(node, Resolved)}
        self._coarse = {
            own: resolved_level(grid, place, [order[axis] for axis in own]) for own in sets
        }
        self._contraction: BatchedKron | None = None
        if rows:
            outputs = grid.cells[:, place]
            self._contraction = contraction(
                grid, degree + 1, [place], rows, outputs, 1 << level, device
            )

    def __call__(self, t: float, u: Values) -> list[Values]:
        """Return the values of all fields.

        Parameters
        ----------
        t : float
            The time, for error texts.
        u : ndarray, shape (N,), float64
            The state.

        Returns
        -------
        list of ndarray, shape (cells, q), float64

        Raises
        ------
        NotPhysicalError
            If a divisor or the base of a root is not positive.
        """
        moments = self._moment_values(u)
        found: dict[int, Any] = dict(self._known)
        for node in self._nodes:
            if id(node) not in found:
                found[id(node)] = self._value(node, found, moments, t)
        shape = (self.points.cells, self.points.count)
        module = array_module(u)
        return [module.broadcast_to(found[id(field)], shape) for field in self._fields]

    def _moment_values(self, u: Values) -> Values | None:
        if self._contraction is None:
            return None
        blocks = self._contraction.apply(u.reshape(self._contraction.num_inputs, -1))
        return self.points.values(blocks.reshape(len(self._moments), -1))

    def _value(
        self, node: FieldExpression, found: dict[int, Any], moments: Values | None, t: float
    ) -> Any:
        """Return the values of one expression from those of its operands."""
        given = [found[id(operand)] for operand in node.operands]
        if isinstance(node, Moment):
            assert moments is not None
            return moments[self._moments[_key(node)]]
        if isinstance(node, Uniform):
            return node.value
        if isinstance(node, Poisson):
            return self._poisson(node, given)
        if isinstance(node, Resolved):
            return self._resolved(node, given[0])
        if isinstance(node, Power):
            if not node.is_polynomial:
                self._check_positive(node.base, given[0], t)
            return given[0] ** node.exponent
        assert isinstance(node, Arithmetic)
        left, right = given
        if node.operation == "+":
            return left + right
        if node.operation == "-":
            return left - right
        if node.operation == "*":
            return left * right
        self._check_positive(node.right, right, t)
        return left / right

    def _resolved(self, node: Resolved, values: Any) -> Any:
        coarse = self._coarse[node.velocities]
        if coarse == self._level:
            return values
        shape = self.points.cells, self.points.count
        return self.points.projected(array_module(values).broadcast_to(values, shape), coarse)

    def _poisson(self, node: Poisson, given: Sequence[Any]) -> Values:
        points, length = self.points, self._axis.length
        rest = given[0] if node.background is None else given[0] - given[1]
        rest = array_module(*given).broadcast_to(rest, (points.cells, points.count))
        if node.background is None:
            rest = rest - points.integral(rest) / length
        field = points.antiderivative(rest)
        drop = 0.0 if node.potential is None else node.potential[0] - node.potential[1]
        return field + (drop - points.integral(field)) / length  # type: ignore[no-any-return]

    def _check_positive(self, node: FieldExpression, values: Any, t: float) -> None:
        """Raise NotPhysicalError if a value that depends on the state is not positive.

        NaN passes, and spreads.
        """
        if node in self._given or not bool((values <= 0.0).any()):
            return
        lowest, place = float(values.min()), int(values.argmin())
        where = self.points.place(*divmod(place, self.points.count))
        raise NotPhysicalError(node.text(), self._axis.name, where, t, lowest)
