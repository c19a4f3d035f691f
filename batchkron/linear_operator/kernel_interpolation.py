"""GPyTorch's GridInterpolationKernel with interpolated operators, not sparse matrices."""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Sequence
from types import FunctionType
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import GridInterpolationKernel, grid_interpolation_kernel
from linear_operator.operators import InterpolatedLinearOperator
from linear_operator.operators import KroneckerProductLinearOperator as TheirProduct
from torch import Tensor

from batchkron.linear_operator.interpolated import InterpolatedKroneckerLinearOperator, Points
from batchkron.linear_operator.products import tensors_of
from batchkron.linear_operator.replacement import Replacement
from batchkron.operators import Interpolation
from batchkron.spec.interpolated import WEIGHTS, RegularGrid
from batchkron.torch.tensors import on_stream_of, view

__all__ = ["REPLACEMENTS"]

_DTYPES = (torch.float32, torch.float64)
_MAX_KEPT = 4  # interpolations of a kernel: those of training and test points, and one more pair

_their_forward: Any = GridInterpolationKernel.forward
_their_compute_grid: Any = GridInterpolationKernel._compute_grid
_local = threading.local()  # the kernel whose `forward` runs in a thread
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
        """Return W; it is kept for the next call with the same points.

        Points on a device are compared, and sorted if they are new, on the device. That a tensor
        has the address and version of an earlier one says nothing: a network's results, which
        differ in each step, mostly have both.
        """
        kept = _kept.setdefault(self._kernel, [])
        with on_stream_of(self._points):
            given = view(self._points.detach())
            for one in list(kept):
                if one.grid == self._grid and _equal(one.placed_points, given):
                    return one
            made = Interpolation(given, self._grid)
        kept.insert(0, made)
        del kept[_MAX_KEPT:]
        return made

    def with_gradient(self) -> Tensor | None:
        """Return the points, if their gradient is wanted."""
        return self._points if self._points.requires_grad else None

    def formed(self) -> tuple[Tensor, Tensor]:
        """Return the windows as GPyTorch computes them."""
        return _their_compute_grid(self._kernel, self._points)  # type: ignore[no-any-return]


def _equal(points: Any, others: Any) -> bool:
    if type(points) is not type(others) or points.shape != others.shape:
        return False
    if not isinstance(points, np.ndarray) and points.device != others.device:
        return False
    return bool((points == others).all())


def compute_grid(
    kernel: GridInterpolationKernel, inputs: Tensor, last_dim_is_batch: bool = False
) -> tuple[Any, Any]:
    """Return what stands for the windows of points, or GPyTorch's windows where ours differ.

    Left to GPyTorch are batches of points, and points in the outermost intervals of the grid, where
    it takes the nearest grid point; also other callers than `forward`, and classes of kernels with
    a method of their own.
    """
    expected = getattr(_local, "kernel", None) is kernel
    expected = expected and type(kernel)._compute_grid is compute_grid
    plain = expected and not last_dim_is_batch and inputs.dim() == 2
    if plain and inputs.dtype in _DTYPES and len(inputs):
        grid = _grid(kernel.grid)
        if grid is not None and _is_inside(inputs, kernel.grid):
            unformed = _Unformed(kernel, inputs, grid)
            return unformed, unformed
    return _their_compute_grid(kernel, inputs, last_dim_is_batch)  # type: ignore[no-any-return]


def _grid(axes: Sequence[Tensor]) -> RegularGrid | None:
    """Return the grid of a kernel, or None if an axis is too short or does not rise."""
    if any(axis.dim() != 1 or len(axis) < WEIGHTS for axis in axes):
        return None
    ends = torch.stack([axis[[0, -1]] for axis in axes], dim=1)
    lower, upper = ends.tolist()  # one copy from a device
    if any(first >= last for first, last in zip(lower, upper, strict=True)):
        return None  # GPyTorch's grids of few points
    return RegularGrid(lower, upper, [len(axis) for axis in axes])


def _is_inside(points: Tensor, axes: Sequence[Tensor]) -> bool:
    """Whether no point is in the first or last interval of an axis."""
    lower = torch.stack([axis[1] for axis in axes]).to(points)
    upper = torch.stack([axis[-2] for axis in axes]).to(points)
    return bool(((points >= lower) & (points <= upper)).all())


def operator(base: Any, *windows: Any) -> Any:
    """Return the covariance, in the place of an `InterpolatedLinearOperator`, within `forward`.

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
    """Whether the covariance on the grid is a product of factors of the grid's sizes."""
    if not isinstance(base, TheirProduct) or len(base.batch_shape) or left._grid != right._grid:
        return False
    sizes = [(size, size) for size in left._grid.sizes]
    if [tuple(factor.shape) for factor in base.linear_ops] != sizes:
        return False
    return tensors_of(base.linear_ops) is not None


# GPyTorch's method with `operator` for the class. It keeps that until it returns, as it needs to
# with what `compute_grid` returned, though another thread may end the replacement meanwhile.
_forward_with_operator: Any = FunctionType(
    _their_forward.__code__,
    {
        **vars(grid_interpolation_kernel),
        "InterpolatedLinearOperator": lambda *arguments: operator(*arguments),
    },
    _their_forward.__name__,
    _their_forward.__defaults__,
    _their_forward.__closure__,
)


@functools.wraps(_their_forward)
def forward(kernel: GridInterpolationKernel, *arguments: Any, **options: Any) -> Any:
    """Return the covariance of two sets of points, as GPyTorch's method, by `operator`."""
    before = getattr(_local, "kernel", None)
    _local.kernel = kernel
    try:
        return _forward_with_operator(kernel, *arguments, **options)
    finally:
        _local.kernel = before


REPLACEMENTS = [
    Replacement(GridInterpolationKernel, "_compute_grid", compute_grid),
    Replacement(GridInterpolationKernel, "forward", forward),
]
"""What `accelerate` replaces in GPyTorch."""
