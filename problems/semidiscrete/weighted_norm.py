"""Coordinates in which the norm with volume elements is the Euclidean one.

Let M_k be the mass matrix of axis k, so that ‖u‖² = ∫ u² dV = cᵀ (M_1 ⊗ … ⊗ M_d) c for the
hierarchical coefficients c of u. The Gram-Schmidt process, applied from coarse to fine levels,
turns the hierarchical basis functions of an axis into functions that are orthonormal in this norm.
Each of them is zero outside the cell of the basis function that it is made from, and combines that
one only with functions of the cell's ancestors. T_k maps hierarchical coefficients to coordinates
in the orthonormal functions: T_kᵀ T_k = M_k, and a coordinate depends only on the coefficients of
its cell and of the cell's descendants. So T = T_1 ⊗ … ⊗ T_d maps the functions on a downward closed
grid to coordinates on the same grid. What holds in orthonormal bases, in particular the formula of
the error (`exact.error`), holds for T c.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, vstack

from ..discretization.basis.multiwavelets import filters
from ..discretization.matrices.dg_matrices import NodalMatrix, block_diagonal
from ..discretization.matrices.mode_operator import ModeOperator, sparse_transform
from ..discretization.parts import Masses, OperatorTerm, SeparableVector
from ..grids.degrees import Degree, sizes_of_degrees
from ..grids.sparse_grid import SparseGrid
from ..statement.time import constant
from .operators import group_terms

__all__ = ["OrthonormalCoordinates", "orthonormal_transform"]


def orthonormal_transform(blocks: NDArray[np.float64]) -> ModeOperator:
    """Return T with Tᵀ T = M, the map from hierarchical to orthonormal coordinates of one axis.

    M is given by its nodal blocks (2^level, n, n), ∫ φ_i φ_j dV on every finest cell, which are
    positive definite. The blocks of T couple each cell to itself and to its ancestors.

    Notes
    -----
    On a cell whose nodal functions have the Gram matrix RᵀR, R c are orthonormal coordinates. The
    coordinates of the two halves of a cell, in terms of the nodal functions and multiwavelets of
    the whole cell, are diag(R_left, R_right) [Hᵀ Gᵀ] = Q [[R, C], [0, S]], with the two-scale
    filters H and G and a QR factorization. The columns of Q are orthonormal functions of the whole
    cell and orthonormal multiwavelets, and R is used on the next coarser level.

    Examples
    --------
    >>> orthonormal_transform(np.array([[[4.0]], [[4.0]]])).to_dense()
    array([[2., 0.],
           [0., 2.]])
    """
    cells, n, _ = blocks.shape
    two_scale = filters(n - 1)
    halves = (
        np.hstack((two_scale.H0.T, two_scale.G0.T)),
        np.hstack((two_scale.H1.T, two_scale.G1.T)),
    )
    R = np.asarray(np.linalg.cholesky(blocks).transpose(0, 2, 1), dtype=np.float64)
    scaling = block_diagonal(R)
    wavelets: list[NodalMatrix] = []
    while len(R) > 1:
        pairs = np.concatenate((R[0::2] @ halves[0], R[1::2] @ halves[1]), axis=1)
        Q, upper = np.linalg.qr(pairs)
        signs = np.where(np.diagonal(upper, axis1=1, axis2=2) < 0.0, -1.0, 1.0)
        finer = block_diagonal((Q * signs[:, None, :]).transpose(0, 2, 1)) @ scaling
        part = np.arange(finer.shape[0]) // n % 2
        scaling = finer[part == 0]
        wavelets.insert(0, finer[part == 1])
        R = (upper * signs[:, :, None])[:, :n, :n]
    level = cells.bit_length() - 1
    stacked = csr_array(vstack((scaling, *wavelets), format="csr"))
    return ModeOperator.from_sparse(stacked @ sparse_transform(level, n - 1).T, n)


class OrthonormalCoordinates:
    """The map T = T_1 ⊗ … ⊗ T_d on a grid, or on its smallest downward closed extension.

    Parameters
    ----------
    masses : sequence of (float64 (2^level_k, n, n) or None)
        Mass blocks of each axis; None if dV_k = 1.
    grid : SparseGrid
        The grid of the states.
    degree : int or tuple of int
        Polynomial degree, n_k - 1, of all axes or of each.

    Attributes
    ----------
    grid : SparseGrid
        The downward closed grid of the coordinates.
    """

    def __init__(self, masses: Masses, grid: SparseGrid, degree: Degree) -> None:
        self.grid = grid.closed()
        self._places = self.grid.find(grid.cells)
        self._shape = (self.grid.num_cells, math.prod(sizes_of_degrees(degree, grid.dimensions)))
        self._modes = tuple(
            None if mass is None else orthonormal_transform(mass) for mass in masses
        )
        term = OperatorTerm(self._modes, constant())
        self._transform = group_terms([term], self.grid, degree)[0].operator

    def of_state(self, u: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return T u for a state on the grid: its coordinates on `grid`."""
        blocks = np.zeros(self._shape)
        blocks[self._places] = u.reshape(len(self._places), -1)
        return np.asarray(self._transform.apply(blocks)).ravel()

    def of_vector(self, vector: SeparableVector) -> SeparableVector:
        """Return T_1 c_1 ⊗ … ⊗ T_d c_d for a separable vector."""
        factors = tuple(
            factor if mode is None else mode.multiply(factor)
            for mode, factor in zip(self._modes, vector.factors, strict=True)
        )
        return SeparableVector(factors, vector.time)
