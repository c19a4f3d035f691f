"""The signed sum of solves on some full grids of a sparse grid."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from batchkron.operators import KroneckerProduct, on_device
from batchkron.operators.kronecker_terms import sum_terms

from .bases import ModeBases
from .nearest import nearest_product, nearest_sum
from .shared_modes import SharedModes
from .subgrids import Subgrid
from .swept_grids import SweptGrids
from .tensor_inverse import FullGrid, ScaledInverse

__all__ = ["GridInverses", "Local"]

Local: TypeAlias = Literal["exact", "factorised", "sum", "product", "unmixed", "scaled"]


class GridInverses:
    """Σ_l c_l P_l (P_l* B P_l)⁻¹ P_l* over some full grids l, B = I - c · A or A.

    ``bases`` are those of A's 1-D matrices; ``local`` is the solver on full grids, see
    `CombinationPreconditioner`. Vectors are of a dtype, on a device.

    ``complete``: whether the sparse grid has all unknowns of the full grids, or those that it does
      not have are left out.
    ``is_swept``, ``capturable``: whether all grids are solved by sweeps, which allocate nothing.
    """

    def __init__(
        self, bases: ModeBases, grids: Sequence[Subgrid], local: Local, dtype: Any, device: str
    ) -> None:
        self._bases, self._local, self._kind = bases, local, (dtype, device)
        self.grids = tuple(grids)
        self._shared, self._together = self._share(grids)
        self._alone = [grid for grid in grids if grid not in self._together]
        self.is_swept = isinstance(self._shared, SweptGrids) and not self._alone
        self.capturable = self.is_swept
        self.complete = self.is_swept or all(grid.complete for grid in grids)
        self._places = [
            None if grid.places is None else on_device(grid.places, device) for grid in self._alone
        ]
        self._inverses: list[Any] = []

    def _share(
        self, grids: Sequence[Subgrid]
    ) -> tuple[SharedModes | SweptGrids | None, list[Subgrid]]:
        """Return an inverse for all grids whose modes can all be diagonalised, and these grids."""
        if self._local != "exact" or not grids or grids[0].places is None:
            return None, []
        joint = [self._bases.up_to(grid.levels) for grid in grids]
        exact = [all(basis.is_exact for basis in found) for found in joint]
        together = [grid for grid, kept in zip(grids, exact, strict=True) if kept]
        bases = [found for found, kept in zip(joint, exact, strict=True) if kept]
        if not together:
            return None, []
        if self._kind[1] != "cpu" and SweptGrids.fits(together):
            return SweptGrids(self._bases.terms.sizes, together, bases, *self._kind), together
        return SharedModes(together, bases, *self._kind), together

    def shifted(self, c: Any) -> GridInverses:
        """Return the inverses for B = I - c · A, or for B = A if c is None."""
        other = copy(self)
        other._inverses = [self._inverse(FullGrid(self._bases, g.levels, c)) for g in self._alone]
        if self._shared is not None:
            other._shared = self._shared.with_diagonals(self._diagonals(self._shared.bases, c))
        return other

    def rescale(self, c: Any) -> None:
        """Take another B = I - c · A in place; only if ``is_swept``."""
        assert isinstance(self._shared, SweptGrids)
        self._shared.rescale(self._diagonals(self._shared.bases, c))

    def _diagonals(self, bases: Any, c: Any) -> list[NDArray[Any]]:
        return [
            FullGrid(self._bases, grid.levels, c).diagonal(found)
            for grid, found in zip(self._together, bases, strict=True)
        ]

    def restricted(self, grids: Sequence[Subgrid]) -> GridInverses:
        """Return the sum over other grids with the same operator; call `shifted` before `add`."""
        return GridInverses(self._bases, grids, self._local, *self._kind)

    def _inverse(self, grid: FullGrid) -> Any:
        """Return B⁻¹ on a full grid, with a method ``apply``."""
        dtype, device = self._kind
        if self._local == "exact":
            return grid.inverse(dtype, device)
        if self._local == "product":
            inverses = [np.linalg.inv(factor) for factor in nearest_product(grid.stacks())]
            return KroneckerProduct(inverses).astype(dtype).to(device)
        factors = nearest_sum(grid.stacks()) if self._local == "sum" else grid.unmixed_factors()
        levels = (0,) * len(factors)
        inverse = FullGrid(ModeBases(sum_terms(factors)), levels, None).inverse(dtype, device)
        if self._local != "scaled":
            return inverse
        transforms = grid.nodal_transforms()
        ratio = grid.diagonal_ratio(factors, transforms)
        return ScaledInverse(inverse, transforms, ratio, dtype, device)

    def solve(self, x: NDArray[Any]) -> NDArray[Any]:
        """Return B⁻¹ x, (N,), if the only grid is the whole tensor product."""
        return self._inverses[0].apply(x)  # type: ignore[no-any-return]

    def add(self, x: NDArray[Any], target: NDArray[Any]) -> None:
        """Add the product with x to ``target``.

        ``x``, ``target`` (ndarray, (N,) or (N + 1,)): the additional last element stands for
          unknowns that the sparse grid does not have: it must be 0 in x, and in target it is
          overwritten. Not needed if ``complete``.
        """
        if self._shared is not None:
            self._shared.add(x, target)
        for grid, places, inverse in zip(self._alone, self._places, self._inverses, strict=True):
            assert places is not None
            part = inverse.apply(x.take(places))
            if grid.coefficient != 1:
                part = part * grid.coefficient
            target[places] += part  # places are distinct, except N for unknowns outside the grid
