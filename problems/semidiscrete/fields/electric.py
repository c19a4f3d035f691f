"""Electric fields of several positions for a state, and the terms that they multiply."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from batchkron.arrays import array_module
from batchkron.backends import backend_on

from ...discretization.fields.mixed_poisson import MixedPoisson
from ...discretization.fields.modes import FieldPart
from ...discretization.interpolation.position_points import PositionPoints
from ...discretization.parts import ElectricOperator, Masses
from ...grids.degrees import Degree, common_degree, of_each_axis
from ...grids.sparse_grid import SparseGrid
from ...statement.axis import Axis
from ...statement.electric import Electric
from ..operators import TermGroup, group_terms
from ..value import ProblemValue
from .contraction import contraction, power_weights

__all__ = ["ElectricOfState", "ElectricValues"]

Values = NDArray[np.float64]


class ElectricValues:
    """The values of an electric field at points of the positions, for states of a grid.

    ``periodic``: which of its positions are periodic.
    ``axes``: all axes of the state.
    ``degree``: that of all axes, which must have the same.
    ``masses``: mass blocks of the axes with a volume element.
    ``device`` ({"cpu", "cuda"}).
    ``points``: the points, and the maps between values there and states.
    ``positions``: the numbers of the positions, ascending.
    """

    def __init__(
        self,
        electric: Electric,
        periodic: Sequence[bool],
        axes: Sequence[Axis],
        grid: SparseGrid,
        degree: Degree,
        masses: Masses,
        device: str = "cpu",
    ) -> None:
        degree = common_degree(of_each_axis(degree, len(axes)), electric.text())
        place = {axis: k for k, axis in enumerate(axes)}
        self._order = sorted(range(len(periodic)), key=lambda i: place[electric.positions[i]])
        self.positions = tuple(place[electric.positions[i]] for i in self._order)
        self.degree = degree
        self.points = PositionPoints(axes, self.positions, grid, degree, device)
        self._levels = levels = [grid.levels[k] for k in self.positions]
        n, cells = degree + 1, [1 << level for level in levels]
        outputs = np.ravel_multi_index(tuple(grid.cells[:, list(self.positions)].T), cells)
        rows = []
        for weight, moment in electric.moments:
            own = {
                place[axis]: power_weights(
                    axis, grid.levels[place[axis]], degree, power, masses[place[axis]]
                )
                for axis, power in moment.powers
            }
            first = next(iter(own))
            own[first] = own[first] * weight
            rows.append(own)
        self._count, self._shape = len(rows), (*cells, *[n] * len(cells))
        self._moments = contraction(
            grid, [n] * len(axes), self.positions, rows, outputs, int(np.prod(cells)), device
        )
        self._solution = MixedPoisson(
            [axes[k] for k in self.positions],
            levels,
            degree,
            [periodic[i] for i in self._order],
            electric.background,
            [electric.potential[i] for i in self._order],
            self.points.along,
            device,
        )

    @classmethod
    def of(cls, own: ElectricOperator, problem: ProblemValue) -> ElectricValues:
        """Return the values of a field of a problem."""
        place = problem.axes, problem.grid, problem.degree, problem.masses
        return cls(own.electric, own.periodic, *place, problem.device)

    def __call__(self, u: Values) -> list[Values]:
        """Return the components at all combinations of the points, in the order of positions."""
        found = self._solution(self._density(u))
        return [found[self._order.index(i)] for i in range(len(found))]

    def coefficients(self, u: Values, number: int) -> Values:
        """Return the hierarchical coefficients of degree p + 1 of a component.

        They are those of all cells of `grid`.
        """
        found = self._solution.coefficients(self._density(u), self._order.index(number))
        d = len(self.positions)
        sizes = [size for k in range(d) for size in (self._shape[k], self._shape[d + k] + 1)]
        axes = (*range(0, 2 * d, 2), *range(1, 2 * d, 2))
        module = array_module(found)
        return module.ascontiguousarray(found.reshape(sizes).transpose(axes)).ravel()  # type: ignore[no-any-return]

    @property
    def grid(self) -> SparseGrid:
        """The full grid of the positions."""
        return SparseGrid.full(self._levels)

    def _density(self, u: Values) -> Values:
        """Return the density's coefficients for all combinations of functions of the positions."""
        blocks = self._moments.apply(u.reshape(self._moments.num_inputs, -1))
        whole = blocks.reshape(self._count, *self._shape)
        density = whole[0] if self._count == 1 else whole.sum(axis=0)
        d = len(self.positions)
        axes = [k + d * which for k in range(d) for which in (0, 1)]
        module = array_module(u)
        return module.ascontiguousarray(density.transpose(axes)).reshape(-1)  # type: ignore[no-any-return]


