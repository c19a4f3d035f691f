"""Regular grids, and which cells of them a point is interpolated from: checked once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from batchkron.arrays import array_module, to_host
from batchkron.spec.kron import Array

WEIGHTS = 4
"""Cells of a mode that a point is interpolated from."""

_MAX_MODES = 16  # 4^16 cells are the smallest grid of so many; kMaxGridModes of the compiled core


def are_entries_few(rows: int, columns: int, sizes: Sequence[int]) -> bool:
    """Whether W (K_1 ⊗ … ⊗ K_N) W'^T is better multiplied as a matrix than on the grid.

    The matrix is a product, entry by entry, of N others, W_k K_k W'_k^T. This takes about as long
    as a vector on the grid if all that has to be computed has at most as many elements as the grid
    has cells.

    ``rows``, ``columns``: of the matrix: points of W and W'.
    ``sizes``: of the grid.
    """
    cells = math.prod(sizes)
    largest = max(sizes)
    return 0 < rows * columns <= cells and largest * max(rows, columns, largest) <= cells


@dataclass(frozen=True, slots=True)
class Windows:
    """The windows of cells that points are interpolated from, in the order of their corners.

    Row ``places[p]`` of the interpolation W is the Kronecker product of N rows of four weights,
    ``weights[p, k]``, of the cells ``corners[p, k]`` and the three next ones of mode k. Arrays are
    NumPy's, or CuPy's if the points are on a device.

    ``sizes``: cells of each mode.
    ``corners`` (ndarray of int64, (n, N)): sorted, the first mode slowest.
    ``weights`` (ndarray, (n, N, 4)).
    ``places`` (ndarray of int64, (n,)).
    """

    sizes: tuple[int, ...]
    corners: NDArray[np.int64]
    weights: Array
    places: NDArray[np.int64]

    @property
    def cells(self) -> int:
        """The number of cells of the grid."""
        return math.prod(self.sizes)


class RegularGrid:
    """A grid of equidistant points in a box.

    Parameters
    ----------
    lower, upper : float, or sequence of float (N,)
        The first and the last point in each dimension; one number stands for all dimensions.
    sizes : sequence of int, (N,)
        The number of points P_k in each dimension, 4 or more: cubic interpolation takes four.

    Attributes
    ----------
    lower, upper : tuple of float, (N,)
    sizes : tuple of int, (N,)

    Raises
    ------
    ValueError
        If the numbers of dimensions differ, a bound is not finite, an upper one is not above the
        lower one, a size is less than 4, or there are more than 16 dimensions.
    TypeError
        If a size is not an integer.

    Examples
    --------
    >>> import batchkron as bk
    >>> grid = bk.RegularGrid(0.0, [1.0, 2.0], sizes=(5, 6))
    >>> grid.axes[0]
    array([0.  , 0.25, 0.5 , 0.75, 1.  ])
    """

    __slots__ = ("lower", "sizes", "upper")

    def __init__(
        self,
        lower: float | Sequence[float] | Array,
        upper: float | Sequence[float] | Array,
        sizes: Sequence[int],
    ) -> None:
        self.sizes = _checked_sizes(sizes)
        self.lower, self.upper = (
            _bounds(bound, name, len(self.sizes))
            for bound, name in ((lower, "lower"), (upper, "upper"))
        )
        for k, (first, last) in enumerate(zip(self.lower, self.upper, strict=True)):
            if not first < last:
                raise ValueError(f"upper[{k}] is {last}; expected more than lower[{k}], {first}")

    @classmethod
    def around(cls, points: ArrayLike, sizes: Sequence[int]) -> RegularGrid:
        """Return the smallest grid that has all points inside.

        Parameters
        ----------
        points : array_like, (n, N)
            On a device only their least and largest coordinates are copied. The grid's bounds are
            numbers: they have no gradients.
        sizes : sequence of int, (N,)

        Returns
        -------
        RegularGrid

        Raises
        ------
        ValueError
            If there is no point, or all are equal in a dimension.
        TypeError
            If the points are not real.

        Examples
        --------
        >>> import batchkron as bk
        >>> bk.RegularGrid.around([[0.0, 3.0], [2.0, -1.0]], sizes=(4, 5))
        RegularGrid((0.0, -1.0), (2.0, 3.0), sizes=(4, 5))
        """
        given: Any = points if hasattr(points, "detach") else _reducible(points)
        if given.ndim != 2 or len(given) == 0:
            raise ValueError(f"points has shape {tuple(given.shape)}; expected (n, N), n > 0")
        if "complex" in str(given.dtype):
            raise TypeError(f"points has dtype {given.dtype}; expected real numbers")
        if hasattr(given, "detach"):  # a tensor of torch
            lower, upper = given.detach().aminmax(dim=0)
        else:
            lower, upper = given.min(axis=0), given.max(axis=0)
        return cls(lower.tolist(), upper.tolist(), sizes)

    @property
    def axes(self) -> tuple[NDArray[np.float64], ...]:
        """The coordinates of the grid's points in each dimension, each (P_k,)."""
        return tuple(map(np.linspace, self.lower, self.upper, self.sizes))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RegularGrid) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[Any, ...]:
        return self.lower, self.upper, self.sizes

    def __reduce__(self) -> tuple[Any, ...]:
        return RegularGrid, self._key()

    def __repr__(self) -> str:
        return f"RegularGrid({self.lower}, {self.upper}, sizes={self.sizes})"


