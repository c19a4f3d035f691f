"""Interpolation on a regular grid as a linear operator, and its transpose."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from batchkron.array_kinds import native_entries
from batchkron.arrays import array_module, to_host
from batchkron.backends import InterpolationPlan, backend_for
from batchkron.operators.algebra import Operator
from batchkron.operators.conversions import relatives_lock
from batchkron.operators.interpolated.vectors import split, starts
from batchkron.spec.interpolated import RegularGrid, Windows, check_grid, checked_points, windows_of
from batchkron.spec.kron import Array, check_dtype

__all__ = ["Interpolation"]


class Interpolation(Operator):
    """The operator W that interpolates grid values at points: (W u)_p ≈ u(points[p]).

    Parameters
    ----------
    points : array_like, (n, N)
        Inside the grid; they are copied. Points on a device, such as a tensor of torch, stay there
        and are sorted there.
    grid : RegularGrid
        Of P_1 × … × P_N points; vectors have their values, the first dimension slowest.
    dtype : float32, float64, complex64 or complex128, optional
        Of the weights; that of the points by default.

    Attributes
    ----------
    points : ndarray, (n, N)
        On the host, read-only; `update` replaces them. Points on a device are copied when they are
        asked for.
    placed_points : ndarray, (n, N)
        The same where they were given, of NumPy or CuPy; not to be written to.
    grid : RegularGrid

    Raises
    ------
    ValueError
        If the points do not fit the grid, or one is outside of it.
    TypeError
        If ``grid`` is no `RegularGrid`, the points are not real, or for any other dtype.

    Notes
    -----
    Cubic convolution (R. G. Keys, IEEE Trans. Acoust. Speech Signal Process. 29, 1981): a row of W
    is the Kronecker product of N rows of four weights. It is exact for polynomials of degree 2 in
    each dimension, up to the ends of the grid: there the missing value is extrapolated by
    a parabola (Keys, eq. (19)), where GPyTorch takes the nearest grid point. The 4^N entries of a
    row are not stored; W and W^T cost 4^N multiply-adds for each point and vector. W^T adds to each
    grid point in an order that does not depend on the number of threads.

    Examples
    --------
    >>> import numpy as np, batchkron as bk
    >>> grid = bk.RegularGrid(0.0, 1.0, sizes=(5, 6))
    >>> x, y = np.meshgrid(*grid.axes, indexing="ij")
    >>> W = bk.Interpolation([[0.1, 0.7], [1.0, 0.05]], grid)
    >>> (W @ (x * y**2).ravel()).round(12)
    array([0.049 , 0.0025])
    """

    def __init__(
        self, points: ArrayLike, grid: RegularGrid, dtype: DTypeLike | None = None
    ) -> None:
        self.grid = check_grid(grid)
        given = native_entries(points, "points")
        chosen = backend_for(array_module(given))
        self.placed_points = checked_points(given, grid)
        self._on_host: Array | None = None
        kind = check_dtype(self.placed_points.dtype if dtype is None else dtype)
        self._numbers = np.zeros(0, kind).real.dtype
        windows = windows_of(self.placed_points, grid, self._numbers)
        self.plan: InterpolationPlan = chosen.interpolation_plan(windows)
        super().__init__((len(self.placed_points), windows.cells), kind, (), chosen)
        self._workspace = self._backend.workspace()
        self._columns = self._backend.workspace()  # some vectors on the grid, side by side

    @property
    def points(self) -> Array:
        """The points on the host, (n, N), read-only."""
        if self._on_host is None:
            self._on_host = to_host(self.placed_points, "points")
            self._on_host.flags.writeable = False
        return self._on_host

    @property
    def windows(self) -> Windows:
        """The windows and weights on the host, computed anew: the plan has its own copy."""
        return windows_of(self.points, self.grid, self._numbers)

    def _recipe(self) -> tuple[Any, ...]:
        return partial(type(self), dtype=self.dtype), (self.points, self.grid)

    def _run(
        self, x: Array, y: Array, outer: int, inner: int, alpha: complex, accumulate: bool
    ) -> None:
        if isinstance(alpha, complex):
            product = self._workspace.array(y.size, self.dtype).reshape(y.shape)
            self._run(x, product, outer, inner, 1, False)
            add_scaled(product, y, alpha, accumulate)
            return
        source, target = as_reals(x, y)
        inner *= self.dtype.itemsize // self._numbers.itemsize
        rows, cells = self.shape
        for first, count, mixed in self._shares(outer, inner):
            vectors = starts(first, count, rows, inner)
            if mixed:
                grid = self._columns.array(cells * count, self._numbers).reshape(cells, count)
                grid.T[...] = source.reshape(outer, cells)[first : first + count]
                self.plan.gather(grid, count, 0, target, inner, vectors, alpha, accumulate)
                continue
            place, column = divmod(first, inner)
            grid = source.reshape(outer, cells, inner)[place]
            self.plan.gather(grid, inner, column, target, inner, vectors, alpha, accumulate)

    def run_transposed(self, x: Array, y: Array, outer: int, inner: int) -> None:
        """Write W^T x to y (outer, cells, inner) for x (outer, n, inner)."""
        source, target = as_reals(x, y)
        inner *= self.dtype.itemsize // self._numbers.itemsize
        rows, cells = self.shape
        for first, count, mixed in self._shares(outer, inner):
            vectors = starts(first, count, rows, inner)
            if mixed:
                grid = self._columns.array(cells * count, self._numbers).reshape(cells, count)
                self.plan.scatter(source, inner, vectors, grid, count, 0)
                target.reshape(outer, cells)[first : first + count] = grid.T
                continue
            place, column = divmod(first, inner)
            grid = target.reshape(outer, cells, inner)[place]
            self.plan.scatter(source, inner, vectors, grid, inner, column)

    def _shares(self, outer: int, inner: int) -> Iterator[tuple[int, int, bool]]:
        """Yield (first, how many, whether they are copied) for vectors that are taken at once.

        Vectors one behind another on the grid are copied to lie side by side, if that moves fewer
        numbers than their windows have.
        """
        rows, cells = self.shape
        if inner == 1 and rows * 4 ** len(self.grid.sizes) >= cells:
            for first, count in split(outer):
                yield first, count, count > 1
            return
        for place in range(outer):
            for first, count in split(inner):
                yield place * inner + first, count, False

    def update(self, points: ArrayLike) -> None:
        """Replace the points by as many others, in place, here and in .T, .H, ….

        It must not be called while another thread applies the operator.

        Parameters
        ----------
        points : array_like, (n, N)

        Raises
        ------
        ValueError
            If the shape differs, or a point is outside of the grid.
        TypeError
            If they are not real.
        """
        given = checked_points(native_entries(points, "points"), self.grid)
        shape = self.placed_points.shape
        if given.shape != shape:
            raise ValueError(f"points has shape {given.shape}; expected {shape}")
        with relatives_lock:
            self._take(given, set())

    def _take(self, points: Array, done: set[int]) -> None:
        done.add(id(self))
        module = self._backend.array_module
        self.placed_points = to_host(points, "points") if module is np else points
        self._on_host = None
        windows = windows_of(self.placed_points, self.grid, self._numbers)
        self.plan = self._backend.interpolation_plan(windows, self.plan)
        for relative in self._relatives.values():
            other = relative.of if isinstance(relative, TransposedInterpolation) else relative
            if isinstance(other, Interpolation) and id(other) not in done:
                other._take(points, done)

    def _build_transpose(self) -> TransposedInterpolation:
        return TransposedInterpolation(self)

    def _build_conjugate(self) -> Interpolation:
        return self

    def _build_as(self, dtype: np.dtype[Any]) -> Interpolation:
        return Interpolation(self.placed_points, self.grid, dtype)

    def _build_on(self, device: str) -> Interpolation:
        return Interpolation(self.points, self.grid, self.dtype)

    def describe(self) -> str:
        """Return a text with the grid and the number of stored weights."""
        rows, modes = self.shape[0], len(self.grid.sizes)
        return (
            f"{super().describe()}: {rows} points in a grid of "
            f"{' × '.join(map(str, self.grid.sizes))}\n"
            f"  {rows * modes * 4} stored weights instead of {rows * 4**modes} entries"
        )


class TransposedInterpolation(Operator):
    """The operator W^T of an `Interpolation` W; written as ``W.T``."""

    def __init__(self, of: Interpolation) -> None:
        self.of = of
        super().__init__((of.shape[1], of.shape[0]), of.dtype, (), of._backend)
        self._place = of._place
        self._workspace = self._backend.workspace()

    def _recipe(self) -> tuple[Any, ...]:
        return TransposedInterpolation, (self.of,)

    def _run(
        self, x: Array, y: Array, outer: int, inner: int, alpha: complex, accumulate: bool
    ) -> None:
        if alpha == 1 and not accumulate:
            self.of.run_transposed(x, y, outer, inner)
            return
        product = self._workspace.array(y.size, self.dtype).reshape(y.shape)
        self.of.run_transposed(x, product, outer, inner)
        add_scaled(product, y, alpha, accumulate)

    def _build_transpose(self) -> Interpolation:
        return self.of

    def _build_conjugate(self) -> TransposedInterpolation:
        return self

    def _build_as(self, dtype: np.dtype[Any]) -> Operator:
        return self.of.astype(dtype).T

    def _build_on(self, device: str) -> Operator:
        return self.of.to(device).T


def as_reals(x: Array, y: Array) -> tuple[Array, Array]:
    """Return two contiguous arrays as flat ones of real numbers."""
    real = x.real.dtype
    return x.reshape(-1).view(real), y.reshape(-1).view(real)


def add_scaled(product: Array, y: Array, alpha: complex, accumulate: bool) -> None:
    """Compute y = alpha product, or y += alpha product; the product is overwritten."""
    if not accumulate:
        array_module(y).multiply(product, alpha, out=y)
        return
    if alpha != 1:
        product *= alpha
    y += product
