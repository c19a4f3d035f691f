"""The gains of a problem: vectors on its grid that are computed from moments of the state."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from batchkron.arrays import array_module
from batchkron.backends import backend_on
from batchkron.operators import on_device

from ...discretization.basis.multiwavelets import filters, legendre_values
from ...discretization.basis.quadrature import cell_points, gauss_rule
from ...discretization.fields.points import product
from ...discretization.matrices.dg_matrices import volume_nodes
from ...statement.axis import Axis
from ...statement.fields import FieldExpression, Moment, Resolved
from ...statement.gains import MaxwellianGain
from ..value import ProblemValue
from .evaluation import FieldEvaluation, resolved_level

__all__ = ["GainsOfState", "MaxwellianOfState"]

Values = NDArray[np.float64]

# Gauss points of a cell beyond degree + 1. A Maxwellian is smooth: if cells of its width project it
# to 1e-10, this rule does as well.
_MORE_POINTS = 5


class GainsOfState:
    """The sum of all gains of a problem, which may have none, for a state.

    On a device it is a CUDA graph after a few calls, if it can be captured.
    """

    def __init__(self, problem: ProblemValue) -> None:
        self._sum = _Sum([MaxwellianOfState(problem, gain) for gain in problem.gains])
        self._repeated: Callable[[Values, Values], None] | None = None
        if problem.device != "cpu" and problem.gains:
            sizes = problem.unknowns, problem.unknowns
            self._repeated = backend_on(problem.device).repetition.repeated(
                self._sum, sizes, problem.initial.dtype
            )

    def __bool__(self) -> bool:
        return bool(self._sum.gains)

    def write(self, t: float, u: Values, out: Values) -> None:
        """Overwrite ``out`` with the sum; parameters and errors as of `accumulate`."""
        if self._repeated is not None:  # on a device the time is in no error text
            self._repeated(u, out)
            return
        out[...] = 0.0
        self.accumulate(t, u, out)

    def accumulate(self, t: float, u: Values, out: Values) -> None:
        """Add the sum for the state u to ``out``; the time is for texts of errors.

        Raises NotPhysicalError if the density or the temperature is not positive somewhere.
        """
        if self._repeated is None:
            self._sum.accumulate(t, u, out)
            return
        found = array_module(u).empty_like(u)
        self._repeated(u, found)
        out += found


class _Sum:
    """The sum of gains as a device captures it; it does not refer to the graph that it becomes."""

    def __init__(self, gains: Sequence[MaxwellianOfState]) -> None:
        self.gains = tuple(gains)

    def __call__(self, u: Values, out: Values) -> None:
        out[...] = 0.0
        self.accumulate(0.0, u, out)

    def accumulate(self, t: float, u: Values, out: Values) -> None:
        for gain in self.gains:
            gain.accumulate(t, u, out)


class MaxwellianOfState:
    """The projection of ν M on a problem's grid, with the moments that the state has.

    Each evaluation takes O(points_x points_v) operations for all Gauss points of the finest cells,
    and about as many numbers of storage.
    """

    def __init__(self, problem: ProblemValue, gain: MaxwellianGain) -> None:
        x, v = gain.position, gain.velocity
        self._place = problem.axes.index(x)
        degrees = [problem.degrees[k] for k in (self._place, 1 - self._place)]
        self._nu, self._sizes = gain.nu, tuple(degree + 1 for degree in degrees)
        self._kept = min(
            3, self._sizes[1]
        )  # coefficients of 1, v, v² that are taken from the state
        grid, device = problem.grid, problem.device
        self._moments = FieldEvaluation(
            _moments_of(v), x, problem.axes, grid, problem.degree, problem.masses, device
        )
        levels = grid.levels
        self._position = _Projection(x, levels[self._place], degrees[0], None, device)
        self._velocity = _Projection(
            v, levels[1 - self._place], degrees[1], self._sizes[1] + _MORE_POINTS, device
        )
        cells = grid.cells[:, [self._place, 1 - self._place]]
        module = array_module(on_device(np.zeros(0), device))
        self._cells_x, self._cells_v = (module.asarray(own) for own in cells.T)
        resolved = cells[:, 0] < 1 << resolved_level(grid, self._place, [1 - self._place])
        self._coarse = module.asarray(np.flatnonzero(resolved & (cells[:, 1] == 0)))

    def accumulate(self, t: float, u: Values, out: Values) -> None:
        """Add ν M of the state u to ``out``; time and errors as of `GainsOfState.accumulate`."""
        density, mean, theta = (part[:, :, None] for part in self._moments(t, u))
        module, (n_x, n_v) = array_module(u), self._sizes
        points = self._velocity.points  # (points of all cells,)
        peaks = density / module.sqrt(2.0 * math.pi * theta)
        values = peaks * module.exp(-((points - mean) ** 2) / (2.0 * theta))
        along_v = self._velocity.hierarchical(values.reshape(-1, points.size))
        whole = self._position.hierarchical(along_v.T.reshape(along_v.shape[1], -1)).T
        # (cells_x, n_x, cells_v, n_v), of which the grid has some blocks
        shaped = whole.reshape(self._position.cells, n_x, self._velocity.cells, n_v)
        blocks = shaped[self._cells_x, :, self._cells_v, :]
        if self._place == 1:
            own = u.reshape(-1, n_v, n_x).transpose(0, 2, 1)
        else:
            own = u.reshape(-1, n_x, n_v)
        blocks[self._coarse, :, : self._kept] = own[self._coarse, :, : self._kept]
        if self._place == 1:
            blocks = blocks.transpose(0, 2, 1)
        out += self._nu * blocks.reshape(-1)


def _moments_of(v: Axis) -> list[FieldExpression]:
    """Return density, mean velocity and temperature, which may not be negative or zero."""
    density, first, second = (Resolved(Moment({v: power}), (v,)) for power in range(3))
    mean = first / density
    theta = 1.0 / (density / (second - mean * first))
    return [density, mean, theta]


class _Projection:
    """The projection of values at Gauss points on the hierarchical basis of an axis.

    ``axis``: the axis.
    ``level``, ``degree``: finest level, and degree.
    ``count``: Gauss points of a cell; None are those of `CellPoints`.
    ``device`` ({"cpu", "cuda"}): where the values are.
    ``points`` (ndarray, shape (cells * count,), float64): the Gauss points of all cells.
    ``cells``: number of finest cells.
    """

    def __init__(self, axis: Axis, level: int, degree: int, count: int | None, device: str) -> None:
        self._level, self._n, self.cells = level, degree + 1, 1 << level
        count = volume_nodes(degree) if count is None else count
        nodes, weights = gauss_rule(count)
        width = axis.cell_width(level)
        shapes = legendre_values(nodes, degree, width) * (weights * (width / 2))[:, None]
        two_scale = filters(degree)
        children = np.block([[two_scale.H0, two_scale.H1], [two_scale.G0, two_scale.G1]])
        self._shapes, self._children = on_device(shapes, device), on_device(children.T, device)
        self.points = on_device(cell_points(axis, level, nodes).ravel(), device)

    def hierarchical(self, values: Values) -> Values:
        """Return the hierarchical coefficients (functions, cells * n) of (functions, points)."""
        module, n, count = array_module(values), self._n, len(values)
        nodal = product(values.reshape(count, self.cells, -1), self._shapes)
        found = []
        for _ in range(self._level):
            both = product(nodal.reshape(count, -1, 2 * n), self._children)
            nodal = both[:, :, :n]
            found.append(both[:, :, n:])
        parts = [nodal, *found[::-1]]
        return module.concatenate(parts, axis=1).reshape(count, -1)  # type: ignore[no-any-return]
