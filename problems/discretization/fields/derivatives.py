"""First derivatives along a field's own axis: ∂(E f)/∂x and E ∂f/∂x, as modes of terms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from batchkron.arrays import array_module
from batchkron.operators import on_device

from ...statement.coefficients import FLUX_SIGNS, Flux
from ...statement.fields import FieldExpression
from ..basis.multiwavelets import legendre_derivatives, legendre_values
from ..basis.quadrature import gauss_rule
from ..matrices.mode_operator import ModeOperator
from .local_blocks import BlockVector
from .modes import FieldMode
from .neighbour_blocks import NeighbourBlocks
from .points import CellPoints, product

__all__ = ["DERIVATIVE_ENDS", "DerivativeBlocks", "DerivativeEnd", "FieldDerivative"]

Values = NDArray[np.float64]

DerivativeEnd: TypeAlias = Literal["periodic", "dirichlet", "neumann", "inflow"]
"""As of `dg_matrices`; at "inflow" f is 0 where it flows in, and its trace is taken otherwise."""

DERIVATIVE_ENDS: tuple[DerivativeEnd, ...] = ("periodic", "dirichlet", "neumann", "inflow")


@dataclass(frozen=True, eq=False, repr=False)
class FieldDerivative(FieldMode):
    """The derivative c ∂(E f)/∂x or c E ∂f/∂x along the axis of a field E.

    ``kind`` ({"div", "grad"}): ∂(E f)/∂x, or E ∂f/∂x.
    ``flux`` ({"upwind", "central", "downwind"}): from which side of an edge f is taken, by the sign
      of c E there.
    ``ends`` ((left, right), each "periodic", "dirichlet", "neumann" or "inflow"): how the ends of
      the axis are treated.
    ``scale``: c.

    The value of E at an edge is the mean of the traces of both cells: those of the polynomials
    through its values at the Gauss points (`CellPoints.traces`). At the ends of an axis that is not
    periodic it is the trace from inside. Otherwise the matrices are those of `dg_matrices`. With a
    volume element dV all of it is done with E dV.
    """

    kind: Literal["div", "grad"] = "div"
    flux: Flux = "upwind"
    ends: tuple[DerivativeEnd, DerivativeEnd] = ("periodic", "periodic")
    scale: float = 1.0

    def __repr__(self) -> str:
        return f"<FieldDerivative: {self.text()} along {self.axis.name}>"

    def text(self) -> str:
        """Return the derivative as one line."""
        front = "" if self.scale == 1.0 else f"{self.scale:.6g} * "
        flux = "" if self.flux == "upwind" else f", flux={self.flux!r}"
        return f"{front}{self.kind}({self.axis.name}, {self.field.text()}{flux})"

    @property
    def rows(self) -> NDArray[np.int64]:
        """1-D index of the output cell of each block."""
        return self._own.rows

    @cached_property
    def _own(self) -> NeighbourBlocks:
        return NeighbourBlocks(self.level, self.degree, self.ends[0] == "periodic")

    def operator(self, values: Values, mass: Values | None) -> ModeOperator:
        """Return the operator for values of the field (cells, q), on the CPU.

        ``mass`` are the mass blocks of the volume element, None if there is none.
        """
        maker = DerivativeBlocks([self], [self.field], mass)
        vector = maker.local.vector()
        maker([values], vector)
        blocks = vector.whole[maker.local.places(0)]
        return ModeOperator(self.cells, self.n, self.rows, self._own.columns, blocks)


class DerivativeBlocks:
    """The map from values of fields at Gauss points to the hierarchical blocks of derivatives.

    ``modes``: the derivatives, along one axis.
    ``fields``: the fields, in the order of their values.
    ``mass`` (ndarray, shape (cells, n, n), float64, or None): mass blocks of the axis's volume
      element, None if there is none.
    ``device`` ({"cpu", "cuda"}): where the values are.
    ``local``: the coupled pairs of cells, and where their blocks are written.
    """

    def __init__(
        self,
        modes: Sequence[FieldDerivative],
        fields: Sequence[FieldExpression],
        mass: Values | None,
        device: str = "cpu",
    ) -> None:
        first = modes[0]
        axis, level, degree = first.axis, first.level, first.degree
        module = array_module(on_device(np.zeros(0), device))
        self._module, self._n = module, degree + 1
        self._is_periodic = first.ends[0] == "periodic"
        self._points = CellPoints(axis, level, degree, module)
        self._numbers = [next(i for i, f in enumerate(fields) if f is m.field) for m in modes]
        self._scales = on_device(np.array([mode.scale for mode in modes])[:, None, None], device)
        self._volume: Values | None = None
        self._inverse: Values | None = None
        if first.volume is not None and mass is not None:
            self._volume = on_device(first.volume, device)
            self._inverse = on_device(np.linalg.inv(mass)[:, None], device)
        width = axis.cell_width(level)
        nodes, weights = gauss_rule(self._points.count)
        shapes = legendre_values(nodes, degree, width)
        slopes = legendre_derivatives(nodes, degree, width) * (-weights * (width / 2))[:, None]
        inside = (slopes[:, :, None] * shapes[:, None, :]).reshape(len(nodes), -1)
        self._inside = on_device(inside, device)  # of ∂(g f)/∂x; that of g ∂f/∂x is -inside^T
        swapped = inside.reshape(len(nodes), self._n, self._n).swapaxes(1, 2)
        self._swapped = on_device(-swapped.reshape(len(nodes), -1), device)
        self._is_grad = [mode.kind == "grad" for mode in modes]
        L, R = legendre_values([-1.0, 1.0], degree, width)
        products = [np.outer(L, R), np.outer(L, L), np.outer(R, R), np.outer(R, L)]
        self._edge_products = [on_device(p.ravel(), device) for p in products]
        bounds = [_edge_bounds(mode) for mode in modes]
        shape = len(modes), 2, 2, self._points.cells  # of both edges with both neighbours
        self._factor, self._low, self._high = (
            on_device(np.stack([own[k] for own in bounds]).reshape(shape), device) for k in range(3)
        )
        self.local = NeighbourBlocks(level, degree, self._is_periodic, module, parts=len(modes))

    def plan_arrays(self, rows: Sequence[int]) -> None:
        """Return None: the core has no plan for derivatives."""

    def __call__(self, values: Sequence[Values], into: BlockVector) -> None:
        """Write the blocks for values (cells, q) of each field."""
        module, n, points = self._module, self._n, self._points
        # filled part by part: no graph may hold the host's list of arrays that are joined
        given = module.empty((len(self._numbers), points.cells, points.count))
        for k, number in enumerate(self._numbers):
            given[k] = values[number]
        given *= self._scales
        if self._volume is not None:
            given *= self._volume
        weights = module.minimum(module.maximum(self._at_edges(given), self._low), self._high)
        weights = (self._factor * weights).reshape(len(given), 4, points.cells, 1)
        to_left, own_left, own_right, to_right = (
            weights[:, k] * outer for k, outer in enumerate(self._edge_products)
        )
        blocks = module.empty((*given.shape[:2], 3, n * n))
        for k, is_grad in enumerate(self._is_grad):
            blocks[k, :, 1] = product(given[k], self._swapped if is_grad else self._inside)
        blocks[:, :, 0], blocks[:, :, 2] = to_left, to_right
        blocks[:, :, 1] += own_left + own_right
        blocks = blocks.reshape(*blocks.shape[:3], n, n)
        if self._inverse is not None:
            blocks = product(self._inverse, blocks)
        self.local.write(blocks, into)

    def _at_edges(self, given: Values) -> Values:
        """Return the values (parts, 2, 1, cells) at the left and the right edge of each cell.

        Both cells at an edge have the same value, the mean of both traces.
        """
        left, right = self._points.traces(given)
        mean = (left[:, 1:] + right[:, :-1]) / 2
        first, last = left[:, 0], right[:, -1]
        if self._is_periodic:
            first = last = (first + last) / 2
        found: Values = self._module.empty((len(given), 2, 1, given.shape[1]))
        found[:, 0, 0, 0], found[:, 0, 0, 1:] = first, mean
        found[:, 1, 0, -1], found[:, 1, 0, :-1] = last, mean
        return found


def _edge_bounds(mode: FieldDerivative) -> tuple[Values, Values, Values]:
    """Return factors, lower and upper bounds of the edge terms of a derivative, each (4, cells).

    Each of these terms is a factor times g at an edge between the bounds. The rows are the weights
    of L Rᵀ (with the left neighbour), L Lᵀ, R Rᵀ and R Lᵀ (with the right neighbour). The numerical
    flux is P f⁻ + M f⁺ with the traces f⁻ and f⁺ from the left and the right, and for ∂(g f)/∂x the
    rows are -P, -M at the left edge and P, M at the right one; the upwind flux has P = min(g, 0)
    and M = max(g, 0). g ∂f/∂x is minus the transpose of ∂(g f)/∂x with opposite traces: -M, M at
    the left edge and -P, P at the right one, of these opposite traces.
    """
    is_grad, upwind = mode.kind == "grad", FLUX_SIGNS[mode.flux]
    half = 0.5 if upwind == 0 else 1.0
    first, second = _between(upwind), _between(-upwind)
    if is_grad:
        rows = [(-half, *first), (half, *first), (-half, *second), (half, *second)]
    else:
        rows = [(-half, *first), (-half, *second), (half, *first), (half, *second)]
    found = np.repeat(np.array(rows)[:, :, None], mode.cells, axis=2)  # (4, 3, cells)
    if mode.ends[0] != "periodic":
        sign = 1.0 if is_grad else -1.0
        found[0, :, 0] = found[3, :, -1] = _end_term("none", 0.0, 0.0)
        found[1, :, 0] = _end_term(_taken(mode.ends[0], is_grad), sign, -sign)
        found[2, :, -1] = _end_term(_taken(mode.ends[1], is_grad), -sign, sign)
    return found[:, 0], found[:, 1], found[:, 2]


def _between(sign: float) -> tuple[float, float]:
    """Return the bounds of min(g, 0) for the sign -1, of max(g, 0) for 1, and of g for 0."""
    return (-np.inf if sign <= 0 else 0.0), (np.inf if sign >= 0 else 0.0)


def _taken(end: DerivativeEnd, is_grad: bool) -> Literal["all", "none", "part"]:
    """Return whether the edge term at an end of the axis is there.

    ∂(g f)/∂x has it where it takes the trace from inside, and g ∂f/∂x where it does not.
    """
    if end == "inflow":
        return "part"
    return "all" if (end == "neumann") != is_grad else "none"


def _end_term(
    taken: Literal["all", "none", "part"], factor: float, sign: float
) -> tuple[float, float, float]:
    """Return factor and bounds of the edge term at an end; ``sign`` is that of g of the part."""
    if taken == "none":
        return 0.0, -np.inf, np.inf
    return factor, *_between(sign if taken == "part" else 0.0)
