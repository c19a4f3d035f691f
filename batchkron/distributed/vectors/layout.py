"""Who owns what of vectors that are spread over ranks."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from batchkron.distributed.vectors.partition import even_bounds
from batchkron.spec.kron import Array

__all__ = ["Layout"]


@dataclass(frozen=True)
class Layout:
    """Vectors (rows, N) in blocks on a grid of ranks, rows by its first axis, N by its second.

    Rank r is at (r // grid[1], r % grid[1]). Its block has some of the rows, and the elements of
    these that `columns` lists, in this order.

    Parameters
    ----------
    grid : tuple of int, (G_M, G_K)
    rows : int
        The number of vectors.
    bounds : tuple of int, (G_K + 1,)
        Rank (g, k) owns the elements s L + l with bounds[k] ≤ l < bounds[k + 1], for all s < S,
        where L = bounds[G_K].
    moved : int
        S: 1 for parts of consecutive elements; more where the last exchange is left out.
    """

    grid: tuple[int, int]
    rows: int
    bounds: tuple[int, ...]
    moved: int = 1

    def agrees_with(self, other: Layout) -> bool:
        """Whether each rank owns the same elements of a vector, in the same order."""
        rows = self.rows == other.rows or self.grid[0] == 1
        mine, theirs = (self.grid, self.bounds, self.moved), (other.grid, other.bounds, other.moved)
        return rows and mine == theirs

    @property
    def size(self) -> int:
        """N, the elements of a vector."""
        return self.moved * self.bounds[-1]

    @property
    def row_bounds(self) -> tuple[int, ...]:
        """Where the blocks of rows begin and end, (G_M + 1,)."""
        return even_bounds(self.rows, self.grid[0])

    def place(self, rank: int) -> tuple[int, int]:
        """Return where a rank is in the grid."""
        return divmod(rank, self.grid[1])

    def rows_of(self, rank: int) -> slice:
        """Return the rows of a rank's block."""
        g, _ = self.place(rank)
        return slice(self.row_bounds[g], self.row_bounds[g + 1])

    def part(self, rank: int) -> int:
        """Return how many elements of a vector a rank owns."""
        _, k = self.place(rank)
        return self.moved * (self.bounds[k + 1] - self.bounds[k])

    def columns(self, rank: int) -> Array:
        """Return the indices of the elements that a rank owns, in the order of its block."""
        _, k = self.place(rank)
        first = np.arange(self.bounds[k], self.bounds[k + 1])
        return (first[:, None] + np.arange(self.moved) * self.bounds[-1]).reshape(-1)

    def block_of(self, x: Array, rank: int) -> Array:
        """Return a rank's block of whole vectors, a copy.

        Parameters
        ----------
        x : ndarray, (N,), (rows, N), or (..., N) if the grid has one row
        rank : int

        Returns
        -------
        ndarray, (part,), (rows of the rank, part) or (..., part)

        Raises
        ------
        ValueError
            If the shape does not fit.
        """
        self.check_whole(x.shape)
        return self._view(x, rank).copy().reshape(self.block_shape(x.shape, rank))

    def put_block(self, block: Array, x: Array, rank: int) -> None:
        """Write a rank's block to its places in whole vectors."""
        view = self._view(x, rank)
        view[...] = block.reshape(view.shape)

    def block_shape(self, shape: tuple[int, ...], rank: int) -> tuple[int, ...]:
        """Return the shape of a rank's block of whole vectors of a shape."""
        rows = self.rows_of(rank)
        leading = shape[:-1] if self.grid[0] == 1 else (rows.stop - rows.start,)
        return (*leading, self.part(rank))

    def check_whole(self, shape: tuple[int, ...]) -> None:
        """Raise ValueError if whole vectors cannot have this shape."""
        if self.grid[0] == 1:
            expected, fits = f"(..., {self.size})", shape[-1:] == (self.size,)
        else:
            expected, fits = f"({self.rows}, {self.size})", shape == (self.rows, self.size)
        if not fits:
            raise ValueError(f"x has shape {shape}; expected {expected}, the whole vectors")

    def _view(self, x: Array, rank: int) -> Array:
        """Return a rank's elements of whole vectors, (vectors, l, s), without a copy."""
        _, k = self.place(rank)
        vectors = math.prod(x.shape[:-1])
        whole = x.reshape(vectors, self.moved, self.bounds[-1]).transpose(0, 2, 1)
        rows = slice(None) if self.grid[0] == 1 else self.rows_of(rank)
        return whole[rows, self.bounds[k] : self.bounds[k + 1]]

    def describe(self) -> str:
        """Return a text with the rows and elements of each rank."""
        lines = []
        for rank in range(self.grid[0] * self.grid[1]):
            rows, (_, k) = self.rows_of(rank), self.place(rank)
            every = "" if self.moved == 1 else f" and every {self.bounds[-1]}th after them"
            lines.append(
                f"rank {rank}: rows {rows.start} to {rows.stop}, "
                f"elements {self.bounds[k]} to {self.bounds[k + 1]}{every}"
            )
        return "\n".join(lines)