_Multiplied: TypeAlias = tuple[int, FieldPart, tuple[TermGroup, ...]]
"""The number of a component, the part of it, and the terms that this multiplies."""


class ElectricOfState:
    """The sum of all terms with electric fields of a problem, which may have none, for a state.

    On a device it is a CUDA graph after a few calls, if no term depends on time.
    """

    def __init__(self, problem: ProblemValue) -> None:
        self._sum = _Sum(problem)
        self.is_repeatable = all(own.is_steady for own in problem.electric)
        self._repeated: Callable[[Values, Values], None] | None = None
        if problem.device != "cpu" and problem.electric and self.is_repeatable:
            sizes = problem.unknowns, problem.unknowns
            self._repeated = backend_on(problem.device).repetition.repeated(
                self._sum.steady, sizes, problem.initial.dtype
            )

    def __bool__(self) -> bool:
        return bool(self._sum)

    def write(self, t: float, u: Values, out: Values) -> None:
        """Overwrite ``out`` with the sum."""
        if self._repeated is not None:
            self._repeated(u, out)
            return
        out[...] = 0.0
        self._sum.accumulate(t, u, out)

    def accumulate(self, t: float, u: Values, out: Values) -> None:
        """Add the sum for the state u to ``out``."""
        if self._repeated is None:
            self._sum.accumulate(t, u, out)
            return
        found = array_module(u).empty_like(u)
        self._repeated(u, found)
        out += found


class _Sum:
    """The sum as a device captures it; it does not refer to the graph that it becomes.

    What acts along the other axes is applied first, then the field multiplies values at points of
    the positions: between these the state has values at points that its grid does not have for all
    functions of the other axes.
    """

    def __init__(self, problem: ProblemValue) -> None:
        self._problem = problem

    def __bool__(self) -> bool:
        return bool(self._problem.electric)

    @cached_property
    def _fields(self) -> list[tuple[ElectricValues, list[_Multiplied]]]:
        problem = self._problem
        found: dict[Electric, tuple[ElectricValues, list[_Multiplied]]] = {}
        for own in problem.electric:
            if own.electric not in found:
                found[own.electric] = ElectricValues.of(own, problem), []
            groups = group_terms(own.terms, problem.grid, problem.degree, problem._form)
            placed = tuple(group.to(problem.device) for group in groups)
            found[own.electric][1].append((own.number, own.part, placed))
        return list(found.values())

    def steady(self, u: Values, out: Values) -> None:
        """Overwrite ``out`` with the sum of terms that do not depend on time."""
        out[...] = 0.0
        self.accumulate(self._problem.t0, u, out)

    def accumulate(self, t: float, u: Values, out: Values) -> None:
        """Add the sum for the state u to ``out``."""
        module = array_module(u)
        for values, multiplied in self._fields:
            components, points = values(u), values.points
            total = module.zeros(points.shape)
            for number, part, groups in multiplied:
                acted = module.zeros_like(u)
                for group in groups:
                    group.accumulate(t, u, acted)
                field = components[number]
                if part:
                    field = (part * field).clip(0.0)
                product = points.values(acted)
                points.multiply(product, field)
                total += product
            out += points.coefficients(total)