def _reducible(points: ArrayLike) -> Any:
    """Return points as an array that has methods ``min`` and ``max``, where they are."""
    is_elsewhere = not isinstance(points, np.ndarray) and hasattr(points, "__dlpack__")
    if is_elsewhere and hasattr(points, "min"):
        return points
    return np.asarray(to_host(points, "points"))  # no subclass, such as np.matrix


def _checked_sizes(sizes: Sequence[int]) -> tuple[int, ...]:
    for k, size in enumerate(sizes):
        if isinstance(size, (bool, np.bool_)) or not isinstance(size, (int, np.integer)):
            raise TypeError(f"sizes[{k}] is {size!r}; expected an integer")
        if size < WEIGHTS:
            raise ValueError(
                f"sizes[{k}] is {size}; expected {WEIGHTS} or more, as many as a cubic takes"
            )
    if not 1 <= len(sizes) <= _MAX_MODES:
        raise ValueError(f"sizes has {len(sizes)} numbers; expected 1 to {_MAX_MODES}")
    return tuple(map(int, sizes))


def _bounds(bound: float | Sequence[float] | Array, name: str, count: int) -> tuple[float, ...]:
    given = np.asarray(bound, np.float64)
    if given.shape not in ((), (count,)):
        raise ValueError(f"{name} has shape {given.shape}; expected ({count},) as sizes has")
    if not np.isfinite(given).all():
        raise ValueError(f"{name} is {bound}; expected finite numbers")
    return tuple(np.broadcast_to(given, count).tolist())


def check_grid(grid: object) -> RegularGrid:
    """Return a grid after checking its type.

    Raises `TypeError` if it is not a `RegularGrid`.
    """
    if not isinstance(grid, RegularGrid):
        raise TypeError(f"grid is a {type(grid).__name__}; expected a batchkron.RegularGrid")
    return grid


def checked_points(points: ArrayLike, grid: RegularGrid) -> Array:
    """Return points as a read-only copy (n, N), float32 or float64.

    The copy is where the points are; a device is waited for once.

    Raises `ValueError` if the shape does not fit the grid, or a point is outside of it or not a
    number. `TypeError` if they are not real numbers.
    """
    module = array_module(points)
    given: Any = to_host(points, "points") if module is np else points
    if given.ndim != 2 or given.shape[1] != len(grid.sizes):
        raise ValueError(
            f"points has shape {given.shape}; expected (n, {len(grid.sizes)}), because the grid "
            f"has {len(grid.sizes)} dimensions"
        )
    if given.dtype.kind not in "fiub":
        raise TypeError(f"points has dtype {given.dtype}; expected real numbers")
    dtype = np.float32 if given.dtype in (np.float32, np.float16) else np.float64
    copied = module.array(given, dtype, order="C")
    if module is np:  # CuPy's arrays have no such flag
        copied.flags.writeable = False
    lower, upper = module.asarray(np.array(grid.lower)), module.asarray(np.array(grid.upper))
    outside = ~((copied >= lower) & (copied <= upper))
    if outside.any():
        _refuse_outside(to_host(copied, "points"), to_host(outside, "points"), grid)
    return copied  # type: ignore[no-any-return]


def _refuse_outside(points: Array, outside: Array, grid: RegularGrid) -> None:
    p, k = np.argwhere(outside)[0]
    raise ValueError(
        f"points[{p}, {k}] is {points[p, k]}; expected {grid.lower[k]} to {grid.upper[k]}, "
        f"which the grid covers ({outside.any(axis=1).sum()} of {len(points)} points are "
        f"outside). RegularGrid.around(points, sizes) covers all"
    )


