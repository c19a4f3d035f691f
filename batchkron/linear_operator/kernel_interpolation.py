"""GPyTorch's GridInterpolationKernel with interpolated operators, not sparse matrices."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import torch
from gpytorch.kernels import GridInterpolationKernel, grid_interpolation_kernel
from linear_operator.operators import InterpolatedLinearOperator
from linear_operator.operators import KroneckerProductLinearOperator as TheirProduct
from torch import Tensor

from batchkron.linear_operator.interpolated import InterpolatedKroneckerLinearOperator, Points
from batchkron.linear_operator.products import matrices_of
from batchkron.linear_operator.replacement import Replacement
from batchkron.operators import Interpolation
from batchkron.spec.interpolated import WEIGHTS, RegularGrid

__all__ = ["REPLACEMENTS"]

_DTYPES = (torch.float32, torch.float64)
_MAX_KEPT = 4  # interpolations of a kernel: those of training and test points, and one more pair

_their_compute_grid: Any = GridInterpolationKernel._compute_grid
_kept: weakref.WeakKeyDictionary[Any, list[Interpolation]] = weakref.WeakKeyDictionary()


class _Unformed:
    """Stands for the tensors of windows (n, 4^N) of points, which are formed if they are needed."""

    def __init__(self, kernel: GridInterpolationKernel, points: Tensor, grid: RegularGrid) -> None:
        self._kernel, self._points, self._grid = kernel, points, grid
        self.shape = torch.Size((len(points), 1))

    def detach(self) -> _Unformed:
        return self

    def expand(self, *shape: int) -> _Unformed:
        return self

    def interpolation(self) -> Interpolation:
        """Return W; it is kept for the next call with the same points."""
        kept = _kept.setdefault(self._kernel, [])
        given = self._points.detach().cpu().numpy()
        for one in kept:
            if one.grid == self._grid and _equal(one.points, given):
                return one
        kept.insert(0, Interpolation(given, self._grid))
        del kept[_MAX_KEPT:]
        return kept[0]

    def with_gradient(self) -> Tensor | None:
        """Return the points, if their gradient is wanted."""
        return self._points if self._points.requires_grad else None

    def formed(self) -> tuple[Tensor, Tensor]:
        """Return the windows as GPyTorch computes them."""
        return _their_compute_grid(self._kernel, self._points)  # type: ignore[no-any-return]


def _equal(points: Any, others: Any) -> bool:
    return points.shape == others.shape and bool((points == others).all())


def compute_grid(
    kernel: GridInterpolationKernel, inputs: Tensor, last_dim_is_batch: bool = False
) -> tuple[Any, Any]:
    """Return what stands for the windows of points, or GPyTorch's windows where ours differ.

    Left to GPyTorch are batches of points, and points in the outermost intervals of the grid, where
    it takes the nearest grid point.
    """
    plain = not last_dim_is_batch and inputs.dim() == 2
    if plain and inputs.dtype in _DTYPES and len(inputs):
        grid = _grid(kernel.grid)
        if grid is not None and _is_inside(inputs, kernel.grid):
            unformed = _Unformed(kernel, inputs, grid)
            return unformed, unformed
    return _their_compute_grid(kernel, inputs, last_dim_is_batch)  # type: ignore[no-any-return]


def _grid(axes: Sequence[Tensor]) -> RegularGrid | None:
    """Return the grid of a kernel, or None if an axis is too short."""
    if any(axis.dim() != 1 or len(axis) < WEIGHTS for axis in axes):
        return None
    lower, upper = [float(axis[0]) for axis in axes], [float(axis[-1]) for axis in axes]
    return RegularGrid(lower, upper, [len(axis) for axis in axes])


def _is_inside(points: Tensor, axes: Sequence[Tensor]) -> bool:
    """Whether no point is in the first or last interval of an axis."""
    lower = torch.stack([axis[1] for axis in axes]).to(points)
    upper = torch.stack([axis[-2] for axis in axes]).to(points)
    return bool(((points >= lower) & (points <= upper)).all())


def operator(base: Any, *windows: Any) -> Any:
    """Return the covariance, in the place of the class `InterpolatedLinearOperator`.

    Parameters
    ----------
    base : LinearOperator, (*batch, cells, cells)
    *windows : Tensor or _Unformed
        Of the left and the right points: indices and values each.
    """
    left, right = windows[0], windows[2]
    if isinstance(left, _Unformed) and isinstance(right, _Unformed) and _fits(base, left, right):
        first = Points(left.interpolation())
        second = first if right is left else Points(right.interpolation())
        return InterpolatedKroneckerLinearOperator(
            base, first, second, left.with_gradient(), right.with_gradient()
        )
    formed: list[Any] = []
    for one, values in (windows[:2], windows[2:]):
        pair = one.formed() if isinstance(one, _Unformed) else (one, values)
        formed += [tensor.expand(*base.batch_shape, *tensor.shape[-2:]) for tensor in pair]
    return InterpolatedLinearOperator(base, *formed)


def _fits(base: Any, left: _Unformed, right: _Unformed) -> bool:
    """Whether the covariance on the grid is a product of matrices of the grid's sizes."""
    if not isinstance(base, TheirProduct) or len(base.batch_shape) or left._grid != right._grid:
        return False
    sizes = [(size, size) for size in left._grid.sizes]
    if [tuple(factor.shape) for factor in base.linear_ops] != sizes:
        return False
    return matrices_of(base.linear_ops) is not None


REPLACEMENTS = [
    Replacement(GridInterpolationKernel, "_compute_grid", compute_grid),
    Replacement(grid_interpolation_kernel, "InterpolatedLinearOperator", operator),
]
"""What `accelerate` replaces in GPyTorch."""
