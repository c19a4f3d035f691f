"""The covariance of GPyTorch's kernel interpolation, W (K_1 ⊗ … ⊗ K_N) W'ᵀ, without forming W."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from linear_operator.operators import (
    ConstantMulLinearOperator,
    InterpolatedLinearOperator,
    LinearOperator,
)
from linear_operator.operators import KroneckerProductLinearOperator as TheirProduct
from linear_operator.utils.memoize import cached
from torch import Tensor

from batchkron.linear_operator.products import as_columns, from_columns, tensors_of
from batchkron.operators import Interpolation
from batchkron.spec.interpolated import are_entries_few
from batchkron.torch import gekmm
from batchkron.torch.interpolated import (
    as_matrix,
    check_unchanged,
    entrywise,
    interpolate_columns,
    point_gradient,
    windows_of,
)
from batchkron.torch.tensors import on_stream_of, view

__all__ = ["InterpolatedKroneckerLinearOperator", "Points"]

_MAX_ENTRIES = 1 << 24  # that `_multiply_rows` computes at a time: 128 MiB in float64


@dataclass(frozen=True)
class Points:
    """Points and their interpolation, as an argument that linear_operator passes on unchanged."""

    made_of: Interpolation

    def __post_init__(self) -> None:
        object.__setattr__(self, "_points", self.made_of.placed_points)

    def __reduce__(self) -> tuple[Any, ...]:
        return Points, (self.made_of,)

    @property
    def interpolation(self) -> Interpolation:
        """The interpolation, if it has had no update since."""
        check_unchanged(self.made_of, vars(self)["_points"])
        return self.made_of

    def __getitem__(self, index: slice | Tensor) -> Points:
        whole = self.interpolation
        points = whole.placed_points
        if isinstance(points, np.ndarray):
            chosen = index if isinstance(index, slice) else index.cpu().numpy()
            return Points(Interpolation(points[chosen], whole.grid, whole.dtype))
        device = torch.device("cuda", points.device.id)
        with on_stream_of(torch.empty(0, device=device)):
            chosen = index if isinstance(index, slice) else view(index.to(device))
            return Points(Interpolation(points[chosen], whole.grid, whole.dtype))

    def __len__(self) -> int:
        return self.interpolation.shape[0]


class InterpolatedKroneckerLinearOperator(LinearOperator):
    """The operator W (K_1 ⊗ … ⊗ K_N) W'ᵀ, in the place of an `InterpolatedLinearOperator`.

    Parameters
    ----------
    base_linear_op : LinearOperator, (cells, cells)
        A `KroneckerProductLinearOperator` with the factors K_k of the sizes of the grid, without
        a batch, or a multiple of one.
    left, right : batchkron.Interpolation, (n, cells) and (m, cells)
        W and W', on one grid.
    left_points, right_points : Tensor, (n, N) and (m, N), optional
        The points of W and W', if their gradients are wanted.

    Raises
    ------
    ValueError
        If the interpolations are on two grids, or the factors do not fit the grid.

    Notes
    -----
    With a diagonal (``operator.add_diagonal(noise)``) linear_operator solves by conjugate
    gradients, and computes log determinants. The matrix, which it asks for if points are few, is a
    product, entry by entry, of N matrices; if it has no more entries than the grid has cells,
    vectors are multiplied by it, too. Entries, which its preconditioner asks for, are
    products over the dimensions of 4 × 4 blocks of the factors; an `InterpolatedLinearOperator`
    sums 4^N × 4^N numbers for each. Gradients are those of the factors and of the points.

    Examples
    --------
    >>> import torch, batchkron as bk
    >>> from batchkron.linear_operator import InterpolatedKroneckerLinearOperator
    >>> from batchkron.linear_operator import KroneckerProductLinearOperator
    >>> W = bk.Interpolation([[0.5], [0.25], [0.9]], bk.RegularGrid(0.0, 1.0, sizes=[5]))
    >>> K = KroneckerProductLinearOperator(torch.eye(5))
    >>> covariance = InterpolatedKroneckerLinearOperator(K, W, W)
    >>> (covariance @ torch.ones(3)).round(decimals=4)
    tensor([0.8800, 1.0000, 0.5344])
    """

    def __init__(
        self,
        base_linear_op: LinearOperator,
        left: Interpolation | Points,
        right: Interpolation | Points,
        left_points: Tensor | None = None,
        right_points: Tensor | None = None,
    ) -> None:
        left = left if isinstance(left, Points) else Points(left)
        right = right if isinstance(right, Points) else Points(right)
        grid = left.interpolation.grid
        if right.interpolation.grid != grid:
            raise ValueError("left and right are on two grids; expected interpolations on one")
        product, _ = _parts(base_linear_op)
        sizes = None if product is None else [one.shape for one in product.linear_ops]
        if sizes != [(size, size) for size in grid.sizes]:
            raise ValueError(
                f"base_linear_op is a {type(base_linear_op).__name__} with factors of the shapes "
                f"{sizes and [tuple(size) for size in sizes]}; expected a Kronecker product of "
                f"square ones of the grid's sizes, {grid.sizes}"
            )
        super().__init__(
            base_linear_op,
            left=left,
            right=right,
            left_points=left_points,
            right_points=right_points,
        )
        self.base_linear_op = base_linear_op
        self.left, self.right = left, right
        self.left_points, self.right_points = left_points, right_points
        self._kept: tuple[list[int], Tensor | None] | None = None

    def _size(self) -> torch.Size:
        return torch.Size((len(self.left), len(self.right)))

    def _transpose_nonbatch(self) -> InterpolatedKroneckerLinearOperator:
        base = self.base_linear_op._transpose_nonbatch()
        return type(self)(base, self.right, self.left, self.right_points, self.left_points)

    @cached  # type: ignore[untyped-decorator]
    def to_dense(self) -> Tensor:
        """Return the matrix, (n, m)."""
        ends, sizes = (len(self.left), len(self.right)), self.left.interpolation.grid.sizes
        dense = None
        if max(ends) * max(sizes) <= max(math.prod(sizes), math.prod(ends)):
            dense = self._entrywise()
        return super().to_dense() if dense is None else dense

    def _entrywise(self) -> Tensor | None:
        """Return the matrix; None where factors are not matrices."""
        product, scale = _parts(self.base_linear_op)
        factors = None if product is None else tensors_of(product.linear_ops)
        if factors is None:
            return None
        matrices = [as_matrix(factor) for factor in factors]
        ends = self.left.interpolation, self.right.interpolation
        return scale * entrywise(matrices, *ends, self.left_points, self.right_points)

    def _few_entries(self) -> Tensor | None:
        """Return the matrix if products with it are cheaper than on the grid.

        Without gradients it is kept, as long as no tensor that it is of changes.
        """
        grid = self.left.interpolation.grid
        if not are_entries_few(len(self.left), len(self.right), grid.sizes):
            return None
        if torch.is_grad_enabled():
            return self._entrywise()
        versions = [tensor._version for tensor in self.representation()]
        if self._kept is None or self._kept[0] != versions:
            self._kept = versions, self._entrywise()
        return self._kept[1]

    def _matmul(self, rhs: Tensor) -> Tensor:
        few = self._few_entries()
        if few is not None:
            return from_columns(gekmm([few], as_columns(rhs)), rhs)
        flat = as_columns(rhs)
        found = self._gather(self.base_linear_op._matmul(self._scatter_right(flat)))
        return from_columns(found, rhs)

    def _t_matmul(self, rhs: Tensor) -> Tensor:
        return self._transpose_nonbatch()._matmul(rhs)

    def _gather(self, u: Tensor) -> Tensor:
        """Return W u for vectors (..., cells, C)."""
        there, points = self.left.interpolation, self.left_points
        return from_columns(interpolate_columns(as_columns(u), there, points=points), u)

    def _scatter_right(self, x: Tensor) -> Tensor:
        """Return W'ᵀ x for vectors (..., m, C)."""
        there, points = self.right.interpolation, self.right_points
        found = interpolate_columns(as_columns(x), there, transpose=True, points=points)
        return from_columns(found, x)

    def _multiply_rows(self, vectors: Tensor) -> Tensor:
        """Return the product with vectors (..., m, C), some rows at a time, none on the grid."""
        count = max(1, _MAX_ENTRIES // max(1, len(self.right)))
        found = []
        for first in range(0, len(self.left), count):
            rows = self if count >= len(self.left) else self._rows(slice(first, first + count))
            entries = rows._entrywise()
            found.append(rows._matmul(vectors) if entries is None else gekmm([entries], vectors))
        return torch.cat(found, -2) if found else self._matmul(vectors)

    def _rows(self, index: slice) -> InterpolatedKroneckerLinearOperator:
        points = None if self.left_points is None else self.left_points[index]
        rows = self.left[index]
        return type(self)(self.base_linear_op, rows, self.right, points, self.right_points)

    def _grid_columns(self, cells: Tensor) -> Tensor:
        """Return the columns of W (K_1 ⊗ … ⊗ K_N) at some cells of the grid, (n, count)."""
        product, scale = _parts(self.base_linear_op)
        factors = None if product is None else tensors_of(product.linear_ops)
        if factors is None:
            units = torch.zeros(
                self.base_linear_op.shape[-1], len(cells), dtype=self.dtype, device=self.device
            )
            units[cells, torch.arange(len(cells), device=self.device)] = 1
            return self._gather(self.base_linear_op._matmul(units))
        windows, weights = self._windows(self.left, self.left_points)
        places = torch.unravel_index(cells, self.left.interpolation.grid.sizes)
        columns: Any = scale
        for k, factor in enumerate(factors):
            block = _entries(factor, windows[:, k, :, None], places[k])  # (n, 4, count)
            columns = columns * (block * weights[:, k, :, None]).sum(1)
        return columns  # type: ignore[no-any-return]

    def _with_detached_grid(self) -> InterpolatedKroneckerLinearOperator:
        """Return the same operator, which has gradients of the left points only."""
        right = None if self.right_points is None else self.right_points.detach()
        base = self.base_linear_op.detach()
        return type(self)(base, self.left, self.right, self.left_points, right)

    def _bilinear_derivative(self, left_vecs: Tensor, right_vecs: Tensor) -> tuple[Any, ...]:
        left_vecs, right_vecs = as_columns(left_vecs), as_columns(right_vecs)
        few = self._entrywise_derivative(left_vecs, right_vecs)
        if few is not None:
            return few
        left = self._transpose_nonbatch()._scatter_right(left_vecs)  # Wᵀ of them
        right = self._scatter_right(right_vecs)
        found = list(self.base_linear_op._bilinear_derivative(left, right))
        for points, there, base, on_grid, vectors in (
            (self.left_points, self.left, self.base_linear_op._matmul, right, left_vecs),
            (self.right_points, self.right, self.base_linear_op._t_matmul, left, right_vecs),
        ):
            if points is not None and points.requires_grad:
                found.append(point_gradient(base(on_grid), vectors, there.interpolation, points))
            elif points is not None:
                found.append(None)
        return tuple(found)

    def _entrywise_derivative(self, left: Tensor, right: Tensor) -> tuple[Any, ...] | None:
        """Return the gradients of all tensors of the operator by those of few entries, or None."""
        has_more = torch.is_grad_enabled()
        with torch.enable_grad():
            # one tensor may stand in two places, whose gradients are told apart
            tensors = [tensor.view_as(tensor) for tensor in self.representation()]
            matrix = self.representation_tree()(*tensors)._few_entries()
        if matrix is None:
            return None
        wanted = [tensor for tensor in tensors if tensor.requires_grad]
        if not wanted:
            return (None,) * len(tensors)
        with torch.autocast(left.device.type, enabled=False):
            gradient = left @ right.mT
        found = iter(
            torch.autograd.grad(matrix, wanted, gradient, create_graph=has_more, allow_unused=True)
        )
        return tuple(next(found) if tensor.requires_grad else None for tensor in tensors)

    def _mul_constant(self, other: float | Tensor) -> LinearOperator:
        if isinstance(other, Tensor) and other.numel() != 1:  # a batch of multiples
            return self._as_theirs._mul_constant(other)
        base = self.base_linear_op._mul_constant(other)
        return type(self)(base, self.left, self.right, self.left_points, self.right_points)

    def _get_indices(self, row_index: Tensor, col_index: Tensor, *batch: Tensor) -> Tensor:
        """Return entries, as products over the dimensions of 4 × 4 blocks of the factors."""
        product, scale = _parts(self.base_linear_op)
        factors = None if product is None else tensors_of(product.linear_ops)
        if factors is None:
            return self._as_theirs._get_indices(row_index, col_index, *batch)
        cells, weights = self._windows(self.left, self.left_points, row_index)
        other_cells, other_weights = self._windows(self.right, self.right_points, col_index)
        entries: Any = scale
        for k, factor in enumerate(factors):
            block = _entries(factor, cells[..., k, :, None], other_cells[..., k, None, :])
            inner = (block * other_weights[..., k, None, :]).sum(-1)
            entries = entries * (inner * weights[..., k, :]).sum(-1)
        return entries  # type: ignore[no-any-return]

    def _windows(
        self, there: Points, points: Tensor | None, index: Any = ...
    ) -> tuple[Tensor, Tensor]:
        """Return the cells (..., N, 4) and weights (..., N, 4) of some points, or of all."""
        where = there.interpolation
        corners, weights = windows_of(where, self.dtype, self.device, points=points)
        steps = torch.arange(weights.shape[-1], device=self.device)
        return corners[index][..., None] + steps, weights[index]

    def _diagonal(self) -> Tensor:
        index = torch.arange(min(self.shape), device=self.device)
        return self._get_indices(index, index)

    def _approx_diagonal(self) -> Tensor:
        """Return W sqrt(diag K) times W' sqrt(diag K), as an `InterpolatedLinearOperator` does.

        It is the diagonal that its preconditioner begins with.
        """
        root = self.base_linear_op._diagonal().sqrt()[:, None]
        return (self._gather(root) * self._transpose_nonbatch()._gather(root))[:, 0]

    def _getitem(self, row_index: Any, col_index: Any, *batch: Any) -> LinearOperator:
        if not batch:
            points = (
                None if given is None else given[index]
                for given, index in ((self.left_points, row_index), (self.right_points, col_index))
            )
            rows, columns = self.left[row_index], self.right[col_index]
            return type(self)(self.base_linear_op, rows, columns, *points)
        return self._as_theirs._getitem(row_index, col_index, *batch)

    def _expand_batch(self, batch_shape: Any) -> LinearOperator:
        return self if not len(batch_shape) else self._as_theirs._expand_batch(batch_shape)

    def _unsqueeze_batch(self, dim: int) -> LinearOperator:
        return self._as_theirs._unsqueeze_batch(dim)

    @cached_property
    def _as_theirs(self) -> InterpolatedLinearOperator:
        """The same operator with stored windows, 4^N for each point: for all that has a batch."""
        left = self._stored(self.left, self.left_points)
        same = self.left is self.right and self.left_points is self.right_points
        right = left if same else self._stored(self.right, self.right_points)
        return InterpolatedLinearOperator(self.base_linear_op, *left, *right)

    def _stored(self, there: Points, points: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the cells and weights of points, (n, 4^N) each."""
        windows, weights = self._windows(there, points)
        cells, values = windows.new_zeros(len(there), 1), weights.new_ones(len(there), 1)
        for k, size in enumerate(there.interpolation.grid.sizes):
            cells = (cells[:, :, None] * size + windows[:, None, k]).flatten(1)
            values = (values[:, :, None] * weights[:, None, k]).flatten(1)
        return cells, values

    # What GPyTorch's predictions ask an InterpolatedLinearOperator for.

    @property
    def left_interp_indices(self) -> Tensor:
        """The cells of W, (n, 4^N)."""
        return self._as_theirs.left_interp_indices

    @property
    def left_interp_values(self) -> Tensor:
        """The entries of W, (n, 4^N)."""
        return self._as_theirs.left_interp_values

    @property
    def right_interp_indices(self) -> Tensor:
        """The cells of W', (m, 4^N)."""
        return self._as_theirs.right_interp_indices

    @property
    def right_interp_values(self) -> Tensor:
        """The entries of W', (m, 4^N)."""
        return self._as_theirs.right_interp_values

    def _sparse_left_interp_t(self, indices: Tensor, values: Tensor) -> Tensor:
        return self._as_theirs._sparse_left_interp_t(indices, values)

    def _sparse_right_interp_t(self, indices: Tensor, values: Tensor) -> Tensor:
        return self._as_theirs._sparse_right_interp_t(indices, values)


def _entries(factor: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Return entries of a matrix, or of the Toeplitz matrix of a first column."""
    return factor[rows, columns] if factor.dim() > 1 else factor[(rows - columns).abs()]


def _parts(operator: LinearOperator) -> tuple[TheirProduct | None, Any]:
    """Return the product that an operator is a multiple of, and the multiple; or None and 1."""
    scale: Any = 1
    while isinstance(operator, ConstantMulLinearOperator) and operator._constant.numel() == 1:
        scale = scale * operator._constant.reshape(())
        operator = operator.base_linear_op
    is_product = isinstance(operator, TheirProduct) and not len(operator.batch_shape)
    return (operator, scale) if is_product else (None, 1)
