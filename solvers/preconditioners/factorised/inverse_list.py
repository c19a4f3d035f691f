"""Dense inverses on full grids, added up in one list of products of blocks, on a device."""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import copy
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from batchkron.arrays import to_host
from batchkron.operators import BatchedKron, on_device

from .dense_inverses import inverted
from .local_matrices import LocalMatrices
from .pieces import Piece

__all__ = ["InverseList"]

Vector = NDArray[Any]


class InverseList:
    """Σ_l c_l P_l B_l⁻¹ P_l* as a batch list: one matrix for each pair of cells of a full grid.

    What several full grids have for a pair is added before, so that a product is one launch, which
    reads each of these matrices once, and may be captured in a CUDA graph. Inverses for another
    scale are written into the same memory, for graphs that read it.

    Parameters
    ----------
    local : LocalMatrices
    pieces : sequence of Piece
        All with dense inverses.
    dtype : dtype
        Of vectors and matrices.
    device : str
    """

    def __init__(
        self, local: LocalMatrices, pieces: Sequence[Piece], dtype: Any, device: str
    ) -> None:
        self._local, self._kind, self._device = local, np.dtype(dtype), device
        self._size = math.prod(local.sizes)
        self._pieces = list(pieces)
        self._num_blocks = 1 + max(int(piece.blocks.max()) for piece in pieces)
        keys = [piece.blocks[:, None] * self._num_blocks + piece.blocks for piece in pieces]
        known = np.concatenate([key.ravel() for key in keys])
        self._pairs, places = np.unique(known, return_inverse=True)
        ends = np.cumsum([key.size for key in keys])[:-1]
        self._places = np.split(places.ravel(), ends)
        self._list: BatchedKron | None = None

    @property
    def numbers(self) -> int:
        """Numbers that are stored."""
        return 0 if self._list is None else len(self._pairs) * self._size**2

    @property
    def capturable(self) -> bool:
        """Whether products may be captured in CUDA graphs."""
        return self._list is not None and self._list.capturable

    def factorised(self, c: Any) -> InverseList:
        """Return the inverses for B = I - c · A, or for B = A if c is None."""
        other = copy(self)
        outputs, inputs = np.divmod(self._pairs, self._num_blocks)
        made = BatchedKron(
            [self._matrices(c)],
            np.arange(len(self._pairs))[:, None],
            inputs,
            outputs,
            num_inputs=self._num_blocks,
            num_outputs=self._num_blocks,
            skip_identities=False,
        )
        other._list = cast(BatchedKron, made.to(self._device))
        return other

    def refactorise(self, c: Any) -> None:
        """Take the inverses for another c, in place."""
        assert self._list is not None
        self._list.update([self._matrices(c)])

    def _matrices(self, c: Any) -> Vector:
        """Return the matrix of each pair, on the host."""
        size = self._size
        pool = np.zeros((len(self._pairs), size, size), self._kind)
        for piece, places in zip(self._pieces, self._places, strict=True):
            A = self._local.matrix(piece.levels, piece.cells, False).toarray()
            B = A if c is None else np.eye(len(A)) - c * A
            inverse = to_host(inverted(on_device(B[None], self._device))[0], "inverse")
            cells = len(piece.blocks)
            blocks = inverse.reshape(cells, size, cells, size).transpose(0, 2, 1, 3)
            pool[places] += piece.coefficient * blocks.reshape(-1, size, size)
        return pool

    def add(self, x: Vector, target: Vector) -> None:
        """Add the product with x to ``target``."""
        assert self._list is not None
        used = self._num_blocks * self._size
        self._list.accumulate(x[:used], target[:used])
