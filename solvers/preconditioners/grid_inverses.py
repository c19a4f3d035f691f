"""The signed sum of solves on some full grids of a sparse grid."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from batchkron.operators import KroneckerTerms, on_device
from batchkron.operators.kronecker_terms import sum_terms

from .bases import ModeBases
from .nearest import nearest_product, nearest_sum
from .shared_modes import SharedModes
from .subgrids import Subgrid
from .swept_grids import SweptGrids
from .tensor_inverse import (
    ProductInverse,
    joint_bases,
    joint_diagonal,
    tensor_inverse,
)

__all__ = ["GridInverses", "Local"]

Local: TypeAlias = Literal["exact", "sum", "product"]


class GridInverses:
    """Σ_l c_l P_l (P_l* B P_l)⁻¹ P_l* over some full grids l, B = I - scale · A or A.

    Parameters
    ----------
    bases : ModeBases
        The bases of A's 1-D matrices.
    grids : sequence of Subgrid
        The grids and their c_l.
    local : {"exact", "sum", "product"}
        The solver on full grids, see `CombinationPreconditioner`.
    dtype : numpy.dtype
        Dtype of the vectors.
    device : {"cpu", "cuda"}
        Device of the vectors.

    Attributes
    ----------
    grids : tuple of Subgrid
    complete : bool
        Whether the sparse grid has all unknowns of the full grids, or those that it does not have
        are left out.
    is_swept : bool
        Whether all grids are solved by sweeps, which allocate nothing.
    """

    def __init__(
        self, bases: ModeBases, grids: Sequence[Subgrid], local: Local, dtype: Any, device: str
    ) -> None:
        self._bases, self._local, self._kind = bases, local, (dtype, device)
        self.grids = tuple(grids)
        self.complete = all(grid.complete for grid in grids)
        self._shared, self._together = self._share(grids)
        self._alone = [grid for grid in grids if grid not in self._together]
        self.is_swept = isinstance(self._shared, SweptGrids) and not self._alone
        self.complete = self.complete or self.is_swept
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
        found = [(grid, joint_bases(self._bases, grid.levels)) for grid in grids]
        kept = [(grid, joint) for grid, joint in found if joint is not None]
        if not kept:
            return None, []
        together = [grid for grid, _ in kept]
        bases = [joint for _, joint in kept]
        if self._kind[1] != "cpu" and SweptGrids.fits(together):
            return SweptGrids(self._bases.terms.sizes, together, bases, *self._kind), together
        return SharedModes(together, bases, *self._kind), together

    def shifted(self, number: Any) -> GridInverses:
        """Return the inverses for B = I - number · A, or for B = A if it is None."""
        shift, scale = (0.0, 1.0) if number is None else (1.0, -number)
        other = copy(self)
        other._inverses = [self._inverse(grid, shift, scale) for grid in self._alone]
        if self._shared is not None:
            other._shared = self._shared.with_diagonals(self._diagonals(self._shared.bases, number))
        return other

    def _diagonals(self, bases: Any, number: Any) -> list[NDArray[Any]]:
        shift, scale = (0.0, 1.0) if number is None else (1.0, -number)
        return [
            joint_diagonal(self._bases, grid.levels, joint, shift, scale)
            for grid, joint in zip(self._together, bases, strict=True)
        ]

    def rescale(self, number: Any) -> None:
        """Take another B = I - number · A in place; only if ``is_swept``."""
        assert isinstance(self._shared, SweptGrids)
        self._shared.rescale(self._diagonals(self._shared.bases, number))

    def restricted(self, grids: Sequence[Subgrid]) -> GridInverses:
        """Return the sum over other grids with the same operator; call `shifted` before `add`."""
        return GridInverses(self._bases, grids, self._local, *self._kind)

    def _inverse(self, grid: Subgrid, shift: Any, scale: Any) -> Any:
        if self._local == "exact":
            return tensor_inverse(self._bases, grid.levels, shift, scale, *self._kind)
        matrices = _stacked(self._bases.terms, grid.levels, shift, scale)
        if self._local == "product":
            return ProductInverse(nearest_product(matrices), *self._kind)
        bases = ModeBases(sum_terms(nearest_sum(matrices)))
        return tensor_inverse(bases, (0,) * len(grid.levels), 0.0, 1.0, *self._kind)

    def solve(self, x: NDArray[Any]) -> NDArray[Any]:
        """Return B⁻¹ x, (N,), if the only grid is the whole tensor product."""
        return self._inverses[0].apply(x)  # type: ignore[no-any-return]

    def add(self, x: NDArray[Any], target: NDArray[Any]) -> None:
        """Add the product with x to ``target``.

        Parameters
        ----------
        x, target : ndarray, (N,) or (N + 1,)
            The additional last element stands for unknowns that the sparse grid does not have: it
            must be 0 in x, and in target it is overwritten. Not needed if ``complete``.
        """
        if self._shared is not None:
            self._shared.add(x, target)
        for grid, places, inverse in zip(self._alone, self._places, self._inverses, strict=True):
            assert places is not None
            part = inverse.apply(x.take(places))
            if grid.coefficient != 1:
                part = part * grid.coefficient
            target[places] += part  # places are distinct, except N for unknowns outside the grid


def _stacked(
    terms: KroneckerTerms, levels: tuple[int, ...], shift: Any, scale: Any
) -> list[NDArray[Any]]:
    """Return the factors of shift · I + scale · A on one full grid, (terms, n_k, n_k) per mode."""
    stacks = []
    for mode, level in enumerate(levels):
        rows = terms.rows(mode, level)
        matrices = [np.eye(rows)] * bool(shift)
        matrices += [terms.factor(t, mode, level) for t in range(len(terms.terms))]
        stacks.append(np.stack(matrices))
    weights = [shift] * bool(shift) + [scale * term.coefficient for term in terms.terms]
    stacks[0] = stacks[0] * np.asarray(weights)[:, None, None]
    return stacks
