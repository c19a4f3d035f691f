"""The signed sum of exact solves on full grids, or on what a sparse grid has of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import copy
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchkron.operators.couplings import Ids, levels_of

from ..bases import ModeBases
from ..subgrids import Subgrid, cells_of
from .dense_inverses import DenseInverses
from .elimination import (
    MAX_CELLS,
    MAX_SORTED,
    Cost,
    cost_of_elimination,
    dissection,
    lexicographic,
    minimum_degree,
)
from .inverse_list import InverseList
from .local_matrices import LocalMatrices
from .pieces import Piece
from .sparse_solve import SparseSolve

__all__ = ["FactorisedGrids"]

# A dense inverse reads its numbers five times as fast as a sparse factorisation, but takes a call
# of its own for each grid: it pays from so many unknowns, where it has at most so many times the
# numbers (Xeon, 2026-11).
_MIN_DENSE, _MAX_DENSE_RATIO = 192, 1.5

Vector = NDArray[Any]


class FactorisedGrids:
    """Σ_l c_l P_l (P_l* B P_l)⁻¹ P_l* over some full grids l, B = I - c · A or A, exactly.

    P_l embeds the unknowns that the sparse grid has of full grid l. Factors of another c are kept
    for c if their ratio is between ½ and 2. Other methods and attributes are as of `GridInverses`.

    ``bases``: of A's 1-D matrices.
    ``dtype``, ``device``: of the vectors.
    ``at``: a c for which it is factorised first, if it is near enough to the one that is asked for.
    ``factorised_at``: the c of the factors.
    ``cost``: numbers that are stored and multiply-adds of the factorisation, estimated.
    """

    complete = True  # absent unknowns are left out here

    def __init__(
        self, bases: ModeBases, grids: Sequence[Subgrid], dtype: Any, device: str, at: Any = None
    ) -> None:
        self._bases, self.grids = bases, tuple(grids)
        self._dtype, self._device = np.dtype(dtype), device
        self._local = LocalMatrices(bases)
        self._pieces = [self._piece(grid) for grid in self.grids]
        self.cost = sum((piece.cost for piece in self._pieces), Cost())
        self.factorised_at: Any = at
        self._sparse: SparseSolve | None = None
        self._dense: DenseInverses | InverseList | None = None

    def _piece(self, grid: Subgrid) -> Piece:
        cells, blocks = cells_of(grid, self._local.widths(grid.levels), self._local.sizes)
        size = math.prod(self._local.sizes)
        n = len(cells) * size
        dense = Cost(float(n) ** 2, float(n) ** 3)
        options = {"dense": dense}
        if len(cells) > MAX_CELLS:
            options = {"dense": Cost(math.inf, math.inf)}
        elif self._device == "cpu":
            options |= self._sparse_options(grid, cells, size)
        way = min(options, key=lambda way: options[way].numbers)
        if n >= _MIN_DENSE and dense.numbers <= _MAX_DENSE_RATIO * options[way].numbers:
            way = "dense"
        return Piece(grid.levels, grid.coefficient, cells, blocks, way, options[way])

    def _sparse_options(self, grid: Subgrid, cells: Ids, size: int) -> dict[str, Cost]:
        """Return the ways to eliminate sparsely, with their costs."""
        widths = self._local.widths(grid.levels)
        found = {}
        nodal = grid.complete and any(known is not None for known in self._local.filters)
        if nodal or grid.places is None:
            pattern = self._local.pattern(grid.levels, cells, nodal)
            orders: list[Ids] = [lexicographic(widths), dissection(widths)]
        else:
            pattern = self._local.pattern(grid.levels, cells, False)
            finest_first = np.argsort(-levels_of(cells).sum(axis=1), kind="stable")
            orders = [finest_first.astype(np.int64)]
            if len(cells) <= MAX_SORTED:
                orders.append(minimum_degree(pattern))
        costs = [cost_of_elimination(pattern, order, size) for order in orders]
        found["nodal" if nodal else "hierarchical"] = min(costs, key=lambda cost: cost.numbers)
        return found

    @property
    def numbers(self) -> int:
        """Numbers that are stored: of factors and inverses."""
        parts = (part for part in (self._sparse, self._dense) if part is not None)
        return sum(part.numbers for part in parts)

    def describe(self) -> str:
        """Return a line with the numbers of the factors, and the scale for which they are."""
        dense = sum(piece.way == "dense" for piece in self._pieces)
        c = self.factorised_at
        at = "" if c is None else f", factorised at c = {c:.6g}"
        ways = f"{len(self._pieces) - dense} grids by sparse factors, {dense} by dense inverses"
        numbers = f"{self.numbers} numbers (estimated: {self.cost.numbers:.0f})"
        return f"  {numbers}, read once in a product; {ways}{at}"

    def shifted(self, c: Any) -> FactorisedGrids:
        """Return the inverses for B = I - c · A, or for B = A if c is None."""
        other = copy(self)
        other._solve_with(c)
        return other

    def rescale(self, c: Any) -> None:
        """Take another B = I - c · A in place, in the same memory if it is ``capturable``."""
        if not (self.capturable and isinstance(self._dense, InverseList)):
            self._solve_with(c)
        elif not _is_near(c, self.factorised_at):
            self._dense.refactorise(c)
            self.factorised_at = c

    @property
    def capturable(self) -> bool:
        """Whether products on a device may be captured in CUDA graphs."""
        dense = isinstance(self._dense, InverseList) and self._dense.capturable
        return dense and self._sparse is None

    def restricted(self, grids: Sequence[Subgrid]) -> FactorisedGrids:
        """Return the sum over other grids with the same operator; call `shifted` before `add`."""
        return FactorisedGrids(self._bases, grids, self._dtype, self._device, self.factorised_at)

    def _solve_with(self, c: Any) -> None:
        if not _is_near(c, self.factorised_at):
            self.factorised_at = c
        elif self._parts_exist:
            return
        sparse, dense = self._matrices
        self._sparse = None if sparse is None else sparse.factorised(self.factorised_at)
        self._dense = None if dense is None else dense.factorised(self.factorised_at)

    @property
    def _parts_exist(self) -> bool:
        return self._sparse is not None or self._dense is not None

    @cached_property
    def _matrices(self) -> tuple[SparseSolve | None, DenseInverses | InverseList | None]:
        """The pieces that are solved sparsely, and the dense ones."""
        sparse = [piece for piece in self._pieces if piece.way != "dense"]
        dense = [piece for piece in self._pieces if piece.way == "dense"]
        kinds = self._dtype, self._bases.terms.dtype
        factors = SparseSolve(self._local, sparse, *kinds) if sparse else None
        if not dense:
            return factors, None
        fits = self._dtype.kind == "c" or kinds[1].kind != "c"
        if self._device != "cpu" and fits and math.prod(self._local.sizes) > 1:
            return factors, InverseList(self._local, dense, self._dtype, self._device)
        return factors, DenseInverses(self._local, dense, *kinds, self._device)

    def add(self, x: Vector, target: Vector) -> None:
        """Add the product with x to ``target``, both (N,) or longer: the rest is left alone."""
        for part in (self._sparse, self._dense):
            if part is not None:
                part.add(x, target)


def _is_near(c: Any, other: Any) -> bool:
    """Whether factors for one scale do for another one."""
    if c is None or other is None or not other:
        return c is other
    ratio = complex(c / other)
    return ratio == 1 or (not ratio.imag and 0.5 < ratio.real < 2.0)
