"""Vectors on a grid that depend on time: Σ_g f_g(t) v_g, one vector per function of time."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from batchkron.functions.vector_sum import linear_combination
from batchkron.operators import on_device

from ..discretization.parts import SeparableVector
from ..grids.degrees import of_each_axis
from ..grids.sparse_grid import SparseGrid
from ..statement.time_functions import TimeFunction, split_number

__all__ = ["TimeCombination", "kron_on_grid"]


def kron_on_grid(
    factors: Sequence[NDArray[np.float64]], grid: SparseGrid, n: int | Sequence[int]
) -> NDArray[np.float64]:
    """Restrict the Kronecker product of 1-D coefficients (cells_k * n_k,) to the blocks of a grid.

    In the result (num_cells * Π n_k,) the index of the block is the slowest; within a block that of
    the last axis is the fastest.
    """
    blocks = np.ones((grid.num_cells, 1))
    sizes = of_each_axis(n, grid.dimensions)
    for k, (factor, size) in enumerate(zip(factors, sizes, strict=True)):
        values = np.asarray(factor).reshape(-1, size)[grid.cells[:, k]]
        blocks = (blocks[:, :, None] * values[:, None, :]).reshape(grid.num_cells, -1)
    return np.ascontiguousarray(blocks.ravel())


class TimeCombination:
    """The vector Σ_g f_g(t) v_g of distinct functions of time f_g and fixed vectors v_g.

    Parameters
    ----------
    parts : sequence of SeparableVector
        Separable functions. Those whose functions of time differ by a constant factor only are
        added up when the combination is built.
    grid : SparseGrid
        The grid that they are restricted to.
    n : int or sequence of int
        Coefficients per cell, degree + 1, for all axes or for each.
    device : {"cpu", "cuda"}
        Where the vectors are.
    vectors : sequence of (TimeFunction, ndarray of float64 of shape (N,))
        More functions of time and vectors.

    Attributes
    ----------
    size : int
        Length of the vector.
    parts : tuple of (TimeFunction, ndarray)
        The functions of time and their vectors.
    """

    def __init__(
        self,
        parts: Sequence[SeparableVector],
        grid: SparseGrid,
        n: int | Sequence[int],
        device: str = "cpu",
        vectors: Sequence[tuple[TimeFunction, NDArray[np.float64]]] = (),
    ) -> None:
        collected: dict[TimeFunction, NDArray[np.float64]] = {}
        given = [(part.time, kron_on_grid(part.factors, grid, n)) for part in parts]
        for time, vector in (*given, *vectors):
            number, function = split_number(time)
            vector = number * vector
            if function in collected:
                collected[function] += vector
            else:
                collected[function] = vector
        self.parts = tuple(
            (function, on_device(vector, device)) for function, vector in collected.items()
        )
        self.size = grid.num_cells * math.prod(of_each_axis(n, grid.dimensions))

    def evaluate(self, t: float, out: NDArray[np.float64]) -> NDArray[np.float64]:
        """Overwrite `out` with Σ_g f_g(t) v_g, and return it.

        Allocates nothing after a thread's first call.
        """
        if not self.parts:
            out[...] = 0.0
            return out
        return linear_combination(
            [function(t) for function, _ in self.parts],
            [vector for _, vector in self.parts],
            out,
        )
