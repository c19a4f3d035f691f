"""Dense inverses on full grids, those of one size in one batch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import copy
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from batchkron.operators import on_device

from .local_matrices import LocalMatrices

if TYPE_CHECKING:
    from .grids import Piece

__all__ = ["DenseInverses"]

Vector = NDArray[Any]


class DenseInverses:
    """Σ_l c_l P_l B_l⁻¹ P_l* for pieces with dense inverses, in the hierarchical basis."""

    def __init__(
        self, local: LocalMatrices, pieces: Sequence[Piece], dtype: Any, terms: Any, device: str
    ) -> None:
        self._local, self._kind, self._device = local, np.result_type(dtype, terms), device
        inner = np.arange(math.prod(local.sizes))
        groups: dict[int, list[Piece]] = {}
        for piece in pieces:
            groups.setdefault(len(piece.blocks), []).append(piece)
        self._groups = list(groups.values())
        placed = (
            np.stack([p.blocks for p in own])[:, :, None] * len(inner) for own in self._groups
        )
        self._places = [
            on_device((blocks + inner).reshape(len(blocks), -1), device) for blocks in placed
        ]
        self._inverses: list[Vector] = []

    @property
    def numbers(self) -> int:
        """Numbers that are stored: of the inverses."""
        return sum(int(inverses.size) for inverses in self._inverses)

    def factorised(self, c: Any) -> DenseInverses:
        """Return the inverses for B = I - c · A, or for B = A if c is None."""
        other = copy(self)
        other._inverses = []
        for own in self._groups:
            A = np.stack([self._local.matrix(p.levels, p.cells, False).toarray() for p in own])
            inverses = _inverted(A if c is None else np.eye(A.shape[1]) - c * A)
            inverses *= np.array([p.coefficient for p in own])[:, None, None]
            other._inverses.append(on_device(inverses.astype(self._kind), self._device))
        return other

    def add(self, x: Vector, target: Vector) -> None:
        """Add the product with x to ``target``."""
        for places, inverses in zip(self._places, self._inverses, strict=True):
            solved = (inverses @ x.take(places)[:, :, None])[:, :, 0]
            for own, part in zip(places, solved, strict=True):
                target[own] += part  # distinct within a grid


def _inverted(B: Vector) -> Vector:
    """Return the inverses of matrices, (count, n, n); pseudoinverses if one is singular."""
    try:
        found: Vector = np.linalg.inv(B)
    except np.linalg.LinAlgError:
        return np.linalg.pinv(B)
    return found
