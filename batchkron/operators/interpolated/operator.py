"""A Kronecker product between two interpolations, W (K_1 ⊗ … ⊗ K_N) W^T + D."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike

from batchkron.array_kinds import native, native_entries
from batchkron.arrays import array_module, to_host
from batchkron.backends import Product, backend_for, building_on, reserve
from batchkron.operators.algebra import Operator
from batchkron.operators.conversions import relatives_lock
from batchkron.operators.interpolated.entrywise import entrywise
from batchkron.operators.interpolated.grid_product import GridProduct, as_matrix
from batchkron.operators.interpolated.interpolation import Interpolation, as_reals
from batchkron.operators.interpolated.vectors import split, starts
from batchkron.operators.kronecker_product import KroneckerProduct
from batchkron.spec.interpolated import WEIGHTS, RegularGrid, are_entries_few, checked_points
from batchkron.spec.kron import Array, check_replacement, compute_dtype, read_only_copies

__all__ = ["InterpolatedKronecker"]

# Bytes of vectors on the grid that are kept at a time, where more than one is possible; chosen by
# hand: some vectors at once share the loads of weights, but must leave room for others.
_MAX_GRID_BYTES = 1 << 28


class InterpolatedKronecker(Operator):
    """The operator W (K_1 ⊗ … ⊗ K_N) W^T + diag(noise), W the interpolation on a grid.

    It is the covariance of a Gaussian process whose kernel is a product of one-dimensional ones,
    K_k = k(x_i, x_j) on the grid's points in dimension k.

    Parameters
    ----------
    points : array_like, (n, N)
        Inside the grid; they are copied. Points on a device are sorted there.
    grid : RegularGrid
        Of P_1 × … × P_N points.
    factors : sequence of array_like, each (P_k, P_k) or (P_k,)
        The K_k; copied. An array of one axis is the first column of a Toeplitz matrix, as for
        `scipy.linalg.toeplitz`: Hermitian. It is multiplied by fast Fourier transforms if it is so
        long that they are faster; on a device by those of CuPy.
    noise : float or array_like, (n,)
        Real, 0 or more, added to the diagonal.

    Attributes
    ----------
    points : ndarray, (n, N)
    factors : tuple of ndarray, each (P_k, P_k) or (P_k,)
    noise : ndarray, () or (n,)
        All read-only; `update` replaces them.
    grid : RegularGrid
    interpolation : Interpolation
        The operator W.

    Raises
    ------
    ValueError
        If shapes do not fit, a point is outside of the grid, or noise is negative.
    TypeError
        If ``grid`` is no `RegularGrid`, or a dtype has no kernels.

    Notes
    -----
    "Structured kernel interpolation" of A. G. Wilson and H. Nickisch, Kernel interpolation for
    scalable structured Gaussian processes (KISS-GP), ICML 2015, eq. (9). For W, its order of
    accuracy at the grid's ends and what it costs see `Interpolation`: 4 N weights are stored
    for each point, no row of 4^N. The dtype is that of the factors. Up to 16 vectors are multiplied
    at a time, with two arrays of them on the grid. If the matrix has no more entries than the grid
    has cells, it is computed and multiplied instead: entry by entry it is the product of N matrices
    of the one-dimensional interpolations and factors. Results have the same bits for any number of
    threads, and in each run on a device.

    Examples
    --------
    >>> import numpy as np, batchkron as bk
    >>> rng = np.random.default_rng(0)
    >>> points = rng.random((1000, 2))
    >>> grid = bk.RegularGrid(0.0, 1.0, sizes=(20, 30))
    >>> columns = [np.exp(-((x - x[0]) ** 2) / 0.5) for x in grid.axes]
    >>> K = bk.InterpolatedKronecker(points, grid, columns, noise=0.1)
    >>> exact = np.exp(-((points[:, None] - points) ** 2).sum(-1) / 0.5) + 0.1 * np.eye(1000)
    >>> bool(np.abs(K.to_dense() - exact).max() < 1e-3)
    True
    """

    def __init__(
        self,
        points: ArrayLike,
        grid: RegularGrid,
        factors: Sequence[ArrayLike],
        *,
        noise: ArrayLike = 0.0,
    ) -> None:
        places, variance = native_entries(points, "points"), native(noise, "noise")
        matrices = native_entries(list(factors), "factors")
        chosen = backend_for(array_module(places, *matrices, variance))
        given = [to_host(f, f"factors[{k}]") for k, f in enumerate(matrices)]
        if not given:
            raise ValueError("factors is empty; expected a factor for each dimension of the grid")
        dtype = compute_dtype(*given)
        numbers = np.zeros(0, dtype).real.dtype
        with building_on(chosen):
            self.interpolation = Interpolation(places, grid, numbers)
        self.grid = grid
        _check_factors(given, grid)
        size = self.interpolation.shape[0]
        self.noise = _checked_noise(variance, size, numbers)
        super().__init__((size, size), dtype, (), chosen)
        self._workspace = self._backend.workspace()
        self.factors = read_only_copies(given, dtype)
        # one of both is there: the product on the grid, or that with the whole matrix
        self._grid_product: GridProduct | None = None
        self._matrix_product: Product | None = None
        if are_entries_few(size, size, grid.sizes):
            self._matrix_product = self._backend.kron_product([self._matrix()])
        else:
            self._grid_product = GridProduct(self.factors, self._backend)
        self._noise_product: Product | None = None
        self._noise_entries: tuple[Array, ...] = ()
        self._set_noise()

    @property
    def points(self) -> Array:
        """The points on the host, (n, N), read-only."""
        return self.interpolation.points

    def _set_factors(self, factors: Sequence[Array]) -> None:
        self.factors = read_only_copies(factors, self.dtype)
        known = self._grid_product
        if known is not None:
            self._grid_product = known.with_factors(self.factors)
            if self._grid_product is not known:
                self._backend.repetition.note_move()

    def _matrix(self) -> Array:
        """Return W (K_1 ⊗ … ⊗ K_N) W^T on the host."""
        return entrywise(self.interpolation.windows, self.factors)

    def _set_noise(self) -> None:
        if bool(self.noise.any()) != bool(self._noise_entries):
            self._backend.repetition.note_move()
        if not self.noise.any():
            self._noise_product, self._noise_entries = None, ()
            return
        entries = [np.array(np.broadcast_to(self.noise, self.shape[:1]), self.dtype)]
        known = self._noise_entries
        placed = self._backend.place(entries, known)
        if not known or placed[0] is not known[0]:
            self._noise_product = self._backend.diagonal_product(placed[0])
        self._noise_entries = placed

    def _recipe(self) -> tuple[Any, ...]:
        made = partial(type(self), noise=self.noise)
        return made, (self.points, self.grid, self.factors)

    def _run(
        self, x: Array, y: Array, outer: int, inner: int, alpha: complex, accumulate: bool
    ) -> None:
        if x.size == 0:
            return
        if self._matrix_product is not None:
            self._matrix_product.run(x, y, outer, inner, alpha, accumulate)
        elif self._grid_product is not None:
            self._run_on_grid(self._grid_product, x, y, outer, inner, alpha, accumulate)
        if self._noise_product is not None:
            self._noise_product.run(x, y, outer, inner, alpha, True)

    def _run_on_grid(
        self,
        on_grid_product: GridProduct,
        x: Array,
        y: Array,
        outer: int,
        inner: int,
        alpha: complex,
        accumulate: bool,
    ) -> None:
        size, cells = self.interpolation.shape
        source, target = as_reals(x, y)
        parts = self.dtype.itemsize // source.itemsize  # real numbers of one entry
        inner_reals = inner * parts
        plan = self.interpolation.plan
        for first, count in split(outer * inner_reals, self._most()):
            vectors = starts(first, count, size, inner_reals)
            memory = self._workspace.array(2 * cells * count // parts, self.dtype).reshape(2, -1)
            on_grid, other = memory
            plan.scatter(source, inner_reals, vectors, on_grid.view(source.dtype), count, 0)
            product = on_grid_product.run(on_grid, other, count // parts)
            scale = alpha
            if isinstance(alpha, complex):
                product *= alpha
                scale = 1
            reals = product.view(source.dtype)
            plan.gather(reals, count, 0, target, inner_reals, vectors, scale.real, accumulate)

    def _most(self) -> int:
        """Return how many vectors of real numbers may be on the grid at a time."""
        numbers = self.noise.dtype.itemsize
        return max(self.dtype.itemsize, _MAX_GRID_BYTES // self.interpolation.shape[1]) // numbers

    def _reserve(self, outer: int, inner: int) -> None:
        if self._matrix_product is not None:
            reserve(self._matrix_product, outer, inner)
            return
        parts, cells = self.dtype.itemsize // self.noise.itemsize, self.interpolation.shape[1]
        _, most = next(split(outer * inner * parts, self._most()), (0, 0))
        if self.shape[0] and self._grid_product is not None:
            self._workspace.array(2 * cells * most // parts, self.dtype)
            self._grid_product.reserve(most // parts)

    def update(
        self,
        *,
        points: ArrayLike | None = None,
        factors: Sequence[ArrayLike] | None = None,
        noise: ArrayLike | None = None,
    ) -> None:
        """Replace points, factors or noise by others, in place, here and in .T, .H, ….

        It must not be called while another thread applies the operator.

        Parameters
        ----------
        points : array_like, (n, N), optional
        factors : sequence of array_like, each (P_k, P_k) or (P_k,), optional
            Matrices may replace columns of Toeplitz matrices, and the other way round.
        noise : float or array_like, (n,), optional

        Raises
        ------
        ValueError, TypeError
            As when the operator is built; then nothing is replaced. The number of points cannot
            change.
        """
        new_points = new_factors = new_noise = None
        if points is not None:
            new_points = checked_points(native_entries(points, "points"), self.grid)
            check_replacement(
                new_points, (self.shape[0], len(self.grid.sizes)), np.dtype(np.float64), "points"
            )
        if factors is not None:
            matrices = native_entries(list(factors), "factors")
            new_factors = [to_host(f, f"factors[{k}]") for k, f in enumerate(matrices)]
            _check_factors(new_factors, self.grid)
            for k, factor in enumerate(new_factors):
                check_replacement(factor, factor.shape, self.dtype, f"factors[{k}]")
        if noise is not None:
            new_noise = _checked_noise(native(noise, "noise"), self.shape[0], self.noise.dtype)
        with relatives_lock:
            self._take(new_points, new_factors, new_noise, set())

    def _take(
        self,
        points: Array | None,
        factors: Sequence[Array] | None,
        noise: Array | None,
        done: set[int],
    ) -> None:
        """Take checked values, and give them to relatives that do not have them yet."""
        done.add(id(self))
        if points is not None:
            self.interpolation.update(points)
        if factors is not None:
            self._set_factors(factors)
        if self._matrix_product is not None and not (points is None and factors is None):
            matrix = [self._matrix()]
            self._matrix_product = self._backend.kron_product(matrix, known=self._matrix_product)
        if noise is not None:
            self.noise = _read_only(noise.astype(self.noise.dtype))
            self._set_noise()
        for kind, relative in self._relatives.items():
            if not isinstance(relative, InterpolatedKronecker) or id(relative) in done:
                continue
            given = factors
            if factors is not None and kind == "transpose":
                given = _transposed(factors)
            elif factors is not None and kind == "conjugate":
                given = [factor.conj() for factor in factors]
            relative._take(points, given, noise, done)

    def _like(self, factors: Sequence[Array]) -> InterpolatedKronecker:
        points = self.interpolation.placed_points
        return InterpolatedKronecker(points, self.grid, factors, noise=self.noise)

    def _build_transpose(self) -> InterpolatedKronecker:
        return self._like(_transposed(self.factors))

    def _build_conjugate(self) -> InterpolatedKronecker:
        return self._like([factor.conj() for factor in self.factors])

    def _build_as(self, dtype: np.dtype[Any]) -> InterpolatedKronecker:
        return self._like([factor.astype(dtype) for factor in self.factors])

    def _build_on(self, device: str) -> InterpolatedKronecker:
        return InterpolatedKronecker(self.points, self.grid, self.factors, noise=self.noise)

    @property
    def capturable(self) -> bool:
        """Whether products on a device may be captured in CUDA graphs: not those with FFTs."""
        return self._transforms == 0

    @property
    def _transforms(self) -> int:
        return 0 if self._grid_product is None else self._grid_product.transforms

    def cross(self, points: ArrayLike) -> Operator:
        """Return W' (K_1 ⊗ … ⊗ K_N) W^T, the covariance of other points with these.

        Parameters
        ----------
        points : array_like, (m, N)
            Inside the grid.

        Returns
        -------
        Operator, (m, n)
            It keeps the factors and points of now.

        Raises
        ------
        ValueError, TypeError
            As for `Interpolation`.

        Examples
        --------
        >>> import numpy as np, batchkron as bk
        >>> grid = bk.RegularGrid(0.0, 1.0, sizes=[8])
        >>> K = bk.InterpolatedKronecker([[0.5], [1.0]], grid, [np.eye(8)], noise=1.0)
        >>> K.cross([[0.5]]).shape
        (1, 2)
        """
        with building_on(self._backend):
            places = native_entries(points, "points")
            if self._backend.array_module is np:
                places = to_host(places, "points")
            others = Interpolation(places, self.grid, self.dtype)
            here = Interpolation(self.interpolation.placed_points, self.grid, self.dtype)
            return others @ KroneckerProduct([as_matrix(f) for f in self.factors]) @ here.T

    def diagonal(self) -> Array:
        """Return the diagonal, (n,), from the factors' blocks that the windows meet."""
        windows = self.interpolation.windows
        entries = np.ones(self.shape[0], self.dtype)
        for k, factor in enumerate(self.factors):
            weights = windows.weights[:, k]
            if factor.ndim == 1:
                blocks = scipy.linalg.toeplitz(factor[:WEIGHTS])[None]
            else:
                cells = windows.corners[:, k, None] + np.arange(WEIGHTS)
                blocks = factor[cells[:, :, None], cells[:, None, :]]
            entries *= ((blocks @ weights[..., None])[..., 0] * weights).sum(axis=-1)
        result = np.empty_like(entries)
        result[windows.places] = entries
        return self._backend.place([result + self.noise])[0]

    def describe(self) -> str:
        """Return a text with the grid, and how many factors are multiplied by transforms."""
        sizes = " × ".join(map(str, self.grid.sizes))
        way = f"{self._transforms} of {len(self.factors)} factors by FFT"
        if self._grid_product is None:
            way = "multiplied as a matrix: it has no more entries than the grid has cells"
        return f"{super().describe()}: {self.shape[0]} points in a grid of {sizes}\n  {way}"


