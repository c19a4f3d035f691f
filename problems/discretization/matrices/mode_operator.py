"""One-dimensional operators in the hierarchical basis, stored as blocks of pairs of cells."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, eye_array, kron, vstack

from batchkron.operators.couplings import row_range

from ...grids.levels import check_level
from ..basis.multiwavelets import check_degree, filters

# A block counts as zero if its largest entry, relative to the operator's, is at most n times this:
# rounding in the change of basis leaves about as much of a zero.
DROP_TOLERANCE = 16 * float(np.finfo(np.float64).eps)
_PORTIONS = 16  # number of groups of rows that are transformed one after another, to save memory
_MAX_CELLS = 1 << 31  # cells of an axis, so that the number of a pair of cells fits into int64
_MAX_TABLE_CELLS = 1 << 11  # largest number of cells with a dense table of pairs, 16 MiB of int32


@dataclass(frozen=True, eq=False)
class ModeOperator:
    """A one-dimensional operator A as n x n blocks, one for each pair of cells that it couples.

    Parameters
    ----------
    cells : int
        Number of hierarchical cells, 2^level.
    n : int
        Functions per cell, degree + 1.
    rows, columns : int64 (count,)
        1-D indices of the output and input cell of each block, sorted by (row, column); no pair
        occurs twice.
    blocks : float64 (count, n, n)
        ``blocks[b, i, j]`` maps coefficient j of cell ``columns[b]`` to coefficient i of cell
        ``rows[b]``. Blocks of pairs that are not listed are zero.

    Raises
    ------
    IndexError
        If a row or column is not in 0 … cells - 1.
    ValueError
        If shapes do not agree, the pairs are not sorted and distinct, ``cells`` is not a power of
        two, or a block is not finite.

    Notes
    -----
    The arrays are copied and read-only. Two operators are equal only if they are the same object.

    Examples
    --------
    >>> ModeOperator.identity(cells=2, n=1).to_dense()
    array([[1., 0.],
           [0., 1.]])
    """

    holds_copies: ClassVar[bool] = True  # the arrays are private copies that cannot change

    cells: int
    n: int
    rows: NDArray[np.int64]
    columns: NDArray[np.int64]
    blocks: NDArray[np.float64]

    def __post_init__(self) -> None:
        """Copy the arrays and check them."""
        for name, dtype in (("rows", np.int64), ("columns", np.int64), ("blocks", np.float64)):
            given = np.asarray(getattr(self, name))
            if dtype is np.int64 and given.dtype.kind not in "iu" and given.size:
                raise TypeError(f"{name} has dtype {given.dtype}; expected integers")
            if given.dtype.kind == "c":
                raise TypeError(f"{name} has dtype {given.dtype}; expected real numbers")
            array = np.array(given, dtype=dtype, order="C")
            array.setflags(write=False)
            object.__setattr__(self, name, array)
        if self.cells < 1 or self.cells & (self.cells - 1):
            raise ValueError(f"cells is {self.cells}; expected a power of two, 2^level")
        if self.cells > _MAX_CELLS:
            raise ValueError(f"cells is {self.cells}; expected at most 2^31")
        count = self.rows.size
        for name, shape in (
            ("rows", (count,)),
            ("columns", (count,)),
            ("blocks", (count, self.n, self.n)),
        ):
            if getattr(self, name).shape != shape:
                raise ValueError(
                    f"{name} has shape {getattr(self, name).shape}; expected {shape} for "
                    f"{count} rows and n = {self.n}"
                )
        for name in ("rows", "columns"):
            ids = getattr(self, name)
            wrong = np.flatnonzero((ids < 0) | (ids >= self.cells))
            if wrong.size:
                raise IndexError(
                    f"{name}[{wrong[0]}] is {ids[wrong[0]]}; expected 0 … {self.cells - 1}"
                )
        wrong = np.flatnonzero(np.diff(self._keys) <= 0)
        if wrong.size:
            raise ValueError(
                f"rows and columns are not sorted and distinct at entry {wrong[0] + 1}; "
                "sort the blocks by (row, column) and add up those of the same pair"
            )
        wrong = np.flatnonzero(~np.isfinite(self.blocks).all(axis=(1, 2)))
        if wrong.size:
            raise ValueError(
                f"blocks[{wrong[0]}] holds a value that is not finite; expected numbers, none "
                "that are NaN or infinite"
            )

    def __repr__(self) -> str:
        size = f"{self.n}×{self.n}"
        return f"<ModeOperator: {self.rows.size} blocks {size} of {self.cells} cells>"

    @property
    def level(self) -> int:
        """Finest level, log2(cells)."""
        return self.cells.bit_length() - 1

    @property
    def degree(self) -> int:
        """Polynomial degree, n - 1."""
        return self.n - 1

    @property
    def size(self) -> int:
        """Number of rows and of columns, cells * n."""
        return self.cells * self.n

    @property
    def is_identity(self) -> bool:
        """Whether the operator is the identity, exactly."""
        return (
            self.rows.size == self.cells
            and np.array_equal(self.rows, self.columns)
            and bool((self.blocks == np.eye(self.n)).all())
        )

    @cached_property
    def _keys(self) -> NDArray[np.int64]:
        return self.rows * self.cells + self.columns

    @cached_property
    def _table(self) -> NDArray[np.int32]:
        table = np.full(self.cells * self.cells, -1, dtype=np.int32)
        table[self._keys] = np.arange(self._keys.size)
        return table

    def find(self, rows: NDArray[np.int64], columns: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return indices of the blocks of pairs of cells, -1 where the operator has none.

        Parameters
        ----------
        rows, columns : int64 (...)
            1-D cell indices, each in 0 … cells - 1.

        Returns
        -------
        int64 (...)
            Indices into `blocks`.
        """
        keys = rows * np.int64(self.cells) + columns
        if self.cells <= _MAX_TABLE_CELLS:
            return np.asarray(self._table[keys], dtype=np.int64)
        if not self._keys.size:
            return np.full(keys.shape, -1, dtype=np.int64)
        places = np.minimum(np.searchsorted(self._keys, keys), self._keys.size - 1)
        return np.where(self._keys[places] == keys, places, -1).astype(np.int64)

    def row_range(
        self, rows: NDArray[np.int64], last_columns: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Ranges of the blocks of given rows, up to a last column in each.

        Parameters
        ----------
        rows, last_columns : int64 (m,)
            1-D cell indices, each in 0 … cells - 1.

        Returns
        -------
        first, stop : int64 (m,)
            Blocks first … stop - 1 are those of the row with columns 0 … last_column.
        """
        return row_range(self._keys, self.cells, rows, last_columns)

    def transpose(self) -> "ModeOperator":
        """Return the transpose A^T.

        Returns
        -------
        ModeOperator
            A new operator.
        """
        order = np.lexsort((self.rows, self.columns))
        return ModeOperator(
            self.cells,
            self.n,
            self.columns[order],
            self.rows[order],
            self.blocks[order].transpose(0, 2, 1),
        )

    def multiply(self, vector: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the product A c with one vector of one-dimensional coefficients.

        Parameters
        ----------
        vector : float64 (cells * n,)
            Hierarchical coefficients c.

        Returns
        -------
        float64 (cells * n,)
            A fresh array.
        """
        inputs = vector.reshape(self.cells, self.n)[self.columns]
        result = np.zeros((self.cells, self.n))
        np.add.at(result, self.rows, np.einsum("bij,bj->bi", self.blocks, inputs))
        return result.ravel()

    def to_dense(self) -> NDArray[np.float64]:
        """Return the operator as a dense matrix.

        Returns
        -------
        float64 (cells * n, cells * n)
            A fresh array.
        """
        dense = np.zeros((self.cells, self.n, self.cells, self.n))
        dense[self.rows, :, self.columns, :] = self.blocks
        return dense.reshape(self.size, self.size)

    @classmethod
    def identity(cls, cells: int, n: int) -> "ModeOperator":
        """Return the identity operator.

        Parameters
        ----------
        cells, n : int
            Number of cells, a power of two, and number of functions per cell.

        Returns
        -------
        ModeOperator
            It has one block per cell.
        """
        diagonal = np.arange(cells, dtype=np.int64)
        return cls(cells, n, diagonal, diagonal, np.broadcast_to(np.eye(n), (cells, n, n)))

    @classmethod
    def from_dense(
        cls, matrix: NDArray[np.float64], n: int, *, tolerance: float = 0.0
    ) -> "ModeOperator":
        """Return the operator of a dense matrix.

        Parameters
        ----------
        matrix : float64 (cells * n, cells * n)
            The matrix in the hierarchical basis.
        n : int
            Functions per cell.
        tolerance : float
            A block is dropped if none of its entries exceeds ``tolerance * max|matrix|``.

        Returns
        -------
        ModeOperator
            Without zero blocks.

        Raises
        ------
        ValueError
            If the matrix is not square, its size is not a multiple of n, or an entry is not finite.
        """
        array = np.asarray(matrix)
        if array.dtype.kind != "c":  # which is refused below
            array = array.astype(np.float64, copy=False)
        if array.ndim != 2 or array.shape[0] != array.shape[1] or array.shape[0] % n:
            raise ValueError(
                f"matrix has shape {array.shape}; expected (cells * {n}, cells * {n}) for n = {n}"
            )
        cells = array.shape[0] // n
        blocks = array.reshape(cells, n, cells, n).transpose(0, 2, 1, 3)
        largest = _largest(blocks)
        rows, columns = np.nonzero(largest > tolerance * largest.max(initial=0.0))
        return cls(cells, n, rows, columns, blocks[rows, columns])

    @classmethod
    def from_nodal(
        cls, matrix: "csr_array[Any, Any]", degree: int, *, tolerance: float | None = None
    ) -> "ModeOperator":
        """Return the operator W A W^T of a sparse matrix A in the nodal basis.

        W is the change to the hierarchical basis, see `sparse_transform`.

        Parameters
        ----------
        matrix : scipy.sparse array, float64 (cells * n, cells * n)
            A, in the nodal (Legendre) basis of the finest cells.
        degree : int
            Polynomial degree, n - 1.
        tolerance : float, optional
            A block is dropped if none of its entries exceeds ``tolerance * max|W A W^T|``. The
            default is 16 ε n, with ε = 2^-52: about what rounding leaves of a zero.

        Returns
        -------
        ModeOperator
            Pairs of cells that A cannot couple are never stored. If A has a volume term only, these
            are pairs whose supports do not overlap; with flux terms, pairs whose supports neither
            overlap nor touch. Each further flux operator of a chain reaches one finest cell
            further.

        Raises
        ------
        ValueError
            If the matrix is not square, its size is not 2^level (degree + 1), or an entry is not
            finite.
        """
        n = check_degree(degree) + 1
        cells = matrix.shape[0] // n
        if matrix.shape != (cells * n, cells * n) or cells < 1 or cells & (cells - 1):
            raise ValueError(
                f"matrix has shape {matrix.shape}; expected 2^level * {n} rows and columns for "
                f"degree {degree}"
            )
        transform = sparse_transform(cells.bit_length() - 1, degree)
        shares = np.linspace(0, transform.nnz, _PORTIONS + 1)[1:-1]
        cuts = np.unique(np.searchsorted(transform.indptr[n:-1:n], shares) + 1)
        bounds = [0, *cuts[cuts < cells], cells]
        back = csr_array(transform.T)
        portions = (transform[a * n : b * n] @ matrix @ back for a, b in pairwise(bounds))
        return cls._from_portions(portions, n, tolerance)

    @classmethod
    def from_sparse(
        cls, matrix: "csr_array[Any, Any]", n: int, *, tolerance: float | None = None
    ) -> "ModeOperator":
        """Return the operator of a sparse matrix.

        Parameters
        ----------
        matrix : scipy.sparse array, float64 (cells * n, cells * n)
            The matrix in the hierarchical basis.
        n : int
            Functions per cell.
        tolerance : float, optional
            A block is dropped if none of its entries exceeds ``tolerance * max|matrix|``; by
            default 16 ε n.

        Returns
        -------
        ModeOperator
        """
        return cls._from_portions([matrix], n, tolerance)

    @classmethod
    def _from_portions(
        cls, portions: Iterable["csr_array[Any, Any]"], n: int, tolerance: float | None
    ) -> "ModeOperator":
        """Return the operator of a matrix whose rows are given in portions.

        A block that is small compared with the largest entry so far is also small compared with the
        largest of all, so that it is dropped at once. This saves memory.
        """
        relative = DROP_TOLERANCE * n if tolerance is None else tolerance
        cells, maximum, found = 0, 0.0, []
        for portion in portions:
            blocks = portion.tobsr((n, n))
            blocks.sort_indices()
            rows = cells + np.repeat(np.arange(blocks.indptr.size - 1), np.diff(blocks.indptr))
            cells += blocks.indptr.size - 1
            largest = _largest(blocks.data)
            maximum = max(maximum, largest.max(initial=0.0))
            kept = largest > relative * maximum
            found.append((rows[kept], blocks.indices[kept], blocks.data[kept], largest[kept]))
        rows, columns, data, largest = map(np.concatenate, zip(*found, strict=True))
        found.clear()
        kept = largest > relative * maximum
        return cls(cells, n, rows[kept], columns[kept], data if kept.all() else data[kept])


def _largest(blocks: NDArray[np.float64]) -> NDArray[np.float64]:
    """Largest magnitude in each of the blocks (..., n, n); refuse NaN, which comparisons miss."""
    largest = np.asarray(np.abs(blocks).max(axis=(-2, -1), initial=0.0))
    if not np.isfinite(largest).all():
        raise ValueError(
            "the matrix of a 1-D operator has entries that are NaN or infinite; expected finite "
            "ones. A coefficient divided by a power of the cells' width is beyond the range of "
            "float64: take other units, or a lower level"
        )
    return largest


@lru_cache(maxsize=8)
def sparse_transform(level: int, degree: int) -> "csr_array[Any, Any]":
    """Return the orthogonal matrix W of `multiwavelets.to_hierarchical`, sparse.

    Rows belong to hierarchical functions, columns to nodal ones. It is cached and must not be
    changed.
    """
    two_scale = filters(degree)
    scaling = np.hstack((two_scale.H0, two_scale.H1))
    wavelets = np.hstack((two_scale.G0, two_scale.G1))
    transform = csr_array(np.eye(degree + 1))
    for finer in range(1, level + 1):
        halves = eye_array(1 << (finer - 1))
        coarse = transform @ kron(halves, scaling, format="csr")
        transform = vstack((coarse, kron(halves, wavelets, format="csr")), format="csr")
    return csr_array(transform)


def connected(level: int, kind: str) -> NDArray[np.bool_]:
    """Whether each pair of hierarchical cells can be coupled by a one-dimensional operator.

    ``level``: finest level.
    ``kind`` ({"volume", "full"}): "volume": the supports overlap; "full": they overlap or touch,
      also across the periodic boundary, as numerical fluxes need.

    Returns bool (2^level, 2^level): symmetric. The cells of levels 0 and 1 are connected to all
    cells. Raises `ValueError` if the kind is unknown.

    Examples
    --------
    >>> connected(2, "volume").astype(int)
    array([[1, 1, 1, 1],
           [1, 1, 1, 1],
           [1, 1, 1, 0],
           [1, 1, 0, 1]])
    """
    if kind not in ("volume", "full"):
        raise ValueError(f"kind is {kind!r}; expected 'volume' or 'full'")
    count = 1 << check_level(level)
    cells = np.arange(count)
    cell_level = np.frexp(cells)[1]
    width = count >> np.maximum(cell_level - 1, 0)
    start = (cells - (1 << np.maximum(cell_level - 1, 0)) * (cell_level > 0)) * width
    stop = start + width
    reach = int(kind == "full")
    table = (start[:, None] < stop + reach) & (start < stop[:, None] + reach)
    if kind == "full":
        at_start, at_stop = start == 0, stop == count
        table |= (at_start[:, None] & at_stop) | (at_stop[:, None] & at_start)
    return np.asarray(table)
