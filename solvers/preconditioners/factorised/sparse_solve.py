"""Sparse LU decompositions of the matrices on full grids, all of them as one matrix."""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import block_diag, csc_matrix, diags_array, eye_array
from scipy.sparse.linalg import SuperLU, splu

from .local_matrices import LocalMatrices
from .nodal_sweeps import NodalSweeps
from .pieces import Piece

__all__ = ["SparseSolve"]

Vector = NDArray[Any]
_MAX_RESIDUAL = 1e-6  # of a solve without pivoting, relative; beyond, pivots are chosen
_SINGULAR = 1e-8  # multiple of the largest entry that is added to the diagonal of singular matrices


class SparseSolve:
    """Σ_l c_l P_l B_l⁻¹ P_l* for pieces that are solved by sparse factors, on the CPU.

    The factors of all pieces are one sparse LU decomposition of the block diagonal matrix with
    B_l / c_l: one call solves all. SuperLU orders by minimum degree and takes diagonal pivots, in
    float64 or complex128.
    """

    def __init__(
        self, local: LocalMatrices, pieces: Sequence[Piece], dtype: Any, terms: Any
    ) -> None:
        self._local = local
        ordered = sorted(pieces, key=lambda piece: piece.way != "nodal")
        self._nodal = [piece for piece in ordered if piece.way == "nodal"]
        self._kind = np.result_type(np.float64, dtype, terms)
        self._block = math.prod(local.sizes)
        self._num_cells = 1 + max(int(piece.blocks.max()) for piece in ordered)
        self._pieces = ordered
        self._lu: SuperLU | None = None
        self._sweeps = self._made_sweeps() if self._nodal else None
        inner = np.arange(self._block)
        others = [piece for piece in ordered if piece.way != "nodal"]
        self._places = [(p.blocks[:, None] * self._block + inner).ravel() for p in others]

    def _made_sweeps(self) -> NodalSweeps:
        local = self._local
        cells = [piece.blocks.reshape(local.widths(piece.levels)) for piece in self._nodal]
        levels = [piece.levels for piece in self._nodal]
        return NodalSweeps(cells, levels, local.sizes, local.filters, self._num_cells, self._kind)

    @property
    def numbers(self) -> int:
        """Numbers that are stored: of the factors."""
        return 0 if self._lu is None else int(self._lu.nnz)

    def factorised(self, c: Any) -> SparseSolve:
        """Return the inverses for B = I - c · A, or for B = A if c is None."""
        parts = []
        for piece in self._pieces:
            A = self._local.matrix(piece.levels, piece.cells, piece.way == "nodal")
            B = A if c is None else eye_array(A.shape[0]) - c * A
            parts.append(B / piece.coefficient)
        other = copy(self)
        other._lu = _factors(csc_matrix(block_diag(parts, format="csc"), dtype=self._kind))
        return other

    def add(self, x: Vector, target: Vector) -> None:
        """Add the product with x to ``target``."""
        assert self._lu is not None
        used = self._num_cells * self._block
        source = x[:used].astype(self._kind, copy=False)
        parts = [] if self._sweeps is None else [self._sweeps.to_nodal(source)]
        parts += [source.take(places) for places in self._places]
        solved = self._lu.solve(parts[0] if len(parts) == 1 else np.concatenate(parts))
        sums = target[:used]
        same = sums.dtype == self._kind and sums.flags.c_contiguous
        total = sums if same else np.zeros(used, self._kind)
        start = 0
        if self._sweeps is not None:
            start = parts[0].size
            self._sweeps.add_hierarchical(solved[:start], total)
        for places in self._places:
            total[places] += solved[start : start + places.size]
            start += places.size
        if not same:
            sums += total if sums.dtype.kind == "c" else total.real


def _factors(B: csc_matrix) -> SuperLU:
    """Return LU factors with diagonal pivots if these do, else with chosen ones."""
    v = np.random.default_rng(0).standard_normal(B.shape[0]).astype(B.dtype)
    symmetric = {"permc_spec": "MMD_AT_PLUS_A", "diag_pivot_thresh": 0.0}
    attempts: list[tuple[Any, dict[str, Any]]] = [
        (B, symmetric | {"options": {"SymmetricMode": True}}),
        (B, {}),
        (B + _shift(B), {}),
    ]
    for matrix, options in attempts:
        try:
            lu = splu(matrix, **options)
        except RuntimeError:  # a zero pivot
            continue
        x = lu.solve(v)
        if np.linalg.norm(v - matrix @ x) <= _MAX_RESIDUAL * np.linalg.norm(v):
            return lu
    return lu


def _shift(B: csc_matrix) -> csc_matrix:
    """Return a small diagonal matrix by which a singular matrix becomes regular."""
    diagonal = B.diagonal()
    sign = np.where(diagonal.real < 0, -1.0, 1.0)
    return csc_matrix(diags_array(_SINGULAR * float(abs(B).max()) * sign))
