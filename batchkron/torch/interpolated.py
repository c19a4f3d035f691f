"""Interpolate from regular grids, and multiply by interpolated Kronecker products."""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import numpy as np
import torch
from torch import Tensor

from batchkron.operators import Interpolation
from batchkron.spec.interpolated import WEIGHTS, are_entries_few, unsorted_windows
from batchkron.torch.call_modes import applied, is_transformed
from batchkron.torch.kron import gekmm
from batchkron.torch.tensors import check_tensors, numbered, on_stream_of, view

__all__ = [
    "as_matrix",
    "entrywise",
    "interpolate",
    "interpolate_columns",
    "interpolated_kronecker",
    "multiply_on_grid",
    "windows_of",
]

# Rows of a Toeplitz factor from which it is multiplied by Fourier transforms; the bound of
# batchkron/operators/interpolated/grid_product.py, where it was measured.
MIN_FFT_ROWS = 512
# Elements of all windows that are gathered at once on a device: 128 MiB in float64.
_MAX_GATHERED = 1 << 24

# The points and windows of each interpolation as tensors, and the array that they are of.
_known: weakref.WeakKeyDictionary[Interpolation, tuple[Any, dict[Any, Any]]] = (
    weakref.WeakKeyDictionary()
)


class _Interpolate(torch.autograd.Function):
    """W u or Wᵀ u for the columns of u; ``points`` are those of W, or None."""

    @staticmethod
    def forward(
        u: Tensor, points: Tensor | None, interpolation: Interpolation, transposed: bool
    ) -> Tensor:
        rows, cells = interpolation.shape
        out = u.new_empty((cells if transposed else rows, u.shape[-1]))
        if u.is_meta:
            return out
        with on_stream_of(u):
            values = view(u.contiguous())  # a copy is torch's, also of what its graphs capture
            operator: Any = interpolation.astype(values.dtype)
            if not u.is_cpu:
                operator = operator.to("cuda")
            (operator.T if transposed else operator).matmat(values, out=view(out))
        return out

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
        u, points, ctx.interpolation, ctx.transposed = inputs
        ctx.known = ctx.interpolation.placed_points
        ctx.has_points = points is not None
        if points is not None:  # else nothing but the gradient is needed
            ctx.save_for_backward(u, points)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        check_unchanged(ctx.interpolation, ctx.known)
        u: Any
        points: Any
        u, points = ctx.saved_tensors if ctx.has_points else (None, None)
        of_u, of_points = None, None
        if ctx.needs_input_grad[0]:
            of_u = applied(_Interpolate, gradient, points, ctx.interpolation, not ctx.transposed)
        if ctx.needs_input_grad[1]:
            on_grid, at_points = (gradient, u) if ctx.transposed else (u, gradient)
            of_points = point_gradient(on_grid, at_points, ctx.interpolation, points)
        return of_u, of_points, None, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, u: Tensor, points: Any, *rest: Any) -> Any:
        if in_dims[1] is not None:
            raise ValueError(
                "points has a batch of torch.vmap; expected those of the interpolation"
            )
        columns = u.movedim(in_dims[0], -1)  # (rows, columns, batch)
        found = applied(_Interpolate, columns.flatten(-2), points, *rest)
        return found.unflatten(-1, columns.shape[-2:]), 2


def check_unchanged(interpolation: Interpolation, points: Any) -> None:
    """Refuse an interpolation whose points are no longer the array that they were."""
    if interpolation.placed_points is not points:
        raise RuntimeError(
            "the interpolation has other points than in the forward pass; expected update() after "
            "the backward pass, or another batchkron.Interpolation"
        )