def _check_factors(factors: Sequence[Array], grid: RegularGrid) -> None:
    if len(factors) != len(grid.sizes):
        raise ValueError(
            f"factors has {len(factors)} entries; expected {len(grid.sizes)}, one for each "
            f"dimension of the grid"
        )
    for k, (factor, size) in enumerate(zip(factors, grid.sizes, strict=True)):
        if factor.shape not in ((size, size), (size,)):
            raise ValueError(
                f"factors[{k}] has shape {factor.shape}; expected ({size}, {size}), or ({size},) "
                f"for the first column of a Toeplitz matrix, as grid.sizes[{k}] is {size}"
            )


def _checked_noise(noise: ArrayLike, size: int, dtype: np.dtype[Any]) -> Array:
    given = to_host(noise, "noise")
    if given.dtype.kind not in "fiub":
        raise TypeError(f"noise has dtype {given.dtype}; expected real numbers")
    if given.shape not in ((), (size,)):
        raise ValueError(f"noise has shape {given.shape}; expected () or ({size},)")
    if not (given >= 0).all():
        raise ValueError(f"noise is {given.min()}; expected 0 or more, a variance")
    return _read_only(np.array(given, dtype))


def _read_only(array: Array) -> Array:
    array.flags.writeable = False
    return array


def _transposed(factors: Sequence[Array]) -> list[Array]:
    """Return the factors of the transpose; a Toeplitz matrix is Hermitian."""
    return [factor.conj() if factor.ndim == 1 else factor.T for factor in factors]