def windows_of(
    points: Array, grid: RegularGrid, dtype: np.dtype[Any], *, order: int = 0
) -> Windows:
    """Return the windows and weights of points inside a grid, sorted, the weights in ``dtype``.

    See `unsorted_windows`. Points on a device are sorted there, without waiting for it; windows and
    their order have the same bits as on the host.
    """
    corners, weights = unsorted_windows(points, grid, order=order)
    module = array_module(points)
    places = module.argsort(cell_numbers(corners, grid.sizes), kind="stable")
    return Windows(
        grid.sizes,
        module.ascontiguousarray(corners[places]),
        module.ascontiguousarray(weights[places], dtype),
        module.ascontiguousarray(places, np.int64),
    )


def cell_numbers(cells: Array, sizes: Sequence[int]) -> Array:
    """Return the numbers (n,) of cells (n, N) in a grid of these sizes, the first mode slowest."""
    found: Array = array_module(cells).zeros(len(cells), np.int64)
    for k, size in enumerate(sizes):
        found = found * size + cells[:, k]
    return found


def unsorted_windows(
    points: Array, grid: RegularGrid, *, order: int = 0
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the first cells (n, N), and the weights (n, N, 4), of the windows of points.

    With an ``order`` of 1 to 3 the derivatives of this order of each mode's weights by the point's
    coordinate instead; higher ones are zero. In the first and the last interval of a dimension,
    the value that is missing beyond the end is the one that continues the parabola through the
    three next ones. Both are where the points are. Each operation rounds by itself, so that a
    device's results have the bits of the host's.
    """
    module = array_module(points)
    sizes, lower = np.array(grid.sizes), np.array(grid.lower)
    width = np.array(grid.upper) - lower
    lower, width, intervals, scale = (
        module.asarray(given)
        for given in (lower, width, sizes - 1, ((sizes - 1) / width)[:, None] ** order)
    )
    position = (points.astype(np.float64) - lower) / width * intervals
    cell = module.maximum(module.floor(position).astype(np.int64), 0)
    cell = module.minimum(cell, intervals - 1)
    t = position - cell
    weights = _derivatives_of_weights(t, order) * scale if order else _cubic_weights(t)
    first, last = (cell == 0)[..., None], (cell == intervals - 1)[..., None]
    weights = module.where(first, _continued(weights), weights)
    weights = module.where(last, _continued(weights[..., ::-1])[..., ::-1], weights)
    corners = module.minimum(module.maximum(cell - 1, 0), intervals + 1 - WEIGHTS)
    return corners, weights


def _cubic_weights(t: Array) -> Array:
    """Return the weights (..., 4) of the points -1, 0, 1, 2 for places 0 <= t <= 1 (...).

    Source: R. G. Keys, Cubic convolution interpolation for digital image processing, IEEE Trans.
    Acoust. Speech Signal Process. 29 (1981), eq. (15), a = -1/2.
    """
    return array_module(t).stack(  # type: ignore[no-any-return]
        [
            ((-0.5 * t + 1.0) * t - 0.5) * t,
            (1.5 * t - 2.5) * t * t + 1.0,
            ((-1.5 * t + 2.0) * t + 0.5) * t,
            (0.5 * t - 0.5) * t * t,
        ],
        axis=-1,
    )


def _derivatives_of_weights(t: Array, order: int) -> Array:
    """Return the derivatives of an order of 1 to 3 of `_cubic_weights` by t, (..., 4)."""
    module = array_module(t)
    if order == 3:
        return module.broadcast_to(  # type: ignore[no-any-return]
            module.asarray([-3.0, 9.0, -9.0, 3.0]), (*t.shape, WEIGHTS)
        )
    if order == 2:
        columns = [-3.0 * t + 2.0, 9.0 * t - 5.0, -9.0 * t + 4.0, 3.0 * t - 1.0]
    else:
        columns = [
            (-1.5 * t + 2.0) * t - 0.5,
            (4.5 * t - 5.0) * t,
            (-4.5 * t + 4.0) * t + 0.5,
            (1.5 * t - 1.0) * t,
        ]
    return module.stack(columns, axis=-1)  # type: ignore[no-any-return]


def _continued(weights: Array) -> Array:
    """Return the weights (..., 4) of the points 0, 1, 2, 3 from those of the points -1, 0, 1, 2.

    The value at -1 is 3 f_0 - 3 f_1 + f_2 (Keys, eq. (19)).
    """
    before, first, second, third = (weights[..., k] for k in range(WEIGHTS))
    module = array_module(weights)
    none = module.zeros_like(before)
    inside = [first + 3 * before, second - 3 * before, third + before, none]
    return module.stack(inside, axis=-1)  # type: ignore[no-any-return]