def point_gradient(u: Tensor, g: Tensor, interpolation: Interpolation, points: Tensor) -> Tensor:
    """Return the gradient of Re Σ conj(g) W u by the points, (n, N), by torch's gathers.

    It has gradients of any order itself, of the points, too.

    ``u`` (Tensor, (cells, C)).
    ``g`` (Tensor, (n, C)).
    ``points`` (Tensor, (n, N)).
    """
    sizes = interpolation.grid.sizes
    corners, weights = windows_of(interpolation, u.dtype, u.device, points=points)
    _, slopes = windows_of(interpolation, u.dtype, u.device, order=1, points=points)
    found = []
    for part, cells in _chunks(corners, sizes, u.shape[-1]):
        values = (u[cells] * g[part, None].conj()).sum(-1)  # (points, 4^N)
        values = values.real if values.is_complex() else values
        columns = []
        for k in range(len(sizes)):
            left = values
            for j in range(len(sizes)):
                factor = slopes if j == k else weights
                left = torch.einsum("pw,pwr->pr", factor[part, j], left.unflatten(1, (WEIGHTS, -1)))
            columns.append(left[:, 0])
        found.append(torch.stack(columns, dim=-1))
    return torch.cat(found).to(points.dtype) if found else torch.zeros_like(points)


def windows_of(
    interpolation: Interpolation,
    dtype: torch.dtype,
    device: torch.device,
    *,
    order: int = 0,
    points: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the first cells (n, N), and the weights (n, N, 4), of the windows of the points.

    With an ``order`` up to 3 the derivatives of the weights by the points. All are real, and kept
    as long as the interpolation has these points. With ``points`` they have gradients.
    """
    dtype = torch.zeros(0, dtype=dtype).real.dtype
    corners, weights = _kept_windows(interpolation, dtype, device, order)
    if points is None or not (
        is_transformed() or (torch.is_grad_enabled() and points.requires_grad)
    ):
        return corners, weights
    # Taylor's series of a cubic polynomial ends; the distance is zero, but has derivatives.
    here = _kept_points(interpolation, points)
    distance = (points - here).to(dtype)[..., None]
    power: Any = 1
    for k in range(order + 1, WEIGHTS):
        power = power * distance / (k - order)
        weights = weights + _kept_windows(interpolation, dtype, device, k)[1] * power
    return corners, weights


def _kept(interpolation: Interpolation) -> dict[Any, Any]:
    """Return what is kept as long as the interpolation has these points."""
    points, found = _known.get(interpolation, (None, {}))
    if points is not interpolation.placed_points:
        points, found = interpolation.placed_points, {}
        _known[interpolation] = points, found
    return found


def _kept_points(interpolation: Interpolation, like: Tensor) -> Tensor:
    """Return the points in the dtype and on the device of a tensor."""
    found, key = _kept(interpolation), ("points", like.dtype, like.device)
    if key not in found:
        with on_stream_of(like):
            found[key] = _tensor(interpolation.placed_points, like.device).to(like.dtype)
    return found[key]  # type: ignore[no-any-return]


def _kept_windows(
    interpolation: Interpolation, dtype: torch.dtype, device: torch.device, order: int
) -> tuple[Tensor, Tensor]:
    """Return the windows; those of points on a device are computed there, and not waited for."""
    found, key = _kept(interpolation), (dtype, device, order)
    if key not in found:
        with on_stream_of(torch.empty(0, device=device)):
            corners, weights = unsorted_windows(
                interpolation.placed_points, interpolation.grid, order=order
            )
            found[key] = _tensor(corners, device), _tensor(weights, device).to(dtype)
    return found[key]  # type: ignore[no-any-return]


def _tensor(array: Any, device: torch.device) -> Tensor:
    """Return an array of NumPy or CuPy as a tensor on a device; in its memory if it is there."""
    if isinstance(array, np.ndarray):
        return torch.from_numpy(np.require(array, requirements=["C", "W"])).to(device)
    return torch.from_dlpack(array).to(device)


def _chunks(corners: Tensor, sizes: Sequence[int], columns: int) -> Iterator[tuple[slice, Tensor]]:
    """Yield points and the cells (points, 4^N) of their windows, as many as fit in memory."""
    strides = [math.prod(sizes[k + 1 :]) for k in range(len(sizes))]
    offsets = torch.zeros(1, dtype=torch.int64, device=corners.device)
    for stride in strides:
        steps = torch.arange(WEIGHTS, device=corners.device) * stride
        offsets = (offsets[:, None] + steps).flatten()
    first = (corners * torch.tensor(strides, device=corners.device)).sum(-1)
    count = max(1, _MAX_GATHERED // (len(offsets) * max(1, columns)))
    for begin in range(0, len(first), count):
        part = slice(begin, begin + count)
        yield part, first[part, None] + offsets


def interpolate_columns(
    u: Tensor,
    interpolation: Interpolation,
    *,
    transpose: bool = False,
    points: Tensor | None = None,
) -> Tensor:
    """Compute W u, or Wᵀ u, for the columns of u (cells, C) or (n, C), with gradients."""
    return applied(_Interpolate, u, points, interpolation, transpose)  # type: ignore[no-any-return]


def interpolate(
    u: Tensor,
    interpolation: Interpolation,
    *,
    transpose: bool = False,
    points: Tensor | None = None,
) -> Tensor:
    """Compute W u of the interpolation W on a grid, or Wᵀ u, with gradients of u and points.

    Parameters
    ----------
    u : Tensor, (..., cells), or (..., n) with ``transpose``
        Values on the grid, or at the points, along the last axis; float32, float64, complex64 or
        complex128.
    interpolation : batchkron.Interpolation, (n, cells)
        The operator W.
    transpose : bool
        Whether to multiply by Wᵀ.
    points : Tensor, (n, N), optional
        The points of the interpolation, if their gradient is wanted; on the device of u.

    Returns
    -------
    Tensor, (..., n), or (..., cells) with ``transpose``

    Raises
    ------
    ValueError
        If u does not fit, or the points are not those of the interpolation.
    TypeError
        If ``interpolation`` is no `batchkron.Interpolation`, or the dtype has no kernels.

    Notes
    -----
    By the kernels of `batchkron.Interpolation`, on the device of u; the order of sums is fixed. For
    the gradient of points torch gathers the 4^N values of each point's window.

    Examples
    --------
    >>> import torch, batchkron as bk
    >>> from batchkron.torch import interpolate
    >>> W = bk.Interpolation([[0.5], [0.1]], bk.RegularGrid(0.0, 1.0, sizes=[5]))
    >>> squares = torch.linspace(0, 1, 5) ** 2
    >>> interpolate(squares, W)
    tensor([0.2500, 0.0100])
    """
    _check_interpolation(interpolation)
    check_tensors([u], numbered("u", rest=""))
    expected = interpolation.shape[0 if transpose else 1]
    if u.dim() == 0 or u.shape[-1] != expected:
        raise ValueError(f"u has shape {tuple(u.shape)}; expected (..., {expected})")
    _check_points(points, interpolation)
    columns = u.reshape(-1, expected).mT
    found = interpolate_columns(columns, interpolation, transpose=transpose, points=points)
    return found.mT.reshape(*u.shape[:-1], found.shape[0])


def interpolated_kronecker(
    x: Tensor,
    interpolation: Interpolation,
    factors: Sequence[Tensor],
    *,
    noise: float | Tensor | None = None,
    points: Tensor | None = None,
) -> Tensor:
    """Compute y = (W (K_1 ⊗ … ⊗ K_N) Wᵀ + diag(noise)) x, with gradients.

    Parameters
    ----------
    x : Tensor, (..., n)
        Vectors along the last axis; float32, float64, complex64 or complex128.
    interpolation : batchkron.Interpolation, (n, cells)
        The interpolation W from a grid of P_1 × … × P_N points at n others.
    factors : sequence of Tensor, each (P_k, P_k) or (P_k,)
        The K_k. A tensor of one axis is the first column of a real symmetric Toeplitz matrix; from
        512 rows on it is multiplied by Fourier transforms.
    noise : float, or Tensor of shape () or (n,), optional
        Added to the diagonal.
    points : Tensor, (n, N), optional
        The points of the interpolation, if their gradient is wanted, as behind a neural network.

    Returns
    -------
    Tensor, (..., n)

    Raises
    ------
    ValueError
        If shapes do not fit, or the points are not those of the interpolation.
    TypeError
        If ``interpolation`` is no `batchkron.Interpolation`, or dtypes or devices differ.

    Notes
    -----
    The covariance matrix of `batchkron.InterpolatedKronecker`, whose sources it has. Gradients of
    x, factors, noise and points are those of its steps; so there are gradients of any order. If the
    matrix has no more entries than the grid has cells, it is computed and multiplied. Else two
    arrays of all vectors on the grid are kept for gradients. Points must not be updated before the
    backward pass.

    Examples
    --------
    >>> import torch, batchkron as bk
    >>> from batchkron.torch import interpolated_kronecker
    >>> W = bk.Interpolation([[0.5], [0.1]], bk.RegularGrid(0.0, 1.0, sizes=[5]))
    >>> column = torch.tensor([1.0, 0.5, 0.0, 0.0, 0.0], requires_grad=True)
    >>> y = interpolated_kronecker(torch.ones(2), W, [column], noise=0.1)
    >>> y.sum().backward()
    >>> column.grad.shape
    torch.Size([5])
    """
    _check_interpolation(interpolation)
    matrices = list(factors)
    check_tensors([x, *matrices], numbered("x", rest="factors"))
    sizes = interpolation.grid.sizes
    if len(matrices) != len(sizes):
        raise ValueError(
            f"factors has {len(matrices)} entries; expected {len(sizes)}, one for each dimension "
            f"of the grid"
        )
    for k, (factor, size) in enumerate(zip(matrices, sizes, strict=True)):
        if factor.shape not in ((size, size), (size,)):
            raise ValueError(
                f"factors[{k}] has shape {tuple(factor.shape)}; expected ({size}, {size}), or "
                f"({size},) for the first column of a Toeplitz matrix"
            )
        if factor.dim() == 1 and factor.is_complex():
            raise TypeError(
                f"factors[{k}] is a column of dtype {factor.dtype}; expected a real one"
            )
    rows = interpolation.shape[0]
    if x.dim() == 0 or x.shape[-1] != rows:
        raise ValueError(f"x has shape {tuple(x.shape)}; expected (..., {rows})")
    _check_points(points, interpolation)
    columns = x.reshape(-1, rows).mT
    if are_entries_few(rows, rows, sizes):
        dense = [as_matrix(factor) for factor in matrices]
        found = gekmm([entrywise(dense, interpolation, interpolation, points, points)], columns)
    else:
        on_grid = interpolate_columns(columns, interpolation, transpose=True, points=points)
        found = interpolate_columns(
            multiply_on_grid(matrices, on_grid), interpolation, points=points
        )
    y = found.mT.reshape(x.shape)
    if noise is None:
        return y
    if isinstance(noise, Tensor):
        if noise.shape not in ((), (rows,)):
            raise ValueError(f"noise has shape {tuple(noise.shape)}; expected () or ({rows},)")
        if torch.promote_types(noise.dtype, x.dtype) != x.dtype:
            raise TypeError(f"noise has dtype {noise.dtype}, but x has {x.dtype}")
    return y + noise * x


def entrywise(
    factors: Sequence[Tensor],
    left: Interpolation,
    right: Interpolation,
    left_points: Tensor | None = None,
    right_points: Tensor | None = None,
) -> Tensor:
    """Return the matrix W (K_1 ⊗ … ⊗ K_N) W'ᵀ, with gradients of factors and points.

    As rows of W and W' are Kronecker products, entries are products over the dimensions of those of
    W_k K_k W'_kᵀ. These are torch's, in the precision that `torch.set_float32_matmul_precision`
    allows, but not in that of `torch.autocast`.

    ``left``, ``right`` (Interpolation, (n, cells) and (m, cells)): W and W', on one grid.
    ``left_points``, ``right_points`` (Tensor, (n, N) and (m, N)): the points, if their gradients
      are wanted.

    Returns Tensor, (n, m).
    """
    with torch.autocast(factors[0].device.type, enabled=False):
        rows = _mode_weights(left, factors[0], left_points)
        same = left is right and left_points is right_points
        columns = rows if same else _mode_weights(right, factors[0], right_points)
        found = rows[0] @ factors[0] @ columns[0].mT
        for k in range(1, len(factors)):
            found = found * (rows[k] @ factors[k] @ columns[k].mT)
    return found


def _mode_weights(
    interpolation: Interpolation, like: Tensor, points: Tensor | None
) -> list[Tensor]:
    """Return the interpolation along each dimension as matrices (n, P_k)."""
    corners, weights = windows_of(interpolation, like.dtype, like.device, points=points)
    cells = corners[..., None] + torch.arange(WEIGHTS, device=like.device)
    weights = weights.to(like.dtype)
    return [
        weights.new_zeros(len(cells), size).scatter(1, cells[:, k], weights[:, k])
        for k, size in enumerate(interpolation.grid.sizes)
    ]


def _check_interpolation(interpolation: object) -> None:
    if not isinstance(interpolation, Interpolation):
        raise TypeError(
            f"interpolation is a {type(interpolation).__name__}; expected a "
            f"batchkron.Interpolation(points, grid)"
        )


def _check_points(points: Tensor | None, interpolation: Interpolation) -> None:
    if points is None:
        return
    placed = interpolation.placed_points
    kept = torch.empty(0, dtype=getattr(torch, placed.dtype.name), device=points.device)
    known = _kept_points(interpolation, kept)
    same = points.shape == known.shape
    if same and not points.is_meta:
        same = bool((points.detach().to(known.dtype) == known).all())
    if not same:
        raise ValueError(
            "points are not those of the interpolation; expected the tensor that it was made of: "
            "batchkron.Interpolation(points.detach(), grid)"
        )


def multiply_on_grid(factors: Sequence[Tensor], u: Tensor) -> Tensor:
    """Return (K_1 ⊗ … ⊗ K_N) u for u (cells, C), with gradients.

    Factors are matrices (P_k, P_k), or first columns (P_k,) of symmetric Toeplitz matrices.
    Neighbouring modes of matrices are multiplied at once, a long Toeplitz one by transforms.
    """
    found, outer = u, 1  # outer: points of the modes before
    for transformed, neighbours in groupby(factors, _by_transforms):
        run = list(neighbours)
        for modes in [[factor] for factor in run] if transformed else [run]:
            size = math.prod(len(factor) for factor in modes)
            inner = u.numel() // (outer * size)
            if transformed:
                found = _transformed(modes[0], found.reshape(outer, size, inner))
            else:
                shape = (size, inner) if outer == 1 else (outer, size, inner)
                found = gekmm([as_matrix(factor) for factor in modes], found.reshape(shape))
            outer *= size
    return found.reshape(u.shape)


def _by_transforms(factor: Tensor) -> bool:
    return factor.dim() == 1 and len(factor) >= MIN_FFT_ROWS


def as_matrix(factor: Tensor) -> Tensor:
    """Return a factor as a matrix: itself, or the Toeplitz matrix of its first column."""
    if factor.dim() == 2:
        return factor
    places = torch.arange(len(factor), device=factor.device)
    return factor[(places[:, None] - places).abs()]


def _transformed(column: Tensor, u: Tensor) -> Tensor:
    """Return the product with a symmetric Toeplitz matrix along the middle axis of u."""
    size = len(column)
    if u.numel() == 0:  # which torch does not transform
        return u * column[:, None]
    length = 1 << (2 * size - 2).bit_length()  # 2 size - 1 or more
    gap = column.new_zeros(length - 2 * size + 1)
    circulant = torch.cat([column, gap, column[1:].flip(0)])
    if u.is_complex():
        spectrum = torch.fft.fft(circulant)[:, None]
        return torch.fft.ifft(torch.fft.fft(u, length, dim=1) * spectrum, dim=1)[:, :size]
    spectrum = torch.fft.rfft(circulant)[:, None]
    return torch.fft.irfft(torch.fft.rfft(u, length, dim=1) * spectrum, length, dim=1)[:, :size]
